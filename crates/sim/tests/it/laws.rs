//! The laws of [`Hardware::flush`], broken one at a time by a hardware in front of the machine. The
//! library does its part, so only the examiner can tell.

use std::sync::Mutex;

use quire::Mm;
use quire::fault::SizePolicy;
use quire::space::{At, Request, Space};
use quire_arch::{Arch, Arm4k, Sv39, Sv48, X86_64};
use quire_hw::{Flush, Hardware, HasMemory, Pieces, Profile};
use quire_machine::{Config, Cpu, Machine, Rule};
use quire_sim::program::Program;
use quire_sim::stage::stage;
use quire_sim::system::{self, Stock};
use quire_units::{Access, Asid, CpuId, CpuSet, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

/// How a flush, or an embedder's use of CPUs, breaks a law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Breach {
    /// None is broken.
    None,
    /// Each flush drops all of the space on all CPUs: more than was asked, which is allowed.
    Everything,
    /// It does nothing.
    Nothing,
    /// It drops leaves alone where walk caches were to be dropped, too.
    LeavesOnly,
    /// It takes a contiguous block, or as many pages, for one piece.
    LargePieces,
    /// It drops the first piece alone.
    FirstPiece,
    /// It takes the end of the pages for the last of them.
    AllButLast,
    /// It drops nothing where all of the space was to go.
    PagesOnly,
    /// It reaches the calling CPU alone.
    OwnCpu,
    /// It reaches the other CPUs alone.
    OtherCpus,
    /// It names another space's tag.
    OtherTag,
    /// It returns before it has dropped anything: it does so at the next call.
    Early,
    /// A CPU walks in a space that it has not entered.
    NotEntered,
    /// A CPU leaves a space, keeps its translations, and is not in the set meanwhile.
    Left,
}

/// A flush to be done later.
struct Late {
    asid: Asid,
    root: Pfn,
    pages: Option<Pieces>,
    tables: bool,
    cpus: CpuSet,
}

/// The machine behind a flush that breaks a law.
struct Lawless<'m, 'r> {
    machine: &'m Machine<'r>,
    breach: Breach,
    late: Mutex<Option<Late>>,
}

fn set(cpus: impl Iterator<Item = CpuId>) -> CpuSet {
    let set = CpuSet::new();
    cpus.for_each(|cpu| {
        set.insert(cpu);
    });
    set
}

impl Lawless<'_, '_> {
    fn later(&self, flush: &Flush<'_>) {
        let Flush { asid, root, pages, tables, cpus } = *flush;
        let late = Late { asid, root, pages, tables, cpus: set(cpus.iter()) };
        let before = self.late.lock().unwrap().replace(late);
        if let Some(Late { asid, root, pages, tables, cpus }) = before {
            self.machine.flush(&Flush { asid, root, pages, tables, cpus: &cpus });
        }
    }
}

impl<'ram> HasMemory for Lawless<'_, 'ram> {
    type Memory = Machine<'ram>;

    fn memory(&self) -> &Self::Memory {
        self.machine
    }
}

impl Hardware for Lawless<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        let own = Hardware::cpu(self);
        let all = set((0..self.machine.config().cpus).map(CpuId::new));
        let (mine, others) =
            (set([own].into_iter()), set(flush.cpus.iter().filter(|cpu| *cpu != own)));
        let cut = |cut: fn(PageSpan) -> PageSpan, flush: &Flush<'_>| {
            flush.pages.map(|pieces| Pieces::new(cut(pieces.span()), pieces.stride()))
        };
        let broken = match self.breach {
            Breach::None | Breach::NotEntered | Breach::Left => *flush,
            Breach::Everything => Flush { pages: None, tables: true, cpus: &all, ..*flush },
            Breach::Nothing => return,
            Breach::LeavesOnly => Flush { tables: false, ..*flush },
            Breach::LargePieces => {
                let large = |pieces: Pieces| Pieces::new(pieces.span(), Order::new(4));
                Flush { pages: flush.pages.map(large), ..*flush }
            }
            Breach::FirstPiece => {
                let first = |pieces: Pieces| {
                    Pieces::new(PageSpan::block(pieces.span().start, Order::ZERO), pieces.stride())
                };
                Flush { pages: flush.pages.map(first), ..*flush }
            }
            Breach::AllButLast => {
                let less = |span: PageSpan| {
                    PageSpan::new(span.start, Vpn::new(span.end.get() - 1).max(span.start))
                };
                Flush { pages: cut(less, flush), ..*flush }
            }
            Breach::PagesOnly if flush.pages.is_none() => return,
            Breach::PagesOnly => *flush,
            Breach::OwnCpu => Flush { cpus: &mine, ..*flush },
            Breach::OtherCpus => Flush { cpus: &others, ..*flush },
            Breach::OtherTag => Flush { asid: Asid(flush.asid.0 + 1), ..*flush },
            Breach::Early => return self.later(flush),
        };
        self.machine.flush(&broken);
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.machine.publish_code(frames);
    }

    fn freed(&self, frames: FrameSpan) {
        self.machine.freed(frames);
    }

    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.machine)
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}

