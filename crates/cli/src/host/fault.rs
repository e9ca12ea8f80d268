//! What the host's own kernel takes for the faults that Quire is measured on.
//!
//! One sample maps fresh anonymous memory with the advice its folio size needs, and then touches
//! one byte of each folio (*demand*) or asks the kernel to populate all of it (*populate*). Right
//! before, the same amount is populated and given back, untimed: otherwise the first touch of
//! memory that the hypervisor has taken away dominates everything. The pages it leaves on the
//! kernel's free lists are the ones the timed faults get.
//!
//! Whether folios of the wanted size were really given is read from the kernel's own count per
//! size; a sample in which fewer than 95 % were is no sample.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use memmap2::{Advice, MmapMut, MmapOptions};

use super::Host;
use super::thp::{Guard, folios_given};
use crate::size::Size;

const PAGE: u64 = 4096;
const GIGANTIC: u64 = 1 << 30;
/// Of the folios of a sample so many must be of the wanted size.
const GIVEN: f64 = 0.95;

/// How the memory comes to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One touch for each folio, one fault for each touch.
    Demand,
    /// One call for all of it.
    Populate,
}

impl Form {
    /// Both forms.
    pub(crate) const ALL: [Form; 2] = [Form::Demand, Form::Populate];

    /// The word in cases.
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
/// `None` if the kernel gave other folios than asked for.
///
/// # Errors
/// The kernel refuses the mapping, the advice or the population.
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
    let ns = if threads == 1 {
        one_sample(form, size, region, || ())?.0
    } else {
        parallel(form, size, region, threads)?
    };
    // The warming gets its folios as well, hence twice the number.
    let wanted = (2 * folios * u64::from(threads)) as f64;
    let given = before.zip(folios_given(host, size)).map(|(b, a)| a.saturating_sub(b) as f64);
    let counted = size.bytes() != PAGE && size.bytes() != GIGANTIC;
    let short = counted && given.is_some_and(|given| given < GIVEN * wanted);
    Ok((!short).then_some(ns / folios as f64))
}

/// Nanoseconds from the first thread's start to the last one's end.
fn parallel(form: Form, size: Size, region: u64, threads: u32) -> Result<f64> {
    let barrier = Barrier::new(threads as usize);
    let ready = || {
        barrier.wait();
    };
    let times = thread::scope(|scope| {
        let run = || one_sample(form, size, region, ready);
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |t: thread::ScopedJoinHandle<'_, Result<(f64, Instant, Instant)>>| {
            t.join().map_err(|_| anyhow!("a thread of the bench panicked"))?
        };
        all.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let start = times.iter().map(|t| t.1).min().context("no threads")?;
    let end = times.iter().map(|t| t.2).max().context("no threads")?;
    Ok((end - start).as_nanos() as f64)
}

/// Nanoseconds of CPU time, start and end of faulting in `region` bytes. `ready` is called between
/// the warming and the timed part.
fn one_sample(
    form: Form,
    size: Size,
    region: u64,
    ready: impl Fn(),
) -> Result<(f64, Instant, Instant)> {
    // A thread that fails here must not leave the others waiting for it.
    let warm = Area::new(size, region).and_then(|mut warm| warm.fault(Form::Populate));
    let area = Area::new(size, region);
    ready();
    warm?;
    let mut area = area?;
    let (start, cpu) = (Instant::now(), crate::bench::thread_ns());
    area.fault(form)?;
    let ns = crate::bench::thread_ns() - cpu;
    Ok((ns, start, Instant::now()))
}

/// Fresh memory, none of it present.
struct Area {
    map: MmapMut,
    start: usize,
    len: usize,
    size: Size,
}

impl Area {
    fn new(size: Size, region: u64) -> Result<Area> {
        let len = usize::try_from(region)?;
        let mut options = MmapOptions::new();
        if size.bytes() == GIGANTIC {
            options.len(len).huge(Some(30));
        } else {
            options.len(len + size.len());
        }
        let map = options.map_anon().context("the host does not map the memory")?;
        let start = map.as_ptr().align_offset(size.len());
        match size.bytes() {
            // Without huge pages in the kernel this is refused, and not needed.
            PAGE => drop(map.advise(Advice::NoHugePage)),
            GIGANTIC => {}
            _ => map.advise(Advice::HugePage).context("the kernel refuses MADV_HUGEPAGE")?,
        }
        Ok(Area { map, start, len, size })
    }

    fn fault(&mut self, form: Form) -> Result<()> {
        match form {
            Form::Demand => {
                let bytes = &mut self.map[self.start..self.start + self.len];
                for folio in bytes.chunks_exact_mut(self.size.len()) {
                    folio[0] = 1;
                }
                Ok(())
            }
            Form::Populate => self
                .map
                .advise_range(Advice::PopulateWrite, self.start, self.len)
                .context("the kernel refuses MADV_POPULATE_WRITE (it came with Linux 5.14)"),
        }
    }
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
    fn sizes_the_kernel_does_not_know_are_left_out_with_a_sentence() {
        let nowhere = Host::new(Path::new("/nonexistent"));
        for size in [64 << 10, 2 << 20, 1 << 30] {
            let why = unavailable(&nowhere, Size(size), size).unwrap();
            assert!(why.contains("left out"), "{why}");
        }
        assert_eq!(unavailable(&nowhere, Size(4096), 4096), None);
    }
}
