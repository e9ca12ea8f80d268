//! The areas of one space, sorted by address.

use std::collections::BTreeMap;

use crate::tape::{Area, Backing, Rights, Span};

/// How far below a stack its next page may be.
const STACK: u64 = 1 << 14;

/// Areas by their first pages. None overlaps another.
#[derive(Clone, Default)]
pub(crate) struct Areas {
    all: BTreeMap<u64, Area>,
    /// The area that was found last.
    last: Option<Area>,
}

impl Areas {
    /// The area of `page`.
    pub(crate) fn find(&mut self, page: u64) -> Option<Area> {
        if let Some(last) = self.last.filter(|last| last.span.has(page)) {
            return Some(last);
        }
        let (_, area) = self.all.range(..=page).next_back()?;
        let found = Some(*area).filter(|area| area.span.has(page));
        if found.is_some() {
            self.last = found;
        }
        found
    }

    /// The first area that begins behind `page`.
    pub(crate) fn behind(&self, page: u64) -> Option<Area> {
        self.all.range(page + 1..).next().map(|(_, area)| *area)
    }

    /// All areas, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Area> {
        self.all.values()
    }

    /// The parts of areas within `span`, ascending.
    pub(crate) fn within(&self, span: Span) -> Vec<Area> {
        let first = self.all.range(..=span.start).next_back().map_or(span.start, |(at, _)| *at);
        let areas = self.all.range(first..span.end.max(first)).map(|(_, area)| area.part(span));
        areas.filter(|part| part.span.count() > 0).collect()
    }

    /// Whether any area has a page of `span`.
    pub(crate) fn any(&self, span: Span) -> bool {
        self.all.range(..span.end).next_back().is_some_and(|(_, area)| area.span.end > span.start)
    }

    /// Adds an area where none is; it joins its neighbours where it can.
    pub(crate) fn add(&mut self, area: Area) {
        self.last = None;
        let mut area = area;
        let before = self.all.range(..area.span.start).next_back().map(|(_, before)| *before);
        if let Some(before) = before.filter(|before| before.joins(&area)) {
            area = Area { span: Span { start: before.span.start, ..area.span }, ..before };
        }
        if let Some(next) = self.all.get(&area.span.end).copied().filter(|next| area.joins(next)) {
            self.all.remove(&next.span.start);
            area.span.end = next.span.end;
        }
        self.all.insert(area.span.start, area);
    }

    /// Takes all parts of areas within `span` away.
    pub(crate) fn cut(&mut self, span: Span) -> Vec<Area> {
        self.last = None;
        let parts = self.within(span);
        for part in &parts {
            let Some(whole) = self.find(part.span.start) else { continue };
            self.last = None;
            self.all.remove(&whole.span.start);
            for rest in [
                Span { start: whole.span.start, end: part.span.start },
                Span { start: part.span.end, end: whole.span.end },
            ] {
                if rest.count() > 0 {
                    self.all.insert(rest.start, whole.part(rest));
                }
            }
        }
        parts
    }

    /// Changes all parts of areas within `span`.
    pub(crate) fn change(&mut self, span: Span, change: impl Fn(&mut Area)) {
        for mut part in self.cut(span) {
            change(&mut part);
            self.add(part);
        }
    }

    /// The stack above `page`, grown down to it, if there is one.
    pub(crate) fn grow(&mut self, page: u64) -> Option<Area> {
        let stack = self.behind(page).filter(|area| area.grows)?;
        if stack.span.end - page > STACK {
            return None;
        }
        let mut grown = *self.cut(stack.span).first()?;
        grown.span.start = page;
        self.add(grown);
        Some(grown)
    }

    /// Puts the areas of `from` at `to`, where none is any more; with `keep`, they also stay. Pages
    /// of `from` beyond the end of a shorter target are gone already.
    pub(crate) fn relocate(&mut self, from: Span, to: Span, keep: bool) -> Moved {
        let kept = Span::of(from.start, from.count().min(to.count()));
        let more = Span { start: to.start + kept.count(), end: to.end };
        let last = self.within(kept).last().copied().filter(|_| more.count() > 0);
        let rest = last.map(|last| last.like(last.span.end, more));
        let mut moved = Moved { parts: Vec::new(), rest };
        if from.start != to.start {
            moved.parts = self.cut(kept);
        }
        for part in &moved.parts {
            let start = to.start + (part.span.start - from.start);
            self.add(Area { span: Span::of(start, part.span.count()), ..*part });
            if keep {
                self.add(*part);
            }
        }
        rest.into_iter().for_each(|rest| self.add(rest));
        moved
    }

    /// Changes the rights within `span`.
    pub(crate) fn protect(&mut self, span: Span, rights: Rights) {
        self.change(span, |area| area.rights = rights);
    }
}

/// The result of a move.
pub(crate) struct Moved {
    /// The areas that have another place now, as they were.
    pub(crate) parts: Vec<Area>,
    /// The new area behind them.
    pub(crate) rest: Option<Area>,
}

impl Area {
    /// An area like this one, whose page at `behind` would be the first of `span`.
    fn like(&self, behind: u64, span: Span) -> Area {
        let backing = match self.backing {
            Backing::File { file, first } => {
                Backing::File { file, first: first + (behind - self.span.start) }
            }
            other => other,
        };
        Area { span, backing, ..*self }
    }
}
