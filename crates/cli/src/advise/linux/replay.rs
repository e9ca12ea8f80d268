//! A tape under a setting.

use super::collapse::{Background, asked};
use super::fault::{Around, Counts, Touched};
use super::folios::Folios;
use super::pressure;
use super::rules::{BLOCK, Setting};
use super::space::{Space, split};
use crate::advise::layout::Layout;
use crate::advise::memory::Memory;
use crate::advise::reach::{Reach, reach};
use crate::tape::{Access, Advice, Event, Span, Tape};

/// Tables above those that have entries for pages.
pub(in crate::advise) const UPPER: u64 = 3;

/// The counts of a replay. Memory is in pages.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// Memory was bounded.
    pub(crate) is_bounded: bool,
    /// Touches that were replayed.
    pub(crate) touches: u64,
    /// The most resident pages of one process.
    pub(crate) peak: u64,
    /// The most pages of private memory of all processes, each once.
    pub(crate) memory: u64,
    /// Pages of private memory that were resident when the last process ended.
    pub(crate) end: u64,
    /// Of the most pages of private memory, those that no process had touched.
    pub(crate) waste: u64,
    /// Pages of page tables, of the process with the most.
    pub(crate) tables: u64,
    /// The translations that the touched pages of the largest process need.
    pub(crate) reach: Reach,
    /// The private memory of that process at its end.
    pub(crate) layout: Layout,
}

/// Replays `tape` under `setting`.
pub(crate) fn replay(tape: &Tape, setting: &Setting, memory: Memory) -> Outcome {
    let mut machine = Machine::new(*setting, memory);
    tape.events().for_each(|event| machine.event(event));
    machine.finish()
}

/// A machine on which processes run under a setting.
pub(crate) struct Machine {
    setting: Setting,
    memory: Memory,
    pub(super) folios: Folios,
    pub(super) spaces: Vec<Option<Space>>,
    current: usize,
    background: Background,
    counts: Counts,
    touches: u64,
    /// A touch that no area explains, until the pages that it brought are known.
    stray: bool,
    /// Pages that processes have touched, and the least of the rest at the peak.
    peak_pages: u64,
    out: Outcome,
}

impl Machine {
    pub(crate) fn new(setting: Setting, memory: Memory) -> Machine {
        Machine {
            setting,
            memory,
            folios: Folios::new(memory.limit),
            spaces: Vec::new(),
            current: 0,
            background: Background::default(),
            counts: Counts::default(),
            touches: 0,
            stray: false,
            peak_pages: 0,
            out: Outcome::default(),
        }
    }

    /// The next event of a tape.
    pub(crate) fn event(&mut self, event: Event) {
        match event {
            Event::Touch { page, access } => {
                self.touches += 1;
                self.stray = self.touch(page, access) == Some(Touched::Stray);
                if self.folios.pages > self.peak_pages {
                    self.at_peak();
                }
            }
            Event::Space(number) => self.enter(number),
            Event::Time(ms) => {
                self.folios.lists.iter_mut().for_each(|lists| lists.pass(ms));
                let with = (&self.setting, &self.memory.pace, &mut self.folios);
                self.background.pass(ms, &mut self.spaces, with, &mut self.counts);
            }
            Event::Begin => {
                self.counts = Counts::default();
                self.touches = 0;
            }
            Event::Held(pages) => {
                // Pages of files came at a place that was not seen to be mapped.
                self.counts.file += u64::from(std::mem::take(&mut self.stray) && pages > 0);
                self.with(|_, space| space.hold(pages));
            }
            Event::Fork(child) => self.fork(child),
            Event::Exit => self.exit(),
            Event::Mark => {}
            Event::Advise(span, Advice::Populate) => self.populate(span),
            other => {
                self.with(|around, space| change(around, space, other));
                if let Event::Map(area) = other
                    && area.populate
                {
                    self.populate(area.span);
                }
            }
        }
    }

    /// A touch; where memory is full, others leave until it can be served.
    fn touch(&mut self, page: u64, access: Access) -> Option<Touched> {
        let (mut most, mut waited) = (BLOCK, false);
        loop {
            let touched = self.with(|around, space| {
                (around.most, around.waited) = (most, waited);
                around.touch(space, page, access)
            });
            let Some(Touched::Full(order)) = touched else { return touched };
            let with = (&mut self.spaces[..], &mut self.folios);
            pressure::make_room(with, &mut self.counts, 1 << order);
            (most, waited) = (order, true);
        }
    }

