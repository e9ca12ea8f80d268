//! Reclaim: freeing the memory with the oldest last access (row D6).
//!
//! *Aging* reads the accessed bits of page tables, by runs: an accessed folio is new again, and any
//! other is one round older, up to three (for files see `shed`). *Reclaim* is a clock hand that
//! goes around all spaces, ages a window of pages, and takes the old ones in it. So a page that
//! leaves was not accessed since the hand came by last, or the time before. The more the hand scans
//! for little result, the younger the pages that it may take: a call ends after a bounded scan.
//! Another hand goes around files, mapped or not; `balance` divides the work between the two. Files
//! in memory count as anonymous memory, and have a hand of their own.
//!
//! ```text
//!   spaces   [.....|window|.....]  [..........]  [....]      one round of the hand
//!                  age, then take      idle >= 2, 2, 1, 0    in its 1st, 2nd, 3rd, 4th
//! ```
//!
//! ```text
//!   free frames:   0 ....... min ....... low ................ high ........... all
//!                  internal  │ reclaim at once │ in the background, up to high │ nothing to do
//! ```

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Reclaim;
use super::quest::{Quest, ROUNDS, Reclaimed};
use crate::base::AllSpaces;
use crate::cache::FilePages;
use crate::files::Kind;
use crate::paging::{Demand, Purpose, Scope};
use crate::space::{Area, AreaFlags, GroupId, Space};
use crate::stats::Event;
use crate::swap::{Admits, Swap};
use crate::table::Gather;

/// Thresholds for the number of free frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Below it, a caller that needs memory should reclaim some first.
    pub min: u64,
    /// Below it, a reclaimer in the background should begin.
    pub low: u64,
    /// At it, that reclaimer may stop.
    pub high: u64,
}

