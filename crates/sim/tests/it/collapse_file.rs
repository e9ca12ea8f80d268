//! Collapse of pages of files, and folios of files that are cut apart (rows B4, B1).

use quire::cache::{FileId, FilePages, Pattern, Readahead, Store};
use quire::fault::SizePolicy;
use quire::inject::FailPlan;
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::stats::Event::{CollapseAlloc, CollapseFailed};
use quire::{Collapsed, Errno, Error, Hindrance, Need, Stop};
use quire_arch::{Arch, Arm4k, Arm16k, Level, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::{Disk, word};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, leaves, place, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

const NONE: AreaFlags = AreaFlags::empty();
const SHARED: AreaFlags = AreaFlags::SHARED;

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

/// A file in memory of `pages` pages, shown from the place on by a space with this tag.
fn shown<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    (file, pages): (FileId, u64),
    tag: u16,
    (prot, flags): (Prot, AreaFlags),
) -> Space<A> {
    let window = PageSpan::new(place::<A>(), place::<A>().add(A::block_order().pages() * 16));
    let space = mm.space(Asid(tag), window).unwrap();
    let request = Request {
        backing: Backing::File { id: file, page: 0 },
        prot,
        flags,
        ..Request::anon(pages).at(At::Fixed(place::<A>()))
    };
    mm.map(&space, &request).unwrap();
    space
}

fn folio<A: Arch>(mm: &HostedMm<'_, '_, A>, file: FileId, page: u64) -> Option<FilePages> {
    mm.files().next_cached(file, FilePages::new(page, page + 1)).unwrap()
}

fn end<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, spaces: Vec<Space<A>>, file: FileId) {
    verify(mm, &spaces.iter().collect::<Vec<_>>());
    cpu.leave();
    spaces.into_iter().for_each(|space| mm.destroy(space));
    mm.files().close(file).unwrap();
}

/// Collapses all of the first space; the disk brings what is missing.
fn collapse<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    cpu: &Cpu<'_, '_>,
    (spaces, pages): (&[&Space<A>], u64),
    disk: &Disk,
) -> Result<Collapsed, Stop> {
    loop {
        let _op = cpu.operation("collapse");
        match mm.reclaim().collapse_file(spaces[0], span::<A>(0, pages), spaces) {
            Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads)?,
            done => return done,
        }
    }
}

fn made(blocks: u64) -> Collapsed {
    Collapsed { made: blocks, ..Collapsed::default() }
}

fn becomes_one<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, order: u8) {
    let order = Order::new(order);
    let (pages, disk) = (order.pages(), Disk::new());
    let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
    let spaces = [1, 2].map(|tag| shown(mm, (file, pages), tag, (Prot::RW, SHARED)));
    let on = |at: usize| Program::on(cpu, mm, &spaces[at]);
    let touched = (0..pages).filter(|page| page % 3 != 1);
    touched.clone().for_each(|at| {
        assert!(on(at as usize % 2).write(page::<A>(at), at + 1).is_ok());
    });
    (0..2).for_each(|space| assert_eq!(on(space).read(page::<A>(0)), Ok(1)));
    let meter = Meter::new(mm);
    let both = [&spaces[0], &spaces[1]];
    assert_eq!(collapse(mm, cpu, (&both, pages), &disk), Ok(made(1)), "{}", A::NAME);
    assert_eq!(meter.event(CollapseAlloc), 1, "{}", A::NAME);
    assert_eq!(folio(mm, file, pages - 1), Some(FilePages::new(0, pages)), "{}", A::NAME);
    for space in &spaces {
        let all = leaves(mm, space);
        let resident: u64 = all.iter().map(|leaf| leaf.pages.count()).sum();
        assert_eq!(resident, pages, "{}: mapped again, in the other space as well", A::NAME);
        if order == A::block_order() {
            assert_eq!(all.len(), 1, "{}: one entry", A::NAME);
        } else {
            let folds = A::fold_order(Level::LAST).is_some_and(|block| order >= block);
            assert!(all.iter().all(|leaf| leaf.folded == folds), "{}", A::NAME);
        }
    }
    for at in 0..pages {
        let value = if at % 3 == 1 { 0 } else { at + 1 };
        assert_eq!(on(0).read(page::<A>(at)), Ok(value), "{}: {at}", A::NAME);
        assert!(on(0).write(page::<A>(at), 2 * at).is_ok());
        assert_eq!(on(1).read(page::<A>(at)), Ok(2 * at), "{}: {at}", A::NAME);
    }
    let again = collapse(mm, cpu, (&both, pages), &disk);
    assert_eq!(again, Ok(Collapsed { already: 1, ..Collapsed::default() }), "{}", A::NAME);
    if order == A::block_order() {
        // Without some of its pages the block is mapped by pages, and then by one entry again.
        mm.discard(&spaces[0], span::<A>(1, pages - 1)).expect("a table is left");
        assert_eq!(leaves(mm, &spaces[0]).iter().map(|leaf| leaf.pages.count()).sum::<u64>(), 1);
        let again = collapse(mm, cpu, (&both, pages), &disk);
        assert_eq!(again, Ok(Collapsed { made: 1, ..Collapsed::default() }), "{}", A::NAME);
        assert_eq!(leaves(mm, &spaces[0]).len(), 1, "{}: one entry", A::NAME);
        assert_eq!(on(0).read(page::<A>(5)), Ok(10), "{}", A::NAME);
    }
    end(mm, cpu, spaces.into(), file);
}

