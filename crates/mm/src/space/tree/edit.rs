//! The operations on a tree: cut, set, replace, update. Each puts parts in place of the entries of
//! a leaf that have a page in a span, after one search:
//!
//! ```text
//!   old      | left | first  |     | last    | right |
//!   span            .   |................|   .
//!   new      | left | … | new or updated | … | right |     cut at its ends, then equal ones joined
//! ```

use core::fmt;
use core::ops::Range;

use arrayvec::ArrayVec;
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::AreaTree;
use super::entry::Entry;
use super::node::Node;
use super::write::{Located, Path, Step, TreeWriter};
use crate::space::area::Area;
use crate::sync::Ordering;

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

/// How many parts a step puts in place of entries.
const PARTS: usize = 8;

/// How many parts one entry adds at most: those before, within and behind the span.
const ADDS: usize = 3;

/// The parts that take the place of entries.
struct Parts(ArrayVec<Entry, PARTS>);

impl Parts {
    /// Adds a part, as one with the last if they are one area cut in two.
    #[inline]
    fn push(&mut self, part: Entry) {
        match self.0.last_mut() {
            _ if part.is_empty() => {}
            Some(last) if last.continues_in(&part) => *last = last.up_to(part.end()),
            _ => self.0.push(part),
        }
    }
}

impl<'a, H: Hardware, const CAP: usize> TreeWriter<'a, H, CAP> {
    /// Takes all pages of `span` out of their areas. One insertion at most, for an area that
    /// reaches beyond both ends.
    ///
    /// # Errors
    /// [`EditError::Lacks`].
    #[inline]
    pub fn cut(&self, span: PageSpan) -> Result<(), EditError> {
        // Only a hole in the middle of an area leaves one more area than before.
        let around = |area: Area| area.span.start < span.start && span.end < area.span.end;
        if self.lacks(1) > 0 && self.reader.seek(span.start).is_some_and(around) {
            self.provided(1)?;
        }
        self.change(|| self.cut_all(span));
        Ok(())
    }

    /// The same within a change, where nothing is lacking.
    pub(in crate::space) fn cut_all(&self, span: PageSpan) {
        self.exchange(&mut self.locate(span), None);
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
        let mut located = self.locate(area.span);
        if let Some((node, at)) = self.at(&located.path)
            && node.key(at) < area.span.end.get()
            && let Some(other) = node.entry(at).area()
        {
            return Err(EditError::Occupied(other));
        }
        self.provided(1)?;
        self.change(|| self.exchange(&mut located, Some(Entry::of(&area))));
        Ok(())
    }

    /// [`set`](Self::set)s an area, sooner where it lies behind all others.
    ///
    /// # Errors
    /// As for `set`.
    // Not inlined: its path is no part of the frame of a caller that goes deeper.
    #[inline(never)]
    pub fn append(&self, area: Area) -> Result<(), EditError> {
        let (entry, mut path) = (Entry::of(&area), Path::new());
        let is_behind = |last: Entry| last.end() <= entry.start() && !last.continues_in(&entry);
        if area.is_well_formed()
            && let Some(node) = self.last_leaf(&mut path).filter(|node| node.count < CAP)
            && is_behind(node.entry(node.count - 1))
        {
            self.change(|| {
                self.counted(1);
                self.swap(&path, node.count, true, 0, &[entry]);
            });
            return Ok(());
        }
        self.set(area)
    }

