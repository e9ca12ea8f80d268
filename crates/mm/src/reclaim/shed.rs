//! Reclaim of file pages that spaces still map.
//!
//! ```text
//!   window of a file ─► all its folios one round older ─► accessed through a mapping: young
//!                       old and clean ─► unmap, flush ─► still unused: out of the file
//! ```
//!
//! Other CPUs may map a page again meanwhile: then it has another reference, and stays. So no step
//! needs to wait, and none is undone. Dirty pages are written back first, by
//! [`next_write`](crate::Files::next_write), and leave the next time.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Reclaim;
use super::quest::Quest;
use crate::base::AllSpaces;
use crate::cache::{Entry, FILE_PAGES_MAX, FileId, FilePages, Index, Note, Store, identity};
use crate::folio::{Folio, FolioFlags};
use crate::space::{AreaFlags, Space};
use crate::table::Gather;

/// The pages of a file that are aged at a time.
const WINDOW: u64 = 512;

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Goes once around all files that have a store, from where the last call stopped, and drops
    /// the old pages, mapped or not, until the quest is over.
    pub(crate) fn shed_files(&self, quest: &mut Quest, spaces: &(impl AllSpaces<A> + ?Sized)) {
        let (first, page) = self.file_hand.load();
        let number = |id: FileId| u64::from(id.0);
        for ahead in [true, false] {
            for id in self.files().ids().filter(|id| (number(*id) >= first) == ahead) {
                if quest.is_over() {
                    return;
                }
                let Ok(index) = self.base().index(id) else { continue };
                let stored = matches!(index.file.store(), Some(Store::ReadOnly | Store::ReadWrite));
                if stored && index.has_entries() {
                    let from = if number(id) == first { page } else { 0 };
                    self.shed_file(&index, from, quest, spaces);
                }
            }
        }
        self.file_hand.store(0, 0);
    }

    /// The same for one file, from a page on.
    fn shed_file(
        &self,
        index: &Index<'_, A, H>,
        from: u64,
        quest: &mut Quest,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) {
        if from == 0 {
            self.forget_old_notes(index);
        }
        let mut left = FilePages::new(from, index.file.pages());
        while let Some((_, at)) = index.next(left) {
            if quest.is_over() {
                return;
            }
            let start = at.start - at.start % WINDOW;
            let end = start + WINDOW.max(at.count());
            let window = FilePages::new(start.max(left.start), end);
            // If the hand stopped within a window, all of that window is aged already.
            if start >= left.start {
                quest.looked += self.age_window(index, window, spaces);
            }
            let idle = quest.idle();
            let part = self.enough_of(index, window, idle, quest.left());
            spaces.visit(&mut |space| self.detach_window(space, index, part, idle));
            quest.done.dropped += self.drop_old(index, part, idle);
            left = FilePages::new(part.end, left.end);
            self.file_hand.store(index.id.0.into(), part.end);
        }
    }

    /// The beginning of a window with `pages` old pages, or all of it.
    fn enough_of(
        &self,
        index: &Index<'_, A, H>,
        window: FilePages,
        idle: u32,
        pages: u64,
    ) -> FilePages {
        let (mut left, mut old) = (window, 0);
        while let Some((folio, at)) = index.next(left) {
            left = FilePages::new(at.end, left.end);
            old += if self.is_old(index, window, folio, idle) { at.count() } else { 0 };
            if old >= pages {
                return FilePages::new(window.start, at.end);
            }
        }
        window
    }

    /// Removes the notes of pages that left too long ago to count, and frees index nodes that held
    /// only those.
    fn forget_old_notes(&self, index: &Index<'_, A, H>) {
        let frames = self.base().all_frames();
        let old =
            |note| matches!(note, Note::Left(_)) && !self.files().balance.is_recent(note, frames);
        index.prune_such(FilePages::new(0, FILE_PAGES_MAX), &old, &mut |run| self.base().free(run));
    }

    /// A round of aging for a window; returns its number of pages.
    fn age_window(
        &self,
        index: &Index<'_, A, H>,
        window: FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> u64 {
        let folios = self.base().folios();
        let (mut left, mut looked) = (window, 0);
        while let Some((folio, at)) = index.next(left) {
            left = FilePages::new(at.end, left.end);
            // There is no reference: the folio may have left the file by now, and be something
            // else.
            if let Some(cached) = folios.cached(folio.head, identity(index.id, at.start)) {
                cached.grow_old();
            }
            looked += at.count();
        }
        spaces.visit(&mut |space| {
            let mut gather = Gather::new();
            self.each_shown(space, index.id, window, |span| {
                self.base().view(space).tables().harvest(span, &mut gather, |folio, touched| {
                    if touched {
                        folios.grow_old(folio, true);
                    }
                });
            });
            self.base().settle(space, &mut gather);
        });
        looked
    }

    /// Calls `act` with the stretches of a space that map some of a window of a file, except for
    /// those that are locked in memory.
    fn each_shown(
        &self,
        space: &Space<A>,
        id: FileId,
        window: FilePages,
        mut act: impl FnMut(PageSpan),
    ) {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        for area in
            self.spaces().areas(space, all).filter(|area| !area.flags.contains(AreaFlags::LOCKED))
        {
            let span = area.showing(id, window.start, window.end);
            if !span.is_empty() {
                act(span);
            }
        }
    }

    /// Unmaps the old clean pages of a window from a space.
    fn detach_window(
        &self,
        space: &Space<A>,
        index: &Index<'_, A, H>,
        window: FilePages,
        idle: u32,
    ) {
        let mut gather = Gather::new();
        let _taking = space.taking();
        let such = |folio: Folio| self.is_old(index, window, folio, idle);
        self.each_shown(space, index.id, window, |span| {
            self.spaces().detach(space, span, &mut gather, &such);
        });
        self.base().settle(space, &mut gather);
    }

    /// Whether a folio belongs to a window, had no access for `idle` rounds, and may leave.
    fn is_old(&self, index: &Index<'_, A, H>, window: FilePages, folio: Folio, idle: u32) -> bool {
        let folios = self.base().folios();
        let (known, owner) = folios.known(folio);
        let busy = FolioFlags::WRITING | FolioFlags::POISONED | FolioFlags::LEAVING;
        let page = crate::cache::page_of(owner);
        known.contains(FolioFlags::CACHED | FolioFlags::UPTODATE)
            && !known.intersects(busy)
            && crate::cache::file_of(owner) == index.id
            && window.contains(page)
            && folios.idle(folio) >= idle
            && folios.counts(folio).pins == 0
            && matches!(index.find(page).0, Entry::Folio { dirty: false, .. })
    }

    /// Drops the old pages of a window that no space maps; returns how many.
    fn drop_old(&self, index: &Index<'_, A, H>, window: FilePages, idle: u32) -> u64 {
        let (mut left, mut dropped) = (window, 0);
        while let Some((folio, at)) = index.next(left) {
            left = FilePages::new(at.end, left.end);
            let note = Some(self.files().balance.note());
            if self.is_old(index, window, folio, idle)
                && self.files().with(index).drop_idle(folio, at, note)
            {
                self.files().balance.left(at.count());
                dropped += at.count();
            }
        }
        dropped
    }
}
