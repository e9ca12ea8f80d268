//! Fork and copy-on-write, step by step: which pages are shared, copied or reused, and the cost of
//! each (rows C3 and C4).

use quire::inject::{Fragment, fragment};
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::Event::{
    self, Break, CowCopy, CowReuse, EntriesForked, Flush, ForkCopy, LeafSplit, Refold, Unfold,
};
use quire::{Error, Resolved};
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Attrs, Level, Sv39, Sv48, X86_64, X86_64La57};
use quire_machine::{Config, Cpu};
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{Meter, contiguous, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Prot, Vpn};

mod ahead;
mod claim;

/// A test on one format.
type Story<A> = for<'m, 'r> fn(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>);

/// Words of tables and area trees that a fork may write besides entries of leaves.
const SLACK: u64 = 64;

/// Base pages of a contiguous block.
fn block<A: Arch>() -> u64 {
    1 << contiguous::<A>()
}

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

fn tell<A: Arch>(config: Config, sizes: &[u8], story: Story<A>) {
    stage::<A>(config, 24 * block::<A>() as usize + 1024, sizes, story);
}

/// The story on a few formats, with folios of a contiguous block.
macro_rules! on_each_format {
    ($story:ident) => {
        tell::<X86_64>(Config::x86_64(), &[contiguous::<X86_64>()], $story);
        tell::<Arm4k>(Config::arm64_4k(), &[contiguous::<Arm4k>()], $story);
        tell::<Arm16k>(Config::arm64_16k(), &[contiguous::<Arm16k>()], $story);
        tell::<Arm64k>(Config::arm64_64k(), &[contiguous::<Arm64k>()], $story);
        tell::<Sv39>(Config::riscv64_sv39(), &[contiguous::<Sv39>()], $story);
        tell::<Sv48>(Config::riscv64_sv48(), &[contiguous::<Sv48>()], $story);
    };
}
use on_each_format;

fn fork<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: &Space<A>) -> Space<A> {
    let _op = cpu.operation("fork");
    mm.fork(space, Asid(space.asid().0 + 1)).unwrap()
}

fn end<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: Space<A>) {
    let _op = cpu.operation("destroy");
    mm.destroy(space);
}

fn frame<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>, page: Vpn) -> Pfn {
    let all = leaves(mm, space);
    let leaf = all.iter().find(|leaf| leaf.pages.contains(page)).expect("the page is resident");
    leaf.frame.add(page.offset_from(leaf.pages.start))
}

fn unshared(pages: PageSpan, copied: Option<u8>) -> Result<Vec<Resolved>, Stopped> {
    Ok(vec![Resolved::Unshared { pages, copied: copied.map(Order::new) }])
}

