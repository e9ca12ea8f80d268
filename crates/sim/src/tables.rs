//! Page tables as one would write them down without thinking of speed: a map from each page to its
//! frame, and a set of the tables that there are. There are no words and no runs.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_units::{Access, Order, PageSpan, Pfn, Prot, Vpn};

/// A mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaivePage {
    /// Its frame.
    pub frame: Pfn,
    /// Its rights, and the flags of its leaf.
    pub attrs: Attrs,
    /// The level of its leaf.
    pub level: Level,
}

/// Page tables of format `A`, a page at a time.
#[derive(Clone, Debug)]
pub struct NaiveTables<A> {
    pages: BTreeMap<u64, NaivePage>,
    /// Tables below the root, by level and first page.
    tables: BTreeSet<(usize, u64)>,
    arch: PhantomData<A>,
}

impl<A: Arch> Default for NaiveTables<A> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), tables: BTreeSet::new(), arch: PhantomData }
    }
}

fn pages_of(span: PageSpan) -> impl Iterator<Item = u64> {
    span.start.get()..span.end.get()
}

impl<A: Arch> NaiveTables<A> {
    /// A root and nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// The attributes that the format makes of `attrs`.
    pub fn normal(attrs: Attrs) -> Attrs {
        match A::decode(A::leaf(Pfn::new(0), Level::LAST, attrs), Level::LAST) {
            Entry::Leaf { attrs, .. } => attrs,
            other => unreachable!("a leaf is decoded as {other:?}"),
        }
    }

    /// The mapping of `page`.
    pub fn page(&self, page: Vpn) -> Option<NaivePage> {
        self.pages.get(&page.get()).copied()
    }

