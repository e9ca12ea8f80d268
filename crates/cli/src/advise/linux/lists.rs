//! Which folios were used lately: Linux's two lists, without generations (`lru_gen` off).
//!
//! ```text
//!   new ──► inactive ──scanned──► not accessed since: leaves
//!              ▲  │                 accessed once: back to the inactive list
//!              │  └──────────────── accessed twice ──► active
//!              └── while active is known as the longer ─┘
//! ```

use std::collections::VecDeque;

use super::folios::{FolioId, Folios};

/// A folio's place in the lists.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Place {
    /// A program has accessed it since the last scan; a scan has seen that once before.
    pub(super) accessed: bool,
    seen: bool,
    active: bool,
    /// Counts its moves: an element of a list with another number is none.
    turn: u32,
}

impl Place {
    /// Of a folio that has the number of one that is gone.
    pub(super) fn after(gone: Place) -> Place {
        Place { turn: gone.turn, ..Place::default() }
    }
}

/// The lists, from the folios to scan next on.
pub(super) struct Lists {
    queues: [VecDeque<(FolioId, u32)>; 2],
    /// Pages in each.
    pub(super) pages: [u64; 2],
    /// Pages that left or became active until now.
    pub(super) age: u64,
    /// Folios that became active by coming back.
    returns: u64,
    /// The pages in each list, and `returns`, when the statistics were last brought together.
    pub(super) known: ([u64; 2], u64),
    /// `returns` as reclaim knew it at its end.
    seen: u64,
    /// Milliseconds until the statistics are brought together again.
    due: u64,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists {
            queues: Default::default(),
            pages: [0; 2],
            age: 0,
            returns: 0,
            known: ([0; 2], 0),
            seen: 0,
            due: GATHER / 2,
        }
    }
}

/// Linux brings the statistics of groups together each two seconds, whenever a program begins.
/// Meanwhile it decides by old figures, and at first by none.
const GATHER: u64 = 2000;

impl Lists {
    /// Milliseconds pass.
    pub(super) fn pass(&mut self, ms: u64) {
        if ms >= self.due {
            self.known = (self.pages, self.returns);
            self.due += GATHER * ((ms - self.due) / GATHER + 1);
        }
        self.due -= ms;
    }

    /// Whether active folios are to become inactive: the active list is the longer one, or folios
    /// came back that were active. As far as is known.
    pub(super) fn has_old(&self) -> bool {
        let ([inactive, active], returns) = self.known;
        inactive < active || returns != self.seen
    }

    /// Reclaim ends.
    pub(super) fn reclaimed(&mut self) {
        self.seen = self.known.1;
    }
}

/// The end of a scan of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Leave,
    Keep,
    Activate,
}

impl Folios {
    /// Puts a folio at the end of a list, or with `next`, where it is scanned next.
    pub(super) fn enlist(&mut self, id: FolioId, active: bool, next: bool) {
        let Some(lists) = &mut self.lists else { return };
        let folio = &mut self.all[id as usize];
        folio.place.turn = folio.place.turn.wrapping_add(1);
        folio.place.active = active;
        let queue = &mut lists.queues[usize::from(active)];
        let element = (id, folio.place.turn);
        if next {
            queue.push_front(element);
        } else {
            queue.push_back(element);
        }
        lists.pages[usize::from(active)] += 1 << folio.order;
    }

    /// Takes a folio out of its list: it goes, or moves.
    pub(super) fn delist(&mut self, id: FolioId) {
        let Some(lists) = &mut self.lists else { return };
        let folio = &mut self.all[id as usize];
        folio.place.turn = folio.place.turn.wrapping_add(1);
        lists.pages[usize::from(folio.place.active)] -= 1 << folio.order;
    }

    /// The folio to scan next in a list, which it leaves.
    pub(super) fn next(&mut self, active: bool) -> Option<FolioId> {
        loop {
            let lists = self.lists.as_mut()?;
            let (id, turn) = lists.queues[usize::from(active)].pop_front()?;
            let place = self.all[id as usize].place;
            if place.turn == turn && place.active == active {
                self.delist(id);
                return Some(id);
            }
        }
    }

    /// A page of the folio was accessed.
    pub(super) fn access(&mut self, id: FolioId) {
        if self.lists.is_some() {
            self.all[id as usize].place.accessed = true;
        }
    }

    /// Looks at a folio of the inactive list, whose accesses are forgotten.
    pub(super) fn verdict(&mut self, id: FolioId, is_shared: bool) -> Verdict {
        let place = &mut self.all[id as usize].place;
        let (accessed, seen) = (place.accessed, place.seen);
        (place.accessed, place.seen) = (false, accessed);
        match (accessed, seen || is_shared) {
            (false, _) => Verdict::Leave,
            (true, false) => Verdict::Keep,
            (true, true) => Verdict::Activate,
        }
    }

    /// About `pages` pages leave the active list; returns how many did.
    pub(super) fn deactivate(&mut self, pages: u64) -> u64 {
        let mut moved = 0;
        while moved < pages {
            let Some(id) = self.next(true) else { break };
            let folio = &mut self.all[id as usize];
            folio.place.accessed = false;
            moved += 1 << folio.order;
            self.enlist(id, false, false);
        }
        moved
    }

    /// A folio that has come back soon enough is active.
    pub(super) fn returned(&mut self, id: FolioId) {
        self.delist(id);
        self.enlist(id, true, false);
        self.grow_old(1 << self.all[id as usize].order);
        self.lists.iter_mut().for_each(|lists| lists.returns += 1);
    }

    /// Memory is `pages` older.
    pub(super) fn grow_old(&mut self, pages: u64) {
        self.lists.iter_mut().for_each(|lists| lists.age += pages);
    }
}
