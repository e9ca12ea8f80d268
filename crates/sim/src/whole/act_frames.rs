//! Carrying out one step: areas that show frames.
//!
//! ```text
//!   number    0 ..                frames ..                          frames + kept + 1 ..
//!             RAM of the library  RAM that the library never had     registers of a device
//!   shown as  a run that is lent  combining memory                   device memory
//! ```
//!
//! The model has one more file, in which each of these frames is a page by its number. A page of an
//! area shows its frame at all times: it is never paged out, copied, or another.

use quire::space::At;
use quire::{Error, FrameSource, LentFrames};
use quire_arch::Arch;
use quire_hw::{ForeignFrames, FrameRun, MemoryTypes, TypedBy};
use quire_script::{Page, Source, Step, frames_request, tail};
use quire_units::{FrameSpan, MemoryType, Order, Pfn, Prot};

use super::act::Outcome;
use super::device::poke;
use super::violation::{Kind, Wrong};
use super::world::{STORES, World};

/// The number of the model's file whose pages are frames.
pub(super) const FRAMES: u8 = STORES.len() as u8;

/// The order of the run that is lent.
const LENT: Order = Order::new(3);

/// Frames that areas may show, beside those of the device.
pub(super) struct Shows {
    /// RAM that the library never had.
    kept: ForeignFrames,
    /// The run that is lent.
    lent: Option<LentFrames>,
}

