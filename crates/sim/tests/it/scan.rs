//! Collapse in the background (D4): which blocks a scan makes one folio, within which limits, and
//! that it changes nothing that a program could see.

use quire::check;
use quire::fault::SizePolicy;
use quire::space::{Advice, At, Request, Space};
use quire::stats::Event;
use quire::{ScanCursor, ScanLimits, Scanned, Scope};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::Disk;
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

const BASE: Vpn = Vpn::new(0x10000);
const BLOCK: u64 = 512;
const ANY: ScanLimits = ScanLimits { none: 511, swapped: 511, shared: 511, hard: true };

struct Scene<'s, 'm, 'r, A: Arch> {
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: Cpu<'s, 'r>,
    space: Space<A>,
    cursor: ScanCursor,
}

impl<'s, 'm, 'r, A: Arch> Scene<'s, 'm, 'r, A> {
    /// A space with two blocks that want large folios, which it got too late.
    fn new(machine: &'s Machine<'r>, mm: &'s HostedMm<'m, 'r, A>, pages: u64) -> Self {
        let span = PageSpan::new(BASE, BASE.add(2 * BLOCK));
        let space = mm.space(Asid(1), span).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(2 * BLOCK) }.at(At::Fixed(BASE));
        mm.map(&space, &request).unwrap();
        let scene = Self { mm, cpu: machine.cpu(0), space, cursor: ScanCursor::default() };
        scene.space.enter(scene.cpu.number());
        scene.cpu.switch(scene.space.root(), scene.space.asid());
        (0..pages).for_each(|page| scene.write(page));
        mm.advise(&scene.space, span, Advice::Huge).unwrap();
        scene
    }

    fn addr(page: u64) -> VirtAddr {
        VirtAddr::new(BASE.add(page).get() << A::PAGE_SHIFT)
    }

    fn write(&self, page: u64) {
        while self.cpu.write(Self::addr(page), page + 1).is_err() {
            let _operation = self.cpu.operation("fault");
            self.mm.fault(&self.space, BASE.add(page), Access::Write).unwrap();
        }
    }

    fn holds(&self, page: u64, word: u64) {
        loop {
            if let Ok(found) = self.cpu.read(Self::addr(page)) {
                return assert_eq!(found, word, "page {page}");
            }
            let _operation = self.cpu.operation("fault");
            self.mm.fault(&self.space, BASE.add(page), Access::Read).unwrap();
        }
    }

    fn scan(&mut self, pages: u64, limits: ScanLimits) -> Scanned {
        let _operation = self.cpu.operation("scan");
        self.mm.reclaim().scan(&mut self.cursor, pages, &limits, &[&self.space][..])
    }

    fn is_whole(&self, order: u8, at: u64) -> bool {
        let block = PageSpan::block(BASE.add(at), Order::new(order));
        let mut one = 0;
        self.mm.spaces().folio_map(&self.space, |map| one += map.sizes[usize::from(order)].aligned);
        one >= block.count()
    }

    fn end(self, machine: &Machine<'_>) {
        self.cpu.leave();
        check::system(self.mm, &[&self.space]).unwrap();
        self.mm.destroy(self.space);
        machine.audit().unwrap();
    }
}

fn with<A: Arch>(config: Config, act: impl FnOnce(&Machine<'_>, &HostedMm<'_, '_, A>)) {
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| act(machine, mm)).unwrap();
}

fn makes_one<A: Arch>(config: Config) {
    with::<A>(config, |machine, mm| {
        let mut scene = Scene::<A>::new(machine, mm, BLOCK + 100);
        let done = scene.scan(u64::MAX, ANY);
        assert_eq!((done.made, done.collapsed, done.is_round), (2, 2 * BLOCK, true));
        assert!(scene.is_whole(9, 0));
        for page in 0..2 * BLOCK {
            scene.holds(page, if page < BLOCK + 100 { page + 1 } else { 0 });
        }
        assert_eq!(scene.scan(u64::MAX, ANY).made, 0, "they are one already");
        scene.end(machine);
    });
}

#[test]
fn d4_a_scan_makes_blocks_one_folio_with_what_they_hold_x86_64() {
    makes_one::<X86_64>(Config::x86_64());
}

#[test]
fn d4_a_scan_makes_blocks_one_folio_with_what_they_hold_arm64() {
    makes_one::<Arm4k>(Config::arm64_4k());
}

#[test]
fn d4_a_block_of_which_too_much_is_missing_stays_and_is_counted() {
    with::<X86_64>(Config::x86_64(), |machine, mm| {
        let mut scene = Scene::<X86_64>::new(machine, mm, 256);
        assert_eq!(scene.scan(u64::MAX, ScanLimits { none: 255, ..ANY }).made, 0);
        assert_eq!(mm.totals().event(Event::ScanNone), 1, "the empty block is not looked at");
        assert_eq!(scene.scan(u64::MAX, ScanLimits { none: 256, ..ANY }).made, 1);
        scene.end(machine);
    });
}

