//! Each allocation of each call fails in turn: the promises of the documentation hold then, nothing
//! is lost, and the same call succeeds once there is memory.

use quire::check;
use quire::fault::{Cause, SizePolicy};
use quire::inject::{FailPlan, Fragment, fragment};
use quire::space::{Advice, Area, AreaFlags, At, Request, Space};
use quire::{Error, Mm, Stop};
use quire_arch::{Arch, Arm4k, Attrs, Sv39, X86_64, X86_64La57};
use quire_machine::{Config, Machine};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Prot, Vpn};

/// Where the areas of these tests lie: just before a boundary of all but the topmost tables.
fn base<A: Arch>() -> u64 {
    A::USER_PAGES / 2 - 2 * A::block_order().pages()
}

fn span<A: Arch>(start: u64, end: u64) -> PageSpan {
    PageSpan::new(Vpn::new(base::<A>() + start), Vpn::new(base::<A>() + end))
}

fn at<A: Arch>(page: u64) -> Vpn {
    span::<A>(page, page).start
}

/// The state that a failed call must leave behind.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Keeps {
    /// All as it was.
    Everything,
    /// The areas; more pages may be resident.
    AreasAndPages,
    /// The areas; fewer pages may be resident.
    Areas,
    /// The pages; more may be resident, and the areas may be changed in full.
    Pages,
    /// All as before, except that pages may be shared and write-protected until they are claimed.
    AllButRights,
}

type Call<A> = fn(&HostedMm<'_, '_, A>, &Space<A>) -> Result<(), Stop>;

/// A call in a situation.
struct Scene<A: Arch> {
    name: &'static str,
    prepare: Call<A>,
    call: Call<A>,
    keeps: Keeps,
    /// The call makes at least this many allocations.
    least: u64,
}

#[derive(Clone, PartialEq, Debug)]
struct State {
    areas: Vec<Area>,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    page: Vpn,
    frame: Pfn,
    attrs: Attrs,
    word: Option<u64>,
}

impl Page {
    /// Whether this is `other`, perhaps without the right to write.
    fn is(&self, other: &Page) -> bool {
        let shared = Attrs::COW | Attrs::WRITE;
        let same = |page: &Page| (page.page, page.frame, page.word, page.attrs - shared);
        let fewer = (other.attrs & Attrs::WRITE).contains(self.attrs & Attrs::WRITE);
        same(self) == same(other) && fewer
    }
}

fn state<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> State {
    let mut areas = Vec::new();
    mm.spaces().folio_map(space, |map| areas.push(map.area));
    let mut pages = Vec::new();
    check::leaves(mm, space, |leaf| {
        pages.extend((0..leaf.pages.count()).map(|at| {
            let (page, frame, attrs) = (leaf.pages.start.add(at), leaf.frame.add(at), leaf.attrs);
            let word = mm.hardware().ram().read_word(frame.addr(A::PAGE_SHIFT));
            Page { page, frame, attrs, word }
        }));
    })
    .unwrap();
    State { areas, pages }
}

impl State {
    /// Whether a failed call of this kind may leave the state `after`.
    fn allows(&self, after: &State, keeps: Keeps) -> bool {
        let more = || self.pages.iter().all(|page| after.pages.contains(page));
        let less = || after.pages.iter().all(|page| self.pages.contains(page));
        match keeps {
            Keeps::Everything => after == self,
            Keeps::AreasAndPages => after.areas == self.areas && more(),
            Keeps::Areas => after.areas == self.areas && less(),
            Keeps::Pages => more(),
            Keeps::AllButRights => {
                let same = after.pages.len() == self.pages.len();
                let mut pages = after.pages.iter().zip(&self.pages);
                after.areas == self.areas && same && pages.all(|(now, then)| now.is(then))
            }
        }
    }
}

