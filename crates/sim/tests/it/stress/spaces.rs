//! Several CPUs on one space and on several, all at once, under the examiner.
//!
//! Every page has a word for each CPU, and a CPU writes only the word's own name there. So it reads
//! that name, or zero if the memory is new; any other word is memory that was given to another use
//! before this CPU's TLB entry was flushed. And one CPU alone changes some regions and announces
//! each change: from then on no CPU may do what is forbidden.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Request, Space};
use quire::{Error, Stop};
use quire_arch::{Arch, Arm4k, Arm16k, Sv39, X86_64};
use quire_hw::Transitions;
use quire_machine::{Config, Cpu, Machine};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

/// Pages of a region. No multiple of a folio, so that neighbours share folios.
const REGION: u64 = 40;
/// All CPUs change the last one; CPU `n` alone changes region `n` of the others.
const REGIONS: u64 = 5;
/// Where the regions begin, before the end of what two tables of the last level translate.
const BEFORE_TABLE_END: u64 = 3 * REGION + 7;
/// How far the stack may grow.
const STACK: u64 = 200;

/// The last change of a region that its owner completed; `LOOSE` while it is at work.
const LOOSE: u64 = 0;
const READ_ONLY: u64 = 1;
const GONE: u64 = 2;

/// A space, and the state that its CPUs announce.
struct Shared<A> {
    number: u64,
    space: Space<A>,
    start: Vpn,
    stack: Vpn,
    /// For each region, its state in the low two bits, and the number of changes above.
    states: [AtomicU64; REGIONS as usize],
}

impl<A: Arch> Shared<A> {
    fn new(mm: &HostedMm<'_, '_, A>, number: u64) -> Self {
        let table = A::entries(quire_arch::Level::LAST) as u64;
        let start = Vpn::new(4 * table - BEFORE_TABLE_END);
        let window = PageSpan::new(Vpn::new(16), Vpn::new(64 * table));
        let space = mm.space(Asid(number as u16 + 1), window).unwrap();
        let anon = |start, pages| Request::anon(pages).at(At::FixedNoReplace(start));
        mm.map(&space, &anon(start, REGIONS * REGION)).unwrap();
        let stack = Vpn::new(20 * table);
        mm.map(&space, &anon(stack, 4).flags(AreaFlags::GROWS_DOWN)).unwrap();
        Self { number, space, start, stack, states: Default::default() }
    }

    fn region(&self, number: u64) -> PageSpan {
        let start = self.start.add(number * REGION);
        PageSpan::new(start, start.add(REGION))
    }

    /// Whether `state`, read before and after something was done, held all the while.
    fn held(&self, region: u64, before: u64) -> bool {
        self.states[region as usize].load(Ordering::SeqCst) == before
    }

    fn set(&self, region: u64, what: u64) {
        let cell = &self.states[region as usize];
        let changes = (cell.load(Ordering::SeqCst) >> 2) + 1;
        cell.store(changes << 2 | what, Ordering::SeqCst);
    }
}

/// A CPU at work.
struct Worker<'t, 'm, 'r, A> {
    cpu: Cpu<'m, 'r>,
    mm: &'t HostedMm<'m, 'r, A>,
    number: u64,
    random: u64,
}

