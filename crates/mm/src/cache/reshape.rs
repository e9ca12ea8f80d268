//! The same pages in other folios: many that become one, and one that becomes many.
//!
//! ```text
//!   join    | 0 | 1..3 |   | 4..8 |        ──►  | 0..8                 |     left to right
//!   part    | 0..8                 |       ──►  | 0..4  | 4 |  gone    |     right to left
//! ```
//!
//! The caller has secluded the old folios (`FolioFlags::SECLUDED`): a lookup that finds one of them
//! waits. But a lookup that loads some words before the change and some after it could find
//! *nothing* where there is always a folio. So `File::shape` is odd during the change, and the
//! answer "nothing" stands only if `shape` is even and the same before and after (the argument is
//! that of `space::tree`).

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};

use super::index::{Index, InsertLack};
use super::word::Entry;
use crate::folio::Folio;
use crate::phys::WordsLock;
use crate::radix::{Spot, Tree};
use crate::sync::{AtomicU64, Ordering, fence};

impl<A: Arch, H: Hardware> Index<'_, A, H> {
    /// Puts `folio` at `page`, in place of all folios of its block, each of which goes to `gone`
    /// with locks held. It is dirty if one of them was. Returns whether there is one and all of
    /// them are `such`; if not, nothing has changed. The caller has `File::reshaping`.
    pub(crate) fn join(
        &self,
        page: u64,
        folio: Folio,
        such: &impl Fn(Folio) -> bool,
        gone: &mut impl FnMut(Folio),
    ) -> bool {
        let (place, lock) = match self.locked(page, folio.order) {
            Ok(found) => found,
            Err(_changing) => {
                let Entry::Folio { folio: old, dirty } = self.root() else { return false };
                let fits = page == 0 && old.order <= folio.order && such(old);
                if fits {
                    self.tree.set_root(Entry::Folio { folio, dirty }.word());
                    gone(old);
                }
                return fits;
            }
        };
        if place.node.level > Self::level_of(folio.order) {
            return false;
        }
        // A dirty word was in this node before: the links above it are marked, or about to be.
        self.join_in(&lock, &place, folio, such, gone)
    }

    /// The same in one node.
    fn join_in(
        &self,
        lock: &WordsLock<'_>,
        place: &Spot,
        folio: Folio,
        such: &impl Fn(Folio) -> bool,
        gone: &mut impl FnMut(Folio),
    ) -> bool {
        let count = Self::places(folio.order, place.node.level);
        let entry = |at: usize| self.entry(place.node, at);
        let all = place.at..place.at + count;
        let (mut dirty, mut folios) = (false, 0);
        for at in all.clone() {
            match entry(at) {
                Entry::Folio { folio: old, dirty: marked } if such(old) => {
                    dirty |= marked;
                    folios += 1;
                }
                Entry::Empty | Entry::Note { .. } => {}
                Entry::Folio { .. } | Entry::Away { .. } | Entry::Node { .. } => return false,
            }
        }
        if folios == 0 {
            return false;
        }
        let _changing = self.change_shape();
        let (mut new, mut used) = (Entry::Folio { folio, dirty }, 0);
        for at in all {
            let old = entry(at);
            used += i64::from(old != Entry::Empty);
            if old != new {
                self.tree.write(lock, at, 1, new.word());
            }
            if let Entry::Folio { folio, .. } = old {
                gone(folio);
            }
            new = Entry::Empty;
        }
        self.tree.add_used(lock, 1 - used);
        true
    }

    /// Moves the word of `whole`, the content at `page`, to a node of the lowest level, so that its
    /// parts have places there. A node that is needed is made of the frame in `spare`. Returns
    /// whether the word is there now: a folio that is larger than such a node stays where it is.
    ///
    /// # Errors
    /// [`InsertLack::Node`]: repeat with a frame.
    pub(crate) fn lower(
        &self,
        page: u64,
        whole: Entry,
        spare: &mut Option<FrameRun>,
    ) -> Result<bool, InsertLack> {
        if whole.order().get() as u32 > Self::BITS {
            return Ok(false);
        }
        loop {
            match self.place_of(page, whole.order()) {
                None => self.raise(page, Self::level_of(whole.order()), spare)?,
                Some(place) if place.node.level == 0 => return Ok(true),
                Some(Spot { node, at, .. }) => {
                    let Some(lock) = self.tree.lock(node, page) else { continue };
                    let now = self.entry(node, at);
                    if !now.is_of(whole) {
                        return Ok(false);
                    }
                    let node = self.tree.adopt(spare, page, node.level - 1);
                    let node = node.ok_or(InsertLack::Node)?;
                    let lower = self.tree.lock(node, page).ok_or(InsertLack::Node)?;
                    self.tree.write(&lower, 0, 1, now.word());
                    self.tree.add_used(&lower, 1);
                    let link = Entry::Node { node, dirty: now.is_dirty() };
                    self.tree.write(&lock, at, 1, link.word());
                }
            }
        }
    }

    /// Puts `parts` of `whole`, the content at `page`, which is [low](Self::lower), in its place,
    /// each as dirty as it is; its other pages leave the index. The parts come from the last to the
    /// first. Returns whether it was there. The caller has `File::reshaping`.
    pub(crate) fn part(
        &self,
        page: u64,
        whole: Entry,
        parts: impl Iterator<Item = (u64, Entry)>,
    ) -> bool {
        let Ok((Spot { node, at, .. }, lock)) = self.locked(page, whole.order()) else {
            return false;
        };
        let now = self.entry(node, at);
        if !now.is_of(whole) || node.level != 0 {
            return false;
        }
        let _changing = self.change_shape();
        let (mut more, mut first) = (0, 0);
        for (page, part) in parts {
            let place = Tree::<A, H>::place(page, 0);
            let word = part.with_dirty(now.is_dirty()).word();
            if place == at {
                first = word;
            } else {
                self.tree.write(&lock, place, 1, word);
                more += 1;
            }
        }
        self.tree.write(&lock, at, 1, first);
        self.tree.add_used(&lock, more - (first == 0) as i64);
        true
    }

    /// Announces that pages move to other folios, until the guard is dropped.
    fn change_shape(&self) -> Changing<'_> {
        let shape = &self.file.shape;
        shape.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        Changing(shape)
    }
}

/// Makes the number even again.
struct Changing<'a>(&'a AtomicU64);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
