//! A tape under a setting.

use super::collapse::{Background, asked};
use super::fault::{Around, Counts, Memory, Touched};
use super::folios::Folios;
use super::rules::Setting;
use super::space::Space;
use crate::advise::layout::Layout;
use crate::advise::reach::{Reach, reach};
use crate::tape::{Advice, Event, Tape};

/// Tables above those that have entries for pages.
pub(in crate::advise) const UPPER: u64 = 3;

/// The counts of a replay. Memory is in pages.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
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
    folios: Folios,
    spaces: Vec<Option<Space>>,
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
            folios: Folios::default(),
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
                self.stray = false;
                let touched = self.with(|around, space| around.touch(space, page, access));
                self.stray = touched == Some(Touched::Stray);
                if self.folios.pages > self.peak_pages {
                    self.at_peak();
                }
            }
            Event::Space(number) => self.enter(number),
            Event::Time(ms) => {
                let with = (&self.setting, &mut self.folios);
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
            other => {
                self.with(|around, space| change(around, space, other));
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
        self.spaces[child as usize] = copy;
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
        space.map(area, around.folios);
        if area.populate {
            around.populate(space, area.span);
        }
        return;
    }
    if let Event::Advise(span, Advice::Populate) = event {
        return around.populate(space, span);
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