fn costs_one_store_on_each_side<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let pages = 8 * block::<A>();
    let space = space_of(mm, pages, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    mm.populate(&space, span::<A>(0, pages)).unwrap();
    program.write(page::<A>(1), 7).unwrap();
    let folded = leaves(mm, &space)[0].folded;
    assert_eq!(folded, A::fold_order(Level::LAST).is_some(), "{}", A::NAME);
    let meter = Meter::new(mm);
    let child = fork(mm, cpu, &space);
    let shared = meter.events([EntriesForked, Flush, Unfold, Refold, Break]);
    assert_eq!(shared, [pages, 1, 0, 0, 0], "{}", A::NAME);
    assert_eq!(meter.counts().flushes, 1, "{}", A::NAME);
    let stores = meter.stores();
    assert!((2 * pages..=2 * pages + SLACK).contains(&stores), "{}: {stores}", A::NAME);
    for space in [&space, &child] {
        let all = leaves(mm, space);
        assert_eq!(all.len() as u64, pages);
        let shared = |attrs: Attrs| attrs.contains(Attrs::COW) && !attrs.contains(Attrs::WRITE);
        assert!(all.iter().all(|leaf| leaf.folded == folded && shared(leaf.attrs)), "{}", A::NAME);
    }
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c3_fork_writes_each_entry_once_on_each_side_and_unfolds_nothing() {
    on_each_format!(costs_one_store_on_each_side);
}

fn costs_one_store_each<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let pages = 200;
    let space = space_of(mm, pages, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    for number in 0..pages {
        program.write(page::<A>(number), number).unwrap();
    }
    let meter = Meter::new(mm);
    let child = fork(mm, cpu, &space);
    assert_eq!(meter.events([EntriesForked, Flush]), [pages, 1], "{}", A::NAME);
    let stores = meter.stores();
    assert!((2 * pages..=2 * pages + SLACK).contains(&stores), "{}: {stores}", A::NAME);
    let within = Program::on(cpu, mm, &child);
    assert!((0..pages).all(|number| within.read(page::<A>(number)) == Ok(number)));
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c3_fork_of_single_pages_writes_each_entry_once_on_each_side() {
    tell::<X86_64>(Config::x86_64(), &[], costs_one_store_each);
    tell::<X86_64La57>(Config::x86_64_la57(), &[], costs_one_store_each);
    tell::<Arm4k>(Config::arm64_4k(), &[], costs_one_store_each);
    tell::<Arm64k>(Config::arm64_64k(), &[], costs_one_store_each);
    tell::<Sv39>(Config::riscv64_sv39(), &[], costs_one_store_each);
}

fn shares_large_leaves<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let block = A::block_order().pages();
    let space = space_of(mm, 2 * block, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(5), 5).unwrap();
    program.write(page::<A>(block + 5), 6).unwrap();
    let meter = Meter::new(mm);
    let child = fork(mm, cpu, &space);
    assert_eq!(meter.events([EntriesForked, LeafSplit, Flush]), [2, 0, 1], "{}", A::NAME);
    assert!(meter.stores() <= 4 + SLACK, "{}: {}", A::NAME, meter.stores());
    // A copy of the default size splits its pages off the leaf.
    let meter = Meter::new(mm);
    let order = mm.policy().copy_most().min(A::block_order());
    mm.policy().set_size(order, quire::fault::SizePolicy::Always).unwrap();
    let copied = program.write(page::<A>(5), 50);
    assert_eq!(copied, unshared(PageSpan::block(page::<A>(5), order), Some(order.get())));
    assert_eq!(meter.event(CowCopy), order.pages(), "{}", A::NAME);
    let within = Program::on(cpu, mm, &child);
    assert_eq!([within.read(page::<A>(5)), within.read(page::<A>(block + 5))], [Ok(5), Ok(6)]);
    verify(mm, &[&space, &child]);
    let program = Program::on(cpu, mm, &space);
    end(mm, cpu, child);
    let claimed = program.write(page::<A>(block + 5), 60);
    assert_eq!(claimed, unshared(span::<A>(block, block), None), "{}", A::NAME);
    assert_eq!(program.read(page::<A>(5)), Ok(50));
    verify(mm, &[&space]);
    cpu.leave();
    end(mm, cpu, space);
}

#[test]
fn c3_large_leaves_are_shared_whole() {
    stage::<X86_64>(Config::x86_64(), 4096, &[9], shares_large_leaves);
    stage::<Arm4k>(Config::arm64_4k(), 4096, &[9], shares_large_leaves);
    stage::<Sv39>(Config::riscv64_sv39(), 4096, &[9], shares_large_leaves);
}

fn ends_with_one_flush<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let pages = 8 * block::<A>();
    let space = space_of(mm, pages, AreaFlags::empty());
    mm.populate(&space, span::<A>(0, pages)).unwrap();
    mm.protect(&space, span::<A>(3, 5), Prot::READ).unwrap();
    let child = fork(mm, cpu, &space);
    let within = Program::on(cpu, mm, &child);
    within.write(page::<A>(pages - 1), 1).unwrap();
    within.read(page::<A>(0)).unwrap();
    cpu.leave();
    let meter = Meter::new(mm);
    end(mm, cpu, child);
    assert_eq!(meter.event(Flush), 1, "{}", A::NAME);
    assert_eq!(meter.counts().flushes, 1, "{}", A::NAME);
    assert!(meter.counts().invalidations <= 1, "{}", A::NAME);
    assert_eq!(meter.event(Unfold), 0, "{}", A::NAME);
    assert!(meter.stores() <= pages + SLACK, "{}: {} stores", A::NAME, meter.stores());
    verify(mm, &[&space]);
    end(mm, cpu, space);
}