    /// All pages of `span` come in to be written.
    fn populate(&mut self, span: Span) {
        let areas = self.with(|_, space| space.areas.within(span)).unwrap_or_default();
        for area in areas {
            let access = if area.rights.write { Access::Write } else { Access::Read };
            // Pages of files come as they were recorded.
            if !area.is_anon() || !area.rights.allow(access) {
                continue;
            }
            for page in area.span.start..area.span.end {
                let there = self.with(|_, space| {
                    let (block, at) = split(page);
                    space.tables.get(block).is_some_and(|it| it.entry(at).folio().is_some())
                });
                if there != Some(true) {
                    self.touch(page, access);
                }
            }
        }
    }

    /// The result; processes that still run are counted as they are.
    pub(crate) fn finish(mut self) -> Outcome {
        let living = self.spaces.iter_mut().flatten();
        let mut largest = living.max_by_key(|space| space.touched);
        if let Some(space) = &mut largest {
            self.out.end = self.folios.pages;
            self.out.largest(space);
        }
        for space in self.spaces.iter().flatten() {
            self.out.peak = self.out.peak.max(space.peak);
            self.out.tables = self.out.tables.max(space.most_tables + UPPER);
        }
        self.out.counts = self.counts;
        self.out.is_bounded = self.memory.limit.is_some();
        self.out.touches = self.touches;
        self.out.memory = self.folios.peak;
        self.out
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Around<'_>, &mut Space) -> T) -> Option<T> {
        let space = self.spaces.get_mut(self.current)?.as_mut()?;
        let mut around = Around {
            setting: &self.setting,
            folios: &mut self.folios,
            memory: &mut self.memory,
            counts: &mut self.counts,
            most: BLOCK,
            waited: false,
        };
        Some(act(&mut around, space))
    }

    fn enter(&mut self, number: u32) {
        self.current = number as usize;
        if self.spaces.len() <= self.current {
            self.spaces.resize_with(self.current + 1, || None);
        }
        if self.spaces[self.current].is_none() {
            self.spaces[self.current] = Some(Space::new(number));
        }
    }

    fn fork(&mut self, child: u32) {
        let copy = self.with(|around, space| space.fork(child, around.folios));
        let parent = self.current as u32;
        self.enter(child);
        if let Some(copy) = copy {
            let mut copy = copy;
            self.folios.tables = self.folios.tables.wrapping_add(copy.table_change());
            self.spaces[child as usize] = Some(copy);
        }
        self.enter(parent);
    }

    fn exit(&mut self) {
        let alone = self.spaces.iter().flatten().count() == 1;
        let Some(space) = self.spaces.get_mut(self.current).and_then(Option::as_mut) else {
            return;
        };
        if alone {
            self.out.end = self.folios.pages;
        }
        self.out.peak = self.out.peak.max(space.peak);
        self.out.tables = self.out.tables.max(space.most_tables + UPPER);
        self.out.largest(space);
        space.exit(&mut self.folios);
        self.spaces[self.current] = None;
    }

    /// More private memory is resident than ever before.
    fn at_peak(&mut self) {
        self.peak_pages = self.folios.pages;
        let touched: u64 = self.spaces.iter().flatten().map(|space| space.touched).sum();
        self.out.waste = self.folios.pages.saturating_sub(touched);
    }
}

impl Outcome {
    /// A process ends: it may be the one that has touched the most.
    fn largest(&mut self, space: &mut Space) {
        if space.touched > self.reach.touched {
            self.reach = reach(&mut space.tables);
            self.layout = Layout::of(&space.areas, &mut space.tables);
        }
    }
}

/// A change of areas.
fn change(around: &mut Around<'_>, space: &mut Space, event: Event) {
    if let Event::Map(area) = event {
        return space.map(area, around.folios);
    }
    let folios = &mut *around.folios;
    match event {
        Event::Unmap(span) => space.unmap(span, folios),
        Event::Protect(span, rights) => space.areas.protect(span, rights),
        Event::Move { from, to, keep } => space.relocate(from, to, keep, folios),
        Event::Advise(span, advice) => match advice {
            Advice::Huge => space.areas.change(span, |area| area.huge = Some(true)),
            Advice::NoHuge => space.areas.change(span, |area| area.huge = Some(false)),
            Advice::Alone(alone) => space.areas.change(span, |area| area.alone = alone),
            // Linux frees empty tables of a whole block (since 6.14).
            Advice::Forget => {
                for area in space.areas.within(span).iter().filter(|area| !area.shared) {
                    space.forget(area.span, folios, span.count() >= super::tables::PAGES);
                }
            }
            Advice::Collapse => asked(space, span, folios, around.counts),
            Advice::Populate => {}
        },
        _ => {}
    }
}
