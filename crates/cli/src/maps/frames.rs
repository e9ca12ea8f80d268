//! Which folio a frame belongs to, from `/proc/kpageflags`.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, anyhow};
use quire_linux::text::ORDERS;

use crate::host::Host;
use crate::refused::Refused;

/// Bits of `kpageflags`, as `linux/kernel-page-flags.h` numbers them.
pub(super) mod flag {
    pub(crate) const ANON: u64 = 1 << 12;
    pub(crate) const HEAD: u64 = 1 << 15;
    pub(crate) const TAIL: u64 = 1 << 16;
    pub(crate) const HUGETLB: u64 = 1 << 17;
    pub(crate) const NO_PAGE: u64 = 1 << 20;
    pub(crate) const LARGE: u64 = 1 << 22;
    pub(crate) const ZERO: u64 = 1 << 24;
}

/// Frames whose folios are not counted: zeroes, hugetlb memory, frames without memory.
const NOT_COUNTED: u64 = flag::HUGETLB | flag::NO_PAGE | flag::ZERO;

/// Frames whose words are read at a time.
const CHUNK: u64 = 512;

/// A folio, from the flags of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Folio {
    pub(super) head: u64,
    pub(super) order: u8,
    pub(super) anon: bool,
}

/// The flags of all frames, each read once.
pub(super) struct Frames {
    file: File,
    chunks: HashMap<u64, Vec<u64>>,
    /// The folio that was asked for last.
    last: Option<Folio>,
}

impl Frames {
    /// Opens the file.
    pub(super) fn open(host: &Host) -> Result<Frames> {
        let file = File::open(host.path("proc/kpageflags")).map_err(|e| {
            match e.kind() {
            ErrorKind::PermissionDenied => needs_root(),
            ErrorKind::NotFound => Refused(
                "the host's kernel has no /proc/kpageflags (CONFIG_PROC_PAGE_MONITOR), which tells \
                 folios"
                    .to_owned(),
            )
            .into(),
            _ => anyhow!(e).context("/proc/kpageflags cannot be opened"),
        }
        })?;
        Ok(Frames { file, chunks: HashMap::new(), last: None })
    }

    /// The folio of `frame`; `None` for frames that are not counted.
    pub(super) fn folio(&mut self, frame: u64) -> Result<Option<Folio>> {
        if let Some(folio) =
            self.last.filter(|folio| frame.wrapping_sub(folio.head) < folio.pages())
        {
            return Ok(Some(folio));
        }
        let flags = self.flags(frame)?;
        if flags & NOT_COUNTED != 0 {
            return Ok(None);
        }
        let single = Folio { head: frame, order: 0, anon: flags & flag::ANON != 0 };
        let folio = match flags & flag::LARGE != 0 && flags & (flag::HEAD | flag::TAIL) != 0 {
            // Flags that changed while they were read make no folio.
            true => self.large(frame, single.anon)?.unwrap_or(single),
            false => single,
        };
        self.last = Some(folio);
        Ok(Some(folio))
    }

    fn large(&mut self, frame: u64, anon: bool) -> Result<Option<Folio>> {
        let most = 1 << (ORDERS - 1);
        let mut head = frame;
        while self.flags(head)? & flag::TAIL != 0 && head > 0 && frame - head < most {
            head -= 1;
        }
        let mut end = frame + 1;
        while self.flags(end)? & flag::TAIL != 0 && end - head < most {
            end += 1;
        }
        let (pages, is_head) = (end - head, self.flags(head)? & flag::HEAD != 0);
        let order = pages.trailing_zeros() as u8;
        let whole = is_head && pages.is_power_of_two() && head.is_multiple_of(pages);
        Ok(whole.then_some(Folio { head, order, anon }))
    }

    /// The flags of a frame; beyond the last there is no page.
    fn flags(&mut self, frame: u64) -> Result<u64> {
        let number = frame / CHUNK;
        let chunk = match self.chunks.entry(number) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(words(&self.file, number * CHUNK, CHUNK).context("/proc/kpageflags")?)
            }
        };
        Ok(chunk.get((frame % CHUNK) as usize).copied().unwrap_or(flag::NO_PAGE))
    }
}

impl Folio {
    /// How many frames.
    pub(super) fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// At most `count` words of a file from word `first` on; fewer where it ends.
pub(super) fn words(file: &File, first: u64, count: u64) -> std::io::Result<Vec<u64>> {
    let mut bytes = vec![0; 8 * count as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], 8 * first + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let whole = bytes[..done].as_chunks::<8>().0;
    Ok(whole.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// The refusal of a caller that may not see frames.
pub(super) fn needs_root() -> anyhow::Error {
    Refused(
        "this needs root (CAP_SYS_ADMIN): the kernel hides the frames of memory from other users"
            .to_owned(),
    )
    .into()
}
