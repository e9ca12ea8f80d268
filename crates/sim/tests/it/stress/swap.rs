//! Paging out while other CPUs write, read, fork, pin and end, under the examiner: every writer
//! finds what it wrote, a pinned page stays where it is, a child sees one moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use quire::cache::FileId;
use quire::check;
use quire::fault::SizePolicy;
use quire::space::{At, Request, Space};
use quire::{Need, Scope, Stop};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::Disk;
use quire_sim::stage::{contiguous, place};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Vpn};

/// CPU 0 pages out, 1 and 2 write, 3 pins and forks.
const CPUS: usize = 4;
const BLOCKS: u64 = 6;

struct Shared<A> {
    space: Space<A>,
    start: Vpn,
    disk: Disk,
    swap: FileId,
    over: AtomicBool,
    done: [AtomicU64; CPUS],
}

impl<A: Arch> Shared<A> {
    fn span(&self) -> PageSpan {
        PageSpan::new(self.start, self.start.add(BLOCKS << contiguous::<A>()))
    }

    /// The pages of a writer: in folios that the others write as well.
    fn pages(&self, cpu: usize) -> [Vpn; 3] {
        let (block, at) = (1 << contiguous::<A>(), cpu as u64);
        [at, 2 * block + at, 5 * block + at].map(|page| self.start.add(page))
    }
}

