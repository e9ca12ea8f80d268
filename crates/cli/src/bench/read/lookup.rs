//! Lookups alone: a page is found, held, and let go, by one thread and by two on one file.

use std::hint::black_box;

use anyhow::Result;
use quire::Stop;
use quire::cache::{FileId, FilePages, Pattern, Readahead};

use super::naive::Naive;
use super::scene::{Scene, THREADS};
use crate::threads::{self, Timing};

/// The order in which pages are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// One page, again and again; two threads the same.
    One,
    /// Page after page; each thread in a half of the file.
    Ascending,
    /// Any page of the file, by chance.
    Random,
}

impl Order {
    pub(super) const ALL: [Order; 3] = [Order::One, Order::Ascending, Order::Random];

    /// The form in records.
    pub(super) fn form(self) -> &'static str {
        match self {
            Order::One => "lookup of one page",
            Order::Ascending => "lookup in order",
            Order::Random => "lookup at random",
        }
    }

    /// The pages that thread `at` looks up.
    #[inline]
    fn pages(self, at: usize, pages: u64) -> impl Iterator<Item = u64> {
        let (half, thread) = (pages / u64::from(THREADS), at as u64);
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ thread << 17;
        (0..half).map(move |nth| match self {
            Order::One => half,
            Order::Ascending => thread * half + nth,
            Order::Random => {
                // The constants of Knuth's MMIX; the high bits are the good ones.
                state = 6_364_136_223_846_793_005_u64
                    .wrapping_mul(state)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((state >> 32) * pages) >> 32
            }
        })
    }
}

/// The index in which pages are found.
#[derive(Clone, Copy)]
pub(super) enum Finder<'a> {
    /// The library.
    Cache(FileId),
    /// A map in one lock.
    Naive(&'a Naive),
}

/// Nanoseconds for each lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookups {
    /// One thread alone.
    pub(super) one: Timing,
    /// Two at the same time, as each sees it.
    pub(super) two: Timing,
}

impl Lookups {
    /// How many times as fast two threads are as one, by the clock.
    pub(super) fn by_clock(&self) -> f64 {
        f64::from(THREADS) * self.one.wall / self.two.wall
    }

    /// The same by CPU time, which stands still while other tasks have the CPU.
    pub(super) fn by_cpu(&self) -> f64 {
        f64::from(THREADS) * self.one.cpu / self.two.cpu
    }
}

/// Looks up half as many pages as the file has, with one thread and then with two.
pub(super) fn sample(
    scene: &Scene<'_, '_, '_>,
    (finder, order): (Finder<'_>, Order),
) -> Result<Lookups> {
    let count = scene.pages / u64::from(THREADS);
    let run = |threads| {
        let work = |at: usize| look_up(scene, finder, order.pages(at, scene.pages));
        Ok::<_, anyhow::Error>(
            threads::on_machine(scene.machine, (threads, true), work)?.per(count),
        )
    };
    Ok(Lookups { one: run(1)?, two: run(THREADS)? })
}

fn look_up(
    scene: &Scene<'_, '_, '_>,
    finder: Finder<'_>,
    pages: impl Iterator<Item = u64>,
) -> Result<(), Stop> {
    match finder {
        Finder::Cache(file) => {
            let mut reader = Readahead::default();
            for page in pages {
                let wanted = FilePages::new(page, page + 1);
                let (held, _) =
                    scene.mm.files().read(file, wanted, &mut reader, Pattern::Normal)?;
                black_box(held.frames());
                scene.mm.files().release(held);
            }
        }
        Finder::Naive(naive) => pages.for_each(|page| {
            black_box(naive.page(page));
        }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_threads_look_up_halves_in_order_and_all_of_the_file_at_random() {
        let pages = |order: Order, at| order.pages(at, 1000).collect::<Vec<_>>();
        assert_eq!(pages(Order::Ascending, 1), (500..1000).collect::<Vec<_>>());
        assert!(pages(Order::One, 0) == pages(Order::One, 1));
        let random = pages(Order::Random, 0);
        assert!(random != pages(Order::Random, 1) && random.iter().all(|&page| page < 1000));
        for part in 0..10 {
            let here = random.iter().filter(|&&page| page / 100 == part).count();
            assert!((20..80).contains(&here), "{here} of 500 lie in tenth {part}");
        }
    }
}
