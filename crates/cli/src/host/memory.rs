//! Memory of the host: how much there is, and buffers of it to clear.

use std::fs;

use anyhow::{Context, Result};
use memmap2::{Advice, MmapMut, MmapOptions};

use super::Host;
use super::cpu::rounded;
use crate::Refused;

/// The alignment of buffers, so that huge pages fit from their first byte on.
const ALIGN: usize = 1 << 21;
/// Left to the rest of the system.
const RESERVE: u64 = 64 << 20;

/// Field `name` of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(host: &Host, name: &str) -> Option<u64> {
    let text = host.read("proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Refuses work that needs more memory than the host has to give.
///
/// # Errors
/// [`Refused`] with both figures. A host that does not tell how much there is refuses nothing.
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

/// Anonymous memory of the process, advised to be in huge pages and touched.
pub(crate) struct Buffer {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes, aligned to 2 MiB, every page of it present.
    ///
    /// # Errors
    /// The host does not give the memory.
    pub(crate) fn new(len: usize) -> Result<Buffer> {
        let map = MmapOptions::new()
            .len(len + ALIGN)
            .map_anon()
            .with_context(|| format!("the host does not map {}", rounded(len as u64)))?;
        // A kernel without huge pages refuses the advice; the buffer is as good without.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(ALIGN);
        let mut buffer = Buffer { map, start, len };
        buffer.bytes().fill(1);
        Ok(buffer)
    }

    /// The memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }

    /// How much of the buffer is in huge pages, from 0 to 1; `None` if the kernel does not tell.
    pub(crate) fn huge_share(&self) -> Option<f64> {
        let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
        let huge = mapped_bytes(&smaps, self.map.as_ptr().addr() + self.start, "AnonHugePages")?;
        Some((huge as f64 / self.len as f64).min(1.0))
    }
}

/// `field` of the mapping in `smaps` that holds `address`, in bytes.
pub(crate) fn mapped_bytes(smaps: &str, address: usize, field: &str) -> Option<u64> {
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(range) {
            inside = (start..end).contains(&address);
        } else if inside
            && let Some(kib) = line.strip_prefix(field).and_then(|rest| rest.strip_prefix(':'))
        {
            return Some(kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10);
        }
    }
    None
}

/// `1000-2000` in hexadecimal.
fn range(text: &str) -> Option<(usize, usize)> {
    let (start, end) = text.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
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
    fn the_huge_share_is_that_of_the_mapping_asked_for() {
        let smaps = "1000-3000 rw-p 0 0:0 0\nAnonHugePages:  4 kB\n\
                     3000-9000 rw-p 0 0:0 0 [heap]\nRss: 7 kB\nAnonHugePages:      8 kB\n";
        let huge = |address| mapped_bytes(smaps, address, "AnonHugePages");
        assert_eq!(huge(0x1fff), Some(4096));
        assert_eq!(huge(0x3000), Some(8192));
        assert_eq!(huge(0x9000), None);
        assert_eq!(mapped_bytes(smaps, 0x3000, "Rss"), Some(7168));
    }

    #[test]
    fn a_buffer_is_aligned_and_writable_to_its_last_byte() {
        let mut buffer = Buffer::new(3 << 20).unwrap();
        let bytes = buffer.bytes();
        assert_eq!((bytes.len(), bytes.as_ptr().align_offset(ALIGN)), (3 << 20, 0));
        assert!(bytes.iter().all(|b| *b == 1));
    }
}