impl<A: Arch> Worker<'_, '_, '_, A> {
    /// Xorshift64*.
    fn dice(&mut self, sides: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn part(&mut self, span: PageSpan) -> PageSpan {
        let start = span.start.add(self.dice(span.count()));
        let most = span.end.offset_from(start);
        PageSpan::new(start, start.add(1 + self.dice(most)))
    }

    fn work(&mut self, shared: &[Shared<A>], steps: u64) {
        for _ in 0..steps {
            let shared = &shared[self.dice(shared.len() as u64) as usize];
            self.cpu.switch(shared.space.root(), shared.space.asid());
            for _ in 0..8 {
                self.access(shared);
            }
            self.change(shared);
        }
        self.cpu.leave();
    }

    /// The word that only this CPU writes to `page`.
    fn name(&self, shared: &Shared<A>, page: Vpn) -> u64 {
        (shared.number + 1) << 56 | (self.number + 1) << 48 | page.get()
    }

    fn addr(&self, page: Vpn) -> VirtAddr {
        VirtAddr::new((page.get() << A::PAGE_SHIFT) + 8 * self.number)
    }

    /// A program writes or reads a page, and takes the faults that come.
    fn access(&mut self, shared: &Shared<A>) {
        let region = self.dice(REGIONS);
        let page = shared.region(region).start.add(self.dice(REGION));
        let state = shared.states[region as usize].load(Ordering::SeqCst);
        let access = if self.dice(3) == 0 { Access::Read } else { Access::Write };
        self.cpu.bind();
        for _ in 0..6 {
            let done = self.access_once(shared, page, access);
            let denied = match state & 3 {
                READ_ONLY => access == Access::Write,
                GONE => true,
                _ => false,
            };
            let forbidden = done && denied && shared.held(region, state);
            assert!(!forbidden, "{access:?} of {page} although region {region} is {}", state & 3);
            if done {
                return;
            }
            let _operation = self.cpu.operation("fault");
            match self.mm.fault(&shared.space, page, access) {
                Ok(_) => {}
                Err(Stop::Refuse(Error::NoArea(_)) | Stop::Refuse(Error::Denied(..))) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn access_once(&self, shared: &Shared<A>, page: Vpn, access: Access) -> bool {
        let (addr, name) = (self.addr(page), self.name(shared, page));
        match access {
            Access::Write => self.cpu.write(addr, name).is_ok(),
            _ => match self.cpu.read(addr) {
                Ok(word) if word == 0 || word == name => true,
                Ok(word) => panic!("{page} has {word:#x}, which is not {name:#x}"),
                Err(_) => false,
            },
        }
    }

    /// Changes something, beside all the others.
    fn change(&mut self, shared: &Shared<A>) {
        let (mm, space) = (self.mm, &shared.space);
        let all = PageSpan::new(shared.region(0).start, shared.region(REGIONS - 1).end);
        let span = self.part(all);
        let common = self.part(shared.region(REGIONS - 1));
        let dice = self.dice(14);
        let order = Order::new(1 + self.dice(5) as u8);
        let _operation = self.cpu.operation("change");
        let result = match dice {
            0..=2 => mm.populate(space, span).map(drop),
            3..=4 => mm.discard(space, span).map_err(Stop::from),
            5 => mm.unmap(space, common).map_err(Stop::from),
            6 => {
                let at = At::Fixed(common.start);
                mm.map(space, &Request::anon(common.count()).at(at)).map(drop).map_err(Stop::from)
            }
            7 => mm.protect(space, common, Prot::READ).map_err(Stop::from),
            8 => mm.protect(space, common, Prot::RW).map_err(Stop::from),
            9 => self.grow(shared),
            10..=11 => mm.reclaim().collapse(space, span, order).map(drop).map_err(Stop::from),
            _ => self.rule(shared).map_err(Stop::from),
        };
        match result {
            // Other CPUs may have unmapped or protected it meanwhile.
            Ok(()) | Err(Stop::Refuse(Error::NoArea(_) | Error::Denied(..))) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Touches the stack somewhere below its start; it grows, or has grown by another's fault. (Its
    /// limit is far less than what lies between it and the regions: it never grows over those.)
    fn grow(&mut self, shared: &Shared<A>) -> Result<(), Stop> {
        let page = Vpn::new(shared.stack.get() - self.dice(STACK));
        while self.cpu.write(self.addr(page), self.name(shared, page)).is_err() {
            self.mm.fault(&shared.space, page, Access::Write)?;
        }
        Ok(())
    }

    /// Changes the region that only this CPU changes, and announces its state.
    fn rule(&mut self, shared: &Shared<A>) -> Result<(), Error> {
        let (mm, space, number) = (self.mm, &shared.space, self.number);
        if number >= REGIONS - 1 {
            return Ok(());
        }
        let region = shared.region(number);
        let held = shared.states[number as usize].load(Ordering::SeqCst) & 3;
        shared.set(number, LOOSE);
        match (held, self.dice(2)) {
            (GONE, _) => {
                let fixed = Request::anon(REGION).at(At::FixedNoReplace(region.start));
                mm.map(space, &fixed)?;
            }
            (READ_ONLY, _) => mm.protect(space, region, Prot::RW)?,
            (_, 0) => {
                mm.protect(space, region, Prot::READ)?;
                shared.set(number, READ_ONLY);
            }
            _ => {
                mm.unmap(space, region)?;
                shared.set(number, GONE);
            }
        }
        Ok(())
    }
}

/// `config.cpus` CPUs work on `spaces` spaces at once; nothing is lost in the end.
fn stress<A: Arch>(config: Config, spaces: u64, steps: u64, seed: u64) {
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
        machine.faults().delay(24, seed);
        let shared: Vec<_> = (0..spaces).map(|number| Shared::new(mm, number)).collect();
        thread::scope(|scope| {
            for number in 0..config.cpus {
                let shared = &shared;
                scope.spawn(move || worker(machine, mm, shared, (number, steps, seed)));
            }
        });
        machine.verdict().unwrap_or_else(|violation| panic!("{violation}"));
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(mm.totals().event(quire::stats::Event::Fault) > steps, "programs have faulted");
        shared.into_iter().for_each(|shared| mm.destroy(shared.space));
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        mm.phys().check().expect("every frame has one state");
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

fn worker<A: Arch>(
    machine: &Machine<'_>,
    mm: &HostedMm<'_, '_, A>,
    shared: &[Shared<A>],
    (number, steps, seed): (usize, u64, u64),
) {
    let cpu = machine.cpu(number);
    shared.iter().for_each(|shared| shared.space.enter(cpu.number()));
    let random = seed ^ (number as u64 + 1) << 32 | 1;
    Worker { cpu, mm, number: number as u64, random }.work(shared, steps);
}

#[test]
fn i6_two_cpus_in_one_space_see_no_memory_of_others() {
    stress::<X86_64>(Config::x86_64().with_cpus(2), 1, 1500, 11);
}

#[test]
fn i6_four_cpus_in_one_space_see_no_memory_of_others() {
    stress::<X86_64>(Config::x86_64().with_cpus(4), 1, 800, 12);
}

#[test]
fn i6_four_cpus_in_three_spaces_see_no_memory_of_others() {
    stress::<X86_64>(Config::x86_64().with_cpus(4), 3, 800, 13);
}

#[test]
fn i6_cpus_that_break_before_make_see_no_memory_of_others() {
    let config = Config { rewalks_on_denial: false, ..Config::arm64_4k() };
    stress::<Arm4k>(config.with_cpus(3), 1, 700, 14);
    let config = Config { transitions: Transitions::BbmLevel2, ..Config::arm64_16k() };
    stress::<Arm16k>(config.with_cpus(2), 2, 500, 15);
}

#[test]
fn i6_cpus_without_accessed_and_dirty_flags_see_no_memory_of_others() {
    let bare = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv39() };
    let config = Config { rewalks_on_denial: false, ..bare };
    stress::<Sv39>(config.with_cpus(3), 1, 700, 16);
}
