//! A file on the hosted machine, and how a program reads it.

use anyhow::{Context, Result, ensure};
use quire::cache::{FileId, FilePages, FileSize, Pattern, Read, Readahead, Reads, Store};
use quire::limits::ORDER_MAX;
use quire::{Error, Need, Stop};
use quire_arch::{Arch, X86_64};
use quire_hw::{FrameRun, Memory};
use quire_machine::{Config, Machine, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{FrameSpan, Order};

use crate::bench::scene::{CPU, MARGIN, backed_ram};

/// The base page, as a power of two of bytes.
pub(super) const SHIFT: u32 = X86_64::PAGE_SHIFT;
/// The order of the program's buffer: the largest chunk, 1 MiB.
const BUFFER: Order = Order::new(8);
/// The number of threads that look pages up at the same time.
pub(super) const THREADS: u32 = 2;

/// The folios that the file is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// As reading ahead makes them.
    ReadAhead,
    /// Base pages: no larger size is allowed.
    Pages,
}

impl Layout {
    pub(super) const ALL: [Layout; 2] = [Layout::ReadAhead, Layout::Pages];

    pub(super) fn note(self) -> &'static str {
        match self {
            Layout::ReadAhead => "folios as read ahead",
            Layout::Pages => "base pages",
        }
    }
}

/// RAM for a file of `bytes`.
pub(super) fn ram_bytes(bytes: u64) -> u64 {
    bytes.saturating_add(MARGIN).next_multiple_of(1 << 21)
}

/// RAM for a file of `bytes`, backed by the host.
pub(super) fn ram(bytes: u64) -> Result<Ram> {
    backed_ram(ram_bytes(bytes))
}

/// A machine, and the number of pages of the file that is read on it.
pub(super) struct Scene<'a, 'm, 'r> {
    pub(super) machine: &'a Machine<'r>,
    pub(super) mm: &'a HostedMm<'m, 'r, X86_64>,
    pub(super) pages: u64,
}

