//! The events of a tape, given to the library one after the other.

use anyhow::{Context, Result, bail};
use quire::fault::Cause;
use quire::space::Space;
use quire::stats::Event as Count;
use quire::{Error, Need, Resolved, ScanCursor, ScanLimits, Stop};
use quire_arch::Arch;
use quire_machine::{Cpu, Machine};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, VirtAddr, Vpn};

use super::live::{Live, pages, too_little};
use super::pressure::{Pressure, read};
use super::run::Own;
use crate::advise::linux::areas::Areas;
use crate::advise::memory::{Memory, Pace};
use crate::bench::scene::{CPU, window};
use crate::tape::{self, Advice, Backing, Event, Span, Tape};

/// Processes at a time: all formats have tags for these.
pub(super) const SPACES: u16 = 250;
/// The most faults of one touch.
const TRIES: u32 = 16;

pub(super) struct Replay<'p, 'm, 'r, A: Arch> {
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
    before: [u64; 4],
    pressure: Option<Pressure>,
    pace: Pace,
    /// Milliseconds since the last round of the background, and where that stopped.
    waited: u64,
    cursor: ScanCursor,
}

impl<'p, 'm, 'r, A: Arch> Replay<'p, 'm, 'r, A> {
    pub(super) fn new(
        machine: &'p Machine<'r>,
        mm: &'p HostedMm<'m, 'r, A>,
        memory: Memory,
    ) -> Result<Self> {
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
            before: [0; 4],
            pressure: memory.limit.map(|limit| Pressure::new(mm, limit)).transpose()?,
            pace: memory.pace,
            waited: 0,
            cursor: ScanCursor::default(),
        })
    }

    pub(super) fn run(mut self, tape: &Tape) -> Result<Own> {
        for event in tape.events() {
            self.event(event)?;
        }
        for number in 0..self.all.len() {
            self.current = number;
            self.exit();
        }
        let [cleared, copied, scarce, _] = self.counts();
        self.out.cleared = (cleared - self.before[0]) / tape.page;
        self.out.copied = copied - self.before[1];
        self.out.scarce = scarce - self.before[2];
        let all = self.mm.totals();
        self.out.out = all.event(Count::PagesSwapped);
        self.out.back = all.event(Count::PagesSwappedIn);
        self.mm.destroy(self.base);
        Ok(self.out)
    }

    /// Bytes cleared, pages copied, large folios for which there was no memory, blocks folded,
    /// until now.
    fn counts(&self) -> [u64; 4] {
        let all = self.mm.totals();
        let folded = all.event(Count::Fold) + all.event(Count::Refold);
        let folded = folded.saturating_sub(all.event(Count::Unfold));
        let lacks = [Cause::Memory as usize, Cause::Charge as usize];
        let scarce = all.fallback.iter().flat_map(|causes| lacks.map(|cause| causes[cause])).sum();
        [all.event(Count::BytesCleared), all.event(Count::CowCopy), scarce, folded]
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
            Event::Time(ms) => self.pass(ms)?,
            Event::Mark => {}
            Event::Advise(span, Advice::Populate) => self.populate(span)?,
            other => {
                if !matches!(other, Event::Protect(..)) {
                    self.note();
                }
                self.change(other)?;
                if let Event::Map(area) = other
                    && area.populate
                {
                    self.populate(area.span)?;
                }
            }
        }
        Ok(())
    }

    /// All spaces that live.
    fn spaces(&self) -> Vec<&Space<A>> {
        self.all.iter().flatten().map(|live| &live.space).collect()
    }

    /// Time passes; the background scans when it is due.
    fn pass(&mut self, ms: u64) -> Result<()> {
        self.waited += ms;
        let Pace { pause, pages, none, swapped, shared } = self.pace;
        let limits = ScanLimits { none, swapped, shared, hard: true };
        while self.waited >= pause {
            self.waited -= pause;
            self.round(pages, &limits)?;
        }
        Ok(())
    }

    /// The background scans about `left` pages, up to the end of its round.
    fn round(&mut self, mut left: u64, limits: &ScanLimits) -> Result<()> {
        while left > 0 {
            let mut cursor = self.cursor;
            let done = self.mm.reclaim().scan(&mut cursor, left, limits, &self.spaces()[..]);
            self.cursor = cursor;
            self.out.collapsed += done.made;
            for live in self.all.iter_mut().flatten().filter(|_| done.made > 0) {
                live.bound += done.collapsed;
            }
            done.reads.map_or(Ok(()), |reads| read(self.mm, reads))?;
            left = left.saturating_sub(done.pages);
            if done.is_round || done.starved || (done.pages == 0 && done.reads.is_none()) {
                break;
            }
        }
        Ok(())
    }

    /// All pages of `span` that may be written come in, without a fault of the program.
    fn populate(&mut self, span: Span) -> Result<()> {
        let Some(Some(live)) = self.all.get_mut(self.current) else { return Ok(()) };
        let mut parts = live.private(span);
        parts.retain(|part| part.is_anon() && part.rights.write);
        for part in parts {
            if self.pressure.is_none() {
                let populated = self.mm.populate_written(&live.space, pages(part.span));
                populated.map_err(|_| too_little())?;
                live.bound += part.span.count();
                continue;
            }
            let before = self.out.faults;
            for page in part.span.start..part.span.end {
                self.bring(page, tape::Access::Write, true)?;
            }
            self.out.faults = before;
            return self.populate(Span { start: part.span.end, end: span.end });
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
            self.pressure.as_ref().map_or(Ok(()), |it| it.join(self.mm, &space))?;
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
        self.out.folded = self.out.folded.max(self.counts()[3]);
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
        self.bring(page, access, area.backing == Backing::Anon || write)
    }

    /// Accesses a page, with as many faults as that takes; the fault of a page that the library
    /// does not have is counted only.
    fn bring(&mut self, page: u64, access: tape::Access, has_it: bool) -> Result<()> {
        for _ in 0..TRIES {
            if self.access(page, access) {
                return Ok(());
            }
            self.out.faults += 1;
            if !has_it || !self.serve(page, access)? {
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
        let access = match access {
            tape::Access::Read => Access::Read,
            tape::Access::Write => Access::Write,
            tape::Access::Fetch => Access::Execute,
        };
        for _ in 0..TRIES {
            let Some(Some(live)) = self.all.get_mut(self.current) else { return Ok(false) };
            match self.mm.fault(&live.space, Vpn::new(page), access) {
                Ok(resolved) => {
                    live.bound += match resolved {
                        Resolved::Mapped(installed) => installed.pages.count(),
                        _ => 0,
                    };
                    return Ok(true);
                }
                Err(Stop::Need(Need::Read(reads))) => read(self.mm, reads)?,
                Err(Stop::Refuse(Error::OverLimit(_))) => self.relieve()?,
                Err(Stop::Refuse(Error::NoMemory(_))) => return Err(too_little()),
                Err(_) => return Ok(false),
            }
        }
        bail!("a fault on page {page:#x} never ends");
    }

    /// The programs have as much memory as they may: the oldest pages leave.
    fn relieve(&mut self) -> Result<()> {
        let current = self.current;
        for number in 0..self.all.len() {
            self.current = number;
            self.note();
        }
        self.current = current;
        let Some(pressure) = &self.pressure else { return Ok(()) };
        let enough = pressure.relieve(self.mm, &self.spaces())?;
        for live in self.all.iter_mut().flatten() {
            live.bound = self.mm.resident(&live.space);
        }
        self.out.short += u64::from(!enough);
        Ok(())
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
