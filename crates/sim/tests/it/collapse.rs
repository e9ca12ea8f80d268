//! Collapse: one folio of many, of every size (row B4).

use quire::space::{AreaFlags, At, Backing, FileId, OptOut, Request};
use quire::stats::Event::{CollapseAlloc, CollapseFailed, Flush, FramesFreed};
use quire::{Collapsed, Errno, Error, Hindrance};
use quire_arch::{Arch, Arm4k, Arm16k, Level, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, contiguous, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

const NONE: AreaFlags = AreaFlags::empty();

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

fn made(blocks: u64) -> Result<Collapsed, Error> {
    Ok(Collapsed { made: blocks, ..Collapsed::default() })
}

fn refused(blocks: u64, why: Hindrance) -> Result<Collapsed, Error> {
    Ok(Collapsed { refused: blocks, why: Some(why), ..Collapsed::default() })
}

/// One block of base pages, some written and some never touched, becomes one folio of `order`.
fn becomes_one<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, order: u8) {
    let order = Order::new(order);
    let pages = order.pages();
    let space = space_of(mm, 2 * pages, NONE);
    let program = Program::on(cpu, mm, &space);
    let touched = (0..pages).filter(|page| page % 3 != 1);
    touched.clone().for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    program.write(page::<A>(pages), 7).unwrap();
    let meter = Meter::new(mm);
    let done = {
        let _op = cpu.operation("collapse");
        mm.reclaim().collapse(&space, span::<A>(0, pages), order)
    };
    assert_eq!(done, made(1), "{}", A::NAME);
    let tables = (order == A::block_order()) as u64;
    let freed = touched.count() as u64 + tables * (mm.resident(&space) == pages) as u64;
    assert!(meter.event(FramesFreed) >= freed, "{}: the old frames are free", A::NAME);
    assert_eq!(meter.event(CollapseAlloc), 1, "{}", A::NAME);
    assert!(meter.event(Flush) <= 3, "{}: {} flushes", A::NAME, meter.event(Flush));
    let all = leaves(mm, &space);
    let inside: Vec<_> = all.iter().filter(|leaf| leaf.pages.start < page::<A>(pages)).collect();
    if order == A::block_order() {
        assert_eq!(inside.len(), 1, "{}: one entry", A::NAME);
    } else {
        let folds = A::fold_order(Level::LAST).is_some_and(|block| order >= block);
        assert!(inside.iter().all(|leaf| leaf.folded == folds), "{}", A::NAME);
    }
    for at in 0..pages {
        let word = if at % 3 == 1 { 0 } else { at + 1 };
        assert_eq!(program.read(page::<A>(at)), Ok(word), "{}: {at}", A::NAME);
        assert_eq!(program.write(page::<A>(at), at), Ok(vec![]), "{}: its own", A::NAME);
    }
    assert_eq!(program.read(page::<A>(pages)), Ok(7));
    verify(mm, &[&space]);
    let again = mm.reclaim().collapse(&space, span::<A>(0, pages), order);
    assert_eq!(again, Ok(Collapsed { already: 1, ..Collapsed::default() }), "{}", A::NAME);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn b4_pages_become_a_folio_of_each_size() {
    for order in [1, 2, 4, 6, 9] {
        let story = |mm: &HostedMm<'_, '_, _>, cpu: &Cpu<'_, '_>| becomes_one(mm, cpu, order);
        stage::<X86_64>(Config::x86_64(), 4096, &[], story);
        let story = |mm: &HostedMm<'_, '_, _>, cpu: &Cpu<'_, '_>| becomes_one(mm, cpu, order);
        stage::<Arm4k>(Config::arm64_4k(), 4096, &[], story);
        let story = |mm: &HostedMm<'_, '_, _>, cpu: &Cpu<'_, '_>| becomes_one(mm, cpu, order);
        stage::<Arm16k>(Config::arm64_16k(), 4096, &[], story);
        let bare = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv39() };
        let story = |mm: &HostedMm<'_, '_, _>, cpu: &Cpu<'_, '_>| becomes_one(mm, cpu, order);
        stage::<Sv39>(bare, 4096, &[], story);
    }
}