/// A program that runs on both CPUs.
struct Story<'a, 'm, 'r, A: Arch> {
    mm: &'a Mm<'a, A, Lawless<'m, 'r>>,
    space: &'a Space<A>,
    cpus: &'a [Cpu<'m, 'r>; 2],
}

impl<A: Arch> Story<'_, '_, '_, A> {
    /// Each CPU reads each page of `pages`, and then the first writes them, if it can.
    fn touch(&self, pages: PageSpan) {
        for (cpu, access) in [(0, Access::Read), (1, Access::Read), (0, Access::Write)] {
            let cpu = &self.cpus[cpu];
            cpu.bind();
            for page in (pages.start.get()..pages.end.get()).map(Vpn::new) {
                let addr = page.addr(A::PAGE_SHIFT);
                let tried = |_| match access {
                    Access::Write => cpu.write(addr, page.get()).is_ok(),
                    _ => cpu.read(addr).is_ok(),
                };
                let faults = || {
                    let _op = cpu.operation("fault");
                    self.mm.fault(self.space, page, access).is_ok()
                };
                let _ = (0..4).any(|n| tried(n) || !faults());
            }
        }
        self.cpus[0].bind();
    }

    fn change(&self, name: &'static str, change: impl FnOnce()) {
        let _op = self.cpus[0].operation(name);
        change();
    }

    /// All kinds of flush: rights, one page of many, a copy, tables, all of the space.
    fn tell(&self, breach: Breach) {
        let Self { mm, space, cpus } = self;
        let area = mm.map(space, &Request::anon(128)).unwrap();
        let part = |from: u64, to: u64| PageSpan::new(area.start.add(from), area.start.add(to));
        self.touch(area);
        if breach == Breach::Left {
            space.leave(cpus[1].number());
            cpus[1].leave();
        }
        self.change("protect", || mm.protect(space, part(20, 53), Prot::READ).unwrap());
        if breach == Breach::Left {
            space.enter(cpus[1].number());
            cpus[1].switch(space.root(), space.asid());
        }
        self.touch(area);
        self.change("unmap a part", || mm.unmap(space, part(0, 7)).unwrap());
        self.touch(part(7, 128));
        let mut forked = None;
        self.change("fork", || forked = Some(mm.fork(space, Asid(8)).unwrap()));
        self.touch(part(60, 90));
        self.change("destroy", || forked.into_iter().for_each(|child| mm.destroy(child)));
        self.change("unmap all", || mm.unmap(space, part(7, 128)).unwrap());
        let again = mm.map(space, &Request::anon(40)).unwrap();
        self.touch(again);
    }
}