    /// The leaf with the last area, if there is one; `path` becomes the way there.
    fn last_leaf(&self, path: &mut Path) -> Option<Node<'a, H, CAP>> {
        let root = self.reader.tree.root();
        let (mut frame, mut leaf) = (root.frame, None);
        for _ in 0..root.depth {
            let node = self.reader.node(frame)?;
            let at = node.count.checked_sub(1)?;
            path.push(Step { frame, at });
            frame = node.child(at);
            leaf = Some(node);
        }
        leaf
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
        self.change(|| self.exchange(&mut self.locate(area.span), Some(Entry::of(&area))));
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
        self.update_at(&mut self.locate(span), update)
    }

    /// The same for the span that `located` is for.
    ///
    /// # Errors
    /// [`EditError::Lacks`].
    pub fn update_at(
        &self,
        located: &mut Located,
        mut update: impl FnMut(Area) -> Area,
    ) -> Result<(), EditError> {
        self.provided(2)?;
        self.change(|| self.update_all(located, &mut update));
        Ok(())
    }

    fn provided(&self, insertions: usize) -> Result<(), EditError> {
        match self.lacks(insertions) {
            0 => Ok(()),
            frames => Err(EditError::Lacks(frames)),
        }
    }

    /// Puts `new`, which has the pages of the span, or nothing, in place of the areas there.
    fn exchange(&self, located: &mut Located, new: Option<Entry>) {
        let Located { span, path } = located;
        let [start, end] = [span.start.get(), span.end.get()];
        loop {
            let Some((node, first)) = self.at(path).filter(|_| start < end) else {
                if let Some(new) = &new {
                    self.add(new);
                    self.merge_at(start);
                }
                return;
            };
            let mut upto = first;
            while upto < node.count && node.key(upto) < end {
                upto += 1;
            }
            // The first and the last area in the way: their ends outside of the span stay.
            let [head, tail] = match upto - first {
                0 => [Entry::EMPTY; 2],
                1 => [node.entry(first); 2],
                _ => [node.entry(first), node.entry(upto - 1)],
            };
            let is_last = upto < node.count || tail.end() >= end;
            if (first..upto).any(|at| node.shows(at)) {
                self.reader.tree.hid.store(1, Ordering::Relaxed);
            }
            let mut parts = Parts(ArrayVec::new());
            parts.push(head.before(start));
            if let Some(new) = new.filter(|_| is_last) {
                parts.push(new);
            }
            parts.push(tail.from(end));
            match &new {
                // Areas that were apart, or differed, still are and do: nothing can join.
                None => self.splice(path, &node, first..upto, &parts.0),
                Some(_) => self.put_parts(path, &node, first..upto, &mut parts.0),
            }
            if is_last {
                return;
            }
            self.find(start, path);
        }
    }

    fn update_all(&self, located: &mut Located, update: &mut dyn FnMut(Area) -> Area) {
        let Located { span, path } = located;
        let [mut at, end] = [span.start.get(), span.end.get()];
        while let Some((node, first)) = self.at(path) {
            let (mut upto, mut parts) = (first, Parts(ArrayVec::new()));
            while upto < node.count && node.key(upto) < end && parts.0.remaining_capacity() >= ADDS
            {
                let area = node.entry(upto);
                parts.push(area.before(at));
                let inside = area.from(at).before(end);
                parts.push(inside.area().map_or(inside, |area| {
                    let Area { prot, max_prot, flags, .. } = update(area);
                    Entry::of(&Area { prot, max_prot, flags, ..area })
                }));
                parts.push(area.from(end));
                (at, upto) = (inside.end().max(at), upto + 1);
            }
            let is_last = at >= end || upto < node.count && node.key(upto) >= end;
            self.put_parts(path, &node, first..upto, &mut parts.0);
            if is_last {
                return;
            }
            self.find(at, path);
        }
    }

    /// The leaf at the end of `path`, and the entry there.
    #[inline]
    fn at(&self, path: &Path) -> Option<(Node<'a, H, CAP>, usize)> {
        let step = path.last()?;
        Some((self.reader.node(step.frame)?, step.at))
    }

    /// Puts `parts` in place of the entries `old` of the leaf `node` at the end of `path`, joined
    /// with the neighbours that they continue. The order of areas stays as it is.
    fn put_parts(
        &self,
        path: &mut Path,
        node: &Node<'_, H, CAP>,
        old: Range<usize>,
        parts: &mut [Entry],
    ) {
        let (Range { mut start, mut end }, is_root) = (old, path.len() == 1);
        let mut seams = [None; 2];
        if let Some(first) = parts.first_mut() {
            if start == 0 {
                seams[0] = Some(first.start()).filter(|_| !is_root);
            } else if node.end(start - 1) == first.start() {
                let left = node.entry(start - 1);
                if left.continues_in(first) {
                    (start, *first) = (start - 1, left.up_to(first.end()));
                }
            }
        }
        if let Some(last) = parts.last_mut() {
            if end == node.count {
                seams[1] = Some(last.end()).filter(|_| !is_root);
            } else if node.key(end) == last.end() && last.continues_in(&node.entry(end)) {
                *last = last.up_to(node.end(end));
                end += 1;
            }
        }
        let mut parts = &*parts;
        while let [part, rest @ ..] = parts
            && start < end
            && node.end(start) == part.end()
            && node.entry(start) == *part
        {
            (parts, start) = (rest, start + 1);
        }
        self.splice(path, node, start..end, parts);
        seams.into_iter().flatten().for_each(|page| self.merge_at(page));
    }

    /// The same without neighbours.
    fn splice(&self, path: &mut Path, node: &Node<'_, H, CAP>, old: Range<usize>, parts: &[Entry]) {
        let (from, upto) = (old.start, old.end);
        let (old, count) = (upto - from, node.count + parts.len());
        let Some(step) = path.last_mut().filter(|_| old + parts.len() > 0) else { return };
        step.at = from;
        let least = if path.len() == 1 { 1 } else { AreaTree::<CAP>::MIN };
        if (old + least..=old + CAP).contains(&count) {
            self.counted(parts.len() as i64 - old as i64);
            return self.swap_in(path, node, from, true, old, parts);
        }
        // The node overflows, or becomes too empty.
        let both = old.min(parts.len());
        if both > 0 {
            self.swap(path, from, true, both, &parts[..both]);
            if let Some(step) = path.last_mut() {
                step.at += both;
            }
        }
        if old > both {
            self.erase(path, old - both);
        }
        parts[both..].iter().for_each(|part| self.add(part));
    }

    /// Merges the areas that meet at `page` in two leaves, if they can merge.
    fn merge_at(&self, page: u64) {
        let mut path = Path::new();
        let mut seek = |page| {
            let node = self.find(page, &mut path)?;
            Some(node.entry(path.last()?.at))
        };
        if let (Some(left), Some(right)) = (seek(page.saturating_sub(1)), seek(page))
            && left.continues_in(&right)
        {
            self.erase(&path, 1);
            if self.find(left.start(), &mut path).is_some()
                && let Some(step) = path.last()
            {
                let both = left.up_to(right.end());
                self.swap(&path, step.at, true, 1, &[both]);
            }
        }
    }
}
