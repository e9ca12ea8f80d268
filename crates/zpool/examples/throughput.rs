//! The speed and density of the pool, by kind of data and by unit.
//!
//! ```sh
//! cargo run --release -p quire-zpool --example throughput            # made-up data
//! cargo run --release -p quire-zpool --example throughput -- FILE    # the bytes of a file, too
//! ```
//!
//! Folios of 2 MiB are stored and loaded again. `pages` does so page by page, as without large
//! folios; the other rows hand over the whole folio, which is compressed in units of that size.
//! Figures are medians of several rounds, in the CPU's time and not the clock's, so that a busy
//! machine disturbs them little. `speed` compares storing with the first row. `page` is the time
//! to load one 4 KiB page by itself.
//! `ratio` is the bytes stored by all bytes lent for them, `objects` by the compressed bytes alone.

use std::hint::black_box;

use quire_units::Order;
use quire_zpool::{Config, Lender, PageId, Pool, Scratch, Table};
use rustix::time::{ClockId, clock_gettime};

const PAGE: usize = 4096;
const FOLIO: usize = 2 << 20;
const FOLIOS: usize = 8;
const ROUNDS: usize = 9;

/// How many single pages are loaded in a round.
const PAGES: u64 = 64;

/// Pages of one long piece of memory.
struct Frames {
    memory: Vec<u8>,
    free: Vec<u32>,
}

impl Frames {
    fn new(pages: u32) -> Self {
        // Written once, so that the host's own page faults are not measured.
        Self { memory: vec![1; (pages as usize + 1) * PAGE], free: (1..=pages).rev().collect() }
    }
}

impl Lender for Frames {
    fn take(&mut self) -> Option<PageId> {
        PageId::new(self.free.pop()?)
    }

    fn give(&mut self, page: PageId) {
        self.free.push(page.number());
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        &self.memory[page.number() as usize * PAGE..][..PAGE]
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        &mut self.memory[page.number() as usize * PAGE..][..PAGE]
    }
}

/// The way in which a folio is stored, and the unit of compression.
const WAYS: [(&str, u8, usize); 5] = [
    ("pages", 0, 4 << 10),
    ("4K", 9, 4 << 10),
    ("16K", 9, 16 << 10),
    ("64K", 9, 64 << 10),
    ("2M", 9, 2 << 20),
];

#[derive(Default)]
struct Figures {
    store: Vec<f64>,
    load: Vec<f64>,
    page: Vec<f64>,
    ratio: f64,
    objects: f64,
}

type Failure = Box<dyn std::error::Error>;

/// One round: everything is stored, loaded, loaded by single pages, and freed.
fn round(
    pool: &mut Pool<'_, Frames>,
    data: &[u8],
    order: u8,
    out: &mut [u8],
    figures: &mut Figures,
) -> Result<(), Failure> {
    let run = PAGE << order;
    let slots = 1_u64 << order;
    let start = seconds();
    for (bytes, first) in data.chunks_exact(run).zip((0..).step_by(slots as usize)) {
        pool.store(first, Order::new(order), bytes)?;
    }
    figures.store.push(data.len() as f64 / (seconds() - start) / 1e6);
    let counters = pool.counters();
    figures.ratio = data.len() as f64 / (counters.lent_pages() as usize * PAGE) as f64;
    figures.objects = data.len() as f64 / counters.object_bytes.max(1) as f64;
    let start = seconds();
    for first in (0..(data.len() / PAGE) as u64).step_by(slots as usize) {
        pool.load(first, slots, &mut out[..run])?;
        black_box(&out);
    }
    figures.load.push(data.len() as f64 / (seconds() - start) / 1e6);
    let slots = (data.len() / PAGE) as u64;
    let start = seconds();
    for n in 0..PAGES {
        // Never two pages of one unit in a row: the second would only be copied.
        pool.load(n * 521 % slots, 1, &mut out[..PAGE])?;
    }
    figures.page.push((seconds() - start) / PAGES as f64 * 1e6);
    pool.clear();
    Ok(())
}

/// CPU time of this thread.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// All ways in turn, so that a busy moment of the host affects them alike.
fn measure(name: &str, data: &[u8]) -> Result<(), Failure> {
    let mut out = vec![0; FOLIO];
    let mut figures: Vec<Figures> = WAYS.iter().map(|_| Figures::default()).collect();
    let mut frames = Some(Frames::new((data.len() / PAGE * 9 / 8) as u32 + 64));
    let mut table = Table::new();
    for _ in 0..ROUNDS {
        for (way, figures) in WAYS.iter().zip(&mut figures) {
            let config = Config::new(12, way.2, 0, (data.len() / PAGE) as u64)?;
            let mut bytes = vec![0; config.scratch_bytes()];
            let scratch = Scratch { table: &mut table, bytes: &mut bytes };
            let lender = frames.take().ok_or("the frames are lent")?;
            let mut pool = Pool::new(config, lender, scratch)?;
            round(&mut pool, data, way.1, &mut out, figures)?;
            frames = Some(pool.into_lender());
        }
    }
    let base = median(&mut figures[0].store);
    for ((way, ..), mut figures) in WAYS.into_iter().zip(figures) {
        let (store, load) = (median(&mut figures.store), median(&mut figures.load));
        println!(
            "{name:12} {way:>6} {store:9.0} {:7.2} {load:9.0} {:9.2} {:8.2} {:8.2}",
            store / base,
            median(&mut figures.page),
            figures.ratio,
            figures.objects.min(9999.0),
        );
    }
    Ok(())
}

/// Numbers that look random (splitmix64).
fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Words of a vocabulary of 2000, frequent ones more often, as in written language.
fn text(length: usize) -> Vec<u8> {
    let mut state = 1;
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let bits = noise(&mut state) % 11 + 1;
        let mut word = noise(&mut state) % (1 << bits);
        let letters = 2 + noise(&mut word) % 8;
        text.extend((0..letters).map(|_| b'a' + (noise(&mut word) % 26) as u8));
        text.push(b' ');
    }
    text.truncate(length);
    text
}

fn main() -> Result<(), Failure> {
    let length = FOLIO * FOLIOS;
    let mut state = 3;
    let random = (0..length / 8).flat_map(|_| noise(&mut state).to_le_bytes()).collect();
    let mut kinds: Vec<(String, Vec<u8>)> = vec![
        ("random".into(), random),
        ("text-like".into(), text(length)),
        ("same-filled".into(), 0x0123_4567_89ab_cdef_u64.to_le_bytes().repeat(length / 8)),
        ("zero".into(), vec![0; length]),
    ];
    for path in std::env::args().skip(1) {
        let mut bytes = std::fs::read(&path)?;
        bytes.truncate(bytes.len().min(length) / FOLIO * FOLIO);
        kinds.push((path.rsplit('/').next().unwrap_or_default().into(), bytes));
    }
    println!("data            unit store MB/s  speed load MB/s   page us    ratio  objects");
    for (name, data) in &kinds {
        measure(name, data)?;
    }
    Ok(())
}
