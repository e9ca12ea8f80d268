//! Carrying out one step: memory that fails, and is mended.

use quire::cache::{FileId, Store};
use quire::check;
use quire::inject::{Folio, FolioFlags, Folios, file_of, page_of};
use quire::swap::SwapEntry;
use quire::table::Sight;
use quire::{FrameUse, Loss};
use quire_arch::Arch;
use quire_script::Lost;
use quire_units::{Pfn, Vpn};

use super::act::Outcome;
use super::device::poke;
use super::violation::{Kind, Wrong};
use super::world::{STORES, World};

/// The content of memory that has failed.
pub(super) const GARBAGE: u64 = 0xbad << 32;

/// A page of a process.
type Place = (usize, usize);

/// The users of a frame.
struct Had {
    /// Those that map it.
    mapped: Vec<Place>,
    /// The file of its folio, by its place, and the folio's pages there.
    file: Option<(usize, u64, u64)>,
    /// Those that have a page of its folio on the swap device, which has the folio, too.
    beside: Vec<Place>,
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// The memory of a page fails, or that of any frame.
    pub(super) fn lose(&mut self, process: usize, at: usize, which: u32) -> Outcome {
        let frame = match which % 3 {
            0 => Some(Pfn::new(at as u64 * 97 % u64::from(self.setup.frames))),
            _ => self.frame_of(process, at)?,
        };
        let Some(frame) = frame.filter(|_| self.bad.len() < 16) else { return Ok(0) };
        let had = self.who_has(frame)?;
        // The library's own tests ask about failures in pools.
        if self.is_reserved(&had.mapped, self.folio_of(frame).and_then(|(_, file, _)| file)) {
            return Ok(0);
        }
        let loss = self.fail(frame)?;
        self.failed_ever.insert(frame);
        if loss != Loss::Elsewhere && !self.devices.has_pending() {
            poke(self.machine.ram(), A::PAGE_SHIFT, frame, (GARBAGE, 0));
        }
        match (had.file, loss) {
            // A page that no process maps is no loss, even where the swap device has it.
            (None, Loss::Elsewhere) if had.mapped.is_empty() => Ok(1),
            // Frames that areas show are the embedder's to mend.
            (None, Loss::Elsewhere) if self.are_frames(&had.mapped) => Ok(5),
            (None, Loss::Content) if !had.mapped.is_empty() => {
                self.bad.push(frame);
                for (process, at) in had.mapped {
                    self.naive[process].pages[at].lose();
                    self.forget_pins(process, at, 1);
                }
                for (process, at) in had.beside {
                    self.naive[process].pages[at].lost = Lost::Perhaps;
                }
                Ok(2)
            }
            (Some((file, ..)), Loss::Nothing) if STORES[file] != Store::Memory => {
                self.bad.push(frame);
                Ok(3)
            }
            (Some((file, first, count)), Loss::Content) if STORES[file] != Store::ReadOnly => {
                self.bad.push(frame);
                self.files[file].lose(first, count);
                Ok(4)
            }
            (file, loss) => {
                let what = format!(
                    "{frame}, mapped at {:?}, of file {file:?}, failed: {loss:?}",
                    had.mapped
                );
                Err(Wrong::new(Kind::Answer, what))
            }
        }
    }

    /// Tells the library, again until it has done it.
    fn fail(&mut self, frame: Pfn) -> Result<Loss, Wrong> {
        for tries in 0.. {
            let got = {
                let _operation = self.machine.operation("memory failed");
                self.mm.memory_failed(frame, &self.all())
            };
            self.settle_races()?;
            match got {
                Ok(loss) => return Ok(loss),
                Err(error) if !self.may_fail(error) => return Err(Wrong::unexpected(error)),
                Err(_) if tries == 0 => self.disarm(),
                Err(_) => self.end_largest(),
            }
        }
        Ok(Loss::Elsewhere)
    }

    pub(super) fn mend(&mut self, which: u32) -> Outcome {
        if self.bad.is_empty() {
            return Ok(0);
        }
        let at = which as usize % self.bad.len();
        let mended = self.mm.memory_mended(self.bad[at]);
        if mended {
            self.bad.swap_remove(at);
        }
        Ok(u64::from(mended))
    }

    /// Whether a frame, or another one of its folio, has ever failed.
    pub(super) fn has_failed(&self, frame: Pfn) -> bool {
        let folio = self.folio_of(frame).map(|(folio, ..)| folio.span());
        self.failed_ever.contains(&frame)
            || folio.is_some_and(|span| self.failed_ever.iter().any(|bad| span.contains(*bad)))
    }

    fn frame_of(&self, process: usize, at: usize) -> Result<Option<Pfn>, Wrong> {
        let mut found = None;
        self.mm.spaces().runs(self.space(process)?, self.span(at, 1), &mut |seen| {
            if let Sight::Leaf { frame, .. } = seen.what {
                found = Some(frame);
            }
        });
        Ok(found)
    }

    fn who_has(&self, frame: Pfn) -> Result<Had, Wrong> {
        let mut had = Had { mapped: Vec::new(), file: None, beside: Vec::new() };
        let Some((folio, file, first)) = self.folio_of(frame) else { return Ok(had) };
        let device = file.and_then(|file| self.swaps.iter().position(|swap| *swap == Some(file)));
        let place = self.ids.iter().position(|id| Some(*id) == file);
        had.file = place.map(|place| (place, first, folio.order.pages()));
        for (process, space) in self.spaces.iter().enumerate() {
            let Some(space) = space else { continue };
            let walked = check::leaves(self.mm, space, |leaf| {
                if let Some(ahead) = frame.get().checked_sub(leaf.frame.get())
                    && ahead < leaf.pages.count()
                {
                    had.mapped.extend(self.at(leaf.pages.start.add(ahead)).map(|at| (process, at)));
                }
            });
            walked.map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
            if let Some(device) = device {
                let slots = first..first + folio.order.pages();
                self.on_swap(process, |at, entry| {
                    if entry.device as usize == device && slots.contains(&entry.slot) {
                        had.beside.push((process, at));
                    }
                })?;
            }
        }
        Ok(had)
    }

    /// The folio of a frame; which file's it is, and from which page on.
    fn folio_of(&self, frame: Pfn) -> Option<(Folio, Option<FileId>, u64)> {
        let info = self.mm.frame_info(frame)?;
        let FrameUse::Folio(_) = info.used else { return None };
        let folio = Folio { head: info.head, order: info.order };
        let (known, owner) = Folios::new(self.mm.bare_phys().meta()).known(folio);
        let file = known.contains(FolioFlags::CACHED);
        Some((folio, file.then(|| file_of(owner)), page_of(owner)))
    }

    fn on_swap(&self, process: usize, mut see: impl FnMut(usize, SwapEntry)) -> Result<(), Wrong> {
        let all = self.span(0, self.setup.window as usize);
        self.mm.spaces().runs(self.space(process)?, all, &mut |seen| {
            let Sight::Marker(marks) = seen.what else { return };
            let Some(entry) = SwapEntry::of(marks.first) else { return };
            for ahead in 0..seen.pages.count() {
                let at = self.at(Vpn::new(seen.pages.start.get() + ahead));
                let step = if marks.ascending { ahead } else { 0 };
                at.into_iter().for_each(|at| see(at, entry.advanced(step)));
            }
        });
        Ok(())
    }
}
