//! The sizes of all that an embedder allocates, as docs/embedding.md states them.

use std::mem::{align_of, size_of};
use std::path::Path;

use quire::arch::X86_64;
use quire::cache::File;
use quire::phys::{CpuCache, Slot, Zone};
use quire::space::Space;
use quire::stats::Counters;
use quire::swap::Swap;
use quire::{Group, Mm, Parts};
use quire_machine::Machine;

type Manager = Mm<'static, X86_64, Machine<'static>>;

/// Bytes that the plans of failures add to an `Mm`, in a build for tests.
const INJECT_BYTES: usize = if cfg!(feature = "inject") { 8 } else { 0 };

/// The rows of the guide's table: bytes and alignment, with all features but `inject`.
const ROWS: [(&str, usize, usize); 10] = [
    ("Mm", size_of::<Manager>() - INJECT_BYTES, align_of::<Manager>()),
    ("Parts", size_of::<Parts<'_>>(), align_of::<Parts<'_>>()),
    ("Slot", size_of::<Slot>(), align_of::<Slot>()),
    ("CpuCache", size_of::<CpuCache>(), align_of::<CpuCache>()),
    ("Counters", size_of::<Counters>(), align_of::<Counters>()),
    ("Space", size_of::<Space<X86_64>>(), align_of::<Space<X86_64>>()),
    ("File", size_of::<File>(), align_of::<File>()),
    ("Swap", size_of::<Swap>(), align_of::<Swap>()),
    ("Zone", size_of::<Zone>(), align_of::<Zone>()),
    ("Group", size_of::<Group>(), align_of::<Group>()),
];

#[test]
fn e1_the_guide_states_the_size_of_all_that_an_embedder_allocates() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/embedding.md");
    let guide = std::fs::read_to_string(&guide).expect("the guide is in the workspace");
    for (name, bytes, align) in ROWS {
        let row = format!("| `{name}` | {bytes} | {align} |");
        assert!(guide.contains(&row), "the guide has no row {row}");
    }
}