#[test]
fn c3_the_end_of_a_child_is_one_flush_and_unfolds_nothing() {
    on_each_format!(ends_with_one_flush);
}

#[test]
fn c3_a_child_inherits_by_the_flags_of_areas() {
    stage::<X86_64>(Config::x86_64(), 2048, &[4], |mm, cpu| {
        let space = space_of(mm, 16, AreaFlags::LOCKED);
        let flags = [AreaFlags::DONTFORK, AreaFlags::WIPEONFORK, AreaFlags::SHARED];
        for (number, flag) in (1..).zip(flags) {
            let at = At::Fixed(page::<X86_64>(32 * number));
            mm.map(&space, &Request::anon(16).at(at).flags(flag)).unwrap();
        }
        space.set_opt_out(quire::space::OptOut::ExceptAdvised);
        let program = Program::on(cpu, mm, &space);
        let pages = [0, 32, 64, 96].map(page::<X86_64>);
        for (value, page) in (1..).zip(pages) {
            program.write(page, value).unwrap();
        }
        let child = fork(mm, cpu, &space);
        assert_eq!(child.window(), space.window());
        assert_eq!(child.opt_out(), space.opt_out());
        let mut areas = Vec::new();
        mm.spaces().folio_map(&child, |map| areas.push(map.area.flags));
        assert_eq!(areas, [AreaFlags::empty(), AreaFlags::WIPEONFORK, AreaFlags::SHARED]);
        assert_eq!(program.write(pages[1], 20), Ok(vec![]), "the child has nothing of it");
        assert_eq!(program.write(pages[2], 30), Ok(vec![]), "the child has nothing of it");
        assert_eq!(program.write(pages[3], 40), Ok(vec![]), "shared pages stay shared");
        let within = Program::on(cpu, mm, &child);
        assert_eq!(within.read(pages[0]), Ok(1));
        assert_eq!(within.read(pages[1]), Err(Stopped::Refused(Error::NoArea(pages[1]))));
        assert_eq!(within.read(pages[2]), Ok(0));
        assert_eq!(within.read(pages[3]), Ok(40));
        within.write(pages[3], 41).unwrap();
        verify(mm, &[&space, &child]);
        let program = Program::on(cpu, mm, &space);
        assert_eq!(pages.map(|page| program.read(page)), [Ok(1), Ok(20), Ok(30), Ok(41)]);
        cpu.leave();
        end(mm, cpu, child);
        end(mm, cpu, space);
    });
}