#[test]
fn b4_pages_of_a_file_become_a_folio_of_each_size() {
    for order in [1, 3, 4, 7, 9] {
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

/// 300 pages of code: missing pages are read, and each aligned block becomes as large as possible.
#[test]
fn b4_code_becomes_the_largest_folios_that_fit_and_dirty_pages_stay_dirty() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, cpu| {
        let (pages, disk) = (300, Disk::new());
        let file = mm.files().open(Store::ReadWrite, pages, Order::ZERO).unwrap();
        (0..pages).for_each(|page| disk.put(file.0, page, page + 1));
        let spaces = [(Prot::RX, NONE), (Prot::RW, SHARED)];
        let [code, data] = [0, 1].map(|at| shown(mm, (file, pages), 1 + at as u16, spaces[at]));
        let held = loop {
            let wanted = FilePages::new(40, 41);
            match mm.files().read(file, wanted, &mut Readahead::default(), Pattern::Random) {
                Ok((held, _)) => break held,
                Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads).unwrap(),
                Err(error) => panic!("{error}"),
            }
        };
        mm.files().mark_dirty(file, 40).unwrap();
        mm.files().release(held);
        let both = [&code, &data];
        assert!(collapse(mm, cpu, (&both, pages), &disk).is_ok_and(|done| done.why.is_none()));
        let starts = [0, 256, 288, 296].map(|at| folio(mm, file, at));
        let blocks = [(0, 256), (256, 288), (288, 296), (296, 300)];
        assert_eq!(starts, blocks.map(|(from, to)| Some(FilePages::new(from, to))));
        let program = Program::on(cpu, mm, &code);
        for at in 0..pages {
            assert_eq!(program.read(page::<X86_64>(at)), Ok(word(at + 1, 0)));
        }
        let mut left = FilePages::new(0, pages);
        let write =
            mm.files().next_write(file, &mut left, &both[..]).unwrap().expect("it is dirty");
        assert_eq!(write.pages(), FilePages::new(0, 256));
        let busy = mm.reclaim().collapse_file(&code, span::<X86_64>(0, 256), &both[..]);
        assert!(busy.is_ok_and(|done| done.already + done.made == 1), "it is one already");
        mm.files().write_done(write, Ok(()));
        let mut all = FilePages::new(0, pages);
        assert!(
            mm.files().next_write(file, &mut all, &both[..]).unwrap().is_none(),
            "all is clean"
        );
        end(mm, cpu, vec![code, data], file);
    });
}

fn keeps_copies<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (pages, disk) = (16, Disk::new());
    let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
    let private = shown(mm, (file, pages), 1, (Prot::RW, NONE));
    let shared = shown(mm, (file, pages), 2, (Prot::RW, SHARED));
    let (own, others) = (|| Program::on(cpu, mm, &private), || Program::on(cpu, mm, &shared));
    (0..pages).for_each(|at| assert!(others().write(page::<A>(at), at + 1).is_ok()));
    (0..pages).for_each(|at| assert!(own().read(page::<A>(at)).is_ok()));
    assert!(own().write(page::<A>(3), 77).is_ok());
    let both = [&private, &shared];
    let done = collapse(mm, cpu, (&both, pages), &disk).unwrap();
    assert_eq!((done.refused, done.why), (1, Some(Hindrance::Copied)), "{}", A::NAME);
    assert_eq!(done.errno(), Some(Errno::EINVAL));
    assert_eq!(folio(mm, file, 3), Some(FilePages::new(0, pages)), "{}", A::NAME);
    for at in 0..pages {
        let value = if at == 3 { 77 } else { at + 1 };
        assert_eq!(own().read(page::<A>(at)), Ok(value), "{}", A::NAME);
        assert_eq!(others().read(page::<A>(at)), Ok(at + 1), "{}", A::NAME);
    }
    end(mm, cpu, vec![private, shared], file);
}

