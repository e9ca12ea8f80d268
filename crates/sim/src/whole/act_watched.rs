//! Carrying out one step: pages that a watcher moves to where they are missing (row D8).
//!
//! ```text
//!   from   | A | A+1 |   | B |    page by page: a page that is there at the target ends it;
//!   to     |   |     |   | C |    one that is missing at the source does, too, or is a hole
//! ```
//!
//! The pages that are there are those that the space says it has, in memory or on a device; the
//! model knows that those which were written must be among them.

use quire::space::{AreaFlags, At, Request};
use quire::{Error, Stop};
use quire_arch::Arch;
use quire_script::{Action, Call, Lost, Page, Part, Source, Step, UNOWNED};
use quire_units::{Prot, Vpn};

use super::act::Outcome;
use super::violation::{Kind, Wrong};
use super::world::World;

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn shift(&mut self, step: &Step, process: usize) -> Outcome {
        let (at, count) = self.part(step.args[0], step.args[1]);
        let (to, count) = self.part(step.args[2], count as u32);
        let (mut at, mut count, holes) = (at, count, step.args[3] % 2 == 1);
        let how = step.args[4] % 4;
        if how > 1 {
            (at, count) = self.source(process, (at, count));
        }
        let (part, target) = ((at, count), (to, count));
        if how > 0 && (at + count <= to || to + count <= at) {
            self.make_target(process, part, target, how > 1)?;
            if step.args[4] % 8 > 4 {
                let call = Call::Shield(true);
                self.change(process, &Action { call, part: target, window: self.window() })?;
            }
        }
        let expected = self.naive[process].expect_shift(self.window(), part, to);
        let there = self.are_there(process)?;
        let (pages, end) = self.way(&there, part, to, holes);
        let (span, place) = (self.span(at, count), self.vpn(to));
        let got = self.call(process, "move pages", |mm, space| {
            Ok::<_, Stop>(mm.spaces().move_pages(space, span, place, holes))
        })?;
        let got = got.map_err(Wrong::unexpected)?;
        let right = match (expected, got.end) {
            (Err(expected), Err(Stop::Refuse(error))) if error == expected => got.pages == 0,
            (Ok(()), Err(stop @ Stop::Refuse(Error::NoMemory(_)))) if self.may_fail(stop) => {
                self.naive[process].alter(target, Page::bare);
                got.pages == 0
            }
            (Ok(()), is) if is == end.map_err(Stop::from) && got.pages == pages as u64 => {
                self.naive[process].apply_shift((at, pages), to, |at| there[at]);
                self.move_pins(process, (at, pages), (to, pages), false);
                true
            }
            (_, Err(stop)) => got.pages == 0 && self.may_fail(stop),
            _ => false,
        };
        match right {
            true => Ok(got.pages),
            false => {
                let what = format!(
                    "move_pages of {span:?} to {place} answered {got:?}, expected {expected:?}, \
                     {pages} pages and {end:?}"
                );
                Err(Wrong::new(Kind::Answer, what))
            }
        }
    }

    /// The first part from there on that may move: of one private area, with something written.
    fn source(&self, process: usize, (at, count): Part) -> Part {
        let process = &self.naive[process];
        let fits = |at: &usize| {
            let page = &process.pages[*at];
            let is_own = page.is_anon() && !page.flags.contains(AreaFlags::SHARED);
            is_own && page.own != UNOWNED && page.prot.contains(Prot::WRITE)
        };
        let Some(at) = (at..process.pages.len()).find(fits) else { return (at, count) };
        let count = count.min(process.pages.len() - at);
        (at, process.area_break(at, count).map_or(count, |end| end - at))
    }

    /// Watches a target, and empties it; or maps it `anew`, like the source.
    fn make_target(
        &mut self,
        process: usize,
        (at, _): Part,
        target: Part,
        anew: bool,
    ) -> Result<(), Wrong> {
        let like = self.naive[process].pages[at];
        if anew && like.is_mapped() && !self.naive[process].cuts_folio(target) {
            let request = Request { prot: like.prot, ..Request::anon(target.1 as u64) };
            let request = request.at(At::Fixed(self.vpn(target.0)));
            let got = self.call(process, "map", |mm, space| mm.map(space, &request))?;
            let (source, prot) = (Source::Anon, like.prot);
            let page = Page { source, prot, most: Prot::all(), ..Page::FREE };
            self.placed(process, &request, page, got)?;
        }
        for call in [Call::Watch(true), Call::Discard] {
            self.change(process, &Action { call, part: target, window: self.window() })?;
        }
        Ok(())
    }

    /// Which pages are there: all but those that nothing or a watcher's marker stands for.
    fn are_there(&self, process: usize) -> Result<Vec<bool>, Wrong> {
        let pages = &self.naive[process].pages;
        let mut there = vec![false; pages.len()];
        self.mm.spaces().runs(self.space(process)?, self.span(0, pages.len()), &mut |seen| {
            let all = seen.pages.start.get()..seen.pages.end.get();
            let is_there = !seen.is_shielded();
            all.filter_map(|page| self.at(Vpn::new(page))).for_each(|at| there[at] = is_there);
        });
        let must = |at: &usize| {
            let page = &pages[*at];
            page.guard
                || page.own != UNOWNED
                    && !page.unsure
                    && page.lost == Lost::No
                    && !page.is_shared_file()
                    && page.own != 0
        };
        match (0..pages.len()).find(|at| must(at) && !there[*at]) {
            None => Ok(there),
            Some(at) => {
                let what = format!("process {process}, page {at} is gone: {:?}", pages[at]);
                Err(Wrong::new(Kind::Content, what))
            }
        }
    }

    /// How many pages can move, one after the other, and why no more.
    fn way(
        &self,
        there: &[bool],
        (at, count): Part,
        to: usize,
        holes: bool,
    ) -> (usize, Result<(), Error>) {
        for ahead in 0..count {
            if there[to + ahead] {
                return (ahead, Err(Error::Present(self.vpn(to + ahead))));
            }
            if !there[at + ahead] && !holes {
                return (ahead, Err(Error::Missing(self.vpn(at + ahead))));
            }
        }
        (count, Ok(()))
    }
}