fn walk<A: Arch>(machine: &Machine<'_>, mm: &HostedMm<'_, '_, A>, spaces: &[&Space<A>]) {
    let totals = check::system(mm, spaces).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(totals.held, 0, "no frame is lost");
    machine.verdict().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Plays one scene with `plan`; whether the plan struck. With `shared` a child has all the memory
/// as well.
fn play<A: Arch>(config: Config, scene: &Scene<A>, shared: bool, plan: FailPlan) -> bool {
    let mut ram = system::ram(12 << 20).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let free = mm.phys().free_frames();
        let window = span::<A>(0, 2 * A::block_order().pages());
        let space = mm.space(Asid(1), window).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        (scene.prepare)(mm, &space).unwrap();
        for Page { page, frame, .. } in state(mm, &space).pages {
            machine.ram().write_word(frame.addr(A::PAGE_SHIFT), page.get());
        }
        let child = shared.then(|| mm.fork(&space, Asid(2)).unwrap());
        let spaces: Vec<_> = [Some(&space), child.as_ref()].into_iter().flatten().collect();
        let before = state(mm, &space);
        let inherited = child.as_ref().map(|child| state(mm, child));
        // The TLB holds the entries that the call must flush.
        for Page { page, .. } in &before.pages {
            cpu.read(page.addr(A::PAGE_SHIFT)).unwrap();
        }
        mm.bare_phys().set_fail_plan(plan);
        let result = {
            let _op = cpu.operation(scene.name);
            (scene.call)(mm, &space)
        };
        // A plan that has struck is over, or, if it has no end, about to strike again.
        let struck = matches!(mm.bare_phys().fail_plan(), FailPlan::Never | FailPlan::From(1));
        mm.bare_phys().set_fail_plan(FailPlan::Never);
        walk(machine, mm, &spaces);
        match result {
            Ok(()) => {}
            Err(Stop::Refuse(Error::NoMemory(_))) if struck => {
                let after = state(mm, &space);
                let name = scene.name;
                assert!(before.allows(&after, scene.keeps), "{name}: {plan:?} left {after:?}");
                (scene.call)(mm, &space).unwrap_or_else(|error| panic!("{name} again: {error}"));
                walk(machine, mm, &spaces);
            }
            Err(error) => panic!("{}: {error} though {plan:?}", scene.name),
        }
        assert_eq!(child.as_ref().map(|child| state(mm, child)), inherited, "{}", scene.name);
        let words = state(mm, &space).pages;
        let fine = |page: &Page| page.word == Some(0) || page.word == Some(page.page.get());
        assert!(words.iter().all(fine), "{}: {words:?}", scene.name);
        cpu.leave();
        child.into_iter().for_each(|child| mm.destroy(child));
        mm.destroy(space);
        walk(machine, mm, &[]);
        machine.audit().unwrap();
        assert_eq!(mm.phys().free_frames(), free, "{}: all frames are back", scene.name);
        struck
    })
    .unwrap()
}

fn each_failure<A: Arch>(config: Config, scene: &Scene<A>, shared: bool) {
    let mut allocations = 0;
    while play(config, scene, shared, FailPlan::Nth(allocations + 1)) {
        play(config, scene, shared, FailPlan::From(allocations + 1));
        allocations += 1;
        assert!(allocations < 1000, "{} has no end", scene.name);
    }
    let least = scene.least;
    assert!(allocations >= least, "{}: {allocations} allocations, not {least}", scene.name);
}

fn map_all<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    let block = A::block_order().pages();
    let request = Request::anon(2 * block).at(At::Fixed(at::<A>(0))).flags(AreaFlags::HUGE);
    Ok(mm.map(space, &request).map(|_| ())?)
}

/// One area of two blocks, each mapped by one large leaf.
fn two_blocks<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    map_all(mm, space)?;
    let block = A::block_order().pages();
    mm.populate(space, span::<A>(0, 2 * block))?;
    let mut by_blocks = 0;
    mm.spaces().folio_map(space, |map| by_blocks += map.by_blocks);
    assert_eq!(by_blocks, 2 * block, "both blocks are mapped by large leaves");
    Ok(())
}

