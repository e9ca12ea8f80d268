//! The column of Quire: a tape through the library itself, on the hosted machine.
//!
//! Each process is a space of the library, and each touch an access of the machine's CPU, which
//! traps where there is no translation; the library serves the fault. Pages of files and of shared
//! memory stay as they were recorded: a fault on one is counted, and nothing is mapped. A page of a
//! private file that is written is one page of private memory, as on Linux.
//!
//! The settings are the same as Linux's; the rules are the library's own. They differ where a fork
//! has shared pages: the library copies several at once, and knows exactly who shares a folio.

use anyhow::{Context, Result, bail};
use quire::fault::{Enabled, SizePolicy};
use quire::limits::ORDER_MAX;
use quire::space::{Advice as Wish, AreaFlags, At, Request, Space};
use quire::stats::Event as Count;
use quire::{Error, Move, Resolved, Stop};
use quire_arch::Arch;
use quire_machine::{Cpu, Machine, Ram};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

use super::linux::areas::Areas;
use super::linux::rules::LEAST;
use super::linux::{Setting, Word};
use crate::bench::scene::{CPU, window};
use crate::isa::{Isa, with_isa};
use crate::tape::{self, Advice, Area, Backing, Event, Rights, Span, Tape};
use crate::threads;

/// The counts of a replay through the library. Memory is in pages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Own {
    /// Page faults, those of files and shared memory as recorded.
    pub(super) faults: u64,
    /// The most resident pages of one process.
    pub(super) peak: u64,
    pub(super) cleared: u64,
    pub(super) copied: u64,
    /// The most contiguous blocks that were folded at an exit.
    pub(super) folded: u64,
    pub(super) touches: u64,
}

/// RAM beside the pages of programs, in bytes: tables, nodes, copies of several pages.
const MARGIN: u64 = 256 << 20;
/// Processes at a time: all formats have tags for these.
const SPACES: u16 = 250;
/// The most faults of one touch.
const TRIES: u32 = 8;

/// The RAM for a tape whose programs have up to `pages` pages of private memory.
pub(super) fn ram_bytes(pages: u64, page: u64) -> u64 {
    ((pages + pages / 2) * page).next_multiple_of(2 << 20) + MARGIN
}

/// Replays `tape` under each of `settings` in the format `isa`, in two threads; the memory of each
/// has room for `most` pages of programs.
pub(super) fn all(tape: &Tape, settings: &[Setting], isa: Isa, most: u64) -> Result<Vec<Own>> {
    let some = |part: &[Setting]| {
        let mut ram = system::ram(usize::try_from(ram_bytes(most, tape.page))?)?;
        // A caller that has the bytes may have written them: the library clears each page.
        let _ = ram.bytes_mut();
        part.iter().map(|setting| replay(tape, setting, isa, &mut ram)).collect::<Result<Vec<_>>>()
    };
    let half = settings.len().div_ceil(2).max(1);
    let all = threads::all(settings.chunks(half).map(|part| move || some(part)))?;
    Ok(all.into_iter().flatten().collect())
}

/// Replays `tape` under `setting` in the format `isa`, on a machine with `ram`, all of which counts
/// as written before.
fn replay(tape: &Tape, setting: &Setting, isa: Isa, ram: &mut Ram) -> Result<Own> {
    with_isa!(isa, A => {
        anyhow::ensure!(
            tape.page == 1 << A::PAGE_SHIFT,
            "the recording has pages of {} bytes, and {} has others",
            tape.page,
            isa.name()
        );
        system::with::<A, _>(isa.config().bare(), ram, |machine, mm| {
            apply(setting, mm);
            Replay::new(machine, mm)?.run(tape)
        })?
    })
}

/// Sets the library's switches.
fn apply<A: Arch>(setting: &Setting, mm: &HostedMm<'_, '_, A>) {
    mm.policy().set_enabled(match setting.top {
        Word::Always => Enabled::Always,
        Word::Madvise => Enabled::Madvise,
        Word::Never | Word::Inherit => Enabled::Never,
    });
    for order in 1..=ORDER_MAX.get() {
        let word = setting.sizes.get(usize::from(order)).filter(|_| order >= LEAST);
        let choice = match word {
            Some(Word::Always) => SizePolicy::Always,
            Some(Word::Madvise) => SizePolicy::Madvise,
            Some(Word::Inherit) => SizePolicy::Inherit,
            Some(Word::Never) | None => SizePolicy::Never,
        };
        // Every order from 1 to the largest has a choice.
        let _ = mm.policy().set_size(Order::new(order), choice);
    }
}

