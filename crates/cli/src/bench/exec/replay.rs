//! One recording under one policy: the program's touches, in their order.

use anyhow::{Context, Result, bail, ensure};
use quire::cache::{FileId, Reads, Store};
use quire::space::{At, Backing, Request, Space};
use quire::stats::Event;
use quire::{Error, Need, Resolved, Stop};
use quire_arch::Arch;
use quire_machine::{Config, Cpu};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

use super::policy::Policy;
use super::text::{Look, Text};
use crate::bench::scene::{CPU, window};
use crate::isa::{Isa, with_isa};
use crate::recording::{Kind, Recording, Segment, Source};

/// The counts of a replay.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outcome {
    /// Page faults.
    pub(super) faults: u64,
    /// The faults in text.
    pub(super) text_faults: u64,
    /// Reads from the disk, each of consecutive pages.
    pub(super) reads: u64,
    /// Pages of files that were read.
    pub(super) pages_read: u64,
    /// Pages of files that were touched.
    pub(super) touched: u64,
    /// Pages of private memory that pages of files were copied into.
    pub(super) copied: u64,
    /// The layout of the text.
    pub(super) text: Look,
}

/// RAM besides what all files take: tables, index nodes, copies, and folios that end beyond a file.
const MARGIN: u64 = 256 << 20;
/// The alignment of files in bytes, as Linux's file systems place large ones.
const ALIGN: u64 = 2 << 20;

/// The RAM of the hosted machine, in bytes.
pub(super) fn ram_bytes(recording: &Recording) -> u64 {
    let files = recording.files.iter().map(|file| file.bytes.next_multiple_of(ALIGN));
    files.sum::<u64>() + MARGIN
}

/// Replays `recording` under `policy` in the format `isa`.
pub(super) fn replay(recording: &Recording, isa: Isa, policy: Policy) -> Result<Outcome> {
    with_isa!(isa, A => replay_as::<A>(recording, isa.config(), policy))
}

fn replay_as<A: Arch>(recording: &Recording, config: Config, policy: Policy) -> Result<Outcome> {
    ensure!(recording.page == 1 << A::PAGE_SHIFT, "it has pages of {}", recording.page);
    let mut ram = system::ram(usize::try_from(ram_bytes(recording))?)?;
    system::with::<A, _>(config.bare(), &mut ram, |machine, mm| {
        policy.apply(mm);
        let space = mm.space(Asid(1), window::<A>())?;
        space.enter(CPU);
        let files = place(mm, &space, recording, policy)?;
        let cpu = machine.cpu(0);
        cpu.switch(space.root(), space.asid());
        let mut program = Program { mm, space: &space, cpu, policy, out: Outcome::default() };
        let fetched = program.run(recording, &files)?;
        let mut out = program.out;
        let areas = files.iter().flat_map(|file| &file.areas).filter(|area| area.exec);
        out.copied = mm.totals().event(Event::CowCopy);
        out.text = Text::new(mm, &space, areas.map(|area| area.span)).look(&fetched);
        Ok(out)
    })?
}

/// The access that the program makes.
fn access(kind: Kind, area: &Shown, policy: Policy) -> Access {
    match kind {
        Kind::Write if area.write => Access::Write,
        Kind::Exec if area.exec && policy.text_rights() == Prot::RX => Access::Execute,
        _ => Access::Read,
    }
}

/// A file as the program sees it.
struct Mapped {
    areas: Vec<Shown>,
}

/// An area that shows a part of a file.
struct Shown {
    span: PageSpan,
    /// The page of the file at its beginning.
    first: u64,
    exec: bool,
    write: bool,
}

impl Shown {
    /// Whether page `at` of the file is in it.
    fn has(&self, at: u64) -> bool {
        (self.first..self.first + self.span.count()).contains(&at)
    }

    /// Where page `at` of the file is.
    fn page(&self, at: u64) -> Vpn {
        self.span.start.add(at - self.first)
    }
}