#[test]
fn d4_a_block_of_which_too_much_is_shared_stays_until_it_is_not() {
    with::<X86_64>(Config::x86_64(), |machine, mm| {
        let mut scene = Scene::<X86_64>::new(machine, mm, BLOCK);
        let child = mm.fork(&scene.space, Asid(2)).unwrap();
        // Each write copies its page alone.
        mm.policy().set_copy_most(Order::ZERO);
        (0..256).for_each(|page| scene.write(page));
        assert_eq!(scene.scan(u64::MAX, ScanLimits { shared: 255, ..ANY }).made, 0);
        assert_eq!(mm.totals().event(Event::ScanShared), 1);
        assert_eq!(scene.scan(u64::MAX, ScanLimits { shared: 256, ..ANY }).made, 1);
        (0..BLOCK).for_each(|page| scene.holds(page, page + 1));
        mm.destroy(child);
        scene.end(machine);
    });
}

#[test]
fn d4_swapped_pages_are_read_before_the_scan_goes_on() {
    with::<X86_64>(Config::x86_64(), |machine, mm| {
        let (disk, swap) = (Disk::new(), mm.paging().swap_on(2048).unwrap());
        let mut scene = Scene::<X86_64>::new(machine, mm, BLOCK);
        let some = PageSpan::new(BASE.add(10), BASE.add(14));
        mm.paging().page_out(&scene.space, some, Scope::Own, &[&scene.space][..]).unwrap();
        disk.write_back(mm, swap, &[&scene.space]).unwrap();
        assert_eq!(scene.scan(u64::MAX, ScanLimits { swapped: 3, ..ANY }).made, 0);
        assert_eq!(mm.totals().event(Event::ScanSwapped), 1);
        let mut reads_in_all = 0;
        let done = loop {
            let done = scene.scan(u64::MAX, ScanLimits { swapped: 4, ..ANY });
            let Some(reads) = done.reads else { break done };
            assert!(!done.is_round, "it waits at that block");
            reads_in_all += 1;
            disk.serve(mm, reads).unwrap();
        };
        assert!((1..=4).contains(&reads_in_all));
        assert_eq!(done.made, 1);
        (0..BLOCK).for_each(|page| scene.holds(page, page + 1));
        scene.end(machine);
    });
}

#[test]
fn d4_smaller_sizes_are_made_where_the_policy_wants_them() {
    with::<Arm4k>(Config::arm64_4k(), |machine, mm| {
        let mut scene = Scene::<Arm4k>::new(machine, mm, 40);
        for order in 1..=9 {
            mm.policy().set_size(Order::new(order), SizePolicy::Never).unwrap();
        }
        assert_eq!(scene.scan(u64::MAX, ANY).made, 0, "no size is wanted");
        mm.policy().set_size(Order::new(4), SizePolicy::Madvise).unwrap();
        // Eight pages of the third part are missing.
        assert_eq!(scene.scan(u64::MAX, ScanLimits { none: 510, ..ANY }).made, 2);
        assert_eq!(scene.scan(u64::MAX, ANY).made, 1);
        (0..48).for_each(|page| scene.holds(page, if page < 40 { page + 1 } else { 0 }));
        scene.end(machine);
    });
}

#[test]
fn d4_a_scan_goes_on_at_its_cursor_and_passes_idle_blocks() {
    with::<X86_64>(Config::x86_64(), |machine, mm| {
        let mut scene = Scene::<X86_64>::new(machine, mm, 2 * BLOCK);
        let first = scene.scan(1, ANY);
        assert_eq!((first.made, first.is_round), (1, false));
        mm.reclaim().age_all(&[&scene.space][..]);
        let second = scene.scan(u64::MAX, ANY);
        assert_eq!((second.made, second.is_round), (0, true), "nothing of it is young");
        scene.write(BLOCK);
        assert_eq!(scene.scan(1, ANY).made, 0);
        let third = scene.scan(1, ANY);
        assert_eq!(third.made, 1);
        assert!(scene.scan(1, ANY).is_round);
        scene.end(machine);
    });
}

/// Where no block of the largest size fits, and where one fits but has too little, the scan goes on
/// with the next size.
#[test]
fn d4_smaller_sizes_are_tried_where_the_largest_does_not_fit() {
    with::<X86_64>(Config::x86_64(), |machine, mm| {
        let mut scene = Scene::<X86_64>::new(machine, mm, BLOCK + 100);
        let pieces = [(0, 100), (BLOCK, 256)];
        for (from, pages) in pieces {
            let beyond = PageSpan::new(BASE.add(from + pages), BASE.add(from + BLOCK));
            mm.unmap(&scene.space, beyond).unwrap();
        }
        for order in [2, 4, 9] {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let some = ScanLimits { none: 100, ..ANY };
        // Six blocks of order 4 fit into each hundred pages that are there, and one of order 2 is
        // left.
        let done = scene.scan(u64::MAX, some);
        assert_eq!((done.made, done.collapsed), (6 + 1 + 6 + 1, 2 * 100));
        for (from, _) in pieces {
            (0..100).for_each(|page| scene.holds(from + page, from + page + 1));
        }
        assert_eq!(scene.scan(u64::MAX, some).made, 0, "they are one already");
        scene.end(machine);
    });
}
