//! Reports about pages and frames, and looking at another space's memory (rows E3 and C4).

use quire::folio::Counts;
use quire::inject::FailPlan;
use quire::space::{AreaFlags, At, Request};
use quire::stats::Event::{CowCopy, CowReuse, Flush};
use quire::table::{Seen, Sight};
use quire::{Error, FrameUse, Stop};
use quire_arch::{Arch, Arm4k, Attrs, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, contiguous, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, PageSpan, Pfn, Prot, Vpn};

const NONE: AreaFlags = AreaFlags::empty();

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

fn told<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &quire::space::Space<A>,
    span: PageSpan,
) -> Vec<Seen> {
    let mut all = Vec::new();
    mm.spaces().runs(space, span, &mut |seen| all.push(*seen));
    all
}

fn frame_at<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    space: &quire::space::Space<A>,
    at: u64,
) -> Option<Pfn> {
    let one = span::<A>(at, 1);
    told(mm, space, one).first().and_then(|seen| match seen.what {
        Sight::Leaf { frame, .. } => Some(frame),
        Sight::Marker(_) => None,
    })
}

#[test]
fn e3_runs_are_cut_at_the_span_and_where_something_differs() {
    stage::<X86_64>(Config::x86_64(), 4096, &[9], |mm, cpu| {
        let space = space_of(mm, 1024, NONE);
        mm.advise(&space, span::<X86_64>(512, 512), quire::space::Advice::NoHuge).unwrap();
        let program = Program::on(cpu, mm, &space);
        program.write(page::<X86_64>(3), 3).unwrap();
        mm.populate(&space, span::<X86_64>(520, 20)).unwrap();
        mm.protect(&space, span::<X86_64>(530, 10), Prot::READ).unwrap();
        let seen = told(mm, &space, span::<X86_64>(100, 1000));
        assert_eq!((seen[0].pages, seen[0].leaf), (span::<X86_64>(100, 412), Order::new(9)));
        // Small folios may lie apart, and no run mixes writable pages with others.
        let mut next = page::<X86_64>(520);
        for small in &seen[1..] {
            let Sight::Leaf { attrs, .. } = small.what else { panic!("{small:?}") };
            let read_only = small.pages.start >= page::<X86_64>(530);
            assert_eq!((small.pages.start, small.leaf), (next, Order::ZERO));
            assert_eq!(attrs.prot(), if read_only { Prot::READ } else { Prot::RW });
            assert!(small.pages.end <= page::<X86_64>(530) || read_only);
            assert!(!small.is_foreign());
            next = small.pages.end;
        }
        assert_eq!(next, page::<X86_64>(540));
        let first = frame_at(mm, &space, 0).unwrap();
        assert_eq!(frame_at(mm, &space, 100), Some(first.add(100)));
        assert_eq!(told(mm, &space, span::<X86_64>(540, 0)), []);
        assert_eq!(told(mm, &space, span::<X86_64>(540, 400)), []);
        cpu.leave();
        mm.destroy(space);
    });
}

fn tells_blocks<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let block = 1 << contiguous::<A>();
    let space = space_of(mm, 4 * block, NONE);
    mm.populate(&space, span::<A>(0, 4 * block)).unwrap();
    let child = mm.fork(&space, Asid(2)).unwrap();
    let pieces = told(mm, &space, span::<A>(1, 4 * block - 2));
    let pages: u64 = pieces.iter().map(|seen| seen.pages.count()).sum();
    assert_eq!(pages, 4 * block - 2, "{}", A::NAME);
    let folds = A::fold_order(quire_arch::Level::LAST).is_some();
    for seen in pieces {
        let Sight::Leaf { attrs, folded, .. } = seen.what else { panic!("{seen:?}") };
        assert!(attrs.contains(Attrs::COW | Attrs::DIRTY) && folded == folds, "{}", A::NAME);
    }
    cpu.leave();
    mm.destroy(child);
    mm.destroy(space);
}

