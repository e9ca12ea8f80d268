//! Writes to private pages of files (rows B5, C4 and E4): a block becomes the space's own at once,
//! out of all folios of the file that are mapped in it.

use proptest::prelude::*;
use quire::cache::{FileId, Store};
use quire::fault::{Cause, SizePolicy};
use quire::inject::FailPlan;
use quire::space::{Advice, AreaFlags, At, Backing, Request, Space};
use quire::stats::Event;
use quire::{Error, Resolved};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{Meter, place, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, PageSpan, Prot, Vpn};

/// Pages of the file.
const PAGES: u64 = 96;
/// How far the area lies off where the file's blocks would agree with those of memory.
const SKEW: u64 = 1;

fn page<A: Arch>(at: u64) -> Vpn {
    place::<A>().add(SKEW + at)
}

/// The stamp of page `at` of the file.
fn stamp(at: u64) -> u64 {
    1000 + at
}

/// Lets folios of orders up to `most` be wanted everywhere.
fn want<A: Arch>(mm: &HostedMm<'_, '_, A>, most: u8) {
    for order in 1..=6 {
        let choice = if order <= most { SizePolicy::Always } else { SizePolicy::Never };
        mm.policy().set_size(Order::new(order), choice).unwrap();
    }
}

fn space<A: Arch>(mm: &HostedMm<'_, '_, A>, asid: u16, file: FileId, flags: AreaFlags) -> Space<A> {
    let window = PageSpan::new(place::<A>(), place::<A>().add(A::block_order().pages() * 16));
    let space = mm.space(Asid(asid), window).unwrap();
    let backing = Backing::Object { id: file.0, page: 0 };
    let request = Request { backing, flags, ..Request::anon(PAGES).at(At::Fixed(page::<A>(0))) };
    mm.map(&space, &request).unwrap();
    space
}