impl Mapped {
    /// The area in which page `at` was touched in this way. Where segments meet, one page is in
    /// two.
    /// `None` for pages of no segment, which only the kernel reads for system calls.
    fn area(&self, at: u64, kind: Kind) -> Option<&Shown> {
        let fits = |area: &&Shown| match kind {
            Kind::Exec => area.exec,
            Kind::Write => area.write,
            Kind::Read | Kind::Unknown => !area.exec,
        };
        let all = || self.areas.iter().filter(|area| area.has(at));
        all().find(fits).or_else(|| all().next())
    }
}

/// Opens all files, and maps each behind the other.
fn place<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    recording: &Recording,
    policy: Policy,
) -> Result<Vec<Mapped>> {
    let align = Order::of_bytes(ALIGN, A::PAGE_SHIFT).context("2 MiB is no folio")?.pages();
    let mut base = align;
    let mut files = Vec::new();
    for file in &recording.files {
        let pages = file.pages(recording.page);
        let id =
            mm.files().open(Store::ReadOnly, pages, Order::ZERO).map_err(|error| match error {
                Error::NoFile => anyhow::anyhow!("it has more files than the hosted machine"),
                error => error.into(),
            })?;
        let mapped = map(mm, space, (file, id), base, policy)?;
        let end = mapped.areas.iter().map(|area| area.span.end.get()).max().unwrap_or(base);
        // A gap, so that neighbours never become one area.
        base = (end + 1).next_multiple_of(align);
        files.push(mapped);
    }
    Ok(files)
}

fn map<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    (file, id): (&Source, FileId),
    base: u64,
    policy: Policy,
) -> Result<Mapped> {
    let mut areas = Vec::new();
    let page = 1 << A::PAGE_SHIFT;
    for Segment { rights: [_, write, exec], offset, bytes, address } in &file.segments {
        let first = offset / page;
        let count = (offset + bytes).div_ceil(page) - first;
        let start = Vpn::new(base + address / page);
        let prot = match (*exec, *write) {
            (true, _) => policy.text_rights(),
            (_, true) => Prot::RW,
            _ => Prot::READ,
        };
        if count == 0 {
            continue;
        }
        let backing = Backing::File { id, page: first };
        let request = Request { backing, ..Request::anon(count).prot(prot).at(At::Fixed(start)) };
        let span = mm.map(space, &request)?;
        areas.push(Shown { span, first, exec: *exec, write: *write && !exec });
    }
    Ok(Mapped { areas })
}

/// The program, with the embedder that serves its faults.
struct Program<'p, 'm, 'r, A: Arch> {
    mm: &'p HostedMm<'m, 'r, A>,
    space: &'p Space<A>,
    cpu: Cpu<'p, 'r>,
    policy: Policy,
    out: Outcome,
}

/// The most faults of one touch: for the page, for a copy, and for races, of which there are none.
const TRIES: u32 = 8;

