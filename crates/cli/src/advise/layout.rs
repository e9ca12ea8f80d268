//! The private memory of a process, as it is at a moment.

use serde::{Deserialize, Serialize};

use super::linux::areas::Areas;
use super::linux::tables::{PAGES, Tables};
use crate::tape::{Area, Event, Span, Tape, Writer};

/// Areas of private memory, and the pages of them that the process has touched.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Layout {
    /// Each with its first page, and its advice about large folios.
    pub(in crate::advise) areas: Vec<(u64, u64, Option<bool>)>,
    /// Runs of touched pages, ascending.
    pub(in crate::advise) touched: Vec<(u64, u64)>,
}

impl Layout {
    /// Of a process with these areas and tables.
    pub(in crate::advise) fn of(areas: &Areas, tables: &mut Tables) -> Layout {
        let mut layout = Layout::default();
        for area in areas.iter().filter(|area| area.is_anon() && area.rights.write) {
            let before = layout.touched.len();
            let blocks = area.span.start / PAGES..area.span.end.div_ceil(PAGES);
            for block in tables.between(blocks.start, blocks.end) {
                let Some(table) = tables.get(block) else { continue };
                let part = Span::of(block * PAGES, PAGES).with(area.span);
                for page in part.start..part.end {
                    if table.is_touched((page % PAGES) as usize) {
                        layout.touch(page, before);
                    }
                }
            }
            if layout.touched.len() > before {
                layout.areas.push((area.span.start, area.span.count(), area.huge));
            }
        }
        layout
    }

    /// Adds a page behind all others; runs before number `first` are of other areas.
    fn touch(&mut self, page: u64, first: usize) {
        let next = self.touched.len() > first;
        match self.touched.last_mut().filter(|_| next) {
            Some((start, count)) if *start + *count == page => *count += 1,
            _ => self.touched.push((page, 1)),
        }
    }

    /// One area of `pages` pages, all of them touched.
    pub(in crate::advise) fn dense(pages: u64) -> Layout {
        let start = PAGES;
        Layout { areas: vec![(start, pages, None)], touched: vec![(start, pages)] }
    }

    /// `count` areas of one page, each in a block of its own.
    pub(in crate::advise) fn scattered(count: u64) -> Layout {
        let places: Vec<u64> = (1..=count).map(|at| at * PAGES).collect();
        Layout {
            areas: places.iter().map(|place| (*place, 1, None)).collect(),
            touched: places.iter().map(|place| (*place, 1)).collect(),
        }
    }

    /// The pages that a copy writes: each `every`th of the touched, none where that is 0.
    pub(in crate::advise) fn written(&self, every: u64) -> impl Iterator<Item = u64> {
        let all = self.touched.iter().flat_map(|(start, count)| *start..start + count);
        let none = every == 0;
        all.step_by(every.max(1) as usize).filter(move |_| !none)
    }

    /// A tape that builds it, and copies it `clones` times, where each copy writes each `every`th
    /// page.
    pub(in crate::advise) fn tape(&self, page: u64, clones: u32, every: u64) -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        for (start, count, huge) in &self.areas {
            let area = Area { huge: *huge, ..Area::anon(Span::of(*start, *count)) };
            writer.push(Event::Map(area));
        }
        let write = |page| Event::Touch { page, access: crate::tape::Access::Write };
        for (start, count) in &self.touched {
            (*start..start + count).for_each(|page| writer.push(write(page)));
        }
        for clone in 1..=clones {
            writer.push(Event::Fork(clone));
            writer.push(Event::Space(clone));
            self.written(every).for_each(|page| writer.push(write(page)));
            writer.push(Event::Space(0));
        }
        Tape { page, body: writer.finish(), ..Tape::default() }
    }
}
