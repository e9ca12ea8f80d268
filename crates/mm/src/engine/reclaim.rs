//! Reclaim: making memory free by what it was not needed for longest (row D6).
//!
//! *Aging* is a round over all page tables that asks what the hardware noted, by runs: a folio that
//! was touched is new again, and any other is one round older, up to three. *Reclaiming* takes the
//! oldest first: files' clean pages that nobody maps, and then anonymous folios, from a hand that
//! goes around all spaces. Only when a round has not brought enough, younger ones follow.
//!
//! ```text
//!   free frames:   0 ....... min ....... low ................ high ........... all
//!                  internal  │ reclaim at once │ in the background, up to high │ nothing to do
//! ```

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::error::Error;
use super::mm::Mm;
use super::page_out::{Demand, Whose};
use super::truncate::Spaces;
use crate::cache::{File, FilePages, Store};
use crate::folio::Folios;
use crate::space::Space;
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

/// What reclaiming came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Pages of files that are free now.
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

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
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
    pub fn age_all<S: Spaces<A> + ?Sized>(&self, spaces: &S) -> u64 {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        let folios = Folios::new(self.phys.meta());
        let mut looked = 0;
        spaces.visit(&mut |space| {
            let mut gather = Gather::new();
            let grow = |folio, touched| folios.grow_old(folio, touched);
            looked += self.view(space).tables().harvest(all, &mut gather, grow);
            self.settle(space, &mut gather);
        });
        self.count(Event::PagesAged, looked);
        looked
    }

    /// Makes about `pages` pages free: clean pages of files that nobody maps, and then anonymous
    /// folios, the oldest first. What is paged out must be written before it is free.
    ///
    /// Less is made free when there is nothing left that could be, or no room on swap devices.
    pub fn reclaim<S: Spaces<A> + ?Sized>(&self, pages: u64, spaces: &S) -> Reclaimed {
        let is_swap = |file: &File| file.store() == Some(Store::Swap);
        let dropped = self.drop_files(pages, |file| !is_swap(file));
        let mut done = Reclaimed { dropped, paged_out: 0 };
        for idle in (0..=3).rev() {
            if done.pages() >= pages {
                break;
            }
            done.paged_out += self.page_out_old(pages - done.pages(), idle, spaces);
            if idle > 0 && done.pages() < pages {
                self.age_all(spaces);
            }
        }
        // What was just read from a device is about to be mapped.
        if done.pages() < pages {
            done.dropped += self.drop_files(pages - done.pages(), is_swap);
        }
        done
    }

    /// Drops clean pages of `such` files that nobody maps, `pages` or a few more; how many.
    fn drop_files(&self, pages: u64, such: impl Fn(&File) -> bool) -> u64 {
        let mut dropped = 0;
        for id in self.file_ids() {
            let Some(file) = self.file(id).filter(|file| such(file)) else { continue };
            if dropped >= pages {
                break;
            }
            dropped += self.drop_clean(id, FilePages::new(0, file.pages())).unwrap_or(0);
        }
        dropped
    }

    /// Pages out folios that were not touched for `idle` rounds, from where the hand is, once
    /// around all spaces; how many pages.
    fn page_out_old<S: Spaces<A> + ?Sized>(&self, pages: u64, idle: u32, spaces: &S) -> u64 {
        let mut out = 0;
        // First from the hand on, then what lies before it.
        let (at, hand) = self.hand.load();
        for first in [true, false] {
            let mut reached = !first;
            spaces.visit(&mut |space| {
                let is_here = space.root().get() == at;
                reached |= is_here;
                let from = if is_here && first { hand } else { 0 };
                if reached && out < pages {
                    out += self.page_out_of(space, from, (pages - out, idle), spaces);
                }
            });
        }
        out
    }

    fn page_out_of<S: Spaces<A> + ?Sized>(
        &self,
        space: &Space<A>,
        from: u64,
        (pages, idle): (u64, u32),
        spaces: &S,
    ) -> u64 {
        let span = PageSpan::new(Vpn::new(from.min(A::USER_PAGES - 1)), Vpn::new(A::USER_PAGES));
        let demand = Demand { whose: Whose::All, idle, pages };
        let done: Result<_, Error> = self.page_out_if(space, span, demand, spaces);
        let Ok((out, upto)) = done else { return 0 };
        self.hand.store(space.root().get(), upto.get());
        out.pages
    }
}