    /// All mapped pages, ascending.
    pub fn pages(&self) -> impl Iterator<Item = (Vpn, NaivePage)> + '_ {
        self.pages.iter().map(|(page, what)| (Vpn::new(*page), *what))
    }

    /// How many tables there are below the root.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// The pages of the leaf at `page`.
    pub fn leaf(&self, page: Vpn) -> Option<PageSpan> {
        self.page(page).map(|found| PageSpan::block(page, A::order(found.level)))
    }

    fn base(page: u64, level: usize) -> u64 {
        let level = Level::new(level as u8);
        page & !(A::order(level).pages() * A::entries(level) as u64 - 1)
    }

    /// Maps the pages of `span` to the frames from `frame` on, in the largest leaves that are
    /// aligned, fit, and have no table in their place. The first page that is mapped already, if
    /// one is; those before it are mapped then.
    pub fn map(&mut self, span: PageSpan, frame: Pfn, attrs: Attrs) -> Result<(), Vpn> {
        let mut at = span.start.get();
        while at < span.end.get() {
            if self.pages.contains_key(&at) {
                return Err(Vpn::new(at));
            }
            let to = frame.get() + (at - span.start.get());
            let fits = |&level: &usize| {
                let pages = A::order(Level::new(level as u8)).pages();
                let aligned = at.is_multiple_of(pages) && to.is_multiple_of(pages);
                let free = level == 0 || !self.tables.contains(&(level - 1, at));
                let legal = A::is_leaf_level(Level::new(level as u8));
                legal && aligned && free && at + pages <= span.end.get()
            };
            let best = (0..A::LEVELS.len()).rev().find(fits).unwrap_or(0);
            let level = Level::new(best as u8);
            for page in at..at + A::order(level).pages() {
                let frame = Pfn::new(to + (page - at));
                self.pages.insert(page, NaivePage { frame, attrs: Self::normal(attrs), level });
            }
            for level in best..A::ROOT.index() {
                self.tables.insert((level, Self::base(at, level)));
            }
            at += A::order(level).pages();
        }
        Ok(())
    }

    /// Unmaps the pages of `span`; no leaf reaches across its ends.
    pub fn take(&mut self, span: PageSpan) {
        self.pages.retain(|page, _| !span.contains(Vpn::new(*page)));
    }

    /// Gives the pages of `span` other rights.
    pub fn protect(&mut self, span: PageSpan, prot: Prot) {
        for (_, page) in self.pages.range_mut(span.start.get()..span.end.get()) {
            page.attrs = Self::normal(page.attrs.with_prot(prot));
        }
    }

    /// Splits the leaves that reach across the boundary before `page`; returns their number.
    pub fn isolate(&mut self, page: Vpn) -> u64 {
        let mut splits = 0;
        while let Some(leaf) = self.leaf(page).filter(|leaf| leaf.start < page) {
            for inner in pages_of(leaf) {
                let Some(found) = self.pages.get_mut(&inner) else { continue };
                if let Some(lower) = found.level.child() {
                    found.level = lower;
                    self.tables.insert((lower.index(), Self::base(page.get(), lower.index())));
                }
            }
            splits += 1;
        }
        splits
    }

    /// Removes the empty tables that translate a page of `span` and nothing outside `hole`.
    pub fn prune(&mut self, span: PageSpan, hole: PageSpan) {
        let pages = &self.pages;
        self.tables.retain(|&(level, base)| {
            let level = Level::new(level as u8);
            let end = base + A::order(level).pages() * A::entries(level) as u64;
            let reach = PageSpan::new(Vpn::new(base), Vpn::new(end));
            !span.overlaps(reach) || !hole.covers(reach) || pages.range(base..end).next().is_some()
        });
    }

    /// The aligned block around `page` that may be one translation: all its pages are mapped by
    /// leaves of one level to frames in step, with equal rights. (The frames are no folios', so
    /// that it does not matter where folios end.)
    pub fn contiguous(&self, page: Vpn) -> Option<PageSpan> {
        let found = self.page(page)?;
        let block = PageSpan::block(page, A::fold_order(found.level)?);
        let noted = Attrs::YOUNG | Attrs::DIRTY;
        let first = found.frame.get().checked_sub(page.offset_from(block.start))?;
        let fits = pages_of(block).all(|at| {
            self.pages.get(&at).is_some_and(|other| {
                let frame = first + (at - block.start.get());
                other.frame.get() == frame
                    && other.level == found.level
                    && other.attrs - noted == found.attrs - noted
            })
        });
        let aligned = first.is_multiple_of(block.count());
        (fits && aligned && found.attrs.intersects(Attrs::RIGHTS)).then_some(block)
    }

    /// Gives all pages of a contiguous block the flags of each of them. To be called after each
    /// change: the flags stay when the block ceases to be one.
    pub fn gather(&mut self) {
        let noted = Attrs::YOUNG | Attrs::DIRTY;
        let mut next = 0;
        while let Some((&page, _)) = self.pages.range(next..).next() {
            // Leaves are larger than the blocks of the level below them.
            let leaf = self.leaf(Vpn::new(page)).map_or(1, |leaf| leaf.count());
            let least = A::fold_order(Level::LAST).map_or(1, Order::pages).max(leaf);
            next = Vpn::new(page).align_down(least).add(least).get();
            let Some(block) = self.contiguous(Vpn::new(page)) else { continue };
            next = block.end.get();
            let all = self.pages.range(page..block.end.get());
            let all = all.fold(Attrs::empty(), |all, (_, found)| all | found.attrs & noted);
            self.pages.range_mut(page..block.end.get()).for_each(|(_, found)| found.attrs |= all);
        }
    }

    /// Whether a program may do `access` to `page`; if so, that is noted in the page's leaf.
    pub fn access(&mut self, page: Vpn, access: Access) -> bool {
        let Some(leaf) = self.leaf(page) else { return false };
        let allowed = self.page(page).is_some_and(|found| found.attrs.prot().allows(access));
        if allowed {
            let noted = match access {
                Access::Write => Attrs::YOUNG | Attrs::DIRTY,
                Access::Read | Access::Execute => Attrs::YOUNG,
            };
            for (_, found) in self.pages.range_mut(leaf.start.get()..leaf.end.get()) {
                found.attrs |= noted;
            }
        }
        allowed
    }
}
