//! The areas of an address space as one would write them down without thinking of speed: a map
//! from each page to an area of that one page. There are no nodes, no splits and no merges; what
//! belongs together is put together when it is asked for.

use std::collections::BTreeMap;

use quire::space::Area;
use quire_units::{Order, PageSpan, Vpn};

/// Areas, a page at a time.
#[derive(Clone, Debug, Default)]
pub struct NaiveAreas {
    pages: BTreeMap<u64, Area>,
}

fn pages_of(span: PageSpan) -> impl Iterator<Item = u64> {
    span.start.get()..span.end.get()
}

fn one_page(area: Area, page: u64) -> Area {
    let page = Vpn::new(page);
    area.clipped(PageSpan::new(page, page.add(1)))
}

/// The longest areas that the pages in ascending order make.
pub(crate) fn merged(pages: impl Iterator<Item = Area>) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for page in pages {
        match areas.last_mut() {
            Some(last) if last.can_merge(&page) => last.span.end = page.span.end,
            _ => areas.push(page),
        }
    }
    areas
}

impl NaiveAreas {
    /// No areas.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps the pages of `area`; `false`, and nothing is mapped, if one of them is taken.
    pub fn set(&mut self, area: Area) -> bool {
        let free = pages_of(area.span).all(|page| !self.pages.contains_key(&page));
        if free {
            self.pages.extend(pages_of(area.span).map(|page| (page, one_page(area, page))));
        }
        free
    }

    /// Unmaps the pages of `span`.
    pub fn cut(&mut self, span: PageSpan) {
        self.pages.retain(|page, _| !span.contains(Vpn::new(*page)));
    }

    /// Maps the pages of `area`, whatever was there.
    pub fn replace(&mut self, area: Area) {
        self.cut(area.span);
        self.set(area);
    }

    /// Gives each mapped page of `span` the rights and flags that `update` answers with.
    pub fn update(&mut self, span: PageSpan, update: impl Fn(Area) -> Area) {
        for (_, page) in self.pages.range_mut(span.start.get()..span.end.get()) {
            let Area { prot, max_prot, flags, .. } = update(*page);
            *page = Area { prot, max_prot, flags, ..*page };
        }
    }

    /// The area of one page that holds `page`.
    pub fn page(&self, page: Vpn) -> Option<Area> {
        self.pages.get(&page.get()).copied()
    }

    /// All areas, ascending, as long as they can be.
    pub fn areas(&self) -> Vec<Area> {
        merged(self.pages.values().copied())
    }

    /// The stretches of free pages in `within`, ascending, as long as they can be.
    pub fn gaps(&self, within: PageSpan) -> Vec<PageSpan> {
        let mut gaps: Vec<PageSpan> = Vec::new();
        for page in pages_of(within).filter(|page| !self.pages.contains_key(page)).map(Vpn::new) {
            match gaps.last_mut() {
                Some(last) if last.end == page => last.end = page.add(1),
                _ => gaps.push(PageSpan::new(page, page.add(1))),
            }
        }
        gaps
    }

    /// The highest `pages` free pages in `within` that begin at a multiple of `align`.
    pub fn find_gap(&self, pages: u64, align: Order, within: PageSpan) -> Option<PageSpan> {
        let free = |start: &u64| {
            let place = start.is_multiple_of(align.pages())
                && pages_of(PageSpan::at(Vpn::new(*start), pages)?)
                    .all(|page| !self.pages.contains_key(&page));
            place.then_some(PageSpan::at(Vpn::new(*start), pages)?)
        };
        let last = within.end.get().checked_sub(pages)?;
        (within.start.get()..last + 1).rev().find_map(|start| free(&start))
    }
}
