//! The tags of programs' address spaces (PCIDs, ASIDs): given by the library's allocator, in
//! generations. The kernel has tag 0.
//!
//! The boot word `tags=N` pretends that the CPUs have no more than N, so that rollovers come all
//! the time, or none at all.

use quire::tags::Asids;

use crate::isa::{self, MAX_CPUS};

pub(super) static TAGS: Asids<MAX_CPUS> = Asids::new();

/// Begins to give tags, as many as the CPUs have.
pub(super) fn init(command_line: &str) {
    let mut words = command_line.split_ascii_whitespace().take_while(|word| *word != "--");
    let most = words.find_map(|word| word.strip_prefix("tags=")?.parse().ok());
    let count = isa::tags().min(most.unwrap_or(u32::MAX));
    let is_enough = TAGS.start(count, isa::cpu_count());
    if most.is_some() || !is_enough {
        let whether = if is_enough { "are used" } else { "are too few" };
        log!("tags of spaces: {count} {whether}");
    }
}

/// How often the tags ran out.
pub(crate) fn rollovers() -> u64 {
    TAGS.rollovers()
}