/// One area more than a node of the tree holds, so that the tree has just grown and has used up
/// its spare nodes; and pages in some.
fn grown_tree<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    for number in 0..128 {
        let prot = if number % 2 == 0 { Prot::RW } else { Prot::READ };
        let request = Request::anon(2).prot(prot).at(At::Fixed(at::<A>(2 * number)));
        mm.map(space, &request)?;
    }
    mm.populate(space, span::<A>(0, 30)).map(|_| ())
}

fn nothing<A: Arch>(_: &HostedMm<'_, '_, A>, _: &Space<A>) -> Result<(), Stop> {
    Ok(())
}

fn middle<A: Arch>() -> PageSpan {
    let block = A::block_order().pages();
    span::<A>(block / 2, 2 * block - block / 2)
}

#[rustfmt::skip]
fn more_scenes<A: Arch>() -> Vec<Scene<A>> {
    use Keeps::Everything;
    let levels = A::LEVELS.len() as u64;
    vec![
        Scene { name: "set flags in the midst of two large leaves", prepare: two_blocks,
            keeps: Everything, least: 2,
            call: |mm, s| {
                let (set, clear) = (AreaFlags::RANDOM, AreaFlags::DONTDUMP);
                Ok(mm.spaces().set_flags(s, middle::<A>(), set, clear)?)
            } },
        Scene { name: "pin for reading", prepare: |mm, s| {
                Ok(mm.map(s, &Request::anon(9).at(At::Fixed(at::<A>(0)))).map(|_| ())?)
            }, keeps: Everything, least: levels,
            call: |mm, s| mm.pin_read(s, at::<A>(3)).map(|pinned| mm.unpin(pinned)) },
        Scene { name: "collapse", prepare: |mm, s| {
                map_all(mm, s)?;
                mm.advise(s, span::<A>(0, A::block_order().pages()), Advice::None)?;
                mm.populate(s, span::<A>(3, 40))?;
                Ok(mm.protect(s, span::<A>(0, A::block_order().pages()), Prot::READ)?)
            }, keeps: Everything, least: 1,
            call: |mm, s| {
                let block = span::<A>(0, A::block_order().pages());
                let done = mm.reclaim().collapse(s, block, A::block_order())?;
                assert_eq!(done.made, 1);
                Ok(())
            } },
    ]
}

