//! A process in the library: its space, and its areas.

use anyhow::Result;
use quire::Move;
use quire::space::{Advice as Wish, AreaFlags, At, Request, Space};
use quire_arch::Arch;
use quire_sim::system::HostedMm;
use quire_units::{PageSpan, Prot, Vpn};

use crate::advise::linux::areas::Areas;
use crate::tape::{Advice, Area, Backing, Rights, Span};

/// A process that lives.
pub(super) struct Live<A: Arch> {
    pub(super) space: Space<A>,
    pub(super) areas: Areas,
    /// Mapped pages of files and of shared memory, as recorded.
    pub(super) held: i64,
    /// At least as many pages of the library's are resident; the number itself takes a walk.
    pub(super) bound: u64,
}

impl<A: Arch> Live<A> {
    pub(super) fn map(&mut self, mm: &HostedMm<'_, '_, A>, area: Area) -> Result<()> {
        self.unmap(mm, area.span)?;
        if area.span.count() == 0 {
            return Ok(());
        }
        self.areas.add(Area { populate: false, ..area });
        self.place(mm, &area)
    }

    /// Maps an area of private memory in the library.
    fn place(&self, mm: &HostedMm<'_, '_, A>, area: &Area) -> Result<()> {
        if !is_private(area) {
            return Ok(());
        }
        let mut flags = match area.huge.filter(|_| area.backing == Backing::Anon) {
            Some(true) => AreaFlags::HUGE,
            None if area.backing == Backing::Anon => AreaFlags::empty(),
            _ => AreaFlags::NOHUGE,
        };
        flags.set(AreaFlags::GROWS_DOWN, area.grows);
        flags.set(AreaFlags::DONTFORK, area.alone);
        let at = At::Fixed(Vpn::new(area.span.start));
        let request = Request::anon(area.span.count()).at(at).prot(prot(area.rights)).flags(flags);
        mm.map(&self.space, &request)?;
        Ok(())
    }

    pub(super) fn unmap(&mut self, mm: &HostedMm<'_, '_, A>, span: Span) -> Result<()> {
        if self.areas.any(span) {
            self.areas.cut(span);
            mm.unmap(&self.space, pages(span))?;
        }
        Ok(())
    }

    /// The parts of `span` that the library has.
    pub(super) fn private(&self, span: Span) -> Vec<Area> {
        self.areas.within(span).into_iter().filter(is_private).collect()
    }

    pub(super) fn protect(
        &mut self,
        mm: &HostedMm<'_, '_, A>,
        span: Span,
        rights: Rights,
    ) -> Result<()> {
        self.areas.protect(span, rights);
        for part in self.private(span) {
            mm.protect(&self.space, pages(part.span), prot(rights))?;
        }
        Ok(())
    }

    pub(super) fn relocate(
        &mut self,
        mm: &HostedMm<'_, '_, A>,
        from: Span,
        to: Span,
        keep: bool,
    ) -> Result<()> {
        if to.count() < from.count() {
            self.unmap(mm, Span { start: from.start + to.count(), end: from.end })?;
        }
        let target = if from.start == to.start { Span { start: from.end, ..to } } else { to };
        if target.count() > 0 {
            self.unmap(mm, target)?;
        }
        let moved = self.areas.relocate(from, to, keep);
        for part in moved.parts.iter().filter(|part| is_private(part)) {
            let place = Vpn::new(to.start + (part.span.start - from.start));
            let how = if keep { Move::Keep(At::Fixed(place)) } else { Move::To(place) };
            mm.remap(&self.space, pages(part.span), part.span.count(), how)?;
        }
        moved.rest.map_or(Ok(()), |rest| self.place(mm, &rest))
    }

    pub(super) fn advise(
        &mut self,
        mm: &HostedMm<'_, '_, A>,
        span: Span,
        advice: Advice,
    ) -> Result<()> {
        match advice {
            Advice::Huge => self.areas.change(span, |area| area.huge = Some(true)),
            Advice::NoHuge => self.areas.change(span, |area| area.huge = Some(false)),
            Advice::Collapse => self.bound += span.count(),
            _ => {}
        }
        for part in self.private(span) {
            let (space, part_pages) = (&self.space, pages(part.span));
            let anon = part.backing == Backing::Anon;
            match advice {
                Advice::Huge if anon => mm.advise(space, part_pages, Wish::Huge)?,
                Advice::NoHuge if anon => mm.advise(space, part_pages, Wish::NoHuge)?,
                Advice::Forget => mm.discard(space, part_pages)?,
                Advice::Collapse if anon => {
                    mm.reclaim().collapse(space, part_pages, A::block_order())?;
                }
                Advice::Alone(alone) => {
                    let flag = AreaFlags::DONTFORK;
                    let none = AreaFlags::empty();
                    let (set, clear) = if alone { (flag, none) } else { (none, flag) };
                    mm.spaces().set_flags(space, part_pages, set, clear)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn too_little() -> anyhow::Error {
    anyhow::anyhow!("the hosted machine has too little RAM")
}

/// Whether the library has the pages of an area.
fn is_private(area: &Area) -> bool {
    !area.shared && matches!(area.backing, Backing::Anon | Backing::File { .. })
}

pub(super) fn pages(span: Span) -> PageSpan {
    PageSpan::new(Vpn::new(span.start), Vpn::new(span.end))
}

fn prot(rights: Rights) -> Prot {
    let mut prot = Prot::empty();
    prot.set(Prot::READ, rights.read || rights.write || rights.fetch);
    prot.set(Prot::WRITE, rights.write);
    prot.set(Prot::EXEC, rights.fetch);
    prot
}
