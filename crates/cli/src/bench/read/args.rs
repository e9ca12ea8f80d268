//! What may be asked for, and how large the file is.

use clap::Args;

use super::scene::ram_bytes;
use crate::Refused;
use crate::args::Format;
use crate::host::{Host, memory};
use crate::size::Size;

/// The size of the file unless another is named or memory is short.
const USUAL: u64 = 1 << 30;
/// No smaller file is tried where memory is short.
const SHORT: u64 = 64 << 20;
/// The smallest and the largest file that may be named.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 64 << 30;
/// Files are multiples of it: the largest chunk.
const UNIT: u64 = 1 << 20;
/// Of the host's memory beside the machine's RAM: slots, tables of frames, the naive cache.
const BESIDE: u64 = 64 << 20;

/// Options of `bench read`.
#[derive(Args, Debug)]
pub(crate) struct ReadArgs {
    /// The size of the file, a multiple of 1M [default: 1G, or less where memory is short]
    #[arg(long)]
    pub(crate) size: Option<Size>,
    /// How often each thing is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loops: Option<u32>,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// The size of the file in bytes: as much as was `named`, or what there is room for, which
/// `lacking` then tells.
///
/// # Errors
/// [`Refused`] for a size that is no file's here, and where memory does not suffice.
pub(super) fn file_bytes(
    named: Option<Size>,
    host: &Host,
    lacking: &mut Vec<String>,
) -> Result<u64, Refused> {
    let fits = |bytes: u64| {
        let need = ram_bytes(bytes).saturating_add(bytes / 32).saturating_add(BESIDE);
        memory::require(host, &format!("reading a file of {}", Size(bytes)), need)
    };
    if let Some(Size(bytes)) = named {
        if !(LEAST..=MOST).contains(&bytes) || !bytes.is_multiple_of(UNIT) {
            let (unit, least, most) = (Size(UNIT), Size(LEAST), Size(MOST));
            return Err(Refused(format!("--size is a multiple of {unit} from {least} to {most}")));
        }
        return fits(bytes).map(|()| bytes);
    }
    let mut bytes = USUAL;
    while let Err(refused) = fits(bytes) {
        if bytes == SHORT {
            return Err(refused);
        }
        bytes /= 2;
    }
    if bytes < USUAL {
        lacking.push(format!(
            "Memory does not suffice for a file of {}: {} instead.",
            Size(USUAL),
            Size(bytes)
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kib: u64) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = format!("MemAvailable: {kib} kB\n");
        std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn b1_a_file_is_smaller_where_memory_is_short_and_it_is_said() {
        let mut lacking = Vec::new();
        let mut bytes = |kib, named: Option<u64>| {
            let (_dir, host) = host(kib);
            file_bytes(named.map(Size), &host, &mut lacking)
        };
        assert_eq!(bytes(4 << 20, None).unwrap(), 1 << 30);
        assert_eq!(bytes(1 << 20, None).unwrap(), 512 << 20);
        assert!(bytes(200 << 10, None).unwrap_err().0.contains("file of 64M"));
        assert!(bytes(1 << 20, Some(1 << 30)).unwrap_err().0.contains("file of 1G"));
        assert_eq!(lacking, ["Memory does not suffice for a file of 1G: 512M instead."]);
    }

    #[test]
    fn b1_a_file_that_is_named_is_whole_chunks_and_neither_tiny_nor_vast() {
        let (_dir, host) = host(4 << 20);
        let bytes = |named| file_bytes(Some(Size(named)), &host, &mut Vec::new());
        assert_eq!(bytes(17 << 20).unwrap(), 17 << 20);
        for wrong in [0, 1 << 20, (16 << 20) + 4096, 65 << 30, u64::MAX] {
            let said = bytes(wrong).unwrap_err().0;
            assert_eq!(said, "--size is a multiple of 1M from 16M to 64G");
        }
    }
}
