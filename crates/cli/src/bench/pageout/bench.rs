//! The cells, the figures that they become, and the goals.

use anyhow::Result;
use clap::Args;
use quire_arch::Arch;

use super::count::{
    Did, ENTRIES, FALLBACKS, FLUSHES, FOLIOS, INDEX_FRAMES, INVALIDATIONS, PAGES, SLOT_FRAMES,
    SPLITS, UNFOLDS, WALKS, WHOLE,
};
use super::cycle::{BY_RUNS, Device, Way};
use super::scene::{Scene, ram, ram_bytes, with_scene};
use super::{linux, packed};
use crate::bench::driver::Bench;
use crate::bench::options::Common;
use crate::bench::scene::{BLOCK, Backing};
use crate::bench::sheet::{self, Bound, Key, OVER_PAGES, Place, Row, Sheet, count_of, verdict};
use crate::host::{Host, memory};
use crate::isa::{Isa, with_isa};
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;

const OUT: &str = "out";
const WRITE: &str = "write";
const BACK: &str = "back";
const PER_PAGE: (&str, &str) = ("per-page", "ns");
const OVER: (&str, &str) = (OVER_PAGES, "ratio");
/// The page-table formats.
pub(super) const ISAS: [Isa; 2] = [Isa::Arm4k, Isa::X86_64];
/// The backings of the memory.
pub(super) const BACKINGS: [Backing; 4] = [
    Backing { size: Size(4 << 10), block: false },
    Backing { size: Size(64 << 10), block: false },
    Backing { size: Size(2 << 20), block: false },
    Backing { size: Size(2 << 20), block: true },
];
const LOOPS: u32 = 9;

/// The usual size of the memory, and those that may be named: multiples of the largest folio.
const USUAL: u64 = 256 << 20;
const LEAST: u64 = 16 << 20;
const MOST: u64 = 16 << 30;
const UNIT: u64 = 2 << 20;
/// Memory of the host beside the machine's RAM: slots of frames, the command itself.
const BESIDE: u64 = 64 << 20;

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
/// How many times as fast as page-at-a-time paging out of 64K folios shall be.
const TIMES: [(Isa, f64); 2] = [(Isa::Arm4k, 2.5), (Isa::X86_64, 1.5)];
/// The share of page-at-a-time's time that paging out of base pages may take.
const OF_PAGES: f64 = 1.02;
/// The share of the pages that shall come back in folios as large as they left in.
const WHOLE_SHARE: f64 = 0.95;

/// Options of `bench pageout`.
#[derive(Args, Debug)]
pub(crate) struct PageoutArgs {
    /// How much memory is paged out, a multiple of 2M [default: 256M]
    #[arg(long)]
    size: Option<Size>,
    /// The host's own kernel as well: needs root, a loop device and zram; settings are restored
    #[arg(long)]
    kernel: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The bytes that go out. An impossible size and a lack of memory are refused.
fn bytes(named: Option<Size>, host: &Host) -> Result<u64, Refused> {
    let Size(bytes) = named.unwrap_or(Size(USUAL));
    if !(LEAST..=MOST).contains(&bytes) || !bytes.is_multiple_of(UNIT) {
        let (unit, least, most) = (Size(UNIT), Size(LEAST), Size(MOST));
        return Err(Refused(format!("--size is a multiple of {unit} from {least} to {most}")));
    }
    let need = ram_bytes(bytes) + bytes / 32 + BESIDE;
    memory::require(host, &format!("paging out {}", Size(bytes)), need)?;
    Ok(bytes)
}

/// Memory in one format and backing.
#[derive(Clone, Copy, Debug)]
struct Kind {
    isa: Isa,
    backing: Backing,
}

impl Kind {
    fn all() -> impl Iterator<Item = Kind> {
        ISAS.into_iter().flat_map(|isa| BACKINGS.map(|backing| Kind { isa, backing }))
    }

    fn case(self, part: &str) -> Case {
        let case = Case::new(part, Some(self.backing.size));
        case.with(&self.isa.name()).with(self.backing.note())
    }

