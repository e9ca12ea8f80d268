//! Sharing of memory between spaces as one would write it down without thinking of speed: each page
//! knows for itself whether others may have its frame, and what its leaf has to remember.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use quire::space::AreaFlags;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use crate::space::NaiveSpace;

/// A page that is resident.
#[derive(Clone, Debug)]
pub struct Resident {
    /// The frame behind it.
    pub frame: Pfn,
    /// Others may have the frame as well, so that a write must copy it or claim it.
    pub cow: bool,
    /// A program has touched it, and the leaf may not forget that.
    pub young: bool,
    /// A program has written it, and the leaf may not forget that (I5).
    pub dirty: bool,
    /// The word that a program left there; spaces that share memory have one word together.
    pub word: Rc<Cell<u64>>,
    /// The mark in the rest of it since it was new.
    pub mark: u64,
}

impl Resident {
    /// Zeroes and the mark; no program has touched it.
    pub fn new(frame: Pfn, mark: u64) -> Self {
        let word = Rc::new(Cell::new(0));
        Self { frame, cow: false, young: false, dirty: false, word, mark }
    }

    /// The same memory, with a word of its own.
    fn copied(&self) -> Self {
        Self { word: Rc::new(Cell::new(self.word.get())), ..self.clone() }
    }
}

impl NaiveSpace {
    /// Forks: changes the parent, and returns the child and those of its pages that are copies
    /// already. These still have the parent's frames in the model: the caller must look up theirs.
    /// `pinned` tells whether the folio of a frame is pinned.
    pub fn fork(&mut self, pinned: impl Fn(Pfn) -> bool) -> (Self, BTreeSet<u64>) {
        let mut child = self.clone();
        child.areas = self.areas.inherited();
        child.resident = BTreeMap::new();
        let mut copies = BTreeSet::new();
        for (&page, here) in &mut self.resident {
            let flags = self.areas.page(Vpn::new(page)).map_or(AreaFlags::DONTFORK, |a| a.flags);
            if flags.intersects(AreaFlags::DONTFORK | AreaFlags::WIPEONFORK) {
                continue;
            }
            if flags.contains(AreaFlags::SHARED) {
                child.resident.insert(page, here.clone());
                continue;
            }
            if !here.cow && pinned(here.frame) {
                copies.insert(page);
            } else {
                here.cow = true;
            }
            child.resident.insert(page, here.copied());
        }
        (child, copies)
    }

    /// Whether a fork gives the child what is at `page` until one of the two writes it.
    pub fn is_lent(&self, page: Vpn) -> bool {
        let others = AreaFlags::SHARED | AreaFlags::DONTFORK | AreaFlags::WIPEONFORK;
        self.areas.page(page).is_some_and(|area| !area.flags.intersects(others))
    }

    /// Whether all pages of `span` lie in one area.
    pub fn is_one_area(&self, span: PageSpan) -> bool {
        let areas = self.areas_in(span);
        areas.len() == 1 && areas[0].span.covers(span)
    }

    /// The longest stretch of pages around `page`, which is COW, that are COW as well and have
    /// consecutive frames, and satisfy `also`.
    pub fn stretch(&self, page: u64, also: impl Fn(&Resident) -> bool) -> PageSpan {
        let Some(here) = self.resident.get(&page) else {
            return PageSpan::new(Vpn::new(page), Vpn::new(page));
        };
        let goes_on = |other: u64| {
            let frame = here.frame.get() + other - page;
            let other = self.resident.get(&other);
            other.is_some_and(|other| other.cow && other.frame.get() == frame && also(other))
        };
        let start = (0..page).rev().take_while(|&at| goes_on(at)).last().unwrap_or(page);
        let end = (page + 1..).take_while(|&at| goes_on(at)).last().unwrap_or(page) + 1;
        PageSpan::new(Vpn::new(start), Vpn::new(end))
    }

    /// The largest of `orders` for which the block around `page` lies in `within`.
    pub fn block_in(page: Vpn, within: PageSpan, orders: u32) -> Order {
        let fits = |&order: &u8| {
            let wanted = order == 0 || orders >> order & 1 != 0;
            wanted && within.covers(PageSpan::block(page, Order::new(order)))
        };
        Order::new((0..32).rev().find(fits).unwrap_or(0))
    }
}