/// A file in folios of `order`, and a space that shows it privately.
fn with<A: Arch>(
    config: Config,
    order: u8,
    test: impl for<'m, 'r> Fn(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>, FileId, Space<A>),
) {
    stage::<A>(config, 16384, &[], |mm, cpu| {
        let file = mm.files().open(Store::Memory, PAGES, Order::ZERO).unwrap();
        if order > 0 {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let writer = space(mm, 1, file, AreaFlags::SHARED);
        let program = Program::on(cpu, mm, &writer);
        (0..PAGES).for_each(|at| drop(program.write(page::<A>(at), stamp(at)).unwrap()));
        cpu.leave();
        mm.destroy(writer);
        want(mm, 4);
        test(mm, cpu, file, space(mm, 2, file, AreaFlags::empty()));
        cpu.leave();
        mm.files().close(file).unwrap();
    });
}

/// The block of `order` in memory around page `at`, as pages of the area.
fn block(at: u64, order: u8) -> std::ops::Range<u64> {
    let start = (at + SKEW) >> order << order;
    start - SKEW..start - SKEW + (1 << order)
}

/// The order of the copy that the last fault of a write to page `at` made.
fn copied<A: Arch>(program: &Program<'_, '_, '_, A>, at: u64) -> Option<Order> {
    match program.write(page::<A>(at), 7).unwrap().last() {
        Some(Resolved::Unshared { pages, copied: Some(order) }) => {
            assert_eq!(*pages, PageSpan::block(page::<A>(at), *order));
            Some(*order)
        }
        other => panic!("{other:?}"),
    }
}

fn takes_the_block<A: Arch>(config: Config, order: u8) {
    with::<A>(config, order, |mm, cpu, file, space| {
        let program = Program::on(cpu, mm, &space);
        let meter = Meter::new(mm);
        assert_eq!(copied(&program, 20), Some(Order::new(4)));
        assert_eq!(meter.event(Event::CowCopy), 16);
        let around = block(20, 4);
        for at in 0..PAGES {
            let value = if at == 20 { 7 } else { stamp(at) };
            assert_eq!(program.read(page::<A>(at)), Ok(value), "{} page {at}", A::NAME);
        }
        for at in around.clone() {
            assert_eq!(program.write(page::<A>(at), at).unwrap(), [], "it is its own already");
        }
        verify(mm, &[&space]);
        // No other space sees any of it.
        cpu.leave();
        let other = self::space(mm, 3, file, AreaFlags::SHARED);
        let reader = Program::on(cpu, mm, &other);
        for at in around {
            assert_eq!(reader.read(page::<A>(at)), Ok(stamp(at)));
        }
        cpu.leave();
        mm.destroy(other);
        mm.destroy(space);
    });
}

#[test]
fn c4_a_write_to_a_private_page_of_a_file_takes_the_block_around_it() {
    for order in [0, 2, 4, 5] {
        takes_the_block::<X86_64>(Config::x86_64(), order);
        takes_the_block::<Arm4k>(Config::arm64_4k(), order);
    }
}

#[test]
fn e4_a_page_in_the_way_of_the_block_makes_it_smaller() {
    with::<Arm4k>(Config::arm64_4k(), 2, |mm, cpu, _, space| {
        let program = Program::on(cpu, mm, &space);
        let order = |at| copied(&program, at).unwrap().get();
        // Pages 15 to 30 are a block in memory.
        mm.policy().set_copy_most(Order::ZERO);
        assert_eq!(order(16), 0, "no more than that may be copied");
        mm.policy().set_copy_most(Order::new(4));
        assert_eq!(order(20), 2, "page 16 is its own already, and so is no block with it");
        assert_eq!(order(28), 3);
        // The area begins within a block, and ends within one.
        assert_eq!([order(0), order(3), order(PAGES - 1)], [0, 2, 0]);
        // Pages 79 to 94 are one, too, and another area begins within it.
        let rest = PageSpan::new(page::<Arm4k>(88), page::<Arm4k>(PAGES));
        mm.advise(&space, rest, Advice::Huge).unwrap();
        program.read(page::<Arm4k>(90)).unwrap();
        assert_eq!(order(80), 3);
        want(mm, 0);
        assert_eq!(order(40), 0, "no size is wanted");
        mm.policy().set_size(Order::new(3), SizePolicy::Always).unwrap();
        assert_eq!(order(60), 3, "the only one that is");
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn c4_a_block_that_a_fork_shares_is_no_page_of_the_file_and_stays_together() {
    with::<X86_64>(Config::x86_64(), 0, |mm, cpu, _, space| {
        let program = Program::on(cpu, mm, &space);
        mm.policy().set_copy_most(Order::ZERO);
        assert_eq!(copied(&program, 16), Some(Order::ZERO));
        mm.policy().set_copy_most(Order::new(4));
        let child = {
            let _operation = cpu.operation("fork");
            mm.fork(&space, Asid(4)).unwrap()
        };
        program.read(page::<X86_64>(20)).unwrap();
        assert_eq!(copied(&program, 20), Some(Order::new(2)));
        assert_eq!(copied(&program, 16), Some(Order::ZERO));
        verify(mm, &[&space, &child]);
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
    });
}

#[test]
fn e4_no_block_is_copied_without_write_access_or_with_tracked_writes() {
    with::<X86_64>(Config::x86_64(), 0, |mm, cpu, _, space| {
        let program = Program::on(cpu, mm, &space);
        mm.spaces().track(&space, span::<X86_64>(0, 128)).unwrap();
        assert_eq!(copied(&program, 20), Some(Order::ZERO), "tracked");
        cpu.leave();
        mm.destroy(space);
    });
    with::<X86_64>(Config::x86_64(), 0, |mm, cpu, _, space| {
        let program = Program::on(cpu, mm, &space);
        let all = PageSpan::new(page::<X86_64>(0), page::<X86_64>(PAGES));
        program.read(page::<X86_64>(20)).unwrap();
        mm.protect(&space, all, Prot::READ).unwrap();
        let meter = Meter::new(mm);
        let pinned = mm.pin_change(&space, page::<X86_64>(20)).unwrap();
        assert_eq!(meter.event(Event::CowCopy), 1, "a debugger wants its page and no more");
        mm.unpin(pinned);
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn e6_a_block_that_cannot_be_had_or_copied_is_a_smaller_one() {
    with::<X86_64>(Config::x86_64(), 4, |mm, cpu, _, space| {
        let program = Program::on(cpu, mm, &space);
        (0..PAGES).for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(stamp(at))));
        let fallbacks = |cause: Cause| mm.totals().fallback[4][cause as usize];
        let before = fallbacks(Cause::Memory);
        mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        assert_eq!(copied(&program, 20), Some(Order::new(3)));
        mm.bare_phys().set_fail_plan(FailPlan::Never);
        assert_eq!(fallbacks(Cause::Memory), before + 1, "and it is counted why");
        // Memory of another page in the block has failed.
        mm.hardware().faults().fail_copy(1);
        assert_eq!(copied(&program, 40), Some(Order::new(3)));
        verify(mm, &[&space]);
        for at in (0..PAGES).filter(|at| ![20, 40].contains(at)) {
            assert_eq!(program.read(page::<X86_64>(at)), Ok(stamp(at)));
        }
        cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn d6_a_block_that_the_limit_has_no_room_for_is_a_smaller_one() {
    with::<X86_64>(Config::x86_64(), 0, |mm, cpu, _, space| {
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, 1000).unwrap();
        mm.groups().join(&space, Some(group)).unwrap();
        mm.reclaim().relieve(group, &[&space][..]).unwrap();
        let program = Program::on(cpu, mm, &space);
        program.read(page::<X86_64>(20)).unwrap();
        let used = mm.reclaim().usage(group, &[&space][..]);
        mm.groups().set_limit(group, used + 10).unwrap();
        mm.reclaim().relieve(group, &[&space][..]).unwrap();
        assert_eq!(copied(&program, 20), Some(Order::new(3)));
        assert_eq!(mm.totals().fallback[4][Cause::Charge as usize], 1);
        cpu.leave();
        mm.destroy(space);
    });
}

/// The model: the words that a program sees, page by page.
#[derive(Clone)]
struct Naive {
    own: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Write(bool, u64),
    Read(bool, u64),
    Want(u8),
    Most(u8),
    Fail(u64),
    FailCopy(u64),
    Fork,
    Truncate(u64),
    Discard(u64, u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let page = 0..PAGES;
    prop_oneof![
        8 => (any::<bool>(), page.clone()).prop_map(|(child, at)| Op::Write(child, at)),
        4 => (any::<bool>(), page.clone()).prop_map(|(child, at)| Op::Read(child, at)),
        1 => (0..6u8).prop_map(Op::Want),
        1 => (0..6u8).prop_map(Op::Most),
        1 => (1..6u64).prop_map(Op::Fail),
        1 => (1..6u64).prop_map(Op::FailCopy),
        1 => Just(Op::Fork),
        1 => (1..=PAGES).prop_map(Op::Truncate),
        1 => (page, 1..40u64).prop_map(|(at, count)| Op::Discard(at, count)),
    ]
}

/// Whether an access was refused for want of memory, or of a disk page, that the story took away.
fn is_injected(why: Stopped) -> bool {
    matches!(why, Stopped::Refused(Error::Poisoned(_) | Error::NoMemory(_)))
}

/// Each of them sees its due content.
fn agrees<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    cpu: &Cpu<'_, '_>,
    spaces: &[Space<A>],
    naive: &[Naive],
    data: &[u64],
) {
    for (space, naive) in spaces.iter().zip(naive) {
        let program = Program::on(cpu, mm, space);
        for (at, own) in naive.own.iter().enumerate() {
            let want = own.or(data.get(at).copied());
            assert_eq!(program.read(page::<A>(at as u64)).ok(), want, "page {at}");
        }
    }
}

/// The story of a process and its child against the naive one.
fn story<A: Arch>(config: Config, order: u8, ops: &[Op]) {
    with::<A>(config, order, |mm, cpu, file, parent| {
        let mut spaces = vec![parent];
        let mut naive = vec![Naive { own: vec![None; PAGES as usize] }];
        let mut data: Vec<u64> = (0..PAGES).map(stamp).collect();
        let mut stamps = 0;
        for op in ops {
            let which = |child: bool| usize::from(child && spaces.len() > 1);
            match *op {
                Op::Write(child, at) => {
                    stamps += 1;
                    let program = Program::on(cpu, mm, &spaces[which(child)]);
                    let got = program.write(page::<A>(at), stamps).map(drop);
                    mm.bare_phys().set_fail_plan(FailPlan::Never);
                    match got {
                        Ok(()) => naive[which(child)].own[at as usize] = Some(stamps),
                        Err(_) if at as usize >= data.len() => {}
                        Err(why) => assert!(is_injected(why), "{op:?}: {why:?}"),
                    }
                }
                Op::Read(child, at) => {
                    let got = Program::on(cpu, mm, &spaces[which(child)]).read(page::<A>(at));
                    mm.bare_phys().set_fail_plan(FailPlan::Never);
                    let want = naive[which(child)].own[at as usize];
                    let want = want.or(data.get(at as usize).copied());
                    let failed = got.is_err_and(is_injected);
                    assert!(failed || got.ok() == want, "{op:?}: {got:?}, not {want:?}");
                }
                Op::Want(most) => want(mm, most),
                Op::Most(most) => mm.policy().set_copy_most(Order::new(most)),
                Op::Fail(nth) => mm.bare_phys().set_fail_plan(FailPlan::Nth(nth)),
                Op::FailCopy(nth) => mm.hardware().faults().fail_copy(nth),
                Op::Fork if spaces.len() > 1 => {}
                Op::Fork => {
                    let _operation = cpu.operation("fork");
                    if let Ok(child) = mm.fork(&spaces[0], Asid(4)) {
                        spaces.push(child);
                        naive.push(naive[0].clone());
                    }
                }
                Op::Truncate(pages) => {
                    let _operation = cpu.operation("truncate");
                    let all: Vec<_> = spaces.iter().collect();
                    mm.files().truncate(file, pages, &all[..]).unwrap();
                    data.resize(pages as usize, 0);
                    let gone = naive.iter_mut().flat_map(|naive| &mut naive.own[pages as usize..]);
                    gone.for_each(|own| *own = None);
                }
                Op::Discard(at, count) => {
                    let end = (at + count).min(PAGES);
                    let _operation = cpu.operation("discard");
                    let pages = PageSpan::new(page::<A>(at), page::<A>(end));
                    if mm.discard(&spaces[0], pages).is_ok() {
                        naive[0].own[at as usize..end as usize].fill(None);
                    }
                }
            }
        }
        mm.bare_phys().set_fail_plan(FailPlan::Never);
        mm.hardware().faults().fail_copy(0);
        agrees(mm, cpu, &spaces, &naive, &data);
        verify(mm, &spaces.iter().collect::<Vec<_>>());
        cpu.leave();
        spaces.into_iter().for_each(|space| mm.destroy(space));
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 64,
        ..ProptestConfig::default()
    })]

    #[test]
    fn c4_private_pages_of_files_are_what_a_naive_program_sees(
        order in 0..6u8,
        ops in proptest::collection::vec(any_op(), 1..60),
    ) {
        story::<X86_64>(Config::x86_64(), order, &ops);
        story::<Arm4k>(Config::arm64_4k(), order, &ops);
    }
}
