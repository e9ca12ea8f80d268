//! The background: it makes blocks of pages that lie in a block's place (khugepaged).

use super::fault::Counts;
use super::folios::Folios;
use super::rules::{BLOCK, Setting, Word};
use super::space::Space;
use super::tables::{Body, Entry, PAGES};
use crate::advise::memory::Pace;
use crate::tape::Span;

/// Where the background is.
#[derive(Default)]
pub(super) struct Background {
    waited: u64,
    /// The next block to look at, of all spaces.
    at: (u32, u64),
}

impl Background {
    /// Time passes; a round begins when it is due.
    pub(super) fn pass(
        &mut self,
        ms: u64,
        spaces: &mut [Option<Space>],
        with: (&Setting, &Pace, &mut Folios),
        counts: &mut Counts,
    ) {
        let (setting, pace, folios) = with;
        self.waited += ms;
        while self.waited >= pace.pause {
            self.waited -= pace.pause;
            self.round(spaces, (setting, pace), folios, counts);
        }
    }

    fn round(
        &mut self,
        spaces: &mut [Option<Space>],
        rules: (&Setting, &Pace),
        folios: &mut Folios,
        counts: &mut Counts,
    ) {
        let mut left = rules.1.pages;
        let (first, mut from) = self.at;
        for (number, space) in spaces.iter_mut().enumerate().skip(first as usize) {
            let Some(space) = space else { continue };
            for block in space.tables.between(from, u64::MAX) {
                if left == 0 {
                    self.at = (number as u32, block);
                    return;
                }
                left = left.saturating_sub(PAGES);
                collapse(space, block, rules, folios, counts);
            }
            from = 0;
        }
        self.at = (0, 0);
    }
}

/// Makes a block of one table's pages, if the rules allow it; whether they did.
pub(super) fn collapse(
    space: &mut Space,
    block: u64,
    (setting, pace): (&Setting, &Pace),
    folios: &mut Folios,
    counts: &mut Counts,
) -> bool {
    let span = Span::of(block * PAGES, PAGES);
    let Some(area) = space.areas.find(span.start).filter(|area| area.span.covers(span)) else {
        return false;
    };
    let Some(table) = space.tables.get(block) else { return false };
    let Body::Pages(all) = &table.body else { return false };
    let count = |is: fn(&Entry) -> bool| all.iter().filter(|entry| is(entry)).count() as u64;
    let present = count(|entry| entry.folio().is_some());
    let shared = count(|entry| entry.folio().is_some() && !entry.is_own());
    let swapped = count(|entry| entry.slot().is_some());
    let empty = PAGES - present - swapped;
    if setting.orders(&area) >> BLOCK & 1 == 0
        || present == 0
        || empty > pace.none
        || shared > pace.shared
        || swapped > pace.swapped
        || !folios.have_room(PAGES)
    {
        return false;
    }
    for entry in **all {
        entry.folio().into_iter().for_each(|folio| folios.unmap(folio, space.number, 1));
        entry.slot().into_iter().for_each(|slot| folios.device.release(slot));
    }
    let folio = folios.make(BLOCK, space.number, (span.start, PAGES as u32));
    table.body = Body::Block(Entry::of(folio, true));
    counts.collapsed += 1;
    counts.copied += present;
    counts.cleared += empty;
    counts.back += swapped;
    space.came(empty + swapped);
    true
}

/// Makes blocks of all that lies in `span` because the program asks for it, whatever the switches
/// say.
pub(super) fn asked(space: &mut Space, span: Span, folios: &mut Folios, counts: &mut Counts) {
    let mut setting = Setting::never();
    setting.sizes[BLOCK as usize] = Word::Always;
    for block in space.tables.between(span.start.div_ceil(PAGES), span.end / PAGES) {
        collapse(space, block, (&setting, &Pace::asked()), folios, counts);
    }
}