    fn key(self, part: &str, (way, device): (Way, Device), metric: (&str, &'static str)) -> Key {
        Key::new(&self.case(part).with(device.note()), way.name(), metric)
    }

    /// The start of all sentences about it.
    fn name(self) -> String {
        let how = match (self.backing.block, self.backing.size.bytes()) {
            (true, _) => " mapped by blocks",
            (false, ..K64) => "",
            (false, _) => " mapped by entries",
        };
        format!("{}, folios of {}{how}", self.isa.name(), self.backing.size)
    }

    fn goal(self, times: f64) -> String {
        let least = TIMES.iter().find(|(isa, _)| *isa == self.isa).map(|(_, least)| *least);
        match (self.backing.size.bytes(), least) {
            (K64, Some(least)) => format!("; {}", Bound::AtLeast(least).judge(times)),
            (K4, _) => {
                let met = verdict(1.0 / times <= OF_PAGES);
                format!("; goal: at most {OF_PAGES} of its time; {met}")
            }
            _ => String::new(),
        }
    }

    /// Paging out by runs and page-at-a-time: judged where the device does nothing.
    fn judge_times(self, sheet: &mut Sheet) {
        let [idle, copies] = Device::ALL.map(|device| {
            let to = self.key(OUT, (Way::Runs, device), OVER);
            let [runs, pages] = Way::ALL.map(|way| self.key(OUT, (way, device), PER_PAGE));
            Some((sheet.ratio(&pages, &runs, to)?, sheet.median(&runs)?, sheet.median(&pages)?))
        });
        let (Some((times, runs, pages)), Some((copies, ..))) = (idle, copies) else { return };
        sheet.finding(format!(
            "{}: paging out takes {runs:.1} ns a page {BY_RUNS}, {pages:.1} ns {}: {:.2} times as \
             fast ({:.2} to {:.2}{}); {:.2} times where a device copies between.",
            self.name(),
            sheet::PAGES,
            times.median,
            times.min,
            times.max,
            self.goal(times.median),
            copies.median
        ));
    }

    /// The rest of the cycle, which no goal is about.
    fn tell_rest(self, sheet: &mut Sheet) {
        let both = Device::ALL.map(|device| {
            let of = |part| sheet.median(&self.key(part, (Way::Runs, device), PER_PAGE));
            Some((of(WRITE)?, of(BACK)?))
        });
        let [Some((write, back)), Some((writes, reads))] = both else { return };
        sheet.finding(format!(
            "{}: to write takes {write:.1} ns a page and to bring back {back:.1} ns beside the \
             device; with one that copies {writes:.0} ns and {reads:.0} ns.",
            self.name()
        ));
    }

    fn judge_counts(self, sheet: &mut Sheet, Did { out, back }: &Did) {
        let of = count_of;
        let (folios, invalidations) = (of(out, FOLIOS), of(out, INVALIDATIONS));
        let goal = match self.backing.size.bytes() {
            K64 => format!(" (goal: at most 1 for a folio; {})", verdict(invalidations <= folios)),
            _ => String::new(),
        };
        sheet.finding(format!(
            "{}: {folios} folios went out with {} rmap walks (goal: 1 for a folio; {}), {} swap \
             entries, {} flushes and {invalidations} invalidations{goal}; {} had no run of slots \
             (goal: 0; {}); {} leaves were split; the index took {} frames, the slots had {}.",
            self.name(),
            of(out, WALKS),
            verdict(of(out, WALKS) == folios),
            of(out, ENTRIES),
            of(out, FLUSHES),
            of(out, FALLBACKS),
            verdict(of(out, FALLBACKS) == 0),
            of(out, SPLITS),
            of(out, INDEX_FRAMES),
            of(out, SLOT_FRAMES),
        ));
        let pages = of(back, PAGES);
        let share = of(back, WHOLE) as f64 / (pages as f64).max(1.0);
        sheet.finding(format!(
            "{}: of {pages} pages {:.1} % came back in whole folios (goal: at least {} %; {}), {} \
             folios in all.",
            self.name(),
            100.0 * share,
            100.0 * WHOLE_SHARE,
            verdict(share >= WHOLE_SHARE),
            of(back, FOLIOS)
        ));
    }

    /// Page-at-a-time takes contiguous blocks apart.
    fn tell_pages(self, sheet: &mut Sheet, Did { out, .. }: &Did) {
        let of = |name| count_of(out, name);
        if of(UNFOLDS) > 0 {
            sheet.finding(format!(
                "{}: {} takes {} contiguous blocks apart on the way, and makes {} flushes with {} \
                 invalidations.",
                self.name(),
                sheet::PAGES,
                of(UNFOLDS),
                of(FLUSHES),
                of(INVALIDATIONS)
            ));
        }
    }
}

pub(crate) struct Pageout {
    bytes: u64,
    loops: u32,
    kernel: bool,
    /// The counts of each kind, for each way.
    counted: Vec<(Kind, Vec<Did>)>,
}

/// The rounds of one kind, and its counts for each way.
fn measure<A: Arch>(
    kind: Kind,
    loops: u32,
    sheet: &mut Sheet,
    scene: &Scene<'_, '_, '_, '_, A>,
) -> Result<Vec<Did>> {
    let did = Way::ALL.into_iter().map(|way| scene.verified(way)).collect::<Result<Vec<_>>>()?;
    let cells = Device::ALL.into_iter().flat_map(|device| Way::ALL.map(|way| (way, device)));
    let keys = |cell| [OUT, WRITE, BACK].map(|part| kind.key(part, cell, PER_PAGE)).into();
    let cells: Vec<(Vec<Key>, (Way, Device))> = cells.map(|cell| (keys(cell), cell)).collect();
    sheet.rounds("paging out", loops, &cells, |(way, device)| scene.cycle(*way, *device))?;
    scene.verify_backing()?;
    for (way, did) in Way::ALL.into_iter().zip(&did) {
        sheet.counts(&kind.case(OUT), way.name(), &did.out);
        sheet.counts(&kind.case(BACK), way.name(), &did.back);
    }
    Ok(did)
}

impl Bench for Pageout {
    type Args = PageoutArgs;