#[rustfmt::skip]
fn scenes<A: Arch>() -> Vec<Scene<A>> {
    use Keeps::{Areas, AreasAndPages, Everything, Pages};
    let levels = A::LEVELS.len() as u64;
    vec![
        Scene { name: "first map", prepare: nothing, keeps: Everything, least: 1, call: map_all },
        Scene { name: "map in a grown tree", prepare: grown_tree, keeps: Everything, least: 1,
            call: |mm, s| {
                Ok(mm.map(s, &Request::anon(1).at(At::Fixed(at::<A>(400)))).map(|_| ())?)
            } },
        Scene { name: "map over two large leaves", prepare: two_blocks, keeps: Everything, least: 2,
            call: |mm, s| {
                let span = middle::<A>();
                Ok(mm.map(s, &Request::anon(span.count()).at(At::Fixed(span.start))).map(|_| ())?)
            } },
        Scene { name: "map locked", prepare: nothing, keeps: Everything, least: levels,
            call: |mm, s| Ok(mm.map(s, &Request::anon(20).flags(AreaFlags::LOCKED)).map(|_| ())?) },
        Scene { name: "unmap in the midst of two large leaves", prepare: two_blocks,
            keeps: Everything, least: 2, call: |mm, s| Ok(mm.unmap(s, middle::<A>())?) },
        Scene { name: "unmap inside one large leaf", prepare: two_blocks, keeps: Everything,
            least: 1, call: |mm, s| Ok(mm.unmap(s, span::<A>(3, 5))?) },
        Scene { name: "unmap in a grown tree", prepare: grown_tree, keeps: Everything, least: 1,
            call: |mm, s| Ok(mm.unmap(s, span::<A>(1, 8))?) },
        Scene { name: "protect in the midst of two large leaves", prepare: two_blocks,
            keeps: Everything, least: 2,
            call: |mm, s| Ok(mm.protect(s, middle::<A>(), Prot::READ)?) },
        Scene { name: "protect in a grown tree", prepare: grown_tree, keeps: Everything,
            least: 1, call: |mm, s| Ok(mm.protect(s, span::<A>(1, 2), Prot::READ)?) },
        Scene { name: "advise in the midst of two large leaves", prepare: two_blocks,
            keeps: Everything, least: 2,
            call: |mm, s| Ok(mm.advise(s, middle::<A>(), Advice::NoHuge)?) },
        Scene { name: "unlock in a large leaf", prepare: |mm, s| {
                two_blocks(mm, s)?;
                mm.mlock(s, span::<A>(0, 2 * A::block_order().pages()))
            }, keeps: Everything, least: 1,
            call: |mm, s| Ok(mm.spaces().munlock(s, span::<A>(3, 5))?) },
        Scene { name: "lock", prepare: |mm, s| {
                map_all(mm, s)?;
                mm.fault(s, at::<A>(5), Access::Read).map(|_| ())
            }, keeps: Pages, least: 2,
            call: |mm, s| mm.mlock(s, span::<A>(3, A::block_order().pages() + 5)) },
        Scene { name: "discard in the midst of two large leaves", prepare: two_blocks,
            keeps: Areas, least: 2, call: |mm, s| Ok(mm.discard(s, middle::<A>())?) },
        Scene { name: "fault without tables", prepare: |mm, s| {
                Ok(mm.map(s, &Request::anon(9).at(At::Fixed(at::<A>(0)))).map(|_| ())?)
            }, keeps: Everything, least: levels,
            call: |mm, s| mm.fault(s, at::<A>(3), Access::Write).map(|_| ()) },
        Scene { name: "fault for a large folio", prepare: map_all, keeps: Everything,
            least: levels - 1, call: |mm, s| mm.fault(s, at::<A>(3), Access::Write).map(|_| ()) },
        Scene { name: "populate", prepare: map_all, keeps: AreasAndPages, least: levels,
            call: |mm, s| mm.populate(s, span::<A>(3, A::block_order().pages() + 5)).map(|_| ()) },
        Scene { name: "populate a few pages", prepare: |mm, s| {
                Ok(mm.map(s, &Request::anon(40).at(At::Fixed(at::<A>(1)))).map(|_| ())?)
            }, keeps: AreasAndPages, least: levels,
            call: |mm, s| mm.populate(s, span::<A>(2, 39)).map(|_| ()) },
        Scene { name: "a second space", prepare: two_blocks, keeps: Everything, least: 1,
            call: |mm, s| Ok(mm.space(Asid(2), s.window()).map(|second| mm.destroy(second))?) },
    ]
}

/// Folios of 16 pages, on both sides of a boundary of tables.
fn small_folios<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
    let block = A::block_order().pages();
    let request = Request::anon(2 * block).at(At::Fixed(at::<A>(0)));
    mm.map(space, &request)?;
    mm.populate(space, span::<A>(block - 40, block + 40)).map(|_| ())
}

fn fork_and_end<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    Ok(mm.fork(space, Asid(7)).map(|child| mm.destroy(child))?)
}

fn pin_and_unpin<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    mm.pin(space, middle::<A>().start, Access::Write).map(|pinned| mm.unpin(pinned))
}

fn write<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<(), Stop> {
    mm.fault(space, at::<A>(A::block_order().pages() - 5), Access::Write).map(|_| ())
}

