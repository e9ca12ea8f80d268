//! Memory of the host: how much there is, and areas of it to clear and to fault in.

use std::fs;

use anyhow::{Context, Result};
use memmap2::{Advice, MmapMut, MmapOptions};

use super::cpu::rounded;
use super::{Host, smaps};
use crate::refused::Refused;
use crate::size::Size;

/// Bytes of a base page, of a huge page, and of the largest page.
const PAGE: u64 = 4096;
const BLOCK: u64 = 1 << 21;
const GIGANTIC: u64 = 1 << 30;
/// Left to the rest of the system.
const RESERVE: u64 = 64 << 20;

/// Field `name` of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(host: &Host, name: &str) -> Option<u64> {
    let text = host.read("proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Refuses work that needs more memory than the host has available. On a host that does not say how
/// much that is, nothing is refused.
pub(crate) fn require(host: &Host, what: &str, bytes: u64) -> Result<(), Refused> {
    match meminfo(host, "MemAvailable") {
        Some(there) if bytes.saturating_add(RESERVE) > there => Err(Refused(format!(
            "{what} needs {} of memory but only {} is available",
            rounded(bytes),
            rounded(there)
        ))),
        _ => Ok(()),
    }
}

/// Anonymous memory of this process, for folios of one size; none of it is present at first.
pub(crate) struct Area {
    pub(crate) map: MmapMut,
    start: usize,
    len: usize,
    size: Size,
}

impl Area {
    /// `len` bytes, aligned to folios of `size`, with the advice that such folios need.
    pub(crate) fn new(size: Size, len: u64) -> Result<Area> {
        let area = Area::map(size, len)?;
        match size.bytes() {
            // Kernels without huge pages refuse this advice, and do not need it.
            PAGE => drop(area.map.advise(Advice::NoHugePage)),
            GIGANTIC => {}
            _ => area.map.advise(Advice::HugePage).context("the kernel refuses MADV_HUGEPAGE")?,
        }
        Ok(area)
    }

    /// `len` bytes in huge pages where the host has them; every page is present.
    pub(crate) fn present(len: usize) -> Result<Area> {
        let mut area = Area::map(Size(BLOCK), len as u64)?;
        let _ = area.map.advise(Advice::HugePage);
        area.bytes().fill(1);
        Ok(area)
    }

    fn map(size: Size, len: u64) -> Result<Area> {
        let len = usize::try_from(len)?;
        let mut options = MmapOptions::new();
        match size.bytes() {
            GIGANTIC => options.len(len).huge(Some(30)),
            _ => options.len(len + size.len()),
        };
        let refused = || format!("the host does not map {}", rounded(len as u64));
        let map = options.map_anon().with_context(refused)?;
        let start = map.as_ptr().align_offset(size.len());
        Ok(Area { map, start, len, size })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }

    /// Touches one byte of each folio.
    pub(crate) fn touch(&mut self) {
        let size = self.size.len();
        self.bytes().chunks_exact_mut(size).for_each(|folio| folio[0] = 1);
    }

    /// Has the kernel populate all of it in one call.
    pub(crate) fn populate(&mut self) -> Result<()> {
        self.map
            .advise_range(Advice::PopulateWrite, self.start, self.len)
            .context("the kernel refuses MADV_POPULATE_WRITE (it came with Linux 5.14)")
    }

    /// Splits the leaves of blocks, and leaves folios and the area whole.
    pub(crate) fn split_leaves(&self) -> Result<()> {
        let (page, step) = (PAGE as usize, self.size.len().max(BLOCK as usize));
        for at in (self.start..self.start + self.len).step_by(step) {
            self.map.advise_range(Advice::DontFork, at + page, page).context("MADV_DONTFORK")?;
            self.map.advise_range(Advice::DoFork, at + page, page).context("MADV_DOFORK")?;
        }
        Ok(())
    }

    /// The area's line of `/proc/self/smaps`.
    pub(crate) fn smaps(&self) -> Option<smaps::Area> {
        let text = fs::read_to_string("/proc/self/smaps").ok()?;
        smaps::holding(&text, (self.map.as_ptr().addr() + self.start) as u64)
    }

    /// The share of the area in huge pages, from 0 to 1; `None` if the kernel does not say.
    pub(crate) fn huge_share(&self) -> Option<f64> {
        Some((self.smaps()?.anon_blocks as f64 / self.len as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_with(meminfo: &str) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn more_memory_than_there_is_is_refused_with_both_figures() {
        let (_dir, host) = host_with("MemTotal: 2097152 kB\nMemAvailable:    1048576 kB\n");
        assert_eq!(meminfo(&host, "MemTotal"), Some(2 << 30));
        assert!(require(&host, "it", (1 << 30) - RESERVE).is_ok());
        let refused = require(&host, "it", 1 << 30).unwrap_err();
        assert_eq!(refused.0, "it needs 1G of memory but only 1G is available");
        assert!(require(&host, "it", u64::MAX).is_err());
    }

    #[test]
    fn a_host_that_does_not_tell_refuses_nothing() {
        let (_dir, host) = host_with("");
        assert!(require(&host, "it", u64::MAX).is_ok());
    }

    #[test]
    fn memory_that_is_present_is_aligned_and_writable_to_its_last_byte() {
        let mut area = Area::present(3 << 20).unwrap();
        assert!(area.smaps().is_some_and(|line| line.resident >= 3 << 20));
        let bytes = area.bytes();
        assert_eq!((bytes.len(), bytes.as_ptr().align_offset(BLOCK as usize)), (3 << 20, 0));
        assert!(bytes.iter().all(|b| *b == 1));
    }
}
