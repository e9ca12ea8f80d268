//! The cost of the same faults in the host's own kernel, and of entering that kernel.
//!
//! One sample maps fresh anonymous memory with the advice its folio size needs, and then touches
//! one byte of each folio (*demand*) or asks the kernel to populate all of it (*populate*). Right
//! before, the same amount is populated and given back, untimed: otherwise the first touch of
//! memory that the hypervisor has taken away dominates everything. The pages it leaves on the
//! kernel's free lists are the ones the timed faults get.
//!
//! The kernel counts per size how many folios it gave; a sample in which fewer than 95 % have the
//! wanted size is no sample.

use std::hint::black_box;
use std::sync::Barrier;

use anyhow::{Context, Result};

use super::Host;
use super::memory::Area;
use super::thp::{Guard, folios_given};
use crate::size::Size;
use crate::stats::thread_ns;
use crate::threads::{self, Span, Timing};

const PAGE: u64 = 4096;
const GIGANTIC: u64 = 1 << 30;
/// The share of a sample's folios that must have the wanted size.
const GIVEN: f64 = 0.95;

/// The way in which memory is faulted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One touch for each folio, one fault for each touch.
    Demand,
    /// One call for all of it.
    Populate,
}

impl Form {
    pub(crate) const ALL: [Form; 2] = [Form::Demand, Form::Populate];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Form::Demand => "demand",
            Form::Populate => "populate",
        }
    }
}

/// Why the host has no folios of `size` to offer; `None` if it may have.
pub(crate) fn unavailable(host: &Host, size: Size, region: u64) -> Option<String> {
    match size.bytes() {
        PAGE => None,
        GIGANTIC => {
            let file = "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
            let free: u64 = host.read(file).and_then(|n| n.parse().ok()).unwrap_or(0);
            (free.saturating_mul(GIGANTIC) < region).then(|| {
                format!("linux {size}: the host has no free hugetlb pages of that size; left out.")
            })
        }
        bytes => {
            let folder = "sys/kernel/mm/transparent_hugepage";
            let own = host.path(format!("{folder}/hugepages-{}kB", bytes >> 10)).exists();
            let only = host.read(format!("{folder}/hpage_pmd_size"));
            let pmd = only.is_some_and(|n| n.parse() == Ok(bytes));
            (!own && !pmd).then(|| {
                format!("linux {size}: the host's kernel has no folios of that size; left out.")
            })
        }
    }
}

/// Nanoseconds per folio over `region` bytes in each of `threads` threads, as each thread sees it;
/// `None` if the kernel gave folios of other sizes.
pub(crate) fn sample(
    host: &Host,
    guard: &Guard,
    (form, size): (Form, Size),
    region: u64,
    threads: u32,
) -> Result<Option<f64>> {
    let folios = region / size.bytes();
    guard.only(size).context("a huge-page setting cannot be written")?;
    let before = folios_given(host, size);
    let barrier = Barrier::new(threads as usize);
    let ready = || {
        barrier.wait();
    };
    let one = || one_sample(form, size, region, ready);
    let spans = match threads {
        1 => vec![one()?],
        _ => threads::all((0..threads).map(|_| one))?,
    };
    // The warming gets its folios as well, hence twice the number.
    let wanted = (2 * folios * u64::from(threads)) as f64;
    let given = before.zip(folios_given(host, size)).map(|(b, a)| a.saturating_sub(b) as f64);
    let counted = size.bytes() != PAGE && size.bytes() != GIGANTIC;
    let short = counted && given.is_some_and(|given| given < GIVEN * wanted);
    Ok((!short).then_some(Timing::of(&spans).seen(threads) / folios as f64))
}

/// The time of faulting `region` bytes in. `ready` is called between the warming and the timed
/// part.
fn one_sample(form: Form, size: Size, region: u64, ready: impl Fn()) -> Result<Span> {
    // A thread that fails here must not leave the others waiting for it.
    let warm = Area::new(size, region).and_then(|mut warm| warm.populate());
    let area = Area::new(size, region);
    ready();
    warm?;
    let mut area = area?;
    Span::of(|| match form {
        Form::Demand => {
            area.touch();
            Ok(())
        }
        Form::Populate => area.populate(),
    })
}

/// Calls per sample: long against the clock's own cost.
const CALLS: u32 = 20_000;
/// Bytes read per sample; one fault for each 4 KiB.
const READ: usize = 32 << 20;

/// Nanoseconds for one `getppid`, the cheapest system call that enters the kernel: a lower bound of
/// the trap that Quire's hosted figures leave out, because an exception saves more state than a
/// system call and returns by a slower instruction. No unprivileged program can time the trap
/// alone.
pub(crate) fn system_call() -> f64 {
    let start = thread_ns();
    for _ in 0..CALLS {
        black_box(rustix::process::getppid());
    }
    (thread_ns() - start) / f64::from(CALLS)
}

/// Nanoseconds for one read fault on the kernel's shared zero page: an upper bound of the trap,
/// because it contains page-table work that Quire's figures already contain, yet no allocation and
/// no clearing.
pub(crate) fn read_fault() -> Result<f64> {
    let mut area = Area::new(Size(PAGE), READ as u64)?;
    let bytes = &*area.bytes();
    let start = thread_ns();
    for at in (0..READ).step_by(PAGE as usize) {
        black_box(bytes[at]);
    }
    Ok((thread_ns() - start) / (READ as u64 / PAGE) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn faults_of_base_pages_are_timed_in_both_forms_and_with_threads() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        let guard = Guard::new(&host, &mut Vec::new());
        for form in Form::ALL {
            for threads in [1, 2] {
                let ns = sample(&host, &guard, (form, Size(PAGE)), 1 << 20, threads).unwrap();
                assert!(ns.is_some_and(|ns| ns > 0.0));
            }
        }
    }

    #[test]
    fn both_bounds_of_a_trap_are_times() {
        assert!(system_call() > 0.0);
        assert!(read_fault().unwrap() > 0.0);
    }

    #[test]
    fn sizes_the_kernel_does_not_know_are_left_out_with_a_sentence() {
        let nowhere = Host::new(Path::new("/nonexistent"));
        for size in [64 << 10, 2 << 20, 1 << 30] {
            let why = unavailable(&nowhere, Size(size), size).unwrap();
            assert!(why.contains("left out"), "{why}");
        }
        assert_eq!(unavailable(&nowhere, Size(4096), 4096), None);
    }
}
