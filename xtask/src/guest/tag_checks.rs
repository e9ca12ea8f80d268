//! The checks of `kernel-tests` about tags of address spaces: more spaces alive than a CPU has
//! tags, and so few tags that they run out all the time.

use std::path::Path;
use std::time::Instant;

use super::checks::{CPUS, Count, judge};
use super::kernel::Kernel;
use super::run::{Order, boot_kernel};
use crate::steps::Missing;

/// The name of the checks.
pub(super) const NAME: &str = "tags";

/// Programs, how many tags the CPUs have for them, how much memory, and how many seconds they may
/// take on a busy machine. The fewest tags that are used are two more than the CPUs; with fewer,
/// each switch flushes.
const CASES: [(&[&str], Option<u32>, &str, u64); 5] = [
    (&["crowd", "4200"], None, "1536M", 600),
    (&["crowd", "300"], Some(CPUS + 2), "512M", 120),
    (&["crowd", "100"], Some(1), "512M", 120),
    (&["stress", "10", "3", "3"], Some(CPUS + 2), "512M", 120),
    (&["cowcheck", "-t", "64K", "1M", "2M"], Some(CPUS + 2), "512M", 120),
];

/// Runs all of them.
///
/// # Errors
/// The reason a machine cannot be run here.
pub(super) fn check(root: &Path, kernel: &Kernel, order: &mut Order) -> Result<Count, Missing> {
    let mut sum = Count::default();
    let usual = order.memory.clone();
    order.looks_at_frames = kernel.linux.is_none();
    for (words, tags, memory, seconds) in CASES {
        order.words = words.iter().map(Into::into).collect();
        order.timeout_seconds = seconds;
        memory.clone_into(&mut order.memory);
        order.settings = tags.iter().map(|tags| format!("tags={tags}")).collect();
        let start = Instant::now();
        let booted = boot_kernel(root, kernel, order, false);
        let name = match tags {
            Some(tags) => format!("{}, {tags} tags", order.name()),
            None => order.name(),
        };
        order.settings.clear();
        usual.clone_into(&mut order.memory);
        let (ending, lines) = booted?;
        let count = judge(&name, ending, &lines, start.elapsed());
        sum.passed += count.passed;
        sum.failed += count.failed;
    }
    Ok(sum)
}