#[test]
fn b4_private_copies_of_a_file_stay() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], keeps_copies);
    stage::<Arm4k>(Config::arm64_4k(), 2048, &[], keeps_copies);
}

#[test]
fn b4_held_pages_of_a_file_stay_where_they_are() {
    stage::<X86_64>(Config::x86_64(), 2048, &[], |mm, cpu| {
        let (pages, disk) = (16, Disk::new());
        let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
        let space = shown(mm, (file, pages), 1, (Prot::RW, SHARED));
        let program = Program::on(cpu, mm, &space);
        (0..pages).for_each(|at| assert!(program.write(page::<X86_64>(at), at + 1).is_ok()));
        let folios = || [0, 5, 15].map(|at| folio(mm, file, at));
        let before = folios();
        let try_it = || collapse(mm, cpu, (&[&space], pages), &disk);
        let stays = |why, errno| {
            let free = mm.phys().free_frames();
            let done = try_it().unwrap();
            assert_eq!((done.why, done.errno()), (Some(why), Some(errno)));
            assert_eq!((folios(), mm.phys().free_frames()), (before, free));
            (0..pages).for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(at + 1)));
        };
        let wanted = FilePages::new(5, 6);
        let (held, _) =
            mm.files().read(file, wanted, &mut Readahead::default(), Pattern::Normal).unwrap();
        stays(Hindrance::Held, Errno::EAGAIN);
        mm.files().release(held);
        let pinned = mm.pin(&space, page::<X86_64>(7), Access::Write).unwrap();
        stays(Hindrance::Held, Errno::EAGAIN);
        mm.unpin(pinned);
        mm.spaces().track(&space, span::<X86_64>(0, pages)).unwrap();
        stays(Hindrance::Tracked, Errno::EINVAL);
        cpu.leave();
        mm.destroy(space);
        let space = shown(mm, (file, pages), 1, (Prot::RW, SHARED));
        mm.advise(&space, span::<X86_64>(0, pages), quire::space::Advice::NoHuge).unwrap();
        let refused = collapse(mm, cpu, (&[&space], pages), &disk).unwrap();
        assert_eq!(refused.why, Some(Hindrance::Advice));
        end(mm, cpu, vec![space], file);
    });
}

/// Each allocation in turn fails, and so does memory: the content of the file stays.
#[test]
fn b4_a_collapse_of_a_file_that_fails_loses_nothing() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, cpu| {
        let (pages, disk) = (512, Disk::new());
        let order = X86_64::block_order();
        let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
        let space = shown(mm, (file, pages), 1, (Prot::RW, SHARED));
        let program = Program::on(cpu, mm, &space);
        let touched = || (0..pages).step_by(7);
        touched().for_each(|at| assert!(program.write(page::<X86_64>(at), at + 1).is_ok()));
        let intact = || {
            touched().for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(at + 1)));
            verify(mm, &[&space]);
        };
        let bad = leaves(mm, &space)[3].frame;
        assert!(mm.hardware().set_poisoned(bad, true));
        let cached = mm.files().get(file).unwrap().cached();
        assert_eq!(collapse(mm, cpu, (&[&space], pages), &disk), Err(Error::Poisoned(bad).into()));
        assert_eq!(mm.files().get(file).unwrap().cached(), cached);
        mm.hardware().set_poisoned(bad, false);
        intact();
        let meter = Meter::new(mm);
        mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        assert_eq!(
            collapse(mm, cpu, (&[&space], pages), &disk),
            Err(Error::NoMemory(order).into())
        );
        assert_eq!(meter.event(CollapseFailed), 1);
        intact();
        // Only the folio itself is needed: a table that is missing now is made at the next touch.
        mm.bare_phys().set_fail_plan(FailPlan::From(2));
        assert_eq!(collapse(mm, cpu, (&[&space], pages), &disk), Ok(made(1)));
        mm.bare_phys().set_fail_plan(FailPlan::Never);
        intact();
        end(mm, cpu, vec![space], file);
    });
}