fn is_copied_large<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    mm.policy().set_copy_most(Order::new(contiguous::<A>()));
    let space = space_of(mm, 2 * size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    for number in 0..size {
        program.write(page::<A>(number), number + 1).unwrap();
    }
    let child = fork(mm, cpu, &space);
    let meter = Meter::new(mm);
    let copied = unshared(span::<A>(0, size), Some(contiguous::<A>()));
    assert_eq!(program.write(page::<A>(5), 500), copied, "{}", A::NAME);
    assert_eq!(meter.events([CowReuse, CowCopy]), [0, size], "{}", A::NAME);
    assert_eq!(program.write(page::<A>(size - 1), 600), Ok(vec![]), "{}", A::NAME);
    assert_ne!(frame(mm, &space, page::<A>(0)), frame(mm, &child, page::<A>(0)));
    let folded = A::fold_order(Level::LAST).is_some();
    assert!(leaves(mm, &space).iter().all(|leaf| leaf.folded == folded), "{}", A::NAME);
    for number in 0..size {
        let written = [(5, 500), (size - 1, 600)].into_iter().find(|(at, _)| *at == number);
        let expected = written.map_or(number + 1, |(_, value)| value);
        assert_eq!(program.read(page::<A>(number)), Ok(expected), "{}", A::NAME);
    }
    let within = Program::on(cpu, mm, &child);
    for number in 0..size {
        assert_eq!(within.read(page::<A>(number)), Ok(number + 1), "{}", A::NAME);
    }
    // The child has the folio for itself now.
    assert_eq!(within.write(page::<A>(0), 9), unshared(span::<A>(0, size), None), "{}", A::NAME);
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c4_shared_pages_are_copied_into_a_large_folio() {
    on_each_format!(is_copied_large);
}

#[test]
fn c4_a_copy_is_as_large_as_policy_and_memory_allow() {
    stage::<X86_64>(Config::x86_64(), 4096, &[2, 4, 9], |mm, cpu| {
        let space = space_of(mm, 3 * 512, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        for number in 0..3 {
            program.write(page::<X86_64>(512 * number), 1).unwrap();
        }
        let child = fork(mm, cpu, &space);
        let block = |number, order| PageSpan::block(page::<X86_64>(number), Order::new(order));
        assert_eq!(mm.policy().copy_most(), Order::new(4), "64 KiB");
        assert_eq!(program.write(page::<X86_64>(7), 1), unshared(block(7, 4), Some(4)));
        mm.policy().set_copy_most(Order::new(3));
        assert_eq!(program.write(page::<X86_64>(17), 1), unshared(block(17, 2), Some(2)));
        mm.policy().set_copy_most(Order::ZERO);
        assert_eq!(program.write(page::<X86_64>(33), 1), unshared(block(33, 0), Some(0)));
        mm.policy().set_copy_most(Order::new(9));
        assert_eq!(program.write(page::<X86_64>(513), 1), unshared(block(513, 9), Some(9)));
        // Part of it is the space's own by now.
        assert_eq!(program.write(page::<X86_64>(34), 1), unshared(block(34, 0), Some(0)));
        assert_eq!(program.write(page::<X86_64>(38), 1), unshared(block(38, 2), Some(2)));
        assert_eq!(program.write(page::<X86_64>(50), 1), unshared(block(50, 4), Some(4)));
        verify(mm, &[&space, &child]);
        cpu.leave();
        end(mm, cpu, child);
        end(mm, cpu, space);
    });
}

#[test]
fn c4_a_copy_is_smaller_where_memory_is_short() {
    stage::<X86_64>(Config::x86_64(), 4096, &[2, 4], |mm, cpu| {
        let space = space_of(mm, 64, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        mm.populate(&space, span::<X86_64>(0, 64)).unwrap();
        let child = fork(mm, cpu, &space);
        let block = |number, order| PageSpan::block(page::<X86_64>(number), Order::new(order));
        for (left, order, number) in [(3, 2, 5), (1, 0, 17), (4, 4, 33)] {
            let target = Fragment::FreeAtOrder { order: Order::new(left), blocks: 1 << 20 };
            let pieces = fragment(mm.bare_phys(), target, 3);
            let copied = program.write(page::<X86_64>(number), 1);
            assert_eq!(copied, unshared(block(number, order), Some(order)), "{left}");
            pieces.release();
        }
        verify(mm, &[&space, &child]);
        cpu.leave();
        end(mm, cpu, child);
        end(mm, cpu, space);
    });
}

fn keeps_its_pins<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, 2 * size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    for number in 0..2 * size {
        program.write(page::<A>(number), number + 1).unwrap();
    }
    let pinned = mm.pin(&space, page::<A>(3), Access::Write).unwrap();
    assert_eq!(pinned.frame(), frame(mm, &space, page::<A>(3)), "{}", A::NAME);
    let meter = Meter::new(mm);
    let child = fork(mm, cpu, &space);
    assert_eq!(meter.events([ForkCopy, EntriesForked]), [size, size], "{}", A::NAME);
    assert_eq!(program.write(page::<A>(3), 30), Ok(vec![]), "{}: its own as before", A::NAME);
    assert_eq!(program.write(page::<A>(size - 1), 40), Ok(vec![]), "{}", A::NAME);
    assert_eq!(frame(mm, &space, page::<A>(3)), pinned.frame(), "{}", A::NAME);
    // A device writes to the page that it was given.
    mm.hardware().ram().write_word(pinned.frame().addr(A::PAGE_SHIFT), 31);
    assert_eq!(program.read(page::<A>(3)), Ok(31), "{}", A::NAME);
    let within = Program::on(cpu, mm, &child);
    for number in 0..2 * size {
        assert_eq!(within.read(page::<A>(number)), Ok(number + 1), "{}", A::NAME);
    }
    assert_eq!(within.write(page::<A>(3), 5), Ok(vec![]), "{}: a copy is one's own", A::NAME);
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, space);
    // The frame outlives its space for as long as the device has it.
    mm.hardware().ram().write_word(pinned.frame().addr(A::PAGE_SHIFT), 32);
    mm.unpin(pinned);
    end(mm, cpu, child);
}

#[test]
fn c4_pinned_pages_are_copied_at_the_fork_and_stay_the_parents() {
    on_each_format!(keeps_its_pins);
}

fn is_pinned_alone<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, block::<A>(), AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(3), 3).unwrap();
    let child = fork(mm, cpu, &space);
    let pinned = mm.pin(&space, page::<A>(3), Access::Read).unwrap();
    let theirs = frame(mm, &child, page::<A>(3));
    assert_ne!(pinned.frame(), theirs, "{}", A::NAME);
    assert_eq!(pinned.frame(), frame(mm, &space, page::<A>(3)), "{}", A::NAME);
    let word = mm.hardware().ram().read_word(pinned.frame().addr(A::PAGE_SHIFT));
    assert_eq!(word, Some(3), "{}", A::NAME);
    // After writes by parent and child, the pin still holds the frame that its space maps.
    Program::on(cpu, mm, &child).write(page::<A>(3), 4).unwrap();
    Program::on(cpu, mm, &space).write(page::<A>(3), 5).unwrap();
    let word = mm.hardware().ram().read_word(pinned.frame().addr(A::PAGE_SHIFT));
    assert_eq!(word, Some(5), "{}", A::NAME);
    verify(mm, &[&space, &child]);
    mm.unpin(pinned);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c4_a_pin_holds_memory_of_one_space_alone() {
    on_each_format!(is_pinned_alone);
}