/// The pages that are aged at a time.
const WINDOW: Order = Order::new(10);

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// The thresholds for `frames` frames in all. As on Linux, the minimum is 4 times the square
    /// root of all in KiB, from 128 KiB to 256 MiB, but no more than a sixteenth; the others lie a
    /// quarter and a half of it higher.
    pub fn watermarks(&self, frames: u64) -> Watermarks {
        let kib = A::PAGE_SHIFT - 10;
        let all = frames << kib;
        let min = ((all * 16).isqrt().clamp(128, 256 << 10) >> kib).min(frames / 16);
        Watermarks { min, low: min + min / 4 + 1, high: min + min / 2 + 2 }
    }

    /// A round of aging over all spaces. Returns how many pages it scanned.
    pub fn age_all(&self, spaces: &(impl AllSpaces<A> + ?Sized)) -> u64 {
        let all = Space::<A>::all();
        let mut looked = 0;
        spaces.visit(&mut |space| looked += self.age(space, all));
        looked
    }

    /// A round of aging over `span` of a space; returns how many pages it scanned.
    #[inline(never)]
    fn age(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = self.base().folios();
        let tables = self.base().view(space).tables();
        let mut gather = Gather::new();
        let looked = tables.harvest(span, &mut gather, |folio, touched| {
            // A folio that many spaces map ages once a round, and not once in each space.
            if touched || !folios.is_shared(folio) || folios.home(folio).space == space.number() {
                folios.grow_old(folio, touched);
            }
        });
        self.base().settle(space, &mut gather);
        self.base().count(Event::PagesAged, looked);
        looked
    }

    /// Makes about `pages` pages free: clean pages of files, mapped or not, and anonymous folios,
    /// those with the oldest last access first, and more of the kind with the lower recent cost.
    /// Pages that are paged out must be written before they are free.
    ///
    /// Frees less when no more can leave, or swap devices are full. The scan has a bound: four
    /// times all pages; and after 64 pages for each wanted one, age no longer counts.
    pub fn reclaim(&self, pages: u64, spaces: &(impl AllSpaces<A> + ?Sized)) -> Reclaimed {
        let mut quest = Quest::new(pages, &spaces, &self.hand);
        self.go_rounds(&mut quest);
        let mut done = quest.done;
        // Pages just read from a device are about to be mapped, so they go last.
        if done.pages() < pages {
            done.dropped += self.drop_from_swap(pages - done.pages());
        }
        done
    }

    #[inline(never)]
    pub(super) fn go_rounds(&self, quest: &mut Quest<'_, A>) {
        let mut gives = self.has_slots();
        for round in 0..ROUNDS.len() {
            let (before, out, all) = (quest.looked, quest.done.paged_out, quest.lacks());
            if quest.group.is_none() {
                let swappiness = self.base().policy.swappiness();
                let share = || self.files().balance.share_of_files(all, swappiness);
                quest.begin(round, if gives { share() } else { all });
                self.shed_files(Kind::File, quest);
            }
            if quest.group.is_none() && self.has_slots() {
                // Half of it, so that neither kind of anonymous memory gives all.
                quest.begin(round, quest.lacks().div_ceil(2));
                self.shed_files(Kind::Anon, quest);
            }
            quest.begin(round, quest.lacks());
            if !quest.is_over() {
                self.go_round(quest);
            }
            if quest.lacks() == 0 || quest.looked == before && !gives {
                break;
            }
            // Where one kind has no pages of that age, the other gives all.
            gives = quest.done.paged_out > out;
        }
    }

    /// Drops clean pages of swap devices that no space maps, `pages` or a few more; returns how
    /// many.
    #[inline(never)]
    fn drop_from_swap(&self, pages: u64) -> u64 {
        let mut dropped = 0;
        for (id, slots, _) in self.paging().devices() {
            if dropped >= pages {
                break;
            }
            dropped += self.files().drop_clean(id, FilePages::new(0, slots)).unwrap_or(0);
        }
        dropped
    }

    /// Whether a page could go to a swap device.
    fn has_slots(&self) -> bool {
        let has = |swap: &Swap| swap.admits() == Admits::All && swap.used() < swap.slots();
        self.base().swaps.iter().any(has)
    }

    /// Calls `see` with the spaces of a group, or with all.
    pub(super) fn each_space(
        &self,
        group: Option<GroupId>,
        spaces: &dyn AllSpaces<A>,
        mut see: impl FnMut(&Space<A>),
    ) {
        spaces.visit(&mut |space| {
            if group.is_none_or(|id| self.base().groups.is_member(space, id)) {
                see(space);
            }
        });
    }

    /// Lets the hand go once around all spaces, or until the quest is over.
    #[inline(never)]
    fn go_round(&self, quest: &mut Quest<'_, A>) {
        let (root, page) = quest.hand.load();
        let (first, end) = (Vpn::new(0), Vpn::new(A::USER_PAGES));
        let page = Vpn::new(page).min(end);
        // From the hand on, and then the pages before it, up to the end of its window, all of which
        // is a round older then.
        let last = page.align_up(WINDOW.pages()).unwrap_or(end).min(end);
        for ahead in [true, false] {
            let mut is_ahead = false;
            self.each_space(quest.group, quest.spaces, |space| {
                let is_here = space.root().get() == root;
                let span = match (is_here, ahead) {
                    (true, true) => PageSpan::new(page, end),
                    (true, false) => PageSpan::new(first, last),
                    (false, _) => PageSpan::new(first, end),
                };
                is_ahead |= is_here;
                if is_here || is_ahead == ahead {
                    self.sweep(space, span, quest);
                }
            });
        }
    }

    /// Moves the hand through `span` of a space, window by window, until the quest is over.
    fn sweep(&self, space: &Space<A>, span: PageSpan, quest: &mut Quest<'_, A>) {
        let is_locked = |area: &Area| area.flags.contains(AreaFlags::LOCKED);
        // If the hand stopped within a window, all of that window is aged already.
        let mut aged = span.start.align_up(WINDOW.pages()).unwrap_or(span.end);
        let mut at = span.start;
        while !quest.is_over()
            && let Some(area) = self.spaces().areas(space, PageSpan::new(at, span.end)).next()
        {
            // Folios lie in blocks, so the end of a window cuts none; but they may lie across
            // areas.
            let start = at.max(area.span.start);
            let end = start.align_down(WINDOW.pages()).add(WINDOW.pages()).min(span.end);
            let window = PageSpan::new(start, end);
            let mixed = self.spaces().areas(space, window).any(|area| is_locked(&area));
            let window = if mixed { window.intersect(area.span) } else { window };
            at = window.end;
            if !is_locked(&area) {
                if window.end > aged {
                    quest.looked += self.age(space, PageSpan::new(start.max(aged), window.end));
                    aged = window.end;
                }
                // Without a frame for it, the memory stays for now.
                let _ = self.spaces().let_go_droppable(space, window, quest.idle());
                at = self.page_out_old(space, window, quest);
                if quest.group.is_some() && !quest.is_over() && self.has_slots() {
                    self.page_out_shown(space, PageSpan::new(window.start, at), quest);
                }
            }
            quest.hand.store(space.root().get(), at.get());
        }
    }

    /// Pages out the old folios of `window`; returns the page to continue at.
    #[inline(never)]
    fn page_out_old(&self, space: &Space<A>, window: PageSpan, quest: &mut Quest<'_, A>) -> Vpn {
        quest.done.dropped += self.thin(space, window, quest.idle());
        if quest.is_over() {
            return window.end;
        }
        // Lazily freed folios need no slot.
        let idle = if self.has_slots() { quest.idle() } else { u32::MAX };
        let demand =
            Demand { whose: Scope::All, idle, pages: quest.left(), purpose: Purpose::Write };
        let done = self.paging().page_out_if(space, window, demand, quest.spaces);
        let Ok((out, upto)) = done else { return window.end };
        self.count_out(&out, quest);
        upto
    }

    /// Pages out the old folios of files in memory that a group's space shows in `span`.
    #[inline(never)]
    fn page_out_shown(&self, space: &Space<A>, span: PageSpan, quest: &mut Quest<'_, A>) {
        let (idle, pages) = (quest.idle(), quest.left());
        let demand = Demand { whose: Scope::All, idle, pages, purpose: Purpose::Write };
        let out = self.paging().page_out_shown(space, span, demand, quest.spaces);
        self.count_out(&out, quest);
    }
}