/// The first rule that the examiner finds broken in a story with this breach.
fn found<A: Arch>(config: Config, breach: Breach) -> Option<Rule> {
    let mut ram = system::ram(2048 << A::PAGE_SHIFT).unwrap();
    let (machine, run) = Machine::new(config.with_cpus(2), &mut ram).unwrap();
    let hardware = Lawless { machine: &machine, breach, late: Mutex::new(None) };
    let mut stock = Stock::new(run.count(), 2);
    let mm: Mm<'_, A, _> = stock.manage(&hardware, run).unwrap();
    mm.policy().set_size(Order::new(2), SizePolicy::Always).unwrap();
    let window = PageSpan::new(Vpn::new(0x400), Vpn::new(0x4000));
    let space = mm.space(Asid(1), window).unwrap();
    let cpus = [machine.cpu(0), machine.cpu(1)];
    for cpu in &cpus {
        if breach != Breach::NotEntered || cpu.number() == CpuId::new(0) {
            space.enter(cpu.number());
        }
        cpu.switch(space.root(), space.asid());
    }
    let story = Story { mm: &mm, space: &space, cpus: &cpus };
    story.tell(breach);
    // The CPUs stop to walk, and stay in the space until its end, which flushes all of it.
    {
        let _op = cpus[0].operation("end");
        cpus.iter().for_each(Cpu::leave);
        mm.destroy(space);
    }
    machine.violations().first().map(|violation| violation.rule)
}

/// Machines of each kind: with contiguous blocks, without, and with blocks that are never joined.
fn each(breach: Breach) -> [Option<Rule>; 6] {
    let parted = |config: Config| Config { joins_contiguous: false, ..config };
    let without = |config: Config| Config { contiguous: false, ..config };
    [
        found::<X86_64>(Config::x86_64(), breach),
        found::<Arm4k>(Config::arm64_4k(), breach),
        found::<Arm4k>(parted(Config::arm64_4k()), breach),
        found::<Arm4k>(without(Config::arm64_4k()), breach),
        found::<Sv39>(Config::riscv64_sv39(), breach),
        found::<Sv39>(without(Config::riscv64_sv39()), breach),
    ]
}

/// A CPU that goes on using that an entry was not valid (riscv64 without Svvptc) faults once more:
/// the library finds the leaf, and drops what the CPU keeps, also of upper tables.
#[test]
fn cached_absence_costs_one_more_fault_and_nothing_else() {
    for (caches_absence, faults) in [(false, 1), (true, 2)] {
        let config = Config { caches_absence, ..Config::riscv64_sv48().with_cpus(2) };
        stage::<Sv48>(config, 2048, &[2], |mm, cpu| {
            let window = PageSpan::new(Vpn::new(0x1000), Vpn::new(1 << 30));
            let space = mm.space(Asid(1), window).unwrap();
            let program = Program::on(cpu, mm, &space);
            for at in [0x1000, 0x1008, 0x4_0000, 0x800_0000].map(Vpn::new) {
                // No table of any level is there for some of them.
                mm.map(&space, &Request::anon(8).at(At::Fixed(at))).unwrap();
                let write = |page: Vpn| program.write(page, page.get()).map(|done| done.len());
                assert_eq!(write(at), Ok(faults), "{at}");
                assert_eq!(write(at.add(1)), Ok(0), "{at}: the same folio");
                assert_eq!(write(at.add(4)), Ok(faults), "{at}: another folio");
            }
            let other = mm.hardware().cpu(1);
            let page = Vpn::new(0x1000);
            let second = Program::on(&other, mm, &space);
            assert_eq!(second.read(page), Ok(page.get()));
            cpu.bind();
            [cpu, &other].into_iter().for_each(Cpu::leave);
            mm.destroy(space);
        });
    }
}

#[test]
fn a_flush_that_keeps_the_laws_breaks_no_rule_and_may_drop_more() {
    assert_eq!(each(Breach::None), [None; 6]);
    assert_eq!(each(Breach::Everything), [None; 6]);
}

#[test]
fn the_examiner_finds_each_breach_of_a_law_of_flush() {
    use Breach::*;
    let breaches = [
        Nothing,
        LeavesOnly,
        LargePieces,
        FirstPiece,
        AllButLast,
        PagesOnly,
        OwnCpu,
        OtherCpus,
        OtherTag,
        Early,
        NotEntered,
        Left,
    ];
    for breach in breaches {
        let found = each(breach);
        assert!(found.iter().all(Option::is_some), "{breach:?}: {found:?}");
    }
}