/// A process that lives.
struct Live<A: Arch> {
    space: Space<A>,
    areas: Areas,
    /// Mapped pages of files and of shared memory, as recorded.
    held: i64,
    /// At least as many pages of the library's are resident; the number itself takes a walk.
    bound: u64,
}

struct Replay<'p, 'm, 'r, A: Arch> {
    mm: &'p HostedMm<'m, 'r, A>,
    cpu: Cpu<'p, 'r>,
    /// The CPU is here while a space ends.
    base: Space<A>,
    tags: Vec<u16>,
    all: Vec<Option<Live<A>>>,
    current: usize,
    /// A touch that no area explains, until the pages that it brought are known.
    stray: bool,
    out: Own,
    /// The library's counts when the recording began.
    before: [u64; 3],
}

impl<'p, 'm, 'r, A: Arch> Replay<'p, 'm, 'r, A> {
    fn new(machine: &'p Machine<'r>, mm: &'p HostedMm<'m, 'r, A>) -> Result<Self> {
        let base = mm.space(Asid(SPACES + 1), window::<A>())?;
        base.enter(CPU);
        let cpu = machine.cpu(0);
        Ok(Replay {
            mm,
            cpu,
            base,
            tags: (1..=SPACES).rev().collect(),
            all: Vec::new(),
            current: 0,
            stray: false,
            out: Own::default(),
            before: [0; 3],
        })
    }

    fn run(mut self, tape: &Tape) -> Result<Own> {
        for event in tape.events() {
            self.event(event)?;
        }
        for number in 0..self.all.len() {
            self.current = number;
            self.exit();
        }
        let [cleared, copied, _] = self.counts();
        self.out.cleared = (cleared - self.before[0]) / tape.page;
        self.out.copied = copied - self.before[1];
        self.mm.destroy(self.base);
        Ok(self.out)
    }

