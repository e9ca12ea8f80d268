//! Helpers of the tests: a lender that can fail and counts, and data of several kinds.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::cell::Cell;

use quire_zpool::{Config, Lender, PageId, Pool, Scratch, Table};

/// A lender that has at most `budget` pages, fails when told to, and remembers what is lent.
pub(crate) struct Frames {
    page_bytes: usize,
    pages: Vec<Option<Box<[u8]>>>,
    free: Vec<u32>,
    /// How many pages may be lent at once.
    pub(crate) budget: usize,
    /// After this many more pages, it fails once.
    pub(crate) fail_after: Option<usize>,
    /// How often `take` was called.
    pub(crate) asked: usize,
    /// Whether the memory was damaged, so that pages may be asked for that are not lent.
    pub(crate) is_damaged: bool,
    /// How often such a page was asked for.
    pub(crate) strays: Cell<usize>,
    /// How often such a page was given back.
    pub(crate) given_strays: usize,
}

impl Frames {
    pub(crate) fn new(page_bytes: usize, budget: usize) -> Self {
        Self {
            page_bytes,
            pages: vec![None],
            free: vec![],
            budget,
            fail_after: None,
            asked: 0,
            is_damaged: false,
            strays: Cell::new(0),
            given_strays: 0,
        }
    }

    pub(crate) fn lent(&self) -> usize {
        self.pages.iter().flatten().count()
    }

    /// All lent pages.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.pages.iter_mut().flatten().map(|page| &mut page[..])
    }

    fn stray(&self, page: PageId) {
        assert!(self.is_damaged, "page {} is not lent", page.number());
        self.strays.set(self.strays.get() + 1);
    }
}

impl Lender for Frames {
    fn take(&mut self) -> Option<PageId> {
        self.asked += 1;
        if let Some(left) = &mut self.fail_after {
            if *left == 0 {
                self.fail_after = None;
                return None;
            }
            *left -= 1;
        }
        if self.lent() >= self.budget {
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() as u32 - 1
        });
        // Whatever was in it before: the pool must not rely on zeroes.
        self.pages[number as usize] = Some(vec![0xa5; self.page_bytes].into());
        PageId::new(number)
    }

    fn give(&mut self, page: PageId) {
        let number = page.number() as usize;
        if self.pages.get(number).is_none_or(|page| page.is_none()) {
            self.given_strays += 1;
            return self.stray(page);
        }
        self.pages[number] = None;
        self.free.push(page.number());
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        match self.pages.get(page.number() as usize) {
            Some(Some(bytes)) => bytes,
            _ => {
                self.stray(page);
                &[]
            }
        }
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        if self.pages.get(page.number() as usize).is_none_or(|page| page.is_none()) {
            self.stray(page);
            return &mut [];
        }
        self.pages[page.number() as usize].as_deref_mut().unwrap_or_default()
    }
}

/// A pool on `Frames`, with memory that lives as long as the test program.
pub(crate) fn pool(config: Config, budget: usize) -> Pool<'static, Frames> {
    let scratch = Scratch {
        table: Box::leak(Box::new(Table::new())),
        bytes: vec![0; config.scratch_bytes()].leak(),
    };
    Pool::new(config, Frames::new(config.page_bytes(), budget), scratch).unwrap()
}

/// A small generator of numbers that look random (splitmix64).
pub(crate) struct Noise(pub u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The kinds of contents of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Zero,
    Same,
    Text,
    Random,
    /// A piece of each, page by page.
    Mixed,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Zero, Kind::Same, Kind::Text, Kind::Random, Kind::Mixed];

/// `length` bytes of that kind.
pub(crate) fn data(kind: Kind, length: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    match kind {
        Kind::Zero => vec![0; length],
        Kind::Same => (noise.next() | 1).to_le_bytes().repeat(length / 8),
        Kind::Text => text(length, &mut noise),
        Kind::Random => (0..length / 8).flat_map(|_| noise.next().to_le_bytes()).collect(),
        Kind::Mixed => (0..length / 2048)
            .flat_map(|_| {
                let kind = KINDS[noise.below(4) as usize];
                data(kind, 2048, noise.next())
            })
            .collect(),
    }
}

/// Words of a vocabulary of 2000, frequent ones more often, as in written language.
fn text(length: usize, noise: &mut Noise) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let bits = noise.below(11) + 1;
        let mut word = Noise(noise.below(1 << bits));
        let letters = 2 + word.below(8);
        text.extend((0..letters).map(|_| b"etaoinshrdlucmfwypvbgkqjxz"[word.below(26) as usize]));
        text.push(if noise.below(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(length);
    text
}
