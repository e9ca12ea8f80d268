//! Forks while other CPUs fault, write, protect and unmap in the parent, under the examiner.
//!
//! A child must see the parent's memory of one moment. So writers write increasing numbers to one
//! page and then to another: no child may see the second newer than the first, and none may miss a
//! write from before its fork. And the parent keeps its memory: a writer reads what it wrote.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use quire::check;
use quire::fault::SizePolicy;
use quire::space::{At, Request, Space};
use quire::{Error, Stop};
use quire_arch::{Arch, Arm4k, Arm16k, Level, Sv39, X86_64};
use quire_hw::Transitions;
use quire_machine::{Config, Cpu, Machine};
use quire_sim::stage::{contiguous, place};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

/// CPU 0 forks; the others work in the parent, and the last of them forks now and then.
const CPUS: usize = 4;
/// Contiguous blocks that writers write to.
const BLOCKS: u64 = 6;
/// Pages behind them that come and go.
const LOOSE: u64 = 60;

/// The state that the CPUs share.
struct Shared<A> {
    space: Space<A>,
    start: Vpn,
    over: AtomicBool,
    /// For each writer, the number that it has written to both its pages.
    done: [AtomicU64; CPUS],
    /// The last word that CPU 1 wrote to its third page; CPU 2 may write it to its own.
    relay: AtomicU64,
}

impl<A: Arch> Shared<A> {
    fn new(mm: &HostedMm<'_, '_, A>) -> Self {
        let block = 1 << contiguous::<A>();
        // A boundary of tables lies in the midst of it.
        let start = Vpn::new(place::<A>().get() - BLOCKS / 2 * block);
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request::anon(BLOCKS * block + LOOSE).at(At::Fixed(start));
        mm.map(&space, &request).unwrap();
        let (over, done) = (AtomicBool::new(false), Default::default());
        Self { space, start, over, done, relay: AtomicU64::new(0) }
    }

    /// All pages that numbers are written to.
    fn numbers(&self) -> PageSpan {
        PageSpan::new(self.start, self.start.add(BLOCKS << contiguous::<A>()))
    }

    fn loose(&self) -> PageSpan {
        PageSpan::new(self.numbers().end, self.numbers().end.add(LOOSE))
    }

    /// The pages that a writer writes: one, then the other, on both sides of the boundary, some
    /// upwards and some downwards; and one for the relay.
    fn pages(&self, cpu: usize) -> [Vpn; 3] {
        let block = 1 << contiguous::<A>();
        let at = cpu as u64;
        let (low, high) = (block - 1 - at, 4 * block + at);
        let relay = if cpu == 1 { 2 } else { 5 * block + at };
        let pages = if cpu.is_multiple_of(2) { [high, low, relay] } else { [low, high, relay] };
        pages.map(|page| self.start.add(page))
    }
}

