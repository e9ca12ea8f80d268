//! Reclaim: making memory free by what it was not needed for longest (row D6).
//!
//! *Aging* asks page tables what the hardware noted, by runs: a folio that was touched is new
//! again, and any other is one round older, up to three (of files: see `shed`). *Reclaiming* is a
//! hand that goes around all spaces, ages a window of pages, and takes what is old enough there. So
//! what leaves was not touched since the hand came by last, or the time before. The more it has to
//! look at for what it gets, the younger may be what it takes: a call ends after a bounded number
//! of looks. Another hand goes around files, mapped or not; how much each is to find, `balance`
//! says.
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
use crate::base::AllSpaces;
use crate::base::Error;
use crate::base::Hand;
use crate::cache::{File, FilePages, Store};
use crate::files::Kind;
use crate::folio::Folios;
use crate::paging::{Demand, Whose};
use crate::space::{Area, AreaFlags, GroupId, Space};
use crate::stats::Event;
use crate::table::Gather;

/// How many frames are to be free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Below it, whoever needs memory should reclaim some first.
    pub min: u64,
    /// Below it, a reclaimer in the background should begin.
    pub low: u64,
    /// At it, that may stop.
    pub high: u64,
}

/// How many pages are aged at a time, and how many rounds of aging in which it was not touched a
/// folio must have behind it, in the hand's first round and those that follow.
const WINDOW: Order = Order::new(10);
const ROUNDS: [u32; 4] = [2, 2, 1, 0];

/// How many pages may be looked at for each that is wanted: a quarter before younger ones are
/// taken, and all before any is.
const LOOKS_MOST: u64 = 64;

/// How many a hand looks at in its first round for each that it is to find: who gives less is to
/// grow old more slowly. In later rounds it goes around everything.
const LOOKS_FIRST: u64 = 16;

/// How far a call of [`Mm::reclaim`] has come.
pub(crate) struct Quest {
    pages: u64,
    /// How many pages are to be free, and how many looked at, before the other hand goes on.
    goal: u64,
    looks: u64,
    /// Whose spaces are looked at, if not all.
    group: Option<GroupId>,
    pub(crate) done: Reclaimed,
    /// Pages that were looked at.
    pub(crate) looked: u64,
    /// Rounds of the hand.
    round: usize,
    /// There is not even a frame for paging out.
    starved: bool,
}

impl Quest {
    fn new(pages: u64, group: Option<GroupId>) -> Self {
        let (done, looked, round, starved) = Default::default();
        Self { pages, goal: pages, looks: u64::MAX, group, done, looked, round, starved }
    }

    /// Begins the part of a round that one hand has, which is to find `pages` pages.
    fn begin(&mut self, round: usize, pages: u64) {
        self.round = round;
        self.goal = self.done.pages().saturating_add(pages);
        let first = self.looked.saturating_add(pages.saturating_mul(LOOKS_FIRST));
        self.looks = if round == 0 { first } else { u64::MAX };
    }

    /// How many pages the hand is still to find.
    pub(crate) fn left(&self) -> u64 {
        self.goal.saturating_sub(self.done.pages())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left() == 0 || self.looked >= self.looks || self.starved
    }

    /// How many pages all in all are still to be made free; none where none can be.
    fn lacks(&self) -> u64 {
        if self.starved { 0 } else { self.pages.saturating_sub(self.done.pages()) }
    }

    /// How many rounds of aging without a touch are demanded by now.
    pub(crate) fn idle(&self) -> u32 {
        let looks = self.looked / self.pages.max(1);
        let by_looks = match looks {
            0..=16 => 2,
            17..LOOKS_MOST => 1,
            _ => 0,
        };
        ROUNDS[self.round].min(by_looks)
    }
}

/// What reclaiming came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Pages that are free now: of files, and what nobody needs of large folios.
    pub dropped: u64,
    /// Anonymous pages that are free as soon as they are written; see [`Mm::page_out`].
    pub paged_out: u64,
}

