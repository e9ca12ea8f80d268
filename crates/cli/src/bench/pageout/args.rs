//! What may be asked for, and how much memory goes out.

use clap::Args;

use super::scene::ram_bytes;
use crate::Refused;
use crate::args::Format;
use crate::host::{Host, memory};
use crate::size::Size;

/// The size of the memory unless another is named.
const USUAL: u64 = 256 << 20;
/// The least and the most memory that may be named.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 16 << 30;
/// The memory is a multiple of it: the largest folio.
const UNIT: u64 = 2 << 20;
/// Of the host's memory beside the machine's RAM: slots of frames, the command itself.
const BESIDE: u64 = 64 << 20;

/// Options of `bench pageout`.
#[derive(Args, Debug)]
pub(crate) struct PageoutArgs {
    /// How much memory is paged out, a multiple of 2M [default: 256M]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// How often each thing is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loops: Option<u32>,
    /// The host's own kernel as well: needs root, a loop device and zram; settings are restored
    #[arg(long)]
    pub(crate) kernel: bool,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// How many bytes go out: as many as were `named`, or the usual.
///
/// # Errors
/// [`Refused`] for a size that is none of memory here, and where memory does not suffice.
pub(super) fn bytes(named: Option<Size>, host: &Host) -> Result<u64, Refused> {
    let Size(bytes) = named.unwrap_or(Size(USUAL));
    if !(LEAST..=MOST).contains(&bytes) || !bytes.is_multiple_of(UNIT) {
        let (unit, least, most) = (Size(UNIT), Size(LEAST), Size(MOST));
        return Err(Refused(format!("--size is a multiple of {unit} from {least} to {most}")));
    }
    let need = ram_bytes(bytes) + bytes / 32 + BESIDE;
    memory::require(host, &format!("paging out {}", Size(bytes)), need)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kib: u64, named: Option<u64>) -> Result<u64, Refused> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = format!("MemAvailable: {kib} kB\n");
        std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        bytes(named.map(Size), &Host::new(dir.path()))
    }

    #[test]
    fn d7_memory_is_whole_blocks_and_neither_tiny_nor_vast() {
        assert_eq!(asked(4 << 20, None).unwrap(), 256 << 20);
        assert_eq!(asked(4 << 20, Some(18 << 20)).unwrap(), 18 << 20);
        for wrong in [0, 2 << 20, 17 << 20, (16 << 20) + 4096, 17 << 30, u64::MAX] {
            let said = asked(4 << 20, Some(wrong)).unwrap_err().0;
            assert_eq!(said, "--size is a multiple of 2M from 16M to 16G");
        }
    }

    #[test]
    fn d7_memory_that_the_host_has_not_twice_is_refused() {
        let said = asked(256 << 10, None).unwrap_err().0;
        assert!(said.contains("paging out 256M") && said.contains("is available"), "{said}");
    }
}
