//! RAM: one mapping of the host's memory.

use std::sync::atomic::AtomicU64;
use std::{fmt, fs, io};

use memmap2::{Advice, MmapMut, MmapOptions};
use quire_hw::{DirectMap, FrameRun, SetupError};
use quire_units::{FrameSpan, Pfn};

/// The host's huge page, to which RAM is aligned, so that the machine's blocks can be the host's.
const ALIGN: usize = 2 << 20;

/// Memory for one machine, zeroed. It is given back to the host when dropped.
///
/// The host backs it page by page at the first touch unless [`populate`](Self::populate) is called.
#[derive(Debug)]
pub struct Ram {
    map: MmapMut,
    start: usize,
    bytes: usize,
    /// No code has had access to the bytes: they are zero.
    fresh: bool,
    /// One bit for each smallest page whose memory fails.
    poison: Box<[AtomicU64]>,
}

impl Ram {
    /// `bytes` of RAM, aligned to 2 MiB, in huge pages where the host gives them.
    ///
    /// # Errors
    /// * [`RamError::Empty`] for zero bytes.
    /// * [`RamError::NotEnough`] when the host has less memory available.
    /// * [`RamError::Refused`] when the host does not map it.
    pub fn new(bytes: usize) -> Result<Self, RamError> {
        if bytes == 0 {
            return Err(RamError::Empty);
        }
        let wanted = bytes as u64;
        match available() {
            Some(available) if available < wanted => {
                return Err(RamError::NotEnough { wanted, available });
            }
            _ => {}
        }
        let length = bytes.checked_add(ALIGN).ok_or(RamError::Overflow { wanted })?;
        let map = MmapOptions::new()
            .len(length)
            .map_anon()
            .map_err(|cause| RamError::Refused { wanted, cause })?;
        let start = map.as_ptr().align_offset(ALIGN);
        // A host without huge pages refuses; small pages do as well.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(Advice::HugePage, start, bytes);
        let poison = (0..bytes.div_ceil(4096 * 64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { map, start, bytes, fresh: true, poison })
    }

    /// Lets the host back all of it now, so that measurements do not contain that work.
    pub fn populate(&mut self) {
        #[cfg(target_os = "linux")]
        if self.map.advise_range(Advice::PopulateWrite, self.start, self.bytes).is_ok() {
            return;
        }
        let end = self.start + self.bytes;
        for byte in self.map[self.start..end].iter_mut().step_by(4096) {
            let same = std::hint::black_box(*byte);
            *byte = same;
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes; never the case.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// All bytes. The caller may write them, so they no longer count as zero.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.fresh = false;
        &mut self.map[self.start..self.start + self.bytes]
    }

    /// The frames from `first` on, and the right to them; and as many at the end as there are
    /// `devices`, by those numbers. Nothing is poisoned at first.
    pub(crate) fn map(
        &mut self,
        first: Pfn,
        page_shift: u32,
        devices: FrameSpan,
    ) -> Result<(DirectMap<'_>, FrameRun, Option<Mapped<'_>>), SetupError> {
        let fresh = std::mem::replace(&mut self.fresh, false);
        for bits in &mut self.poison {
            *bits.get_mut() = 0;
        }
        let bytes = &mut self.map[self.start..self.start + self.bytes];
        let ram = bytes.len().saturating_sub((devices.count as usize) << page_shift);
        let (bytes, registers) = bytes.split_at_mut(ram);
        let devices = match devices.count {
            0 => None,
            _ => Some(DirectMap::new(registers, devices.start, page_shift)?),
        };
        let (ram, frames) = if fresh {
            DirectMap::new_zeroed(bytes, first, page_shift)?
        } else {
            DirectMap::new(bytes, first, page_shift)?
        };
        Ok((ram.with_poison(&self.poison)?, frames, devices))
    }
}

/// Memory as words, and the right to its frames.
type Mapped<'r> = (DirectMap<'r>, FrameRun);

/// The host's available memory without swapping, in bytes, where the host reports it.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Why there is no RAM.
#[derive(Debug)]
pub enum RamError {
    /// Zero bytes were asked for.
    Empty,
    /// More was asked for than the host has available.
    NotEnough {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes the host has available.
        available: u64,
    },
    /// More was asked for than can be counted.
    Overflow {
        /// Bytes asked for.
        wanted: u64,
    },
    /// The host refused the mapping.
    Refused {
        /// Bytes asked for.
        wanted: u64,
        /// The host's error.
        cause: io::Error,
    },
}

impl fmt::Display for RamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RamError::Empty => f.write_str("a machine needs RAM; 0 bytes were asked for"),
            RamError::NotEnough { wanted, available } => write!(
                f,
                "{} MiB of RAM were asked for, but the host has {} MiB available",
                wanted.div_ceil(1 << 20),
                available >> 20
            ),
            RamError::Overflow { wanted } => write!(f, "{wanted} bytes of RAM do not exist"),
            RamError::Refused { wanted, cause } => {
                write!(f, "the host refused {} MiB of RAM: {cause}", wanted.div_ceil(1 << 20))
            }
        }
    }
}

impl std::error::Error for RamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RamError::Refused { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, Ram, RamError};

    #[test]
    fn ram_is_zeroed_aligned_and_writable() {
        let mut ram = Ram::new(3 << 20).unwrap();
        ram.populate();
        let bytes = ram.bytes_mut();
        assert_eq!(bytes.len(), 3 << 20);
        assert_eq!(bytes.as_ptr().align_offset(ALIGN), 0);
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes[(3 << 20) - 1] = 7;
    }

    #[test]
    fn more_than_the_host_has_is_refused_in_one_sentence() {
        let error = Ram::new(1 << 46).unwrap_err();
        assert!(matches!(error, RamError::NotEnough { .. }), "{error}");
        assert!(error.to_string().starts_with("67108864 MiB of RAM were asked for"));
        assert!(matches!(Ram::new(0), Err(RamError::Empty)));
    }
}
