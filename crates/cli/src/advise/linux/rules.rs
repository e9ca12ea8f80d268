//! Which sizes of folios an area may get.

use std::fmt;

use crate::host::thp::Switches;
use crate::tape::Area;

/// The order of a block that one entry of the upper table maps: 2 MiB of 4 KiB pages.
pub(crate) const BLOCK: u8 = 9;
/// The smallest order of a large folio of private memory.
pub(crate) const LEAST: u8 = 2;

/// The position of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Word {
    Never,
    Madvise,
    Inherit,
    Always,
}

impl Word {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Word::Never => "never",
            Word::Madvise => "madvise",
            Word::Inherit => "inherit",
            Word::Always => "always",
        }
    }

    /// The position with this name.
    pub(crate) fn of(name: &str) -> Option<Word> {
        [Word::Never, Word::Madvise, Word::Inherit, Word::Always]
            .into_iter()
            .find(|word| word.name() == name)
    }
}

/// A setting of all switches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Setting {
    /// For sizes that inherit.
    pub(crate) top: Word,
    /// By order; orders 0 and 1 have no switch.
    pub(crate) sizes: [Word; BLOCK as usize + 1],
}

impl Setting {
    /// No large folios.
    pub(crate) fn never() -> Setting {
        Setting { top: Word::Never, sizes: [Word::Never; BLOCK as usize + 1] }
    }

    /// The same with this position of the switch of `order`.
    pub(crate) fn with(mut self, order: u8, word: Word) -> Setting {
        self.sizes[order as usize] = word;
        self
    }

    /// The setting of a host's switches, of pages of `page` bytes; sizes that are not modelled are
    /// left out.
    pub(crate) fn of_switches(switches: &Switches, page: u64) -> Setting {
        let mut setting = Setting::never();
        setting.top = Word::of(&switches.top).unwrap_or(Word::Never);
        for (bytes, word) in &switches.sizes {
            let order = (bytes / page).checked_ilog2().unwrap_or(0) as usize;
            if let Some(place) = setting.sizes.get_mut(order) {
                *place = Word::of(word).unwrap_or(Word::Never);
            }
        }
        setting
    }

    /// The switches of a host for this setting.
    pub(crate) fn switches(&self, page: u64) -> Switches {
        let sizes = (LEAST..=BLOCK)
            .map(|order| (page << order, self.sizes[order as usize].name().to_owned()));
        Switches {
            top: self.top.name().to_owned(),
            // Compaction at faults, as a host with free memory would find a folio anyhow.
            defrag: None,
            sizes: sizes.collect(),
        }
    }

    /// The orders that `area` may get, as bits.
    pub(super) fn orders(&self, area: &Area) -> u16 {
        if !area.is_anon() || area.huge == Some(false) {
            return 0;
        }
        let advised = area.huge == Some(true);
        let on = |word: Word| match word {
            Word::Always => true,
            Word::Madvise => advised,
            Word::Never | Word::Inherit => false,
        };
        let mut orders = 0;
        for order in LEAST..=BLOCK {
            let word = match self.sizes[order as usize] {
                Word::Inherit => self.top,
                own => own,
            };
            orders |= u16::from(on(word)) << order;
        }
        orders
    }
}

impl fmt::Display for Setting {
    /// `16K,64K always, 2M madvise`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for word in [Word::Always, Word::Inherit, Word::Madvise] {
            let names: Vec<String> = (LEAST..=BLOCK)
                .filter(|order| self.sizes[*order as usize] == word)
                .map(|order| crate::size::Size(4096 << order).to_string())
                .collect();
            if names.is_empty() {
                continue;
            }
            let names = names.join(",");
            parts.push(match word {
                Word::Inherit => format!("{names} inherit ({})", self.top.name()),
                word => format!("{names} {}", word.name()),
            });
        }
        if parts.is_empty() { f.pad("never") } else { f.pad(&parts.join(", ")) }
    }
}