impl<A: Arch> Program<'_, '_, '_, A> {
    /// Touches all that was recorded; the pages of text, in their order.
    fn run(&mut self, recording: &Recording, files: &[Mapped]) -> Result<Vec<u64>> {
        let mut fetched = Vec::new();
        for touch in &recording.touches {
            for at in touch.first..touch.first + touch.count {
                let Some(area) = files[touch.file].area(at, touch.kind) else { continue };
                let (page, before) = (area.page(at), self.out.faults);
                self.touch(page, access(touch.kind, area, self.policy))?;
                self.out.touched += 1;
                if area.exec {
                    self.out.text_faults += self.out.faults - before;
                    fetched.push(page.get());
                }
            }
        }
        Ok(fetched)
    }

    fn touch(&mut self, page: Vpn, access: Access) -> Result<()> {
        let addr = VirtAddr::new(page.get() << A::PAGE_SHIFT);
        for _ in 0..TRIES {
            let trap = match access {
                Access::Read => self.cpu.read(addr).err(),
                Access::Write => self.cpu.write(addr, 1).err(),
                Access::Execute => self.cpu.fetch(addr).err(),
            };
            if trap.is_none() {
                return Ok(());
            }
            self.out.faults += 1;
            self.serve(page, access)?;
        }
        bail!("{access:?} at {page} never ends ({})", self.policy.name());
    }

    /// One fault, with the reads that it needs and the readahead that it asks for.
    fn serve(&mut self, page: Vpn, access: Access) -> Result<()> {
        for _ in 0..TRIES {
            let done = {
                let _operation = self.cpu.operation("fault");
                self.mm.fault(self.space, page, access)
            };
            match done {
                Err(Stop::Need(Need::Read(reads))) => self.read(reads)?,
                Ok(Resolved::Paged { ahead: Some(reads), .. }) => return self.read(reads),
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        bail!("a fault at {page} never ends ({})", self.policy.name());
    }

    /// The disk: each read is there at once. Its content does not matter.
    fn read(&mut self, mut reads: Reads) -> Result<()> {
        let id = reads.file();
        let end = self.mm.files().get(id).map_or(0, |file| file.pages());
        let mut next = None;
        while let Some(read) = self.mm.files().next_read(&mut reads)? {
            let pages = read.pages();
            // Folios that follow each other are one transfer.
            self.out.reads += u64::from(next != Some(pages.start));
            self.out.pages_read += pages.end.min(end) - pages.start;
            next = Some(pages.end);
            self.mm.files().read_done(read, Ok(()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 pages of text that are aligned to 64 KiB in file and space, data, and a page that is in
    /// no segment.
    const TEXT: &str = "\
quire recording 1
program t
page 4096
file 400000 t
segment r-- 0 4096 0
segment r-x 65536 262144 65536
segment rw- 327680 8192 393216
touches 5
x 0 16 64
r 0 0
w 0 80
r 0 81
r 0 97
";

    fn replay(text: &str, isa: Isa, policy: Policy) -> Outcome {
        super::replay(&text.parse().unwrap(), isa, policy).unwrap()
    }

    #[test]
    fn b6_a_page_at_a_time_reads_and_faults_for_each_page_and_nothing_else() {
        for isa in [Isa::X86_64, Isa::Arm4k, Isa::Sv48] {
            let out = replay(TEXT, isa, Policy::Pages);
            assert_eq!((out.touched, out.faults, out.text_faults), (67, 67, 64));
            assert_eq!((out.reads, out.pages_read), (67, 67));
            assert_eq!((out.text.touched, out.text.foldable, out.text.folded), (64, 0, 0));
            assert_eq!(out.text.misses[0][0].walks, 64);
        }
    }

    #[test]
    fn b6_text_in_folios_of_64_kib_is_read_in_windows_and_folded() {
        for isa in [Isa::X86_64, Isa::Arm4k, Isa::Sv48] {
            for policy in [Policy::Exec, Policy::Tiers] {
                let out = replay(TEXT, isa, policy);
                // Two windows of text, each mapped by one fault; of data the pages that its areas
                // show.
                assert_eq!((out.touched, out.reads, out.pages_read), (67, 4, 67));
                assert_eq!((out.text_faults, out.faults), (2, 4));
                let folded = if isa == Isa::X86_64 { 0 } else { 64 };
                assert_eq!((out.text.foldable, out.text.folded), (64, folded));
                assert_eq!(out.text.folios.file.aligned[4], 64);
                assert_eq!(out.text.misses[0][0].walks, 4);
                assert_eq!(out.text.misses[1][0].walks, 8, "joined up to 32 KiB");
            }
        }
    }

    #[test]
    fn b6_a_page_that_two_segments_have_is_touched_where_its_kind_says() {
        // The last page of text is also the first of data, at another address.
        let both = TEXT.replace("rw- 327680 8192 393216", "rw- 323584 8192 389120");
        let text = both.replace("touches 5\nx 0 16 64", "touches 5\nx 0 16 63");
        let fetched = |kind: &str| {
            let text = text.replace("w 0 80", &format!("{kind} 0 79"));
            replay(&text, Isa::Arm4k, Policy::Pages).text.touched
        };
        assert_eq!([fetched("x"), fetched("w"), fetched("r"), fetched("?")], [64, 63, 63, 63]);
    }
}