#[test]
fn b4_only_whole_blocks_of_the_span_collapse() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, cpu| {
        let space = space_of(mm, 64, NONE);
        mm.populate(&space, span::<X86_64>(0, 64)).unwrap();
        assert_eq!(mm.reclaim().collapse(&space, span::<X86_64>(1, 62), Order::new(4)), made(2));
        assert_eq!(mm.reclaim().collapse(&space, span::<X86_64>(1, 15), Order::new(4)), made(0));
        let orders: Vec<_> = [0, 16, 32, 48].map(|at| frame_order(mm, &space, at)).into();
        assert_eq!(orders, [0, 4, 4, 0]);
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}

/// The order of the folio at page `at`.
fn frame_order(mm: &HostedMm<'_, '_, X86_64>, space: &quire::space::Space<X86_64>, at: u64) -> u8 {
    let leaf = leaves(mm, space).into_iter().find(|leaf| leaf.pages.contains(page::<X86_64>(at)));
    let folios = quire::inject::Folios::new(mm.bare_phys().meta());
    leaf.and_then(|leaf| folios.of(leaf.frame)).map_or(99, |folio| folio.order.get())
}

#[test]
fn b4_a_block_that_may_not_collapse_stays_and_the_answer_says_why() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, _| {
        let space = space_of(mm, 16, NONE);
        let object = Request {
            backing: Backing::File { id: FileId(1), page: 0 },
            ..Request::anon(16).at(At::Fixed(page::<X86_64>(48)))
        };
        let shared = Request::anon(16).at(At::Fixed(page::<X86_64>(16))).flags(AreaFlags::SHARED);
        let small = Request::anon(16).at(At::Fixed(page::<X86_64>(32))).flags(AreaFlags::NOHUGE);
        for request in [shared, small, object] {
            mm.map(&space, &request).unwrap();
        }
        let collapse =
            |from, pages| mm.reclaim().collapse(&space, span::<X86_64>(from, pages), Order::new(4));
        assert_eq!(collapse(0, 16), refused(1, Hindrance::Empty));
        mm.populate(&space, span::<X86_64>(0, 48)).unwrap();
        let before = leaves(mm, &space);
        assert_eq!(collapse(16, 16), refused(1, Hindrance::Area));
        assert_eq!(collapse(32, 16), refused(1, Hindrance::Advice));
        assert_eq!(collapse(48, 48), refused(3, Hindrance::Area));
        assert_eq!(
            mm.reclaim().collapse(&space, span::<X86_64>(0, 32), Order::new(5)),
            refused(1, Hindrance::Area)
        );
        space.set_opt_out(OptOut::All);
        assert_eq!(collapse(0, 16), refused(1, Hindrance::Advice));
        assert_eq!(collapse(0, 16).unwrap().errno(), Some(Errno::EINVAL));
        for order in [0, 10, 18] {
            let invalid = mm.reclaim().collapse(&space, span::<X86_64>(0, 16), Order::new(order));
            assert_eq!(invalid, Err(Error::Invalid));
        }
        assert_eq!(collapse(0, 0), Err(Error::Invalid));
        assert_eq!(leaves(mm, &space), before);
        space.set_opt_out(OptOut::ExceptAdvised);
        assert_eq!(collapse(0, 16), made(1), "to ask for it is advice enough");
        assert_eq!(collapse(0, 16).unwrap().errno(), None);
        mm.destroy(space);
    });
}

fn keeps_pins<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let order = Order::new(contiguous::<A>());
    let space = space_of(mm, 2 * order.pages(), NONE);
    let program = Program::on(cpu, mm, &space);
    (0..2 * order.pages()).for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    let pinned = mm.pin(&space, page::<A>(1), Access::Read).unwrap();
    let before = leaves(mm, &space);
    let done = mm.reclaim().collapse(&space, span::<A>(0, 2 * order.pages()), order).unwrap();
    assert_eq!((done.made, done.refused, done.errno()), (1, 1, Some(Errno::EAGAIN)), "{}", A::NAME);
    let first = order.pages() as usize;
    assert_eq!(leaves(mm, &space)[..first], before[..first], "{}", A::NAME);
    mm.unpin(pinned);
    let done = mm.reclaim().collapse(&space, span::<A>(0, 2 * order.pages()), order);
    assert_eq!(done.map(|done| (done.made, done.already)), Ok((1, 1)), "{}", A::NAME);
    verify(mm, &[&space]);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn b4_pinned_pages_stay_where_they_are() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], keeps_pins);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[], keeps_pins);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[], keeps_pins);
}