impl Reclaimed {
    /// All pages.
    pub const fn pages(self) -> u64 {
        self.dropped + self.paged_out
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// How many frames are to be free, of `frames` in all. As Linux has it: the minimum is 4 times
    /// the square root of all in KiB, from 128 KiB to 256 MiB, but no more than a sixteenth; the
    /// others lie a quarter and a half of it higher.
    pub fn watermarks(&self, frames: u64) -> Watermarks {
        let kib = A::PAGE_SHIFT - 10;
        let all = frames << kib;
        let min = ((all * 16).isqrt().clamp(128, 256 << 10) >> kib).min(frames / 16);
        Watermarks { min, low: min + min / 4 + 1, high: min + min / 2 + 2 }
    }

    /// A round of aging over all spaces. How many pages it looked at.
    pub fn age_all(&self, spaces: &(impl AllSpaces<A> + ?Sized)) -> u64 {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        let mut looked = 0;
        spaces.visit(&mut |space| looked += self.age(space, all));
        looked
    }

    /// A round of aging over `span` of a space; how many pages it looked at.
    fn age(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = Folios::new(self.base().phys.meta());
        let tables = self.base().view(space).tables();
        let own = tables.home(span.start).space;
        let mut gather = Gather::new();
        let looked = tables.harvest(span, &mut gather, |folio, touched| {
            // Who is mapped in many spaces grows older once a round, and not once in each.
            let shared = u64::from(folios.counts(folio).mapped) > folio.order.pages();
            if touched || !shared || folios.home(folio).space == own {
                folios.grow_old(folio, touched);
            }
        });
        self.base().settle(space, &mut gather);
        self.base().count(Event::PagesAged, looked);
        looked
    }

    /// Makes about `pages` pages free: clean pages of files, mapped or not, and anonymous folios,
    /// those first that were not touched for longest, and more of the kind that cost less of late.
    /// What is paged out must be written before it is free.
    ///
    /// Less is made free when there is nothing left that could be, or no room on swap devices. How
    /// many pages are looked at has a bound: four times all there are; and after 64 for each that
    /// is wanted, age does not count any more.
    pub fn reclaim(&self, pages: u64, spaces: &(impl AllSpaces<A> + ?Sized)) -> Reclaimed {
        let mut quest = Quest::new(pages, None);
        self.go_rounds(&mut quest, spaces);
        let mut done = quest.done;
        // What was just read from a device is about to be mapped.
        if done.pages() < pages {
            done.dropped += self.drop_from_swap(pages - done.pages());
        }
        done
    }

    /// Pages out about `pages` pages of a group's spaces; how many.
    pub(crate) fn reclaim_in(
        &self,
        group: GroupId,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> u64 {
        let mut quest = Quest::new(pages, Some(group));
        self.go_rounds(&mut quest, spaces);
        quest.done.paged_out
    }

    fn go_rounds(&self, quest: &mut Quest, spaces: &(impl AllSpaces<A> + ?Sized)) {
        let mut gives = self.has_slots();
        for round in 0..ROUNDS.len() {
            let (before, out) = (quest.looked, quest.done.paged_out);
            if quest.group.is_none() {
                let all = quest.lacks();
                let swappiness = self.base().policy.swappiness();
                let files =
                    if gives { self.files().balance.share_of_files(all, swappiness) } else { all };
                quest.begin(round, files);
                self.shed_files(quest, spaces);
            }
            quest.begin(round, quest.lacks());
            if !quest.is_over() {
                self.go_round(quest, spaces);
            }
            if quest.lacks() == 0 || quest.looked == before && !gives {
                break;
            }
            // Where one kind has nothing so old, the other is asked for all.
            gives = quest.done.paged_out > out;
        }
    }

    /// The hand of a quest: within a group there is another.
    fn hand_of(&self, quest: &Quest) -> &Hand {
        let group = quest.group.and_then(|id| self.base().groups.group(id).ok());
        group.map_or(&self.hand, |group| &group.hand)
    }

    /// Drops clean pages of swap devices that nobody maps, `pages` or a few more; how many.
    fn drop_from_swap(&self, pages: u64) -> u64 {
        let is_swap = |file: &&File| file.store() == Some(Store::Swap);
        let mut dropped = 0;
        for id in self.files().ids() {
            let Some(file) = self.base().file(id).filter(is_swap) else { continue };
            if dropped >= pages {
                break;
            }
            dropped += self.files().drop_clean(id, FilePages::new(0, file.pages())).unwrap_or(0);
        }
        dropped
    }

    /// Whether a page could go to a swap device.
    fn has_slots(&self) -> bool {
        self.base().swaps.iter().any(|swap| swap.is_open() && swap.used() < swap.slots())
    }

    /// Lets the hand go once around all spaces, or until the quest is over.
    fn go_round(&self, quest: &mut Quest, spaces: &(impl AllSpaces<A> + ?Sized)) {
        let (root, page) = self.hand_of(quest).load();
        let page = Vpn::new(page.min(A::USER_PAGES));
        let (first, end) = (Vpn::new(0), Vpn::new(A::USER_PAGES));
        // From where the hand is, and then what lies before it, up to the end of its window, all of
        // which is a round older then.
        let last = page.align_up(WINDOW.pages()).unwrap_or(end).min(end);
        for ahead in [true, false] {
            let mut is_ahead = false;
            spaces.visit(&mut |space| {
                let is_here = space.root().get() == root;
                let span = match (is_here, ahead) {
                    (true, true) => PageSpan::new(page, end),
                    (true, false) => PageSpan::new(first, last),
                    (false, _) => PageSpan::new(first, end),
                };
                is_ahead |= is_here;
                let is_meant =
                    quest.group.is_none_or(|group| self.base().groups.is_member(space, group));
                if is_meant && (is_here || is_ahead == ahead) && !quest.is_over() {
                    self.sweep(space, span, quest, spaces);
                }
            });
        }
    }

    /// Moves the hand through `span` of a space, window by window, until the quest is over.
    fn sweep(
        &self,
        space: &Space<A>,
        span: PageSpan,
        quest: &mut Quest,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) {
        // Where the hand stopped within a window, all of that is aged.
        let (mut at, mut aged) =
            (span.start, span.start.align_up(WINDOW.pages()).unwrap_or(span.end));
        while let Some(area) = self.spaces().areas(space, PageSpan::new(at, span.end)).next() {
            if quest.is_over() {
                return;
            }
            // Folios lie in blocks, and so none is cut at a window's end; but they may lie across
            // areas.
            let start = at.max(area.span.start);
            let end = start.align_down(WINDOW.pages()).add(WINDOW.pages()).min(span.end);
            let locked = |area: &Area| area.flags.contains(AreaFlags::LOCKED);
            let mixed =
                self.spaces().areas(space, PageSpan::new(start, end)).any(|area| locked(&area));
            let end = if mixed { end.min(area.span.end) } else { end };
            let window = PageSpan::new(start, end);
            at = window.end;
            if !locked(&area) {
                if window.end > aged {
                    quest.looked += self.age(space, PageSpan::new(start.max(aged), window.end));
                    aged = window.end;
                }
                // For want of a frame it stays for now.
                let _ = self.spaces().let_go_droppable(space, window, quest.idle());
                at = self.page_out_old(space, window, quest, spaces);
            }
            self.hand_of(quest).store(space.root().get(), at.get());
        }
    }

    /// Pages out what is old enough of `window`; the page to go on at.
    fn page_out_old(
        &self,
        space: &Space<A>,
        window: PageSpan,
        quest: &mut Quest,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Vpn {
        quest.done.dropped += self.thin(space, window, quest.idle());
        if quest.is_over() {
            return window.end;
        }
        // What was freed lazily needs no slot.
        let idle = if self.has_slots() { quest.idle() } else { u32::MAX };
        let demand = Demand { whose: Whose::All, idle, pages: quest.left() };
        let done: Result<_, Error> = self.paging().page_out_if(space, window, demand, spaces);
        let Ok((out, upto)) = done else { return window.end };
        quest.done.paged_out += out.pages;
        self.files().balance.left(out.pages);
        self.files().balance.cost(Kind::Anon, out.pages, self.base().all_frames());
        quest.starved |= out.starved;
        upto
    }
}