struct Worker<'t, 'm, 'r, A: Arch> {
    machine: &'t Machine<'r>,
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

    fn run_in(&self, space: &Space<A>) {
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
    }

    fn fault(&self, space: &Space<A>, page: Vpn, access: Access) {
        let _op = self.cpu.operation("fault");
        match self.mm.fault(space, page, access) {
            Ok(_) | Err(Stop::Need(Need::Wait(_))) => {}
            Err(Stop::Need(Need::Read(reads))) => self.shared.disk.serve(self.mm, reads).unwrap(),
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&self, space: &Space<A>, page: Vpn, value: u64) {
        while self.cpu.write(page.addr(A::PAGE_SHIFT), value).is_err() {
            self.fault(space, page, Access::Write);
        }
    }

    fn read(&self, space: &Space<A>, page: Vpn) -> u64 {
        loop {
            match self.cpu.read(page.addr(A::PAGE_SHIFT)) {
                Ok(word) => return word,
                Err(_) => self.fault(space, page, Access::Read),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::SeqCst)
    }

    /// Pages out random spans, and writes them.
    fn page_out(&mut self, rounds: u64) {
        let (mm, shared) = (self.mm, self.shared);
        let spaces = [&shared.space];
        self.run_in(&shared.space);
        let mut round = 0;
        while round < rounds && !self.is_over() {
            let all = shared.span();
            let start = all.start.add(self.dice(all.count()));
            let span = PageSpan::new(start, start.add(1 + self.dice(all.end.offset_from(start))));
            let span = if self.dice(2) == 0 { all } else { span };
            let whose = if self.dice(2) == 0 { Scope::Own } else { Scope::All };
            let out = {
                let _op = self.cpu.operation("page out");
                mm.paging().page_out(&shared.space, span, whose, &spaces[..]).unwrap()
            };
            round += u64::from(out.pages > 0);
            if out.pages == 0 {
                thread::yield_now();
            }
            // Another CPU may be writing one of them: then the rest waits for the next round.
            let _ = shared.disk.write_back(mm, shared.swap, &spaces);
            if self.dice(8) == 0 {
                mm.reclaim().age_all(&spaces[..]);
            }
        }
        shared.over.store(true, Ordering::SeqCst);
        self.cpu.leave();
    }

    /// Writes numbers and finds them again.
    fn write_numbers(&mut self) {
        let (shared, number) = (self.shared, self.number);
        self.run_in(&shared.space);
        let mut value = 0;
        while !self.is_over() {
            value += 1;
            let pages = shared.pages(number);
            // A page holds one stamp on the disk: its first word.
            pages.iter().for_each(|&page| self.write(&shared.space, page, value));
            shared.done[number].store(value, Ordering::SeqCst);
            let kept = pages.map(|page| self.read(&shared.space, page));
            assert_eq!(kept, [value; 3], "CPU {number} has lost a store");
        }
        self.cpu.leave();
    }

    /// Pins a page and writes it; forks and looks at the child.
    fn pin_and_fork(&mut self) {
        let shared = self.shared;
        let mut value = 0;
        while !self.is_over() {
            self.run_in(&shared.space);
            value += 1;
            let page = shared.pages(3)[self.dice(3) as usize];
            self.write(&shared.space, page, value);
            if let Ok(pinned) = self.mm.pin(&shared.space, page, Access::Write) {
                self.write(&shared.space, page, value + 1);
                let there = self.machine.ram().read_word(pinned.frame().addr(A::PAGE_SHIFT));
                assert_eq!(there, Some(value + 1), "a device sees what the program wrote");
                self.mm.unpin(pinned);
            }
            assert!(self.read(&shared.space, page) >= value);
            value += 1;
            self.fork();
        }
        self.cpu.leave();
    }

    fn fork(&mut self) {
        let shared = self.shared;
        let done = [1, 2].map(|cpu: usize| shared.done[cpu].load(Ordering::SeqCst));
        let child = {
            let _op = self.cpu.operation("fork");
            self.mm.fork(&shared.space, Asid(2)).unwrap()
        };
        self.run_in(&child);
        for (cpu, done) in (1..).zip(done) {
            let seen = shared.pages(cpu).map(|page| self.read(&child, page));
            assert!(seen.is_sorted_by(|a, b| a >= b), "CPU {cpu} wrote {seen:?}");
            assert!(seen[2] >= done, "{seen:?}, though {done} was written before");
            self.write(&child, shared.pages(cpu)[0], u64::MAX);
        }
        self.cpu.leave();
        let _op = self.cpu.operation("destroy");
        self.mm.destroy(child);
    }
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

fn stress<A: Arch>(config: Config, rounds: u64, seed: u64) {
    let mut ram = system::ram(8192 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config.with_cpus(CPUS), &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        mm.policy().set_size(Order::new(contiguous::<A>()), SizePolicy::Always).unwrap();
        machine.faults().delay(16, seed);
        let start = Vpn::new(place::<A>().get() - ((BLOCKS / 2) << contiguous::<A>()));
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES));
        let space = mm.space(Asid(1), window).unwrap();
        let swap = mm.paging().swap_on(3000).unwrap();
        let (over, done) = (AtomicBool::new(false), Default::default());
        let shared = Shared { space, start, disk: Disk::new(), swap, over, done };
        let request = Request::anon(shared.span().count()).at(At::Fixed(start));
        mm.map(&shared.space, &request).unwrap();
        thread::scope(|scope| {
            for number in 0..CPUS {
                let shared = &shared;
                scope.spawn(move || {
                    let over = Over(&shared.over);
                    let cpu = machine.cpu(number);
                    let random = (seed ^ (number as u64 + 1) << 32) | 1;
                    let mut worker = Worker { machine, cpu, mm, shared, number, random };
                    match number {
                        0 => worker.page_out(rounds),
                        3 => worker.pin_and_fork(),
                        _ => worker.write_numbers(),
                    }
                    drop(over);
                });
            }
        });
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        let totals = check::system(mm, &[&shared.space]).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(totals.held, 0, "nothing is lost");
        assert!(mm.totals().swpin.iter().sum::<u64>() > 10, "pages came back");
        mm.destroy(shared.space);
        mm.paging().swap_off(swap).unwrap();
        check::system::<A, _>(mm, &[]).unwrap();
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

#[test]
fn d3_pages_leave_while_others_use_them_on_x86_64() {
    stress::<X86_64>(Config::x86_64(), 120, 31);
}

#[test]
fn d3_pages_leave_while_others_use_them_on_arm64_with_folded_blocks() {
    stress::<Arm4k>(Config::arm64_4k(), 80, 32);
}

#[test]
fn d3_pages_leave_while_others_use_them_on_riscv64() {
    stress::<Sv39>(Config::riscv64_sv39(), 80, 33);
}
