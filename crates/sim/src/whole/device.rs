//! The disks of the simulated system: they keep two words of each page, are slow, fail half way,
//! and say so.

use quire::cache::Read;
use quire::{ReadFailed, Write, WriteFailed};
use quire_hw::DirectMap;
use quire_script::{Fault, tail};
use quire_units::{FrameSpan, Pfn, PhysAddr};

use super::packed::Packed;

/// The first and the last word of a page, which tell it from others.
pub(super) type Words = (u64, u64);

/// A word that was stored without its tail: by a race, which has time for one word only.
pub(super) const LOOSE: u64 = 1 << 62;

/// Whether a page may have these two words.
#[inline]
pub(super) fn agree((first, last): Words) -> bool {
    first & LOOSE != 0 || last == tail(first)
}

/// A transfer that a disk has begun.
pub(super) enum Transfer {
    Read(Read),
    Write(Write),
}

/// One that is not done yet.
struct Pending {
    due: u64,
    fails: bool,
    transfer: Transfer,
}

/// All disks.
pub(super) struct Devices<'s> {
    /// The words of each page, by the file's number.
    pages: Vec<Vec<Words>>,
    pending: Vec<Pending>,
    /// Those that are compressed memory, with the files that they have now.
    packed: Vec<(Option<u32>, Packed<'s>)>,
    /// The fault of this step, and the transfer that it strikes.
    fault: Fault,
    left: u32,
    /// Silently gives wrong data at one transfer in this many: for tests that must see it.
    pub(super) lies: u64,
    transfers: u64,
}

/// How a transfer ended.
pub(super) struct Done {
    pub(super) transfer: Transfer,
    pub(super) failed: bool,
}

impl<'s> Devices<'s> {
    pub(super) fn new(packed: Vec<Packed<'s>>) -> Self {
        Self {
            pages: vec![Vec::new(); 64],
            pending: Vec::new(),
            packed: packed.into_iter().map(|device| (None, device)).collect(),
            fault: Fault::None,
            left: 0,
            lies: 0,
            transfers: 0,
        }
    }

    /// Arms a fault.
    pub(super) fn plan(&mut self, fault: Fault, nth: u32) {
        (self.fault, self.left) = (fault, nth);
    }

    pub(super) fn put(&mut self, file: u32, page: u64, words: Words) {
        let pages = &mut self.pages[file as usize];
        if pages.len() <= page as usize {
            pages.resize(page as usize + 1, (0, 0));
        }
        pages[page as usize] = words;
    }

    pub(super) fn page(&self, file: u32, page: u64) -> Words {
        self.pages[file as usize].get(page as usize).copied().unwrap_or((0, 0))
    }

    /// A file that begins anew, as a disk.
    pub(super) fn clear(&mut self, file: u32) {
        self.pages[file as usize].clear();
        let such = self.packed.iter_mut().filter(|(of, _)| *of == Some(file));
        such.for_each(|(of, _)| *of = None);
    }

    /// A file that begins anew, as compressed memory, if one is not in use.
    pub(super) fn pack(&mut self, file: u32) {
        if let Some((of, device)) = self.packed.iter_mut().find(|(of, _)| of.is_none()) {
            device.clear();
            *of = Some(file);
        }
    }

    /// Walks over compressed memory; what is wrong, if anything.
    pub(super) fn check(&mut self) -> Option<String> {
        self.packed.iter_mut().find_map(|(_, device)| device.check())
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Begins a transfer at step `now`: done at once, or kept for later.
    pub(super) fn begin(&mut self, now: u64, transfer: Transfer) -> Option<(Transfer, Fault)> {
        let mut strikes = Fault::None;
        match self.fault {
            Fault::Slow => {
                let due = now + u64::from(self.left);
                self.pending.push(Pending { due, fails: false, transfer });
                return None;
            }
            Fault::Fail | Fault::Short => {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    strikes = std::mem::replace(&mut self.fault, Fault::None);
                }
            }
            _ => {}
        }
        Some((transfer, strikes))
    }

    /// A transfer that was begun before and is due at step `now`; any at all if it is waited for.
    pub(super) fn due(&mut self, now: u64) -> Option<Transfer> {
        let at = self.pending.iter().position(|pending| pending.due <= now)?;
        let pending = self.pending.remove(at);
        debug_assert!(!pending.fails);
        Some(pending.transfer)
    }

    /// Moves the words of a transfer, all of them or half. `end` is where the file ends.
    pub(super) fn carry(
        &mut self,
        ram: &DirectMap<'_>,
        shift: u32,
        (transfer, fault): (Transfer, Fault),
        end: u64,
    ) -> Done {
        self.transfers += 1;
        let part = |count: u64| match fault {
            Fault::Fail => 0,
            Fault::Short => count / 2,
            _ => count,
        };
        match &transfer {
            Transfer::Read(read) => {
                let (file, pages) = (read.file().0, read.pages());
                let packed = self.packed.iter_mut().find(|(of, _)| *of == Some(file));
                if let Some((_, device)) = packed {
                    let frames = FrameSpan::new(read.frames().start(), part(pages.count()));
                    device.load(ram, pages.start, frames);
                    return Done { transfer, failed: fault != Fault::None };
                }
                let lie = self.lies != 0 && self.transfers.is_multiple_of(self.lies);
                for at in 0..part(pages.count()) {
                    let mut words = self.page(file, pages.start + at);
                    words.0 ^= u64::from(lie) << 40;
                    words.1 = if lie { tail(words.0) } else { words.1 };
                    poke(ram, shift, read.frames().start().add(at), words);
                }
            }
            Transfer::Write(write) => {
                let (file, pages) = (write.file().0, write.pages());
                let count = pages.end.min(end).saturating_sub(pages.start);
                let packed = self.packed.iter_mut().find(|(of, _)| *of == Some(file));
                if let Some((_, device)) = packed {
                    let frames = FrameSpan::new(write.frames().start, count);
                    device.store(ram, pages.start, frames, part(count));
                    return Done { transfer, failed: fault != Fault::None };
                }
                for at in 0..part(count) {
                    let words = peek(ram, shift, write.frames().start.add(at));
                    self.put(file, pages.start + at, words);
                }
            }
        }
        Done { transfer, failed: fault != Fault::None }
    }
}

impl Done {
    /// The report of a read to the library.
    pub(super) fn read(&self) -> Result<(), ReadFailed> {
        if self.failed { Err(ReadFailed) } else { Ok(()) }
    }

    /// The report of a write to the library.
    pub(super) fn write(&self) -> Result<(), WriteFailed> {
        if self.failed { Err(WriteFailed) } else { Ok(()) }
    }
}

fn places(shift: u32, frame: Pfn) -> (PhysAddr, PhysAddr) {
    let base = frame.addr(shift).get();
    (PhysAddr::new(base), PhysAddr::new(base + (1 << shift) - 8))
}

/// Writes the two words of a frame.
pub(super) fn poke(ram: &DirectMap<'_>, shift: u32, frame: Pfn, words: Words) {
    let (first, last) = places(shift, frame);
    ram.write_word(first, words.0);
    ram.write_word(last, words.1);
}

/// The two words of a frame.
pub(super) fn peek(ram: &DirectMap<'_>, shift: u32, frame: Pfn) -> Words {
    let (first, last) = places(shift, frame);
    (ram.read_word(first).unwrap_or_default(), ram.read_word(last).unwrap_or_default())
}