#[rustfmt::skip]
fn fork_scenes<A: Arch>() -> Vec<(Scene<A>, bool)> {
    use Keeps::{AllButRights, Everything};
    let levels = A::LEVELS.len() as u64;
    vec![
        (Scene { name: "fork", prepare: small_folios, keeps: AllButRights,
            least: levels + 2, call: fork_and_end }, false),
        (Scene { name: "fork of large leaves", prepare: two_blocks, keeps: AllButRights,
            least: levels, call: fork_and_end }, false),
        (Scene { name: "fork of many areas", prepare: grown_tree, keeps: AllButRights,
            least: levels + 2, call: fork_and_end }, false),
        (Scene { name: "fork of what is shared", prepare: small_folios, keeps: AllButRights,
            least: levels + 2, call: fork_and_end }, true),
        (Scene { name: "fork with a pin", prepare: small_folios, keeps: AllButRights,
            least: levels + 3, call: |mm, s| {
                let pinned = mm.pin(s, at::<A>(A::block_order().pages() - 5), Access::Write)?;
                let done = fork_and_end(mm, s);
                mm.unpin(pinned);
                done
            } }, false),
        (Scene { name: "fork with a pin in a large leaf", prepare: two_blocks, keeps: AllButRights,
            least: levels + 1, call: |mm, s| {
                let pinned = mm.pin(s, at::<A>(5), Access::Write)?;
                let done = fork_and_end(mm, s);
                mm.unpin(pinned);
                done
            } }, false),
        (Scene { name: "write to a shared page", prepare: small_folios, keeps: Everything,
            least: 1, call: write }, true),
        (Scene { name: "write to a shared large leaf", prepare: two_blocks, keeps: Everything,
            least: 1, call: write }, true),
        (Scene { name: "pin of a shared page", prepare: two_blocks, keeps: Everything,
            least: 1, call: pin_and_unpin }, true),
        (Scene { name: "unmap inside a shared large leaf", prepare: two_blocks, keeps: Everything,
            least: 1, call: |mm, s| Ok(mm.unmap(s, span::<A>(3, 5))?) }, true),
    ]
}

fn every_fork_scene<A: Arch>(config: Config) {
    for (scene, shared) in fork_scenes::<A>() {
        each_failure(config, &scene, shared);
    }
}

#[test]
fn i10_a_fork_that_fails_takes_nothing_but_the_right_to_write_at_once() {
    every_fork_scene::<X86_64>(Config::x86_64());
    every_fork_scene::<Arm4k>(Config::arm64_4k());
    every_fork_scene::<Sv39>(Config::riscv64_sv39());
}

fn every_scene<A: Arch>(config: Config) {
    for scene in scenes::<A>().into_iter().chain(more_scenes::<A>()) {
        each_failure(config, &scene, false);
    }
}

#[test]
fn e3_each_failed_allocation_leaves_what_is_promised_on_x86_64() {
    every_scene::<X86_64>(Config::x86_64());
    every_scene::<X86_64La57>(Config::x86_64_la57());
}

#[test]
fn e3_each_failed_allocation_leaves_what_is_promised_on_arm64() {
    every_scene::<Arm4k>(Config::arm64_4k());
}

#[test]
fn e3_each_failed_allocation_leaves_what_is_promised_on_riscv64() {
    every_scene::<Sv39>(Config::riscv64_sv39());
}

/// A stack grows and then has no memory for its page: it has grown, and nothing is mapped.
#[test]
fn e3_a_stack_without_memory_has_grown_and_maps_nothing() {
    let mut ram = system::ram(8 << 20).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let space = mm.space(Asid(1), span::<X86_64>(0, 1024)).unwrap();
        let stack = Request::anon(4).flags(AreaFlags::GROWS_DOWN);
        mm.map(&space, &stack.at(At::Fixed(at::<X86_64>(900)))).unwrap();
        let page = at::<X86_64>(890);
        for n in 1.. {
            mm.bare_phys().set_fail_plan(FailPlan::Nth(n));
            let result = mm.fault(&space, page, Access::Write);
            mm.bare_phys().set_fail_plan(FailPlan::Never);
            walk(machine, mm, &[&space]);
            if result.is_ok() {
                break;
            }
            assert_eq!(result, Err(Error::NoMemory(Order::ZERO).into()));
            assert_eq!(mm.resident(&space), 0);
        }
        assert_eq!(mm.resident(&space), 1);
        assert_eq!(space.area_count(), 1);
        mm.destroy(space);
        walk(machine, mm, &[]);
    })
    .unwrap();
}