    /// Bytes cleared, pages copied, blocks folded, until now.
    fn counts(&self) -> [u64; 3] {
        let all = self.mm.totals();
        let folded = all.event(Count::Fold) + all.event(Count::Refold);
        let folded = folded.saturating_sub(all.event(Count::Unfold));
        [all.event(Count::BytesCleared), all.event(Count::CowCopy), folded]
    }

    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Touch { page, access } => {
                self.out.touches += 1;
                self.touch(page, access)?;
            }
            Event::Space(number) => self.enter(number)?,
            Event::Begin => {
                self.before = self.counts();
                (self.out.faults, self.out.touches) = (0, 0);
            }
            Event::Held(pages) => {
                self.out.faults += u64::from(std::mem::take(&mut self.stray) && pages > 0);
                if pages < 0 {
                    self.note();
                }
                if let Some(live) = self.live() {
                    live.held += pages;
                }
            }
            Event::Fork(child) => self.fork(child)?,
            Event::Exit => self.exit(),
            Event::Time(_) => {}
            other => {
                if !matches!(other, Event::Protect(..)) {
                    self.note();
                }
                self.change(other)?;
            }
        }
        Ok(())
    }

    fn live(&mut self) -> Option<&mut Live<A>> {
        self.all.get_mut(self.current)?.as_mut()
    }

    /// Pages are about to go: the current process may have more than any had before.
    fn note(&mut self) {
        let Some(Some(live)) = self.all.get_mut(self.current) else { return };
        let held = live.held.max(0) as u64;
        if live.bound + held > self.out.peak {
            live.bound = self.mm.resident(&live.space);
            self.out.peak = self.out.peak.max(live.bound + held);
        }
    }

    fn tag(&mut self) -> Result<Asid> {
        let tag = self.tags.pop();
        Ok(Asid(tag.with_context(|| format!("more than {SPACES} processes live at a time"))?))
    }

    fn enter(&mut self, number: u32) -> Result<()> {
        self.current = number as usize;
        if self.all.len() <= self.current {
            self.all.resize_with(self.current + 1, || None);
        }
        if self.all[self.current].is_none() {
            let space = self.mm.space(self.tag()?, window::<A>())?;
            space.enter(CPU);
            self.all[self.current] =
                Some(Live { space, areas: Areas::default(), held: 0, bound: 0 });
        }
        if let Some(Some(live)) = self.all.get(self.current) {
            self.cpu.switch(live.space.root(), live.space.asid());
        }
        Ok(())
    }

    fn fork(&mut self, child: u32) -> Result<()> {
        let tag = self.tag()?;
        let Some(Some(live)) = self.all.get(self.current) else { return Ok(()) };
        let space = self.mm.fork(&live.space, tag)?;
        space.enter(CPU);
        let (areas, bound) = (live.areas.clone(), live.bound);
        let (number, parent) = (child as usize, self.current as u32);
        if self.all.len() <= number {
            self.all.resize_with(number + 1, || None);
        }
        self.all[number] = Some(Live { space, areas, held: 0, bound });
        self.enter(parent)
    }

    fn exit(&mut self) {
        self.note();
        self.out.folded = self.out.folded.max(self.counts()[2]);
        let Some(live) = self.all.get_mut(self.current).and_then(Option::take) else { return };
        self.cpu.switch(self.base.root(), self.base.asid());
        self.tags.push(live.space.asid().0);
        self.mm.destroy(live.space);
    }

    fn touch(&mut self, page: u64, access: tape::Access) -> Result<()> {
        self.stray = false;
        let Some(Some(live)) = self.all.get_mut(self.current) else { return Ok(()) };
        let Some(area) = live.areas.find(page).or_else(|| live.areas.grow(page)) else {
            self.stray = true;
            return Ok(());
        };
        if !area.rights.allow(access) {
            return Ok(());
        }
        let write = access == tape::Access::Write;
        let recorded = area.shared || matches!(area.backing, Backing::Shared | Backing::Other);
        if recorded {
            self.out.faults += 1;
            return Ok(());
        }
        for _ in 0..TRIES {
            if self.access(page, access) {
                return Ok(());
            }
            self.out.faults += 1;
            if area.backing != Backing::Anon && !write {
                return Ok(());
            }
            if !self.serve(page, access)? {
                return Ok(());
            }
        }
        bail!("a touch of page {page:#x} never ends");
    }

    /// Whether the CPU can do it now.
    fn access(&self, page: u64, access: tape::Access) -> bool {
        let addr = VirtAddr::new(page << A::PAGE_SHIFT);
        match access {
            tape::Access::Read => self.cpu.read(addr).is_ok(),
            tape::Access::Write => self.cpu.write(addr, 1).is_ok(),
            tape::Access::Fetch => self.cpu.fetch(addr).is_ok(),
        }
    }

    /// Serves a fault; whether the program goes on.
    fn serve(&mut self, page: u64, access: tape::Access) -> Result<bool> {
        let Some(Some(live)) = self.all.get_mut(self.current) else { return Ok(false) };
        let access = match access {
            tape::Access::Read => Access::Read,
            tape::Access::Write => Access::Write,
            tape::Access::Fetch => Access::Execute,
        };
        match self.mm.fault(&live.space, Vpn::new(page), access) {
            Ok(resolved) => {
                live.bound += match resolved {
                    Resolved::Mapped(installed) => installed.pages.count(),
                    _ => 0,
                };
                Ok(true)
            }
            Err(Stop::Refuse(Error::NoMemory(_))) => Err(too_little()),
            Err(_) => Ok(false),
        }
    }

    /// A change of areas.
    fn change(&mut self, event: Event) -> Result<()> {
        let Some(Some(live)) = self.all.get_mut(self.current) else { return Ok(()) };
        let mm = self.mm;
        match event {
            Event::Map(area) => live.map(mm, area)?,
            Event::Unmap(span) => live.unmap(mm, span)?,
            Event::Protect(span, rights) => live.protect(mm, span, rights)?,
            Event::Move { from, to, keep } => live.relocate(mm, from, to, keep)?,
            Event::Advise(span, advice) => live.advise(mm, span, advice)?,
            _ => {}
        }
        Ok(())
    }
}

