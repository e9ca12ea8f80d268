//! The areas of one space, sorted by address.

use std::collections::BTreeMap;

use crate::tape::{Area, Rights, Span};

/// Areas by their first pages. None overlaps another.
#[derive(Clone, Default)]
pub(super) struct Areas {
    all: BTreeMap<u64, Area>,
    /// The area that was found last.
    last: Option<Area>,
}

impl Areas {
    /// The area of `page`.
    pub(super) fn find(&mut self, page: u64) -> Option<Area> {
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
    pub(super) fn behind(&self, page: u64) -> Option<Area> {
        self.all.range(page + 1..).next().map(|(_, area)| *area)
    }

    /// All areas, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Area> {
        self.all.values()
    }

    /// The parts of areas within `span`, ascending.
    pub(super) fn within(&self, span: Span) -> Vec<Area> {
        let first = self.all.range(..=span.start).next_back().map_or(span.start, |(at, _)| *at);
        let areas = self.all.range(first..span.end.max(first)).map(|(_, area)| area.part(span));
        areas.filter(|part| part.span.count() > 0).collect()
    }

    /// Whether any area has a page of `span`.
    pub(super) fn any(&self, span: Span) -> bool {
        self.all.range(..span.end).next_back().is_some_and(|(_, area)| area.span.end > span.start)
    }

    /// Adds an area where none is; it joins its neighbours where it can.
    pub(super) fn add(&mut self, area: Area) {
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
    pub(super) fn cut(&mut self, span: Span) -> Vec<Area> {
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
    pub(super) fn change(&mut self, span: Span, change: impl Fn(&mut Area)) {
        for mut part in self.cut(span) {
            change(&mut part);
            self.add(part);
        }
    }

    /// Changes the rights within `span`.
    pub(super) fn protect(&mut self, span: Span, rights: Rights) {
        self.change(span, |area| area.rights = rights);
    }
}
