//! The operations on a tree: cut, set, replace, update.

use core::fmt;

use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::AreaTree;
use super::write::{Path, TreeWriter};
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

/// The areas around a page where two of them meet, or a new one may begin.
struct Place {
    /// The area that ends there.
    left: Option<Area>,
    /// The first area that ends later.
    right: Option<Area>,
}

impl<H: Hardware, const CAP: usize> TreeWriter<'_, H, CAP> {
    /// Takes all pages of `span` out of their areas. One insertion at most, for an area that
    /// reaches beyond both ends.
    ///
    /// # Errors
    /// [`EditError::Lacks`].
    pub fn cut(&self, span: PageSpan) -> Result<(), EditError> {
        // Only a hole in the middle of an area leaves one more area than before.
        let around = |area: Area| area.span.start < span.start && span.end < area.span.end;
        if self.lacks(1) > 0 && self.reader.seek(span.start).is_some_and(around) {
            self.provided(1)?;
        }
        if !span.is_empty() {
            self.change(|| self.cut_all(span));
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
        let place = self.place(area.span.start, &mut path);
        if let Some(other) = &place.right
            && other.span.start < area.span.end
        {
            return Err(EditError::Occupied(*other));
        }
        self.provided(1)?;
        self.change(|| self.join_in(&mut path, &place, &area));
        Ok(())
    }

    /// [`cut`](Self::cut)s out the pages of `area` and [`set`](Self::set)s it, as one change. Two
    /// insertions at most.
    ///
    /// # Errors
    /// [`EditError::Malformed`], [`EditError::Lacks`].
    pub fn replace(&self, area: Area) -> Result<(), EditError> {
        if !area.is_well_formed() {
            return Err(EditError::Malformed(area));
        }
        self.provided(2)?;
        self.change(|| {
            self.cut_all(area.span);
            let mut path = Path::new();
            let place = self.place(area.span.start, &mut path);
            self.join_in(&mut path, &place, &area);
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

    pub(in crate::space) fn cut_all(&self, span: PageSpan) {
        let mut path = Path::new();
        while let Some(area) = self.seek(span.start, &mut path)
            && let Some(step) = path.last()
            && area.span.overlaps(span)
        {
            if span.covers(area.span) {
                let Some(node) = self.reader.node(step.frame) else { return };
                let ends = (step.at..node.count).map(|at| Vpn::new(node.end(at)));
                let covered = ends.take_while(|end| *end <= span.end);
                let (count, last) = covered.fold((0, area.span.end), |(at, _), end| (at + 1, end));
                self.erase(&path, count);
                if last == span.end {
                    return;
                }
                continue;
            }
            self.put_parts(&path, &[area.split_at(span.start).0, area.split_at(span.end).1]);
            if area.span.end >= span.end {
                return;
            }
        }
    }

    fn update_all(&self, span: PageSpan, mut update: impl FnMut(Area) -> Area) {
        let (mut at, mut changed) = (span.start, false);
        let mut path = Path::new();
        while at < span.end
            && let Some(area) = self.seek(at, &mut path)
            && area.span.overlaps(span)
        {
            let old = area.clipped(PageSpan::new(at, span.end));
            let Area { prot, max_prot, flags, .. } = update(old);
            let new = Area { prot, max_prot, flags, ..old };
            // Compared as stored, so that bits without a meaning change nothing.
            let differs = new.pack() != old.pack();
            let (head, tail) = (area.split_at(old.span.start).0, area.split_at(old.span.end).1);
            if differs {
                self.put_parts(&path, &[head, new, tail]);
            }
            // A part that was split off stays as it was, and so differs from its neighbour.
            if head.span.is_empty() && (differs || changed) {
                self.merge_at(old.span.start);
            }
            (at, changed) = (old.span.end, differs && tail.span.is_empty());
        }
        if changed {
            self.merge_at(at);
        }
    }

    /// Puts those of `parts` that have pages in place of the area at the end of `path`.
    fn put_parts<const N: usize>(&self, path: &Path, parts: &[Area; N]) {
        let mut parts = parts.iter().filter(|part| !part.span.is_empty());
        let more = parts.clone().count().saturating_sub(1);
        let (Some(step), Some(first)) = (path.last(), parts.next()) else { return };
        if more == 0 || self.reader.count(step.frame) + more > CAP {
            self.put(path, first);
            return parts.for_each(|part| self.add(part));
        }
        let mut entries = [first.pack(); N];
        parts.zip(&mut entries[1..]).for_each(|(part, entry)| *entry = part.pack());
        self.counted(more as i64);
        self.swap(path, step.at, true, 1, &entries[..=more]);
    }

    /// The place at `page`: with one search, where one leaf holds both of its areas. `path` becomes
    /// the way to the left one, or else to the right one.
    fn place(&self, page: Vpn, path: &mut Path) -> Place {
        let first = self.seek(Vpn::new(page.get().saturating_sub(1)), path);
        let (Some(left), Some(step)) = (first.filter(|area| area.span.end == page), path.last())
        else {
            return Place { left: None, right: first };
        };
        let node = self.reader.node(step.frame).filter(|node| step.at + 1 < node.count);
        let right = match node {
            Some(node) => Area::unpack(node.entry(step.at + 1)),
            None => self.reader.seek(page),
        };
        Place { left: Some(left), right }
    }

    /// Puts `area` onto free pages at `place`, to which `path` leads, merged with the neighbours
    /// that it continues.
    fn join_in(&self, path: &mut Path, place: &Place, area: &Area) {
        let Place { left, right } = place;
        let before = left.as_ref().filter(|left| left.can_merge(area));
        let after = right.as_ref().filter(|right| area.can_merge(right));
        match (before, after) {
            (Some(left), Some(right)) => self.merge(path, left, right),
            (Some(left), None) => self.put(path, &up_to(left, area.span.end)),
            (None, Some(right)) => {
                let joined = up_to(area, right.span.end);
                if left.is_none() {
                    self.put(path, &joined);
                } else {
                    self.put_at(right.span.start, &joined);
                }
            }
            (None, None) if left.is_none() && right.is_none() => self.add(area),
            (None, None) => {
                if let Some(step) = path.last_mut() {
                    step.at += usize::from(left.is_some());
                }
                self.add_at(path, area);
            }
        }
    }

    /// Merges the areas that meet at `page`, if they can merge.
    fn merge_at(&self, page: Vpn) {
        let mut path = Path::new();
        if let Place { left: Some(left), right: Some(right) } = &self.place(page, &mut path)
            && left.can_merge(right)
        {
            self.merge(&path, left, right);
        }
    }

    /// Lets `left`, to which `path` leads, go on to the end of `right`, in place of which it is.
    fn merge(&self, path: &Path, left: &Area, right: &Area) {
        let both = up_to(left, right.span.end);
        if let Some(step) = path.last() {
            let count = self.reader.count(step.frame);
            if step.at + 1 < count && (count > AreaTree::<CAP>::MIN || path.len() == 1) {
                self.counted(-1);
                return self.swap(path, step.at, true, 2, &[both.pack()]);
            }
        }
        let mut path = Path::new();
        if self.seek(right.span.start, &mut path).is_some() {
            self.erase(&path, 1);
        }
        self.put_at(left.span.start, &both);
    }

    /// Puts `area` in place of the one that holds `page`.
    fn put_at(&self, page: Vpn, area: &Area) {
        let mut path = Path::new();
        if self.seek(page, &mut path).is_some() {
            self.put(&path, area);
        }
    }
}

/// `area`, but with this end.
fn up_to(area: &Area, end: Vpn) -> Area {
    Area { span: PageSpan::new(area.span.start, end), ..*area }
}