    fn titles(_: &PageoutArgs) -> [&'static str; 3] {
        [
            "pageout",
            "Paging out",
            "The cost of paging anonymous memory out and bringing it back, for each page.",
        ]
    }

    fn new(args: &PageoutArgs, host: &Host, _: &mut Sheet) -> Result<Self> {
        let (bytes, loops) = (bytes(args.size, host)?, args.common.loops.unwrap_or(LOOPS));
        Ok(Pageout { bytes, loops, kernel: args.kernel, counted: Vec::new() })
    }

    fn measure(&mut self, host: &Host, sheet: &mut Sheet) -> Result<()> {
        let (mut ram, loops) = (ram(self.bytes)?, self.loops);
        for kind in Kind::all() {
            let place = (kind.isa, kind.backing, self.bytes);
            let did = with_isa!(kind.isa, A => {
                with_scene::<A, _>(&mut ram, place, |scene| measure(kind, loops, sheet, scene))
            })?;
            self.counted.push((kind, did));
        }
        packed::measure(sheet, &mut ram, &BACKINGS, (self.bytes, loops))?;
        if self.kernel {
            linux::tell(sheet, host, self.bytes, loops)?;
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        Kind::all().for_each(|kind| kind.judge_times(sheet));
        Kind::all().for_each(|kind| kind.tell_rest(sheet));
        for (kind, did) in &self.counted {
            did.first().into_iter().for_each(|did| kind.judge_counts(sheet, did));
            did.get(1).into_iter().for_each(|did| kind.tell_pages(sheet, did));
        }
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.words(
            include_str!("words.txt"),
            &[
                ("size", Size(self.bytes).to_string()),
                ("BY_RUNS", BY_RUNS.to_owned()),
                ("pages", sheet::PAGES.to_owned()),
            ],
        );
    }

    /// One table for each format and kind of figure.
    fn place(&self, key: &Key) -> Place {
        let what = match (key.metric.as_str(), key.unit) {
            ("per-page", _) => "CPU time for each page, less is better (medians)",
            (_, "times") => "compressed memory, how many times smaller than its content",
            (_, "ratio") => {
                "by-runs against page-at-a-time, times as fast, more is better (medians)"
            }
            _ => "counted in a round of its own",
        };
        let (part, variant) = (&key.case.form, &key.variant);
        let last = key.case.notes.last().map_or("", String::as_str);
        let row = match key.unit {
            "count" => format!("{part}, {variant}: {}", key.metric),
            "ratio" => format!("{part}, {last}"),
            _ => format!("{part}, {variant}, {last}"),
        };
        let table = format!("pageout {}: {what}", key.case.format());
        let mut place = Place::by_size(key, table, row);
        if key.case.has(BLOCK) {
            place.column = (place.column.0 + 1, format!("{} {BLOCK}", place.column.1));
        }
        place
    }

    fn headlines(&self) -> Vec<Row> {
        let row = |what, note, least| Row {
            what,
            form: OUT,
            size: K64,
            note,
            metric: "per-page",
            variants: [BY_RUNS, sheet::PAGES],
            goal: (OVER_PAGES, "times", Bound::AtLeast(least)),
        };
        vec![
            row("page out 64K folios, per page", "x86_64", TIMES[1].1),
            row("page out 64K folios, arm64 tables", "arm64_4k", TIMES[0].1),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::{Tally, tests::empty};

    fn asked(kib: u64, named: Option<u64>) -> Result<u64, Refused> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = format!("MemAvailable: {kib} kB\n");
        std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        bytes(named.map(Size), &Host::new(dir.path()))
    }

    #[test]
    fn d7_memory_is_whole_blocks_and_neither_tiny_nor_vast() {
        assert_eq!(asked(4 << 20, None).unwrap(), 256 << 20);
        assert_eq!(asked(4 << 20, Some(18 << 20)).unwrap(), 18 << 20);
        for wrong in [0, 2 << 20, 17 << 20, (16 << 20) + 4096, 17 << 30, u64::MAX] {
            let said = asked(4 << 20, Some(wrong)).unwrap_err().0;
            assert_eq!(said, "--size is a multiple of 2M from 16M to 16G");
        }
        let said = asked(256 << 10, None).unwrap_err().0;
        assert!(said.contains("paging out 256M") && said.contains("is available"), "{said}");
    }

    fn kind(isa: Isa, at: usize) -> Kind {
        Kind { isa, backing: BACKINGS[at] }
    }

    /// The findings of two rounds, in the second of which the machine was half as fast, where
    /// paging out takes 10 ns by runs and `pages` ns page-at-a-time.
    fn said(kind: Kind, pages: f64) -> String {
        let mut sheet = empty();
        for device in Device::ALL {
            for (way, out) in Way::ALL.into_iter().zip([10.0, pages]) {
                for (part, ns) in [(OUT, out), (WRITE, 7.0), (BACK, 11.0)] {
                    sheet.put(kind.key(part, (way, device), PER_PAGE), vec![ns, 2.0 * ns]);
                }
            }
        }
        kind.judge_times(&mut sheet);
        kind.tell_rest(&mut sheet);
        sheet.run.findings.join("\n")
    }

    #[test]
    fn d7_paging_out_is_judged_by_the_ratio_within_each_round() {
        let met = said(kind(Isa::Arm4k, 1), 25.0);
        assert!(met.contains("15.0 ns a page by-runs, 37.5 ns page-at-a-time: 2.50"), "{met}");
        assert!(met.contains("(2.50 to 2.50; goal: at least 2.5; met)"), "{met}");
        assert!(said(kind(Isa::Arm4k, 1), 24.9).contains("goal: at least 2.5; MISSED"));
        assert!(said(kind(Isa::X86_64, 1), 15.0).contains("goal: at least 1.5; met"));
        assert!(said(kind(Isa::X86_64, 1), 14.9).contains("goal: at least 1.5; MISSED"));
    }

    #[test]
    fn d7_base_pages_shall_not_be_slower_and_blocks_have_no_goal_of_time() {
        assert!(said(kind(Isa::X86_64, 0), 9.9).contains("at most 1.02 of its time; met"));
        assert!(said(kind(Isa::X86_64, 0), 9.7).contains("at most 1.02 of its time; MISSED"));
        let blocks = said(kind(Isa::Arm4k, 3), 10.0);
        assert!(blocks.contains("2M mapped by blocks") && !blocks.contains("goal"), "{blocks}");
    }

    #[test]
    fn d7_writing_and_bringing_back_are_told_with_and_without_the_device() {
        let text = said(kind(Isa::X86_64, 2), 10.0);
        let words = "2M mapped by entries: to write takes 10.5 ns a page and to bring back 16.5 ns";
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn d7_blocks_that_page_at_a_time_takes_apart_are_told() {
        let told = |out| {
            let mut sheet = empty();
            kind(Isa::Arm4k, 1).tell_pages(&mut sheet, &Did { out, back: Vec::new() });
            sheet.run.findings.concat()
        };
        let text = told(vec![(UNFOLDS, 64), (FLUSHES, 66)]);
        assert!(text.contains("takes 64 contiguous blocks apart on the way, and makes 66 flushes"));
        assert!(told(Vec::new()).is_empty());
    }

    #[test]
    fn d7_counts_are_judged_for_each_folio() {
        let counts = |out: Tally, whole: u64| {
            let (mut sheet, back) = (empty(), vec![(PAGES, 1000), (WHOLE, whole), (FOLIOS, 70)]);
            kind(Isa::X86_64, 1).judge_counts(&mut sheet, &Did { out, back });
            sheet.run.findings.join("\n")
        };
        let good = vec![(FOLIOS, 64), (WALKS, 64), (INVALIDATIONS, 64), (FLUSHES, 2)];
        let met = counts(good, 950);
        for words in [
            "64 folios went out with 64 rmap walks (goal: 1 for a folio; met)",
            "2 flushes and 64 invalidations (goal: at most 1 for a folio; met)",
            "0 had no run of slots (goal: 0; met)",
            "of 1000 pages 95.0 % came back in whole folios (goal: at least 95 %; met)",
        ] {
            assert!(met.contains(words), "{words} in {met}");
        }
        let bad = vec![(FOLIOS, 64), (WALKS, 65), (INVALIDATIONS, 1024), (FALLBACKS, 1)];
        let missed = counts(bad, 949);
        for words in [
            "65 rmap walks (goal: 1 for a folio; MISSED)",
            "1024 invalidations (goal: at most 1 for a folio; MISSED)",
            "1 had no run of slots (goal: 0; MISSED)",
            "94.9 % came back in whole folios (goal: at least 95 %; MISSED)",
        ] {
            assert!(missed.contains(words), "{words} in {missed}");
        }
    }
}