/// A folio of 512 pages, shown in two spaces, is cut at page `cut`.
fn is_cut<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (pages, cut) = (1 << 9, 100);
    mm.policy().set_size(Order::new(9), SizePolicy::Always).unwrap();
    let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
    let spaces = [1, 2].map(|tag| shown(mm, (file, pages), tag, (Prot::RW, SHARED)));
    let (both, free) = ([&spaces[0], &spaces[1]], mm.phys().free_frames());
    let on = |at: usize| Program::on(cpu, mm, &spaces[at]);
    (0..pages).for_each(|at| assert!(on(0).write(page::<A>(at), at + 1).is_ok()));
    (0..pages).for_each(|at| assert_eq!(on(1).read(page::<A>(at)), Ok(at + 1)));
    assert_eq!(folio(mm, file, 0), Some(FilePages::new(0, pages)), "{}", A::NAME);
    let wanted = FilePages::new(5, 6);
    let (held, _) =
        mm.files().read(file, wanted, &mut Readahead::default(), Pattern::Normal).unwrap();
    mm.files().truncate(file, cut + 50, &both[..]).unwrap();
    assert_eq!(folio(mm, file, 0), Some(FilePages::new(0, pages)), "{}: it is held", A::NAME);
    mm.files().release(held);
    mm.files().truncate(file, pages, &both[..]).unwrap();
    let values = |at: u64| if at < cut + 50 { at + 1 } else { 0 };
    (0..pages).for_each(|at| assert_eq!(on(1).read(page::<A>(at)), Ok(values(at))));
    {
        let _op = cpu.operation("truncate");
        mm.files().truncate(file, cut, &both[..]).unwrap();
    }
    let parts = [0, 64, 96].map(|at| folio(mm, file, at));
    let blocks = [(0, 64), (64, 96), (96, 100)];
    assert_eq!(parts, blocks.map(|(from, to)| Some(FilePages::new(from, to))), "{}", A::NAME);
    let tables = 16;
    assert!(mm.phys().free_frames() + cut + tables >= free, "{}: it is free", A::NAME);
    verify(mm, &both);
    for at in 0..cut {
        assert_eq!(on(1).read(page::<A>(at)), Ok(at + 1), "{}: {at}", A::NAME);
        assert!(on(0).write(page::<A>(at), at).is_ok());
    }
    // A hole in the rest, also where it is mapped.
    {
        let _op = cpu.operation("punch");
        mm.files().punch(file, FilePages::new(10, 70), &both[..]).unwrap();
    }
    assert_eq!(mm.files().get(file).unwrap().cached(), cut - 60, "{}", A::NAME);
    let values = |at: u64| if (10..70).contains(&at) { 0 } else { at };
    (0..cut).for_each(|at| assert_eq!(on(1).read(page::<A>(at)), Ok(values(at))));
    end(mm, cpu, spaces.into(), file);
}

#[test]
fn b1_a_folio_across_the_new_end_of_its_file_or_a_hole_is_divided() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], is_cut);
    stage::<Arm4k>(Config::arm64_4k(), 4096, &[], is_cut);
    stage::<Arm16k>(Config::arm64_16k(), 4096, &[], is_cut);
    stage::<Sv39>(Config::riscv64_sv39(), 4096, &[], is_cut);
}

#[test]
fn b4_a_page_that_is_being_read_is_waited_for() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, cpu| {
        let (pages, disk) = (4, Disk::new());
        let file = mm.files().open(Store::ReadWrite, pages, Order::ZERO).unwrap();
        (0..pages).for_each(|page| disk.put(file.0, page, page + 1));
        let space = shown(mm, (file, pages), 1, (Prot::RX, NONE));
        let wanted = FilePages::new(0, 1);
        let lacks = mm.files().read(file, wanted, &mut Readahead::default(), Pattern::Random);
        let Err(Stop::Need(Need::Read(mut reads))) = lacks else { panic!("nothing is read yet") };
        let read = mm.files().next_read(&mut reads).unwrap().expect("a page");
        let made = mm.reclaim().collapse_file(&space, span::<X86_64>(0, pages), &[&space][..]);
        assert_eq!(made, Err(Stop::Need(Need::Wait(file))));
        assert_eq!(read.pages(), wanted);
        let done = disk.read(mm.hardware().ram(), 12, &read);
        mm.files().read_done(read, done);
        disk.serve(mm, reads).unwrap();
        assert_eq!(collapse(mm, cpu, (&[&space], pages), &disk), Ok(self::made(1)));
        let program = Program::on(cpu, mm, &space);
        (0..pages).for_each(|at| {
            assert_eq!(program.read(page::<X86_64>(at)), Ok(word(at + 1, 0)));
        });
        end(mm, cpu, vec![space], file);
    });
}