#[test]
fn c1_runs_tell_what_is_folded_and_what_is_shared() {
    stage::<X86_64>(Config::x86_64(), 2048, &[4], tells_blocks);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[4], tells_blocks);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[4], tells_blocks);
}

fn forgets_touches<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let block = 1 << contiguous::<A>();
    let space = space_of(mm, 4 * block, NONE);
    let program = Program::on(cpu, mm, &space);
    (0..4 * block).for_each(|at| assert!(program.write(page::<A>(at), at).is_ok()));
    let young = |from: u64, pages: u64| {
        let pieces = told(mm, &space, span::<A>(from, pages));
        let of = |seen: &&Seen| match seen.what {
            Sight::Leaf { attrs, .. } => attrs.contains(Attrs::YOUNG),
            Sight::Marker(_) => false,
        };
        pieces.iter().filter(of).map(|seen| seen.pages.count()).sum::<u64>()
    };
    assert_eq!(young(0, 4 * block), 4 * block, "{}", A::NAME);
    let meter = Meter::new(mm);
    {
        let _op = cpu.operation("clear_young");
        assert_eq!(
            mm.spaces().clear_young(&space, span::<A>(0, 2 * block)),
            2 * block,
            "{}",
            A::NAME
        );
    }
    assert_eq!(meter.event(Flush), 1, "{}", A::NAME);
    assert_eq!((young(0, 2 * block), young(2 * block, 2 * block)), (0, 2 * block), "{}", A::NAME);
    let dirty = leaves(mm, &space).iter().all(|leaf| leaf.attrs.contains(Attrs::DIRTY));
    assert!(dirty, "{}: a written page stays dirty", A::NAME);
    // The TLB entry was flushed as well, and the CPU sets the bit at the next access.
    program.read(page::<A>(1)).unwrap();
    assert!(young(1, 1) == 1, "{}", A::NAME);
    assert!(young(block, block) == 0, "{}", A::NAME);
    assert_eq!(mm.spaces().clear_young(&space, PageSpan::new(page::<A>(9), page::<A>(9))), 0);
    verify(mm, &[&space]);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn i5_forgetting_touches_keeps_what_was_written_and_the_next_touch_shows() {
    stage::<X86_64>(Config::x86_64(), 2048, &[4], forgets_touches);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[4], forgets_touches);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[4], forgets_touches);
    let bare = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv39() };
    stage::<Sv39>(bare, 2048, &[4], forgets_touches);
}

#[test]
fn e1_a_frame_tells_what_it_is_used_for() {
    stage::<X86_64>(Config::x86_64(), 4096, &[4], |mm, cpu| {
        let space = space_of(mm, 64, NONE);
        Program::on(cpu, mm, &space).write(page::<X86_64>(5), 1).unwrap();
        let child = mm.fork(&space, Asid(2)).unwrap();
        let head = frame_at(mm, &space, 0).unwrap();
        let counts = Counts { refs: 0, pins: 0, mapped: 32 };
        for at in [0, 5, 15] {
            let info = mm.frame_info(head.add(at)).unwrap();
            let found = (info.head, info.order, info.used);
            assert_eq!(found, (head, Order::new(4), FrameUse::Folio(counts)));
        }
        let root = mm.frame_info(space.root()).unwrap();
        assert_eq!((root.head, root.used), (space.root(), FrameUse::Table));
        let own = mm.phys().alloc(Order::new(3)).unwrap();
        assert_eq!(mm.frame_info(own.start()).map(|info| info.used), Some(FrameUse::Other));
        let all = mm.bare_phys().meta().span();
        let used = |frame: &Pfn| mm.frame_info(*frame).map(|info| info.used);
        let frames = || (0..all.count).map(|at| all.start.add(at));
        let nodes = frames().filter(|frame| used(frame) == Some(FrameUse::Node)).count();
        assert_eq!(nodes, 2, "one area tree each");
        mm.phys().drain();
        let free = frames().filter(|frame| used(frame) == Some(FrameUse::Free)).count() as u64;
        assert_eq!(free, mm.phys().free_frames());
        assert_eq!(mm.frame_info(all.end()), None);
        assert_eq!(mm.frame_info(Pfn::new(all.start.get() - 1)), None);
        mm.phys().free(own);
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
    });
}

