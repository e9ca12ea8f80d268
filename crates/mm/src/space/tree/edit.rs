//! The operations on a tree: cut, set, replace, update.

use core::fmt;

use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn, Vpn};

use super::node::Entry;
use super::write::{Path, Step, TreeWriter};
use crate::space::area::Area;

/// The reason why a change was refused. The tree is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The stock is this many frames short.
    Lacks(usize),
    /// This area occupies some of the pages.
    Occupied(Area),
    /// This area has no pages, or more than its file.
    Malformed(Area),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::Lacks(frames) => write!(f, "the area tree lacks {frames} frames"),
            EditError::Occupied(area) => write!(f, "the area at {:?} is in the way", area.span),
            EditError::Malformed(area) => {
                write!(f, "{:?} of {:?} is no area", area.span, area.backing)
            }
        }
    }
}

impl core::error::Error for EditError {}

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Takes all pages of `span` out of their areas. `taken` gets the areas that go, in ascending
    /// order, those at the ends clipped to `span`. One insertion at most, for an area that reaches
    /// beyond both ends.
    ///
    /// Readers wait while this runs; `taken` must not read the tree.
    ///
    /// # Errors
    /// [`EditError::Lacks`].
    pub fn cut(&self, span: PageSpan, taken: impl FnMut(Area)) -> Result<(), EditError> {
        // Only a hole in the middle of an area leaves one more area than before.
        let around = |area: Area| area.span.start < span.start && span.end < area.span.end;
        if self.lacks(1) > 0 && self.area_from(span.start).is_some_and(around) {
            self.provided(1)?;
        }
        if !span.is_empty() {
            self.change(|| self.cut_all(span, taken));
        }
        Ok(())
    }

    /// Adds an area on free pages. Neighbours with the same attributes become one with it. One
    /// insertion at most.
    ///
    /// # Errors
    /// [`EditError::Malformed`], [`EditError::Occupied`], [`EditError::Lacks`], in this order.
    pub fn set(&self, area: Area) -> Result<(), EditError> {
        if !area.is_well_formed() {
            return Err(EditError::Malformed(area));
        }
        let mut path = Path::new();
        let next = self.seek(area.span.start.get(), &mut path);
        let next = next.and_then(|entry| Area::unpack(entry.0));
        if let Some(other) = next.filter(|next| next.span.start < area.span.end) {
            return Err(EditError::Occupied(other));
        }
        self.provided(1)?;
        self.change(|| match &next {
            Some(right) if path.steps[0].at() > 0 => self.join_between(&mut path, right, &area),
            _ => self.join_in(&area),
        });
        Ok(())
    }

    /// [`cut`](Self::cut)s out the pages of `area` and [`set`](Self::set)s it, as one change. Two
    /// insertions at most.
    ///
    /// # Errors
    /// [`EditError::Malformed`], [`EditError::Lacks`].
    pub fn replace(&self, area: Area, taken: impl FnMut(Area)) -> Result<(), EditError> {
        if !area.is_well_formed() {
            return Err(EditError::Malformed(area));
        }
        self.provided(2)?;
        self.change(|| {
            self.cut_all(area.span, taken);
            self.join_in(&area);
        });
        Ok(())
    }

    /// Gives the areas in `span` other rights, bounds and flags: `update` gets each area's part
    /// within `span`, in ascending order, and returns its new `prot`, `max_prot` and `flags`; the
    /// span and backing of the answer are ignored. Areas at the ends are split where the answer
    /// differs, and neighbours that became equal become one. Free pages stay free. Two insertions
    /// at most.
    ///
    /// Readers wait while this runs; `update` must not read the tree.
    ///
    /// # Errors
    /// [`EditError::Lacks`].
    pub fn update(
        &self,
        span: PageSpan,
        update: impl FnMut(Area) -> Area,
    ) -> Result<(), EditError> {
        self.provided(2)?;
        if !span.is_empty() {
            self.change(|| self.update_all(span, update));
        }
        Ok(())
    }

    fn provided(&self, insertions: usize) -> Result<(), EditError> {
        match self.lacks(insertions) {
            0 => Ok(()),
            frames => Err(EditError::Lacks(frames)),
        }
    }

    pub(in crate::space) fn cut_all(&self, span: PageSpan, mut taken: impl FnMut(Area)) {
        let mut path = Path::new();
        while let Some(entry) = self.seek(span.start.get(), &mut path) {
            let Some(area) = Area::unpack(entry.0).filter(|area| area.span.overlaps(span)) else {
                return;
            };
            if span.covers(area.span) {
                let (count, end) = self.tell_run(path.steps[0], span, &mut taken);
                self.erase(&path, count);
                if end == span.end {
                    return;
                }
                continue;
            }
            taken(area.clipped(span));
            let (head, _) = area.split_at(span.start);
            let (_, tail) = area.split_at(span.end);
            if head.span.is_empty() {
                return self.put(&path, Entry(tail.pack()));
            }
            self.put(&path, Entry(head.pack()));
            if !tail.span.is_empty() {
                return self.add(Entry(tail.pack()));
            }
        }
    }

    /// Calls `taken` with the areas of one leaf, from `step` on, that lie within `span`; returns
    /// how many, and the end of the last one.
    fn tell_run(&self, step: Step, span: PageSpan, taken: &mut impl FnMut(Area)) -> (usize, Vpn) {
        let Some(node) = self.nodes.node(step.frame()) else { return (0, span.start) };
        let mut end = span.start;
        let areas = (step.at()..node.count)
            .map_while(|at| Area::unpack(node.entry(at).0).filter(|area| span.covers(area.span)));
        let count = areas.inspect(|area| end = area.span.end).map(taken).count();
        (count, end)
    }

    /// Puts `area` onto free pages before `right`, the area at the end of `path`, where the area
    /// before these pages is in the same leaf: as [`join_in`](Self::join_in), without a search.
    fn join_between(&self, path: &mut Path, right: &Area, area: &Area) {
        let step = path.steps[0];
        let left = self.nodes.node(step.frame()).map(|node| node.entry(step.at() - 1));
        let left = left.and_then(|entry| Area::unpack(entry.0));
        match (left.filter(|left| left.can_merge(area)), area.can_merge(right)) {
            (Some(_), true) => self.join_in(area),
            (Some(left), false) => {
                path.steps[0] = Step::new(step.frame(), step.at() - 1);
                let span = PageSpan::new(left.span.start, area.span.end);
                self.put(path, Entry(Area { span, ..left }.pack()));
            }
            (None, true) => {
                let span = PageSpan::new(area.span.start, right.span.end);
                self.put(path, Entry(Area { span, ..*area }.pack()));
            }
            (None, false) => {
                self.counted(1);
                self.add_at(path, Entry(area.pack()));
            }
        }
    }

    /// Puts `area` onto free pages, merged with the neighbours that it continues.
    fn join_in(&self, area: &Area) {
        let (before, after) = self.meeting(area.span);
        let before = before.filter(|left| left.can_merge(area));
        let after = after.filter(|right| area.can_merge(right));
        let Some(right) = after else {
            return match before {
                Some(left) => self.extend(left, area.span.end),
                None => self.add(Entry(area.pack())),
            };
        };
        if let Some(left) = before {
            self.drop_at(right.span.start);
            self.extend(left, right.span.end);
        } else {
            let span = PageSpan::new(area.span.start, right.span.end);
            self.put_at(right.span.start, Area { span, ..*area });
        }
    }

    fn update_all(&self, span: PageSpan, mut update: impl FnMut(Area) -> Area) {
        let mut at = span.start;
        let mut changed = false;
        let mut path = Path::new();
        while let Some(entry) = self.seek(at.get(), &mut path) {
            let Some(area) = Area::unpack(entry.0).filter(|area| area.span.overlaps(span)) else {
                break;
            };
            let old = area.clipped(PageSpan::new(at, span.end));
            let asked = update(old);
            let new =
                Area { prot: asked.prot, max_prot: asked.max_prot, flags: asked.flags, ..old };
            // Compared as stored, so that bits without a meaning change nothing.
            let differs = new.pack() != old.pack();
            if differs {
                self.change_part(&path, area, new);
            }
            if differs || changed {
                self.merge_at(old.span.start);
            }
            changed = differs;
            at = old.span.end;
            if at >= span.end {
                break;
            }
        }
        if changed {
            self.merge_at(at);
        }
    }

    /// Puts `part`, which has other attributes, in place of its pages of `whole`, the area at the
    /// end of `path`.
    fn change_part(&self, path: &Path, whole: Area, part: Area) {
        let (head, _) = whole.split_at(part.span.start);
        let (_, tail) = whole.split_at(part.span.end);
        if head.span.is_empty() {
            self.put(path, Entry(part.pack()));
        } else {
            self.put(path, Entry(head.pack()));
            self.add(Entry(part.pack()));
        }
        if !tail.span.is_empty() {
            self.add(Entry(tail.pack()));
        }
    }

    /// Merges the areas that meet at `page`, if they can merge.
    fn merge_at(&self, page: Vpn) {
        let (Some(left), Some(right)) = self.meeting(PageSpan::new(page, page)) else { return };
        if left.can_merge(&right) {
            self.drop_at(page);
            self.extend(left, right.span.end);
        }
    }

    /// The areas that end where `free`, which has none, begins, and that begin where it ends: with
    /// one search, where one leaf holds both.
    fn meeting(&self, free: PageSpan) -> (Option<Area>, Option<Area>) {
        let mut place = None;
        let last = free.start.get().checked_sub(1);
        let first = last.and_then(|page| {
            self.nodes.seek(self.tree.root(), page, |level, frame, at| {
                place = (level == 0).then_some((frame, at));
            })
        });
        let left = first.and_then(|entry| Area::unpack(entry.0));
        let left = left.filter(|area| area.span.end == free.start);
        let right = match (left, first) {
            (None, Some(entry)) => Area::unpack(entry.0),
            _ => self.behind(place, free.end),
        };
        (left, right.filter(|area| area.span.start == free.end))
    }

    /// The entry of a leaf behind `place`, or else the first area that ends after `page`.
    fn behind(&self, place: Option<(Pfn, usize)>, page: Vpn) -> Option<Area> {
        let next = place.and_then(|(frame, at)| {
            let node = self.nodes.node(frame)?;
            (at + 1 < node.count).then(|| node.entry(at + 1))
        });
        match next {
            Some(entry) => Area::unpack(entry.0),
            None => self.area_from(page),
        }
    }

    fn area_from(&self, page: Vpn) -> Option<Area> {
        Area::unpack(self.nodes.seek(self.tree.root(), page.get(), |_, _, _| ())?.0)
    }

    /// Lets `area`, which is in the tree, end at `end`.
    fn extend(&self, area: Area, end: Vpn) {
        let span = PageSpan::new(area.span.start, end);
        self.put_at(area.span.start, Area { span, ..area });
    }

    /// Puts `area` in place of the one that begins at `page`.
    fn put_at(&self, page: Vpn, area: Area) {
        let mut path = Path::new();
        if self.seek(page.get(), &mut path).is_some() {
            self.put(&path, Entry(area.pack()));
        }
    }

    /// Takes out the area that begins at `page`.
    fn drop_at(&self, page: Vpn) {
        let mut path = Path::new();
        if self.seek(page.get(), &mut path).is_some() {
            self.erase(&path, 1);
        }
    }
}