fn grants_no_write<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, 2 * size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    for number in 0..size {
        program.write(page::<A>(number), 1).unwrap();
    }
    let child = fork(mm, cpu, &space);
    // The CPU held translations that let it write; and no later call gives them back.
    let denied = |number| cpu.write(page::<A>(number).addr(A::PAGE_SHIFT), 2).is_err();
    assert!((0..size).all(denied), "{}", A::NAME);
    for prot in [Prot::READ, Prot::RW] {
        let _op = cpu.operation("protect");
        mm.protect(&space, span::<A>(2, size), prot).unwrap();
    }
    program.read(page::<A>(4)).unwrap();
    assert!((0..size).all(denied), "{}", A::NAME);
    let writable = |space| leaves(mm, space).iter().any(|leaf| leaf.attrs.contains(Attrs::WRITE));
    assert!(!writable(&space) && !writable(&child), "{}", A::NAME);
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn i11_no_entry_grants_a_write_to_what_two_spaces_map() {
    on_each_format!(grants_no_write);
}

fn has_one_owner<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let pages = 2 * block::<A>();
    let space = space_of(mm, pages, AreaFlags::empty());
    mm.populate(&space, span::<A>(0, pages)).unwrap();
    let child = fork(mm, cpu, &space);
    let third = fork(mm, cpu, &child);
    for (number, owner) in (0..pages).step_by(5).zip([&space, &child, &third].into_iter().cycle()) {
        Program::on(cpu, mm, owner).write(page::<A>(number), number).unwrap();
        let all = [&space, &child, &third].map(|space| leaves(mm, space));
        let own = all.iter().flatten().filter(|leaf| !leaf.attrs.contains(Attrs::COW));
        for leaf in own {
            let mapped = all.iter().flatten().filter(|other| other.frame == leaf.frame).count();
            assert_eq!(mapped, 1, "{}: {leaf:?}", A::NAME);
        }
        verify(mm, &[&space, &child, &third]);
    }
    cpu.leave();
    for space in [child, third, space] {
        end(mm, cpu, space);
    }
}

