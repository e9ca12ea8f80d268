//! Reclaim of file pages, whether spaces map them or not.
//!
//! ```text
//!   window of a file ─► all its folios one round older ─► accessed through a mapping: young
//!                       old and clean ─► unmap, flush ─► still unused: out of the file
//!                       old, of a file in memory ─► to a swap device
//! ```
//!
//! Other CPUs may map a page again meanwhile: then it has another reference, and stays. So no step
//! needs to wait, and none is undone. Dirty pages are written back first, by
//! [`next_write`](crate::Files::next_write), and leave the next time.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Reclaim;
use super::quest::Quest;
use crate::base::{AllSpaces, Hand, folios_in};
use crate::cache::{FILE_PAGES_MAX, FileId, FilePages, Index, Note, Store, file_of, page_of};
use crate::files::Kind;
use crate::folio::{Folio, FolioFlags};
use crate::paging::{Demand, Purpose, Scope};
use crate::space::{AreaFlags, Space};
use crate::table::Gather;

/// The pages of a file that are aged at a time.
const WINDOW: u64 = 512;

/// Pages of a file, and the spaces that may map them.
struct Window<'a, A, H> {
    index: &'a Index<'a, A, H>,
    pages: FilePages,
    spaces: &'a dyn AllSpaces<A>,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// The hand among files that give memory of that kind.
    fn hand_of(&self, kind: Kind) -> &Hand {
        match kind {
            Kind::File => &self.file_hand,
            Kind::Anon => &self.shared_hand,
        }
    }

    /// Goes once around all files that have a store, from where the last call stopped, and drops
    /// the old pages, mapped or not, until the quest is over. For anonymous memory the same with
    /// files in memory, whose old pages go to a swap device.
    #[inline(never)]
    pub(super) fn shed_files(&self, kind: Kind, quest: &mut Quest<'_, A>) {
        let (first, page) = self.hand_of(kind).load();
        let is_ahead = |id: &FileId| u64::from(id.0) >= first;
        let before = self.files().ids().filter(|id| !is_ahead(id));
        for id in self.files().ids().filter(is_ahead).chain(before) {
            if quest.is_over() {
                return;
            }
            let Ok(index) = self.base().index(id) else { continue };
            let gives = match index.file.store() {
                Some(Store::ReadOnly | Store::ReadWrite) => Some(Kind::File),
                Some(Store::Memory) => Some(Kind::Anon),
                Some(Store::Swap | Store::Reserved) | None => None,
            };
            if gives == Some(kind) && index.has_entries() {
                let from = if u64::from(id.0) == first { page } else { 0 };
                self.shed_file(&index, from, (kind, quest));
            }
        }
        self.hand_of(kind).store(0, 0);
    }

    /// The same for one file, from a page on.
    fn shed_file(
        &self,
        index: &Index<'_, A, H>,
        from: u64,
        (kind, quest): (Kind, &mut Quest<'_, A>),
    ) {
        if from == 0 && kind == Kind::File {
            self.forget_old_notes(index);
        }
        let mut left = FilePages::new(from, index.file.pages());
        while !quest.is_over()
            && let Some((_, at)) = index.next(left)
        {
            let start = at.start - at.start % WINDOW;
            let end = start + WINDOW.max(at.count());
            let pages = FilePages::new(start.max(left.start), end);
            let window = Window { index, pages, spaces: quest.spaces };
            // If the hand stopped within a window, all of that window is aged already.
            if start >= left.start {
                quest.looked += self.age_window(&window);
            }
            let upto = match kind {
                Kind::File => self.drop_window(window, quest),
                Kind::Anon => self.page_out_window(&window, quest),
            };
            left = FilePages::new(upto, left.end);
            self.hand_of(kind).store(index.id.0.into(), upto);
        }
    }

    /// Drops the old pages of a window, as many as are wanted; returns the page to go on at.
    fn drop_window(&self, mut window: Window<'_, A, H>, quest: &mut Quest<'_, A>) -> u64 {
        let idle = quest.idle();
        window.pages.end = self.enough_of(&window, idle, quest.left());
        quest.spaces.visit(&mut |space| self.detach_window(space, &window, idle));
        quest.done.dropped += self.drop_old(&window, idle);
        window.pages.end
    }

    /// Pages out the old pages of a window of a file in memory, as many as are wanted; returns the
    /// page to go on at.
    fn page_out_window(&self, window: &Window<'_, A, H>, quest: &mut Quest<'_, A>) -> u64 {
        let demand = Demand {
            whose: Scope::All,
            idle: quest.idle(),
            pages: quest.left(),
            purpose: Purpose::Write,
        };
        let &Window { index, pages, spaces } = window;
        let (out, upto) = self.paging().page_out_file(index, pages, demand, spaces);
        self.count_out(&out, quest);
        upto
    }

    /// The end of the first `most` old pages of a window, or of all of it.
    fn enough_of(&self, window: &Window<'_, A, H>, idle: u32, most: u64) -> u64 {
        let mut old = 0;
        let mut folios = folios_in(window.index, window.pages);
        let enough = folios.find(|(folio, at)| {
            old += if self.is_old(window, *folio, idle) { at.count() } else { 0 };
            old >= most
        });
        enough.map_or(window.pages.end, |(_, at)| at.end)
    }

    /// Removes the notes of pages that left too long ago to count, and frees index nodes that held
    /// only those.
    fn forget_old_notes(&self, index: &Index<'_, A, H>) {
        let frames = self.base().all_frames();
        let old =
            |note| matches!(note, Note::Left(_)) && !self.files().balance.is_recent(note, frames);
        index.prune_such(FilePages::new(0, FILE_PAGES_MAX), &old, &mut |run| self.base().free(run));
    }

    /// A round of aging for a window; returns how many pages of it are in memory.
    fn age_window(&self, window: &Window<'_, A, H>) -> u64 {
        let index = window.index;
        let folios = self.base().folios();
        let mut looked = 0;
        for (folio, at) in folios_in(index, window.pages) {
            // There is no reference: the folio may have left the file by now, and be something
            // else.
            if let Some(cached) = self.base().cached(index.id, at.start, folio) {
                cached.grow_old();
            }
            looked += at.count();
        }
        window.spaces.visit(&mut |space| {
            let mut gather = Gather::new();
            for span in self.unlocked(space, window) {
                self.base().view(space).tables().harvest(span, &mut gather, |folio, touched| {
                    if touched {
                        folios.grow_old(folio, true);
                    }
                });
            }
            self.base().settle(space, &mut gather);
        });
        looked
    }

    /// The stretches of a space that map some of a window, except for those that are locked in
    /// memory.
    fn unlocked<'a>(
        &'a self,
        space: &'a Space<A>,
        window: &Window<'a, A, H>,
    ) -> impl Iterator<Item = PageSpan> + use<'a, A, H> {
        let shown = self.files().with(window.index).showing(space, window.pages);
        shown.filter(|(area, _)| !area.flags.contains(AreaFlags::LOCKED)).map(|(_, span)| span)
    }

    /// Unmaps the old clean pages of a window from a space.
    fn detach_window(&self, space: &Space<A>, window: &Window<'_, A, H>, idle: u32) {
        let mut gather = Gather::new();
        let _taking = space.taking();
        let such = |folio: Folio| self.is_old(window, folio, idle);
        for span in self.unlocked(space, window) {
            self.spaces().detach(space, span, &mut gather, &such);
        }
        self.base().settle(space, &mut gather);
    }

    /// Whether a folio belongs to a window, had no access for `idle` rounds, and may leave.
    fn is_old(&self, window: &Window<'_, A, H>, folio: Folio, idle: u32) -> bool {
        let folios = self.base().folios();
        let (known, owner) = folios.known(folio);
        let busy = FolioFlags::WRITING | FolioFlags::POISONED | FolioFlags::LEAVING;
        known.contains(FolioFlags::CACHED | FolioFlags::UPTODATE)
            && !known.intersects(busy)
            && file_of(owner) == window.index.id
            && window.pages.contains(page_of(owner))
            && folios.idle(folio) >= idle
            && folios.counts(folio).pins == 0
            && window.index.is_clean(page_of(owner), folio)
    }

    /// Drops the old pages of a window that no space maps; returns how many.
    fn drop_old(&self, window: &Window<'_, A, H>, idle: u32) -> u64 {
        let mut dropped = 0;
        for (folio, at) in folios_in(window.index, window.pages) {
            let note = Some(self.files().balance.note());
            if self.is_old(window, folio, idle)
                && self.files().with(window.index).drop_idle(folio, at, note)
            {
                self.files().balance.left(at.count());
                dropped += at.count();
            }
        }
        dropped
    }
}
