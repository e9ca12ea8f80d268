//! How much of a program's private memory is cold: resident, and not used for a while.
//!
//! A recording with samples has a mark at each, behind which a use of a page is a touch again. The
//! share between two marks is that of the pages that were there at the first, and still at the
//! second, without a touch between them.

use std::collections::{BTreeMap, HashMap};

use super::linux::areas::Areas;
use crate::stats::Summary;
use crate::tape::{Advice, Event, Span, Tape};

/// Cold memory of all processes of a recording.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cold {
    /// Intervals between two marks in which there was private memory.
    pub(super) samples: u64,
    /// In an interval: the share that is not used; and pages that are used.
    pub(super) share: Summary,
    pub(super) used: Summary,
    /// Pages that lived for two intervals at least; and those of them that were used in one only.
    pub(super) lasting: u64,
    pub(super) once: u64,
}

/// The intervals of a page's first and last use.
#[derive(Clone, Copy)]
struct Page {
    born: u32,
    last: u32,
}

#[derive(Clone, Default)]
struct Space {
    areas: Areas,
    pages: BTreeMap<u64, Page>,
}

#[derive(Default)]
struct Count {
    spaces: HashMap<u32, Space>,
    at: u32,
    now: u32,
    shares: Vec<f64>,
    used: Vec<f64>,
    lasting: u64,
    once: u64,
}

/// The cold memory of a recording; `None` without two marks.
pub(super) fn cold(tape: &Tape) -> Option<Cold> {
    let mut count = Count::default();
    tape.events().for_each(|event| count.event(event));
    for number in count.spaces.keys().copied().collect::<Vec<u32>>() {
        count.at = number;
        count.gone(Span { start: 0, end: u64::MAX });
    }
    let Count { shares, used, lasting, once, .. } = count;
    Some(Cold {
        samples: shares.len() as u64,
        share: Summary::of(&shares)?,
        used: Summary::of(&used)?,
        lasting,
        once,
    })
}

impl Count {
    fn event(&mut self, event: Event) {
        match event {
            Event::Space(number) => self.at = number,
            Event::Touch { page, .. } => self.touch(page),
            Event::Mark => self.mark(),
            Event::Fork(child) => {
                let copy = self.space().clone();
                self.spaces.insert(child, copy);
            }
            Event::Exit => {
                self.gone(Span { start: 0, end: u64::MAX });
                self.spaces.remove(&self.at);
            }
            Event::Map(area) => {
                self.gone(area.span);
                let space = self.space();
                space.areas.cut(area.span);
                if area.span.count() > 0 {
                    space.areas.add(area);
                }
            }
            Event::Unmap(span) => {
                self.gone(span);
                self.space().areas.cut(span);
            }
            Event::Advise(span, Advice::Forget) => self.gone(span),
            Event::Move { from, to, keep } => self.relocate(from, to, keep),
            _ => {}
        }
    }

    fn space(&mut self) -> &mut Space {
        self.spaces.entry(self.at).or_default()
    }

    fn touch(&mut self, page: u64) {
        let now = self.now;
        let space = self.space();
        let area = space.areas.find(page).or_else(|| space.areas.grow(page));
        if area.is_some_and(|area| area.is_anon()) {
            space.pages.entry(page).or_insert(Page { born: now, last: now }).last = now;
        }
    }

    /// Pages of `span` are gone.
    fn gone(&mut self, span: Span) {
        let now = self.now;
        let space = self.space();
        let mut rest = space.pages.split_off(&span.start);
        let mut behind = rest.split_off(&span.end);
        space.pages.append(&mut behind);
        let lasting = rest.values().filter(|page| now - page.born >= 2);
        let once = lasting.clone().filter(|page| page.last == page.born).count() as u64;
        self.lasting += lasting.count() as u64;
        self.once += once;
    }

    fn relocate(&mut self, from: Span, to: Span, keep: bool) {
        if from.start != to.start {
            self.gone(to);
        }
        self.gone(Span { start: from.start + to.count(), end: from.end });
        let space = self.space();
        let mut moved = space.pages.split_off(&from.start);
        space.pages.append(&mut moved.split_off(&from.end));
        let place = |(page, it): (u64, Page)| (to.start + (page - from.start), it);
        space.pages.extend(moved.into_iter().map(place));
        space.areas.relocate(from, to, keep);
    }

    /// An interval ends.
    fn mark(&mut self) {
        let now = self.now;
        let pages = self.spaces.values().flat_map(|space| space.pages.values());
        let (mut all, mut old, mut cold) = (0_u64, 0_u64, 0_u64);
        for page in pages {
            all += 1;
            old += u64::from(page.born < now);
            cold += u64::from(page.last < now);
        }
        // The first interval has nothing that was there before it.
        if now > 0 && old > 0 {
            self.shares.push(cold as f64 / all as f64);
            self.used.push((all - cold) as f64);
        }
        self.now += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{Access, Area, Writer};

    /// 100 pages are written. Then, between marks: 50 of them are read, 50, and 20.
    fn tape(marks: usize) -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(1000, 100))));
        writer.push(Event::Begin);
        let touches = |count: u64| {
            (1000..1000 + count).map(|page| Event::Touch { page, access: Access::Write })
        };
        touches(100).for_each(|event| writer.push(event));
        for count in [50, 50, 20].into_iter().take(marks) {
            writer.push(Event::Mark);
            touches(count).for_each(|event| writer.push(event));
        }
        writer.push(Event::Mark);
        writer.push(Event::Exit);
        Tape { page: 4096, body: writer.finish(), ..Tape::default() }
    }

    #[test]
    fn f1_memory_that_is_not_used_between_two_marks_is_cold() {
        let it = cold(&tape(3)).unwrap();
        assert_eq!((it.samples, it.share.median, it.share.max), (3, 0.5, 0.8));
        assert_eq!((it.used.median, it.used.max), (50.0, 50.0));
        assert_eq!((it.lasting, it.once), (100, 50));
        assert_eq!(cold(&tape(0)), None);
    }

    #[test]
    fn f1_memory_that_goes_is_not_cold_any_more() {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        writer.push(Event::Map(Area::anon(Span::of(1000, 100))));
        let touch = |page| Event::Touch { page, access: Access::Write };
        (1000..1100).for_each(|page| writer.push(touch(page)));
        writer.push(Event::Mark);
        writer.push(Event::Unmap(Span::of(1000, 50)));
        let (from, to) = (Span::of(1050, 50), Span::of(5000, 50));
        writer.push(Event::Move { from, to, keep: false });
        writer.push(touch(5000));
        writer.push(Event::Mark);
        let tape = Tape { page: 4096, body: writer.finish(), ..Tape::default() };
        let it = cold(&tape).unwrap();
        assert_eq!((it.samples, it.share.median, it.used.median), (1, 0.98, 1.0));
    }
}