#[test]
fn i13_an_exclusive_page_is_mapped_once() {
    on_each_format!(has_one_owner);
}

/// Pages of a writable area, which other spaces share.
fn reads_writable_pages<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(1), 7).unwrap();
    mm.protect(&space, span::<A>(0, size), Prot::empty()).unwrap();
    let child = fork(mm, cpu, &space);
    mm.protect(&space, span::<A>(0, size), Prot::WRITE).unwrap();
    assert_eq!(program.read(page::<A>(1)), Ok(7), "{}: a right to write includes reading", A::NAME);
    program.write(page::<A>(1), 8).unwrap();
    assert_eq!(program.read(page::<A>(1)), Ok(8), "{}", A::NAME);
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c4_a_writable_shared_page_may_be_read() {
    on_each_format!(reads_writable_pages);
}

fn keeps_dirty<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let window = PageSpan::new(page::<A>(0), page::<A>(1024));
    let space = mm.space(Asid(1), window).unwrap();
    let request = Request::anon(size).at(At::Fixed(page::<A>(0))).prot(Prot::READ);
    mm.map(&space, &request).unwrap();
    mm.populate(&space, span::<A>(0, size)).unwrap();
    mm.protect(&space, span::<A>(0, size), Prot::RW).unwrap();
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(5), 1).unwrap();
    let child = fork(mm, cpu, &space);
    for space in [&space, &child] {
        // Unfolded, each page has its own dirty bit.
        let _op = cpu.operation("protect");
        mm.protect(space, span::<A>(0, 1), Prot::empty()).unwrap();
        let all = leaves(mm, space);
        assert!(all[5].attrs.contains(Attrs::DIRTY | Attrs::YOUNG), "{}: {:?}", A::NAME, all[5]);
    }
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn i5_parent_and_child_both_know_what_was_written_before_the_fork() {
    on_each_format!(keeps_dirty);
}

/// Each counter has a name of its own.
#[test]
fn c3_counters_have_names() {
    let names = [EntriesForked, CowReuse, CowCopy, ForkCopy].map(Event::name);
    assert_eq!(names[..3], ["fork_entries", "cow_reuse", "cow_copy"]);
}

#[test]
fn c3_a_pinned_folio_in_smaller_leaves_is_copied_for_the_child() {
    stage::<X86_64>(Config::x86_64(), 8192, &[9], |mm, cpu| {
        let space = space_of(mm, 512, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        (0..512).for_each(|at| drop(program.write(place::<X86_64>().add(at), at + 1).unwrap()));
        let pinned = mm.pin(&space, place::<X86_64>(), Access::Write).unwrap();
        let flags = (AreaFlags::DONTDUMP, AreaFlags::empty());
        mm.spaces().set_flags(&space, span::<X86_64>(1, 1), flags.0, flags.1).unwrap();
        let child = mm.fork(&space, Asid(2)).unwrap();
        let within = Program::on(cpu, mm, &child);
        (0..512).for_each(|at| assert_eq!(within.read(place::<X86_64>().add(at)), Ok(at + 1)));
        verify(mm, &[&space, &child]);
        cpu.leave();
        mm.unpin(pinned);
        mm.destroy(child);
        mm.destroy(space);
    });
}
