//! The machine's memory, as far as a replay needs to know it.

use super::linux::rules::BLOCK;
use crate::host::Host;

const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";

/// Memory in which large folios may be hard to find, with its bound and its background.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Memory {
    /// The share of attempts for a block that fail, from 0 to 1; smaller orders fail less often.
    pub(super) fragmented: f64,
    pub(super) seed: u64,
    /// The bound of all processes together, if there is one.
    pub(super) limit: Option<Limit>,
    pub(super) pace: Pace,
}

/// A bound of memory, and the device to which pages beyond it go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    /// Pages of memory.
    pub(super) pages: u64,
    /// Pages that the swap device has room for.
    pub(super) slots: u64,
    /// Whether a fault pages out to get a large folio (`defrag`): in other areas, and in those
    /// with advice. Else it takes a smaller one.
    pub(super) waits: [bool; 2],
}

/// The rounds of the background, and the blocks that it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// Milliseconds between two rounds, and the pages that a round scans.
    pub(super) pause: u64,
    pub(super) pages: u64,
    /// In a block at most: empty pages, pages on swap devices, pages of shared folios.
    pub(super) none: u64,
    pub(super) swapped: u64,
    pub(super) shared: u64,
}

impl Memory {
    /// Memory without a bound, with the background's usual pace.
    pub(super) fn new(fragmented: f64) -> Memory {
        Memory { fragmented, seed: 1, limit: None, pace: Pace::default() }
    }

    /// The share of attempts that fail for a folio of `order`. A folio is found if each doubling
    /// of a page is; so pages always are, and the share is as given for blocks.
    pub(super) fn lacks(&self, order: u8) -> f64 {
        1.0 - (1.0 - self.fragmented).powf(f64::from(order) / f64::from(BLOCK))
    }

    /// Whether there is a free folio of `order` at this attempt.
    pub(super) fn has(&mut self, order: u8) -> bool {
        if order == 0 || self.fragmented <= 0.0 {
            return true;
        }
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64 >= self.lacks(order)
    }
}

impl Limit {
    /// `pages` of memory and `slots` of a device, with the host's `defrag`.
    pub(super) fn new(pages: u64, slots: u64, defrag: Option<&str>) -> Limit {
        let waits = match defrag {
            Some("always") => [true, true],
            Some("madvise" | "defer+madvise") | None => [false, true],
            Some(_) => [false, false],
        };
        Limit { pages, slots, waits }
    }
}

impl Default for Pace {
    /// The kernel's.
    fn default() -> Pace {
        Pace { pause: 10_000, pages: 4096, none: 511, swapped: 64, shared: 256 }
    }
}

impl Pace {
    /// Whatever lies in a block: the program has asked for it.
    pub(super) fn asked() -> Pace {
        Pace { swapped: u64::MAX, shared: u64::MAX, ..Pace::default() }
    }

    /// The host's.
    pub(super) fn of_host(host: &Host) -> Pace {
        let usual = Pace::default();
        let read = |name: &str, usual: u64| {
            let text = host.read(format!("{FOLDER}/khugepaged/{name}"));
            text.and_then(|text| text.parse().ok()).unwrap_or(usual)
        };
        Pace {
            pause: read("scan_sleep_millisecs", usual.pause).max(1),
            pages: read("pages_to_scan", usual.pages),
            none: read("max_ptes_none", usual.none),
            swapped: read("max_ptes_swap", usual.swapped),
            shared: read("max_ptes_shared", usual.shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn f1_the_pace_of_the_background_is_the_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        assert_eq!(Pace::of_host(&host), Pace::default());
        let folder = dir.path().join(FOLDER).join("khugepaged");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("max_ptes_none"), "0\n").unwrap();
        fs::write(folder.join("scan_sleep_millisecs"), "100\n").unwrap();
        assert_eq!(Pace::of_host(&host), Pace { none: 0, pause: 100, ..Pace::default() });
    }

    #[test]
    fn f1_only_some_faults_page_out_for_a_large_folio() {
        let waits = |word| Limit::new(1, 1, Some(word)).waits;
        assert_eq!(waits("always"), [true, true]);
        assert_eq!([waits("madvise"), waits("defer+madvise")], [[false, true]; 2]);
        assert_eq!([waits("defer"), waits("never")], [[false, false]; 2]);
    }
}