impl<A: Arch> Live<A> {
    fn map(&mut self, mm: &HostedMm<'_, '_, A>, area: Area) -> Result<()> {
        self.unmap(mm, area.span)?;
        if area.span.count() == 0 {
            return Ok(());
        }
        let populate = area.populate && area.is_anon() && area.rights.write;
        self.areas.add(Area { populate: false, ..area });
        self.place(mm, &area)?;
        if populate {
            mm.populate_written(&self.space, pages(area.span)).map_err(|_| too_little())?;
            self.bound += area.span.count();
        }
        Ok(())
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

    fn unmap(&mut self, mm: &HostedMm<'_, '_, A>, span: Span) -> Result<()> {
        if self.areas.any(span) {
            self.areas.cut(span);
            mm.unmap(&self.space, pages(span))?;
        }
        Ok(())
    }

    /// The parts of `span` that the library has.
    fn private(&self, span: Span) -> Vec<Area> {
        self.areas.within(span).into_iter().filter(is_private).collect()
    }

    fn protect(&mut self, mm: &HostedMm<'_, '_, A>, span: Span, rights: Rights) -> Result<()> {
        self.areas.protect(span, rights);
        for part in self.private(span) {
            mm.protect(&self.space, pages(part.span), prot(rights))?;
        }
        Ok(())
    }

    fn relocate(
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

    fn advise(&mut self, mm: &HostedMm<'_, '_, A>, span: Span, advice: Advice) -> Result<()> {
        match advice {
            Advice::Huge => self.areas.change(span, |area| area.huge = Some(true)),
            Advice::NoHuge => self.areas.change(span, |area| area.huge = Some(false)),
            Advice::Populate | Advice::Collapse => self.bound += span.count(),
            _ => {}
        }
        for part in self.private(span) {
            let (space, part_pages) = (&self.space, pages(part.span));
            let anon = part.backing == Backing::Anon;
            match advice {
                Advice::Huge if anon => mm.advise(space, part_pages, Wish::Huge)?,
                Advice::NoHuge if anon => mm.advise(space, part_pages, Wish::NoHuge)?,
                Advice::Forget => mm.discard(space, part_pages)?,
                Advice::Populate if anon => {
                    mm.populate_written(space, part_pages).map_err(|_| too_little())?;
                }
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

fn too_little() -> anyhow::Error {
    anyhow::anyhow!("the hosted machine has too little RAM")
}

/// Whether the library has the pages of an area.
fn is_private(area: &Area) -> bool {
    !area.shared && matches!(area.backing, Backing::Anon | Backing::File { .. })
}

fn pages(span: Span) -> PageSpan {
    PageSpan::new(Vpn::new(span.start), Vpn::new(span.end))
}

fn prot(rights: Rights) -> Prot {
    let mut prot = Prot::empty();
    prot.set(Prot::READ, rights.read || rights.write || rights.fetch);
    prot.set(Prot::WRITE, rights.write);
    prot.set(Prot::EXEC, rights.fetch);
    prot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Writer;

    const FIRST: u64 = 1 << 20;

    /// A process that writes 1024 pages, and forks; the child writes one of them. Then both read.
    fn tape() -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(FIRST, 1024))));
        writer.push(Event::Begin);
        let touch = |page, access| Event::Touch { page, access };
        (FIRST..FIRST + 1024).for_each(|page| writer.push(touch(page, tape::Access::Write)));
        writer.push(Event::Fork(1));
        writer.push(Event::Space(1));
        writer.push(touch(FIRST + 3, tape::Access::Write));
        writer.push(touch(FIRST + 4, tape::Access::Read));
        writer.push(Event::Exit);
        writer.push(Event::Space(0));
        let (from, to) = (Span::of(FIRST, 1024), Span::of(FIRST + 4096, 1024));
        writer.push(Event::Move { from, to, keep: false });
        writer.push(touch(FIRST + 4096, tape::Access::Read));
        writer.push(Event::Unmap(to));
        writer.push(Event::Exit);
        Tape { page: 4096, body: writer.finish(), ..Tape::default() }
    }

    fn own(setting: Setting, isa: Isa) -> Own {
        all(&tape(), &[setting], isa, 4096).unwrap().remove(0)
    }

    #[test]
    fn f1_the_library_takes_one_fault_for_each_folio_and_one_for_a_copy() {
        for isa in [Isa::X86_64, Isa::Arm4k, Isa::Sv48] {
            for order in [0, 4, 9] {
                let setting = match order {
                    0 => Setting::never(),
                    _ => Setting::never().with(order, Word::Always),
                };
                let own = own(setting, isa);
                assert_eq!(own.faults, (1024 >> order) + 1, "{isa:?} {order}");
                assert_eq!((own.peak, own.touches), (1024, 1027), "{isa:?} {order}");
                assert!(own.cleared >= 1024 && own.copied >= 1);
            }
        }
    }

    #[test]
    fn f1_only_formats_with_contiguous_blocks_fold() {
        let setting = Setting::never().with(4, Word::Always);
        let folded = [Isa::X86_64, Isa::Arm4k, Isa::Sv48].map(|isa| own(setting, isa).folded);
        assert_eq!(folded[0], 0);
        assert!(folded[1] >= 64 && folded[2] >= 64, "{folded:?}");
    }

    #[test]
    fn f1_pages_of_another_size_are_refused() {
        let error = all(&tape(), &[Setting::never()], Isa::Arm64k, 4096).unwrap_err();
        assert!(error.to_string().contains("pages of 4096 bytes, and arm64_64k has others"));
    }
}