/// A CPU at work.
struct Worker<'t, 'm, 'r, A: Arch> {
    cpu: Cpu<'m, 'r>,
    mm: &'t HostedMm<'m, 'r, A>,
    shared: &'t Shared<A>,
    number: usize,
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
        PageSpan::new(start, start.add(1 + self.dice(span.end.offset_from(start))))
    }

    fn fault(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<(), Stop> {
        let _op = self.cpu.operation("fault");
        self.mm.fault(space, page, access).map(drop)
    }

    /// Writes, if that is allowed.
    fn try_write(&self, space: &Space<A>, page: Vpn, value: u64) -> bool {
        while self.cpu.write(page.addr(A::PAGE_SHIFT), value).is_err() {
            match self.fault(space, page, Access::Write) {
                Ok(()) => {}
                Err(Stop::Refuse(Error::Denied(..))) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    /// Writes, and waits while the right to is taken away; `false` when the test is over, since no
    /// CPU may be left to give it back.
    fn write(&self, space: &Space<A>, page: Vpn, value: u64) -> bool {
        while !self.try_write(space, page, value) {
            if self.shared.over.load(Ordering::SeqCst) {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    fn read(&self, space: &Space<A>, page: Vpn) -> u64 {
        loop {
            match self.cpu.read(page.addr(A::PAGE_SHIFT)) {
                Ok(word) => return word,
                Err(_) => self.fault(space, page, Access::Read).unwrap(),
            }
        }
    }

    /// Writes numbers until all is over, and disturbs the others in between.
    fn write_numbers(&mut self) {
        let (shared, number) = (self.shared, self.number);
        let space = &shared.space;
        let [first, second, relay] = shared.pages(number);
        self.cpu.switch(space.root(), space.asid());
        let mut value = 0;
        while !shared.over.load(Ordering::SeqCst) {
            value += 1;
            if !self.write(space, first, value) || !self.write(space, second, value) {
                break;
            }
            shared.done[number].store(value, Ordering::SeqCst);
            let kept = [first, second].map(|page| self.read(space, page));
            assert_eq!(kept, [value; 2], "CPU {number} has lost a store");
            match number {
                1 if self.write(space, relay, value) => {
                    shared.relay.store(value, Ordering::SeqCst);
                }
                2 => drop(self.write(space, relay, shared.relay.load(Ordering::SeqCst))),
                _ => {}
            }
            self.disturb();
        }
        self.cpu.leave();
    }

    /// Changes something: the rights of all pages, or the pages that come and go.
    fn disturb(&mut self) {
        let (mm, space) = (self.mm, &self.shared.space);
        let (numbers, loose) = (self.part(self.shared.numbers()), self.part(self.shared.loose()));
        let dice = self.dice(if self.number == 3 { 10 } else { 9 });
        if dice < 3 {
            for page in (loose.start.get()..loose.end.get()).take(4) {
                // It may be gone or denied by now.
                let _ = self.cpu.write(Vpn::new(page).addr(A::PAGE_SHIFT), 0);
                let _ = self.fault(space, Vpn::new(page), Access::Write);
            }
        }
        let _operation = self.cpu.operation("change");
        let result = match dice {
            0..=2 => Ok(()),
            3 => mm.unmap(space, loose),
            4 => mm.map(space, &Request::anon(loose.count()).at(At::Fixed(loose.start))).map(drop),
            5 => mm.discard(space, loose),
            6 => mm.protect(space, loose, Prot::READ),
            7 => {
                let taken = mm.protect(space, numbers, Prot::READ);
                taken.and_then(|()| mm.protect(space, numbers, Prot::RW))
            }
            8 => {
                let all = if self.dice(2) == 0 { self.shared.numbers() } else { loose };
                let order = Order::new([2, contiguous::<A>(), 5][self.dice(3) as usize]);
                mm.reclaim().collapse(space, all, order).map(drop)
            }
            _ => mm.fork(space, Asid(99)).map(|child| mm.destroy(child)),
        };
        match result {
            Ok(()) | Err(Error::NoArea(_) | Error::Denied(..)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Forks, and looks at each child.
    fn fork(&mut self, forks: u64) {
        for _ in 0..forks {
            let space = &self.shared.space;
            let done = [0, 1, 2, 3].map(|cpu| self.shared.done[cpu].load(Ordering::SeqCst));
            let child = {
                let _op = self.cpu.operation("fork");
                self.mm.fork(space, Asid(2)).unwrap()
            };
            self.examine(&child, done);
            if self.dice(4) == 0 {
                let grandchild = {
                    let _op = self.cpu.operation("fork");
                    self.mm.fork(&child, Asid(3)).unwrap()
                };
                self.scribble(&child);
                self.examine(&grandchild, done);
                self.end(grandchild);
            } else {
                self.scribble(&child);
            }
            self.end(child);
        }
        self.shared.over.store(true, Ordering::SeqCst);
    }

    fn end(&self, child: Space<A>) {
        self.cpu.leave();
        let _op = self.cpu.operation("destroy");
        self.mm.destroy(child);
    }

    fn run_in(&self, child: &Space<A>) {
        child.enter(self.cpu.number());
        self.cpu.switch(child.root(), child.asid());
    }

    /// A child sees one moment, not before its fork began.
    fn examine(&mut self, child: &Space<A>, done: [u64; CPUS]) {
        self.run_in(child);
        for (cpu, done) in (0..).zip(done).skip(1) {
            let pages = self.shared.pages(cpu);
            let [first, second, _] = pages.map(|page| self.read(child, page));
            assert!(second <= first, "CPU {cpu} wrote {second} after {first}");
            assert!(second >= done, "{second}, though {done} was written before");
            let again = [pages[0], pages[1]].map(|page| self.read(child, page));
            assert_eq!(again, [first, second], "the child's memory stays as it was");
        }
        let relayed = [1, 2].map(|cpu| self.read(child, self.shared.pages(cpu)[2]));
        assert!(relayed[1] <= relayed[0], "CPU 2 wrote {} after {}", relayed[1], relayed[0]);
    }

    /// A child writes to its own memory, unseen by other spaces. Where the parent had no right to
    /// write at the moment of the fork, the child never has.
    fn scribble(&mut self, child: &Space<A>) {
        self.run_in(child);
        for cpu in 1..CPUS {
            for page in self.shared.pages(cpu) {
                if self.dice(2) == 0 && self.try_write(child, page, u64::MAX) {
                    assert_eq!(self.read(child, page), u64::MAX);
                }
            }
        }
    }
}

fn worker<A: Arch>(
    machine: &Machine<'_>,
    mm: &HostedMm<'_, '_, A>,
    shared: &Shared<A>,
    (number, forks, seed): (usize, u64, u64),
) {
    let cpu = machine.cpu(number);
    shared.space.enter(cpu.number());
    let random = seed ^ (number as u64 + 1) << 32 | 1;
    let mut worker = Worker { cpu, mm, shared, number, random };
    if number == 0 {
        worker.fork(forks);
    } else {
        worker.write_numbers();
    }
}

fn stress<A: Arch>(config: Config, forks: u64, seed: u64) {
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config.with_cpus(CPUS), &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        mm.policy().set_size(Order::new(contiguous::<A>()), SizePolicy::Always).unwrap();
        machine.faults().delay(16, seed);
        let shared = Shared::new(mm);
        thread::scope(|scope| {
            for number in 0..CPUS {
                let shared = &shared;
                scope.spawn(move || {
                    let over = Over(&shared.over);
                    worker(machine, mm, shared, (number, forks, seed));
                    drop(over);
                });
            }
        });
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        let totals = check::system(mm, &[&shared.space]).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!((totals.held, totals.pinned), (0, 0), "nothing is lost");
        mm.destroy(shared.space);
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
        assert!(A::fold_order(Level::LAST).is_none() || folds(mm) > 0, "blocks were folded");
    })
    .unwrap();
}

fn folds<A: Arch>(mm: &HostedMm<'_, '_, A>) -> u64 {
    mm.totals().event(quire::stats::Event::Fold)
}

/// Lets the others end when one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn c3_a_child_sees_one_moment_on_x86_64() {
    stress::<X86_64>(Config::x86_64(), 120, 21);
}

#[test]
fn c3_a_child_sees_one_moment_on_arm64_with_folded_blocks() {
    stress::<Arm4k>(Config::arm64_4k(), 100, 22);
    let late = Config { rewalks_on_denial: false, ..Config::arm64_4k() };
    stress::<Arm4k>(Config { transitions: Transitions::BbmLevel2, ..late }, 50, 23);
    stress::<Arm16k>(Config::arm64_16k(), 25, 24);
}

#[test]
fn c3_a_child_sees_one_moment_on_riscv64_with_folded_blocks() {
    let bare = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv39() };
    stress::<Sv39>(bare, 50, 25);
    stress::<Sv39>(Config::riscv64_sv39(), 50, 26);
}