/// Faults and populates where no block as large as wanted is left.
fn in_pieces<A: Arch>(config: Config, left: Order) {
    let mut ram = system::ram(32 << 20).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm: &Mm<'_, A, Machine<'_>>| {
        let block = A::block_order();
        mm.policy().set_size(block, SizePolicy::Always).unwrap();
        mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
        let space = mm.space(Asid(1), span::<A>(0, 2 * block.pages())).unwrap();
        map_all(mm, &space).unwrap();
        let pieces =
            fragment(mm.bare_phys(), Fragment::FreeAtOrder { order: left, blocks: 1 << 20 }, 7);
        let before = mm.totals();
        let got = Order::new(if left.get() >= 4 { 4 } else { 0 });
        let page = at::<A>(100);
        let resolved = mm.fault(&space, page, Access::Write).unwrap();
        let quire::Resolved::Mapped(new) = resolved else { panic!("{resolved:?}") };
        assert_eq!((new.order, new.pages), (got, PageSpan::block(page, got)));
        let after = mm.totals();
        let memory = |order: usize| {
            after.fallback[order][Cause::Memory as usize]
                - before.fallback[order][Cause::Memory as usize]
        };
        assert_eq!(memory(block.index()), 1, "the block was to be had for want of memory only");
        assert_eq!(memory(4), u64::from(got == Order::ZERO));
        assert_eq!(space.counters().fallbacks()[block.index()], 1);
        assert_eq!(space.counters().allocs()[got.index()], 1);

        let all = span::<A>(0, 2 * block.pages());
        let done = mm.populate(&space, all).unwrap();
        assert_eq!(done.pages, all.count() - got.pages());
        assert_eq!(mm.resident(&space), all.count());
        let held = pieces.held();
        assert_eq!(check::system(mm, &[&space]).unwrap().held, held);
        pieces.release();
        walk(machine, mm, &[&space]);
        mm.destroy(space);
        walk(machine, mm, &[]);
    })
    .unwrap();
}

#[test]
fn e4_memory_in_pieces_gives_smaller_folios_and_is_counted() {
    in_pieces::<X86_64>(Config::x86_64(), Order::new(8));
    in_pieces::<X86_64>(Config::x86_64(), Order::new(4));
    in_pieces::<X86_64>(Config::x86_64(), Order::new(3));
    in_pieces::<Arm4k>(Config::arm64_4k(), Order::new(6));
    in_pieces::<Sv39>(Config::riscv64_sv39(), Order::ZERO);
}

/// A machine of 32 MiB cannot give 1 GiB, says so, and gives the next best.
#[test]
fn e4_a_gigantic_folio_steps_down_to_a_large_one() {
    let mut ram = system::ram(32 << 20).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let giant = Order::new(18);
        mm.policy().set_size(giant, SizePolicy::Always).unwrap();
        mm.policy().set_size(Order::new(9), SizePolicy::Always).unwrap();
        let start = Vpn::new(giant.pages());
        let window = PageSpan::new(start, start.add(2 * giant.pages()));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request::anon(giant.pages()).at(At::Fixed(start));
        mm.map(&space, &request).unwrap();
        mm.fault(&space, start.add(1000), Access::Write).unwrap();
        assert_eq!(mm.resident(&space), 512);
        assert_eq!(mm.totals().fallback[18][Cause::Memory as usize], 1);
        walk(machine, mm, &[&space]);
        mm.destroy(space);
        walk(machine, mm, &[]);
    })
    .unwrap();
}
