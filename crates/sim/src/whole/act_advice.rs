//! Carrying out one step: guards, memory that may go, and which pages were written.

use quire::Error;
use quire::space::AreaFlags;
use quire_arch::Arch;

use super::act::Outcome;
use super::world::World;
use quire_script::{Lost, Page, Verb};

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn act_on_advice(
        &mut self,
        verb: Verb,
        process: usize,
        part: (usize, usize),
    ) -> Outcome {
        match verb {
            Verb::Guard => self.guard(process, part),
            Verb::Unguard => self.unguard(process, part),
            Verb::Free => self.free(process, part),
            _ => self.track(process, part),
        }
    }

    fn guard(&mut self, process: usize, part: (usize, usize)) -> Outcome {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |page, _| {
            page.flags.contains(AreaFlags::LOCKED).then_some(Error::Invalid)
        });
        let got = self.call(process, "guard", |mm, space| mm.guard(space, span))?;
        let done = self.judge("guard", expected, got)?.is_some();
        if done {
            self.forget_pins(process, part.0, part.1);
            self.alter(process, part, Page::fence);
        }
        Ok(u64::from(done))
    }

    fn unguard(&mut self, process: usize, part: (usize, usize)) -> Outcome {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |_, _| None);
        let got = self.call(process, "unguard", |mm, space| mm.unguard(space, span))?;
        let done = self.judge("unguard", expected, got)?.is_some();
        if done {
            self.alter(process, part, |page| page.guard = false);
        }
        Ok(u64::from(done))
    }

    /// Until a page is written again it may hold what it held, or be zero. Where writes are
    /// tracked it is lost at once.
    fn free(&mut self, process: usize, part: (usize, usize)) -> Outcome {
        let span = self.span(part.0, part.1);
        let expected = self.agree(process, part, |page, _| {
            let fits = page.is_anon() && !page.flags.contains(AreaFlags::LOCKED);
            (!fits).then_some(Error::Invalid)
        });
        let pages = &self.naive[process].pages[part.0..part.0 + part.1];
        let tracked = pages.iter().any(|page| page.flags.contains(AreaFlags::TRACKED));
        let got =
            self.cleaning_call(process, "free", |mm, space| mm.spaces().free_lazily(space, span))?;
        let done = self.judge("free", expected, got)?.is_some();
        if expected.is_err() {
            return Ok(0);
        }
        if tracked {
            self.forget_pins(process, part.0, part.1);
        }
        self.alter(process, part, |page| match done && tracked {
            true => page.forget(),
            // What was lost already is lost no more.
            false if done && page.lost == Lost::Yes => page.forget(),
            false => page.loosen(),
        });
        Ok(u64::from(done))
    }

    fn track(&mut self, process: usize, part: (usize, usize)) -> Outcome {
        let span = self.span(part.0, part.1);
        let got =
            self.cleaning_call(process, "track", |mm, space| mm.spaces().track(space, span))?;
        let done = self.judge("track", Ok(()), got)?.is_some();
        if done {
            self.alter(process, part, |page| {
                page.written = false;
                // What is free has no area that could say so.
                if page.is_mapped() {
                    page.flags |= AreaFlags::TRACKED;
                }
            });
        }
        Ok(u64::from(done))
    }
}