#[test]
fn e6_frames_for_the_embedder_are_refused_when_there_are_none() {
    stage::<X86_64>(Config::x86_64(), 1024, &[], |mm, _| {
        mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        assert!(mm.phys().alloc(Order::new(2)).is_none());
        let run = mm.phys().alloc(Order::new(2)).unwrap();
        assert!(run.count() == 4 && run.start().is_aligned(4));
        let (head, tail) = run.split_at(1);
        mm.phys().free(tail);
        mm.phys().free(head);
    });
}

fn looks<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let block = 1 << contiguous::<A>();
    let space = space_of(mm, 2 * block, NONE);
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(1), 11).unwrap();
    let child = mm.fork(&space, Asid(2)).unwrap();
    let meter = Meter::new(mm);
    let before = leaves(mm, &space);
    let look = mm.pin_read(&space, page::<A>(1)).unwrap();
    assert_eq!(meter.events([CowCopy, CowReuse, Flush]), [0, 0, 0], "{}", A::NAME);
    assert_eq!(leaves(mm, &space), before, "{}: nothing changes", A::NAME);
    let word = || mm.hardware().ram().read_word(look.frame().addr(A::PAGE_SHIFT));
    assert_eq!(word(), Some(11), "{}", A::NAME);
    // A frame that both spaces unmap stays until the look ends.
    mm.destroy(child);
    cpu.leave();
    mm.unmap(&space, span::<A>(0, block)).unwrap();
    assert_eq!(word(), Some(11), "{}", A::NAME);
    let info = mm.frame_info(look.frame()).map(|info| info.used);
    assert_eq!(info, Some(FrameUse::Folio(Counts { refs: 1, pins: 0, mapped: 0 })), "{}", A::NAME);
    mm.unpin(look);
    verify(mm, &[&space]);
    // A missing page is brought in, and an unreadable one refused.
    let look = mm.pin_read(&space, page::<A>(block)).unwrap();
    assert_eq!(mm.hardware().ram().read_word(look.frame().addr(A::PAGE_SHIFT)), Some(0));
    mm.unpin(look);
    assert_eq!(mm.pin_read(&space, page::<A>(0)).err(), Some(Error::NoArea(page::<A>(0)).into()));
    mm.protect(&space, span::<A>(block, 1), Prot::empty()).unwrap();
    let denied = mm.pin_read(&space, page::<A>(block)).err();
    assert!(matches!(denied, Some(Stop::Refuse(Error::Denied(..)))), "{}", A::NAME);
    verify(mm, &[&space]);
    mm.destroy(space);
}

#[test]
fn c4_to_look_at_a_page_copies_nothing_and_keeps_it_from_being_freed() {
    stage::<X86_64>(Config::x86_64(), 2048, &[4], looks);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[4], looks);
    stage::<Sv39>(Config::riscv64_sv39(), 2048, &[4], looks);
}

#[test]
fn c4_a_write_leaves_a_page_that_is_looked_at_as_it_was_if_it_is_shared() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, cpu| {
        let space = space_of(mm, 4, NONE);
        let program = Program::on(cpu, mm, &space);
        program.write(page::<X86_64>(1), 11).unwrap();
        mm.map(&space, &Request::anon(1).at(At::Fixed(page::<X86_64>(9)))).unwrap();
        let child = mm.fork(&space, Asid(2)).unwrap();
        mm.destroy(child);
        let look = mm.pin_read(&space, page::<X86_64>(1)).unwrap();
        program.write(page::<X86_64>(1), 12).unwrap();
        let word = mm.hardware().ram().read_word(look.frame().addr(X86_64::PAGE_SHIFT));
        assert_eq!((word, program.read(page::<X86_64>(1))), (Some(11), Ok(12)));
        mm.unpin(look);
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}