fn leaves_others_alone<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let order = A::block_order();
    let space = space_of(mm, order.pages(), NONE);
    let program = Program::on(cpu, mm, &space);
    // More shared folios than one gather takes, each apart from the others.
    let touched = || (0..order.pages()).rev().filter(|at| at % 2 == 0);
    touched().for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    let child = mm.fork(&space, Asid(2)).unwrap();
    let theirs = leaves(mm, &child);
    assert_eq!(
        mm.reclaim().collapse(&space, span::<A>(0, order.pages()), order),
        made(1),
        "{}",
        A::NAME
    );
    assert_eq!(leaves(mm, &child), theirs, "{}", A::NAME);
    verify(mm, &[&space, &child]);
    for at in touched() {
        assert_eq!(program.write(page::<A>(at), 0), Ok(vec![]), "{}: its own", A::NAME);
    }
    let within = Program::on(cpu, mm, &child);
    assert!(touched().all(|at| within.read(page::<A>(at)) == Ok(at + 1)), "{}", A::NAME);
    cpu.leave();
    mm.destroy(space);
    mm.destroy(child);
}

#[test]
fn b4_shared_pages_are_copied_and_other_spaces_keep_theirs() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], leaves_others_alone);
    stage::<Arm4k>(Config::arm64_4k(), 4096, &[], leaves_others_alone);
    stage::<Sv39>(Config::riscv64_sv39(), 4096, &[], leaves_others_alone);
}

fn gives_back_on_failure<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let order = Order::new(contiguous::<A>());
    let half = order.pages() / 2;
    let space = space_of(mm, order.pages(), NONE);
    let program = Program::on(cpu, mm, &space);
    (0..order.pages()).for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    let child = mm.fork(&space, Asid(2)).unwrap();
    (0..half).for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    mm.protect(&space, span::<A>(0, half), Prot::READ).unwrap();
    mm.protect(&space, span::<A>(0, half), Prot::RW).unwrap();
    let before = leaves(mm, &space);
    let bad = before[half as usize + 1].frame;
    assert!(mm.hardware().set_poisoned(bad, true));
    let block = PageSpan::block(page::<A>(0), order);
    let done = mm.reclaim().collapse(&space, block, order);
    assert_eq!(done, Err(Error::Poisoned(bad)), "{}", A::NAME);
    assert_eq!(done.unwrap_err().errno(), Errno::EHWPOISON);
    assert_eq!(leaves(mm, &space), before, "{}: bit for bit", A::NAME);
    verify(mm, &[&space, &child]);
    mm.hardware().set_poisoned(bad, false);
    mm.bare_phys().set_fail_plan(quire::inject::FailPlan::Nth(1));
    let meter = Meter::new(mm);
    assert_eq!(
        mm.reclaim().collapse(&space, block, order),
        Err(Error::NoMemory(order)),
        "{}",
        A::NAME
    );
    assert_eq!(meter.events([CollapseFailed, Flush]), [1, 0], "{}", A::NAME);
    assert_eq!(leaves(mm, &space), before, "{}: bit for bit", A::NAME);
    assert_eq!(mm.reclaim().collapse(&space, block, order), made(1), "{}", A::NAME);
    cpu.leave();
    mm.destroy(child);
    mm.destroy(space);
}

#[test]
fn b4_a_collapse_that_fails_leaves_each_leaf_as_it_was() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], gives_back_on_failure);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[], gives_back_on_failure);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[], gives_back_on_failure);
}

/// Memory fails after most pages were copied. The next collapse gets the same frames, and shows
/// zeroes where it has no page.
fn hides_copies_on_failure<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let order = Order::new(contiguous::<A>());
    let pages = order.pages();
    let space = space_of(mm, 2 * pages, NONE);
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(pages), 1).unwrap();
    (0..pages).for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
    let bad = leaves(mm, &space)[pages as usize - 1].frame;
    assert!(mm.hardware().set_poisoned(bad, true));
    let done = mm.reclaim().collapse(&space, span::<A>(0, pages), order);
    assert_eq!(done, Err(Error::Poisoned(bad)), "{}", A::NAME);
    mm.hardware().set_poisoned(bad, false);
    let again = mm.reclaim().collapse(&space, span::<A>(pages, pages), order);
    assert_eq!(again, made(1), "{}", A::NAME);
    for at in pages + 1..2 * pages {
        assert_eq!(program.read(page::<A>(at)), Ok(0), "{}: {at}", A::NAME);
    }
    verify(mm, &[&space]);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn b4_the_frames_of_a_collapse_that_fails_show_nothing() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], hides_copies_on_failure);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[], hides_copies_on_failure);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[], hides_copies_on_failure);
}