impl Shows {
    pub(super) fn new(kept: FrameRun) -> Self {
        Self { kept: ForeignFrames::keep(kept, MemoryType::Combining), lent: None }
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// The numbers of frames.
    pub(super) fn numbers(&self) -> usize {
        self.first_register() as usize + self.setup.registers() as usize
    }

    fn first_register(&self) -> u64 {
        u64::from(self.setup.frames) + self.setup.kept() + 1
    }

    /// The device's registers.
    fn registers(&self) -> FrameSpan {
        self.machine.devices().map_or(FrameSpan::new(Pfn::new(0), 0), |device| device.span())
    }

    pub(super) fn is_register(&self, frame: Pfn) -> bool {
        self.registers().contains(frame)
    }

    /// The number of a frame that is shown as `memory`, if it may be.
    pub(super) fn number(&self, frame: Pfn, memory: MemoryType) -> Option<u32> {
        let (all, first) = match memory {
            MemoryType::Usual => (self.mm.phys().span(), 0),
            MemoryType::Combining => (self.shows.kept.span(), u64::from(self.setup.frames)),
            MemoryType::Device => (self.registers(), self.first_register()),
        };
        all.contains(frame).then(|| (first + frame.offset_from(all.start)) as u32)
    }

    /// Maps an area that shows frames.
    pub(super) fn show_frames(&mut self, step: &Step, process: usize) -> Outcome {
        let args = &step.args;
        let lends = args[3].is_multiple_of(3);
        if lends && !self.lend() {
            return Ok(0);
        }
        let lent = self.shows.lent.take();
        let device = self.machine.devices().filter(|_| args[3] % 3 == 2);
        let right = device.unwrap_or(self.shows.kept);
        let (all, memory) = match &lent {
            Some(lent) if lends => (lent.span(), MemoryType::Usual),
            _ => (right.span(), right.memory()),
        };
        let (at, count) = self.part(args[0], args[1].min(all.count as u32));
        let from = u64::from(args[4]) % (all.count + 1 - count as u64);
        let part = from..from + count as u64;
        let source = match &lent {
            Some(lent) if lends => Some(FrameSource::Lent(lent, part)),
            _ => right.part(part).map(FrameSource::Foreign),
        };
        let first = self.number(all.start.add(from), memory);
        let (Some(source), Some(first)) = (source, first) else {
            return Err(Wrong::new(Kind::Answer, format!("no right to a part of {all:?}")));
        };
        let is_code = memory == MemoryType::Usual;
        let named = (FRAMES, first);
        let (request, page) = frames_request(step, self.vpn(at), count, named, is_code);
        let got = self.call(process, "map_frames", |mm, space| {
            mm.spaces().map_frames(space, &request, source)
        })?;
        self.shows.lent = lent;
        let types: MemoryTypes = self.machine.config().memory_types;
        if types.of(memory) == TypedBy::Nothing {
            return self.judge("map_frames", Err(Error::NoMemoryType(memory)), got).map(|_| 2);
        }
        if request.prot.contains(Prot::EXEC) && !is_code {
            return self.judge("map_frames", Err(Error::Invalid), got).map(|_| 3);
        }
        let placed = self.placed(process, &request, page, got)?;
        match (got, request.at) {
            // It was refused, since it would cut a reserved folio.
            (Err(Error::Invalid), At::Fixed(_)) => Ok(placed),
            (Err(_), At::Fixed(_)) => self.make_free(process, &[(at, count)]),
            _ => Ok(placed),
        }
    }

    /// Lends a run, if none is lent; whether one is now.
    fn lend(&mut self) -> bool {
        if self.shows.lent.is_some() {
            return true;
        }
        let Some(run) = self.mm.phys().alloc(LENT) else { return false };
        for frame in (0..run.count()).map(|ahead| run.start().add(ahead)) {
            let stamp = self.stamp();
            poke(self.machine.ram(), A::PAGE_SHIFT, frame, (stamp, tail(stamp)));
            let number = self.number(frame, MemoryType::Usual);
            number.into_iter().for_each(|at| self.files[usize::from(FRAMES)].store(at, stamp));
        }
        match self.mm.spaces().lend(run) {
            Ok(lent) => self.shows.lent = Some(lent),
            Err(run) => self.mm.phys().free(run),
        }
        self.shows.lent.is_some()
    }

    /// The run that is lent goes back as soon as no area shows it; if it is `left` to the areas, it
    /// is free then, and else the answer says whether it is.
    pub(super) fn end_loan(&mut self, left: bool) -> Outcome {
        let Some(lent) = self.shows.lent.take() else { return Ok(0) };
        if left {
            self.mm.spaces().release(lent);
            return Ok(1);
        }
        let span = lent.span();
        let all = self.naive.iter().flat_map(|process| &process.pages);
        let is_shown = all.filter_map(|page| self.frame_shown(page)).any(|at| span.contains(at));
        match self.mm.spaces().take_back(lent) {
            Ok(run) if !is_shown => {
                self.mm.phys().free(run);
                Ok(2)
            }
            Err(lent) if is_shown => {
                self.shows.lent = Some(lent);
                Ok(3)
            }
            got => Err(Wrong::new(Kind::Answer, format!("{got:?}, shown: {is_shown}"))),
        }
    }

    /// The frame that a page shows, if it is of such an area.
    fn frame_shown(&self, page: &Page) -> Option<Pfn> {
        let Source::Frame { page, .. } = page.source else { return None };
        let (number, first) = (u64::from(page), self.first_register());
        Some(match number.checked_sub(first) {
            Some(ahead) => self.registers().start.add(ahead),
            None => self.machine.frames().start.add(number),
        })
    }

    /// Whether all these pages of processes show frames.
    pub(super) fn are_frames(&self, places: &[(usize, usize)]) -> bool {
        places.iter().all(|&(process, at)| self.naive[process].pages[at].is_frame())
    }

    /// Each page that shows a frame is mapped, to this frame. `mapped` is all leaves: page, frame
    /// and number of pages.
    pub(super) fn check_frames(
        &self,
        process: usize,
        mapped: &[(u64, Pfn, u64)],
    ) -> Result<(), Wrong> {
        let (pages, base) = (&self.naive[process].pages, self.window().base.get());
        let mut missing = pages.iter().filter(|page| page.is_frame()).count();
        for &(page, frame, count) in mapped {
            for ahead in 0..count {
                let at = (page + ahead).wrapping_sub(base) as usize;
                let due = pages.get(at).and_then(|page| self.frame_shown(page));
                if due.is_some_and(|due| due != frame.add(ahead)) {
                    let what =
                        format!("process {process}, page {at}: {frame:?} + {ahead} is there");
                    return Err(Wrong::new(Kind::Content, format!("{what}, {due:?} should be")));
                }
                missing -= usize::from(due.is_some());
            }
        }
        match missing {
            0 => Ok(()),
            some => {
                let what = format!("process {process}: {some} frames are not mapped any more");
                Err(Wrong::new(Kind::Content, what))
            }
        }
    }
}