/// Runs `work` on a machine of `ram` that reads a file of `bytes` in folios of `layout`.
pub(super) fn with_scene<T>(
    ram: &mut Ram,
    (layout, bytes): (Layout, u64),
    work: impl FnOnce(&Scene<'_, '_, '_>) -> Result<T>,
) -> Result<T> {
    let config = Config::x86_64().bare().with_cpus(THREADS as usize);
    system::with::<X86_64, _>(config, ram, |machine, mm| {
        if layout == Layout::Pages {
            for order in 1..=ORDER_MAX.get() {
                // Files are read in no order that has no choice.
                let _ = mm.files().policy().set_size(Order::new(order), FileSize::Never);
            }
        }
        work(&Scene { machine, mm, pages: bytes >> SHIFT })
    })?
}

impl Scene<'_, '_, '_> {
    /// A new file of which nothing is in memory.
    pub(super) fn open(&self) -> Result<FileId, Error> {
        self.mm.files().open(Store::ReadOnly, self.pages, Order::ZERO)
    }

    /// The program's buffer: a chunk begins at its first frame.
    pub(super) fn buffer(&self) -> Result<FrameRun> {
        self.mm.bare_phys().alloc(CPU, BUFFER).context("the machine has too little RAM")
    }

    /// Gives the program's buffer back.
    pub(super) fn give_back(&self, buffer: FrameRun) {
        self.mm.bare_phys().free(CPU, buffer);
    }

    /// Reads `wanted` as one `read(2)` does: `each` gets every piece that lies in one folio, with
    /// its first page, while it is held; `device` fills the frames of what is not in memory.
    #[inline]
    pub(super) fn read(
        &self,
        (file, wanted): (FileId, FilePages),
        reader: &mut Readahead,
        device: &mut impl FnMut(&Read),
        mut each: impl FnMut(u64, FrameSpan),
    ) -> Result<(), Stop> {
        let mut at = wanted.start;
        while at < wanted.end {
            let rest = FilePages::new(at, wanted.end);
            let (held, ahead) = match self.mm.files().read(file, rest, reader, Pattern::Normal) {
                Ok(found) => found,
                Err(Stop::Need(Need::Read(reads))) => {
                    self.carry_out(reads, device)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(reads) = ahead {
                self.carry_out(reads, device)?;
            }
            let frames = held.frames();
            let part = FrameSpan::new(frames.start, frames.count.min(rest.count()));
            each(at, part);
            self.mm.files().release(held);
            at += part.count;
        }
        Ok(())
    }

    #[cold]
    fn carry_out(&self, mut reads: Reads, device: &mut impl FnMut(&Read)) -> Result<(), Error> {
        while let Some(read) = self.mm.files().next_read(&mut reads)? {
            device(&read);
            self.mm.files().read_done(read, Ok(()));
        }
        Ok(())
    }

    /// A file whose pages are all in memory, read from front to back in chunks of `chunk` pages.
    /// Each page begins with its number, and is compared once.
    pub(super) fn warm_file(&self, chunk: u64) -> Result<FileId> {
        let file = self.open()?;
        let ram = self.machine.ram();
        let mut device = |read: &Read| {
            let frames = read.frames().span();
            for (at, page) in (read.pages().start..read.pages().end).enumerate() {
                ram.write_word(frames.start.add(at as u64).addr(SHIFT), page);
            }
        };
        let mut reader = Readahead::default();
        for wanted in self.chunks(chunk) {
            self.read((file, wanted), &mut reader, &mut device, |_, _| {})?;
        }
        self.look(file, chunk)?;
        Ok(file)
    }

    /// Compares each page of the file, as a program reads it.
    fn look(&self, file: FileId, chunk: u64) -> Result<()> {
        let buffer = self.buffer()?;
        let (mut reader, mut missing) = (Readahead::default(), 0);
        for wanted in self.chunks(chunk) {
            let copy = |page, part| {
                let _ = self.machine.copy(&buffer, page - wanted.start, part);
            };
            self.read((file, wanted), &mut reader, &mut |_| missing += 1, copy)?;
            for page in wanted.start..wanted.end {
                let frame = buffer.start().add(page - wanted.start);
                let got = self.machine.ram().read_word(frame.addr(SHIFT));
                ensure!(got == Some(page), "page {page} of the file was read as {got:?}");
            }
        }
        ensure!(missing == 0, "{missing} folios had to be read again");
        self.give_back(buffer);
        Ok(())
    }

    /// The file in chunks of `chunk` pages, front to back.
    pub(super) fn chunks(&self, chunk: u64) -> impl Iterator<Item = FilePages> + use<> {
        let pages = self.pages;
        let starts = (0..pages).step_by(chunk as usize);
        starts.map(move |start| FilePages::new(start, (start + chunk).min(pages)))
    }

    /// The file's pages as they lie in memory: the pieces that a program copies that reads in
    /// chunks of `chunk` pages.
    pub(super) fn pieces(&self, file: FileId, chunk: u64) -> Result<Vec<FrameSpan>> {
        let mut reader = Readahead::default();
        let mut pieces = Vec::new();
        for wanted in self.chunks(chunk) {
            self.read((file, wanted), &mut reader, &mut |_| {}, |_, part| pieces.push(part))?;
        }
        let pages: u64 = pieces.iter().map(|piece| piece.count).sum();
        ensure!(pages == self.pages, "{pages} pages were read, not {}", self.pages);
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 16 << 20;

    fn orders(layout: Layout) -> Vec<u64> {
        let mut ram = ram(BYTES).unwrap();
        let work = |scene: &Scene<'_, '_, '_>| {
            let file = scene.warm_file(16)?;
            scene.pieces(file, 512)
        };
        let pieces = with_scene(&mut ram, (layout, BYTES), work).unwrap();
        pieces.iter().map(|piece| piece.count).collect()
    }

    #[test]
    fn b1_a_file_comes_in_larger_folios_unless_only_pages_are_allowed() {
        assert!(orders(Layout::ReadAhead).iter().any(|&pages| pages >= 16));
        assert!(orders(Layout::Pages).iter().all(|&pages| pages == 1));
    }

    #[test]
    fn b1_what_is_not_the_pages_own_is_noticed() {
        let mut ram = ram(BYTES).unwrap();
        let work = |scene: &Scene<'_, '_, '_>| {
            let file = scene.warm_file(16)?;
            let piece = scene.pieces(file, 1)?[77];
            scene.machine.ram().write_word(piece.start.addr(SHIFT), 78);
            scene.look(file, 16)
        };
        let said = with_scene(&mut ram, (Layout::Pages, BYTES), work).unwrap_err().to_string();
        assert_eq!(said, "page 77 of the file was read as Some(78)");
    }

    #[test]
    fn b1_chunks_cover_the_file_also_where_the_last_is_shorter() {
        let mut ram = ram(BYTES).unwrap();
        let work = |scene: &Scene<'_, '_, '_>| Ok(scene.chunks(1000).collect::<Vec<_>>());
        let chunks = with_scene(&mut ram, (Layout::Pages, BYTES), work).unwrap();
        assert_eq!((chunks.len(), chunks[4]), (5, FilePages::new(4000, 4096)));
    }
}
