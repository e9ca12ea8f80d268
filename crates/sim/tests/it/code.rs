//! Code on CPUs whose instruction fetches do not see stores: each way in which the library fills
//! memory that programs execute. The examiner reports a frame that was not published.

use quire::cache::{FileId, FilePages, Pattern, Readahead, Store};
use quire::space::{At, Backing, Request, Space};
use quire::stats::Event;
use quire::table::{Divided, Division};
use quire::{Move, Need, Scope, Stop};
use quire_arch::{Arch, Arm4k, Sv39};
use quire_machine::{Config, Cpu, Rule};
use quire_sim::disk::{Disk, word};
use quire_sim::stage::{place, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, FrameSpan, Order, PageSpan, Prot, Vpn};

const RWX: Prot = Prot::all();
const PAGES: u64 = 32;

/// Runs a story on each ISA whose fetches are not coherent.
macro_rules! on_each {
    ($story:ident) => {
        stage::<Arm4k>(Config::arm64_4k(), 4096, &[2], |mm, cpu| $story::<Arm4k>(mm, cpu));
        stage::<Sv39>(Config::riscv64_sv39(), 4096, &[2], |mm, cpu| $story::<Sv39>(mm, cpu));
    };
}

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

/// A space that shows `backing` at its place.
fn space<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    cpu: &Cpu<'_, '_>,
    (tag, prot, backing): (u16, Prot, Backing),
) -> Space<A> {
    let window = PageSpan::new(place::<A>(), place::<A>().add(A::block_order().pages() * 4));
    let space = mm.space(Asid(tag), window).unwrap();
    let request = Request { prot, backing, ..Request::anon(PAGES).at(At::Fixed(place::<A>())) };
    mm.map(&space, &request).unwrap();
    run(cpu, &space);
    space
}

fn run<A: Arch>(cpu: &Cpu<'_, '_>, space: &Space<A>) {
    space.enter(cpu.number());
    cpu.switch(space.root(), space.asid());
}

/// An access to `page`, with its faults and the reads that these wait for.
fn access<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    cpu: &Cpu<'_, '_>,
    (space, disk): (&Space<A>, &Disk),
    (page, store): (Vpn, Option<u64>),
) -> u64 {
    let addr = page.addr(A::PAGE_SHIFT);
    for _ in 0..10 {
        let tried = match store {
            Some(value) => cpu.write(addr, value).map(|()| value),
            None => cpu.fetch(addr),
        };
        let Err(trap) = tried else { return tried.unwrap() };
        let _op = cpu.operation("fault");
        match mm.fault(space, page, trap.access) {
            Ok(_) => {}
            Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads).unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("{}: an access to {page} never ends", A::NAME);
}

fn fetch<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: &Space<A>, at: u64) -> u64 {
    let word = access(mm, cpu, (space, &Disk::new()), (page::<A>(at), None));
    sound(mm, "a fetch");
    word
}

fn write<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: &Space<A>, at: u64) {
    access(mm, cpu, (space, &Disk::new()), (page::<A>(at), Some(at + 1)));
}

/// No rule was broken.
#[track_caller]
fn sound<A: Arch>(mm: &HostedMm<'_, '_, A>, what: &str) {
    let verdict = mm.hardware().verdict();
    assert!(verdict.is_ok(), "{}: {what}: {}", A::NAME, verdict.unwrap_err());
}

fn published<A: Arch>(mm: &HostedMm<'_, '_, A>) -> u64 {
    mm.hardware().counts().code_published
}

fn end<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: Space<A>) {
    verify(mm, &[&space]);
    cpu.leave();
    mm.destroy(space);
}

fn first_touch<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, Prot::RX, Backing::Anon));
    assert_eq!(fetch(mm, cpu, &own, 5), 0);
    assert_eq!(published(mm), 1, "{}: one folio", A::NAME);
    assert_eq!((fetch(mm, cpu, &own, 6), published(mm)), (0, 1), "{}: of several pages", A::NAME);
    mm.populate(&own, span::<A>(0, PAGES)).unwrap();
    assert_eq!(published(mm), PAGES / 4, "{}", A::NAME);
    sound(mm, "populate");
    end(mm, cpu, own);
}

fn data_is_not_published<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, Prot::RW, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    let child = mm.fork(&own, Asid(2)).unwrap();
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    mm.protect(&own, span::<A>(0, PAGES), Prot::READ).unwrap();
    assert_eq!(published(mm), 0, "{}", A::NAME);
    mm.destroy(child);
    end(mm, cpu, own);
}

fn copy_on_write<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, RWX, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    let before = published(mm);
    let child = mm.fork(&own, Asid(2)).unwrap();
    run(cpu, &child);
    assert_eq!((fetch(mm, cpu, &child, 3), published(mm)), (4, before), "{}: shared", A::NAME);
    run(cpu, &own);
    write(mm, cpu, &own, 3);
    sound(mm, "copy-on-write");
    assert!(published(mm) > before, "{}: the copy", A::NAME);
    assert_eq!(fetch(mm, cpu, &own, 2), 3);
    run(cpu, &child);
    assert_eq!(fetch(mm, cpu, &child, 3), 4);
    mm.destroy(own);
    end(mm, cpu, child);
}

fn copy_for_a_child<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, RWX, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    let pinned = mm.pin(&own, page::<A>(3), Access::Write).unwrap();
    let child = mm.fork(&own, Asid(2)).unwrap();
    assert!(mm.totals().event(Event::ForkCopy) > 0);
    run(cpu, &child);
    assert_eq!(fetch(mm, cpu, &child, 3), 4);
    mm.unpin(pinned);
    mm.destroy(own);
    end(mm, cpu, child);
}

fn collapse<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, RWX, Backing::Anon));
    (0..PAGES).filter(|at| at % 7 != 0).for_each(|at| write(mm, cpu, &own, at));
    let before = published(mm);
    let done = {
        let _op = cpu.operation("collapse");
        mm.reclaim().collapse(&own, span::<A>(0, PAGES), Order::new(5)).unwrap()
    };
    assert_eq!((done.made, published(mm)), (1, before + 1), "{}", A::NAME);
    sound(mm, "collapse");
    assert_eq!((fetch(mm, cpu, &own, 9), fetch(mm, cpu, &own, 0)), (10, 0));
    end(mm, cpu, own);
}

/// Folios that are divided, and leaves that move, show the same bytes.
fn parts_and_moves<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, RWX, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    let before = published(mm);
    let parts = mm.spaces().divide(&own, page::<A>(4), Division::Uniform(Order::ZERO));
    assert_eq!(parts, Ok(Divided::Parts { parts: 4, freed: 0 }), "{}", A::NAME);
    {
        let _op = cpu.operation("move");
        mm.remap(&own, span::<A>(0, PAGES), PAGES, Move::To(page::<A>(101))).unwrap();
    }
    assert_eq!((fetch(mm, cpu, &own, 105), published(mm)), (5, before), "{}", A::NAME);
    let part = PageSpan::new(page::<A>(104), page::<A>(107));
    for prot in [Prot::READ, Prot::RX] {
        let _op = cpu.operation("protect");
        mm.protect(&own, part, prot).unwrap();
    }
    assert_eq!((fetch(mm, cpu, &own, 106), published(mm)), (6, before), "{}", A::NAME);
    end(mm, cpu, own);
}

/// Memory that becomes executable after it was written: the library need not, and does.
fn rights_that_come_later<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let own = space(mm, cpu, (1, Prot::RW, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    assert_eq!(published(mm), 0, "{}", A::NAME);
    {
        let _op = cpu.operation("protect");
        mm.protect(&own, span::<A>(5, 6), Prot::RX).unwrap();
    }
    sound(mm, "protect");
    assert_eq!((fetch(mm, cpu, &own, 6), published(mm)), (7, 2), "{}: folios 1 and 2", A::NAME);
    // Pages without any right show again what they had.
    for prot in [Prot::empty(), Prot::RX] {
        let _op = cpu.operation("protect");
        mm.protect(&own, span::<A>(0, PAGES), prot).unwrap();
    }
    assert_eq!((fetch(mm, cpu, &own, 31), published(mm)), (32, PAGES / 4), "{}", A::NAME);
    end(mm, cpu, own);
}

fn swap_in<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (swap, disk) = (mm.paging().swap_on(1024).unwrap(), Disk::new());
    let own = space(mm, cpu, (1, RWX, Backing::Anon));
    (0..PAGES).for_each(|at| write(mm, cpu, &own, at));
    let before = published(mm);
    let spaces = [&own];
    {
        let _op = cpu.operation("page out");
        let out = mm.paging().page_out(&own, span::<A>(0, PAGES), Scope::Own, &spaces[..]);
        assert_eq!(out.unwrap().pages, PAGES);
    }
    // Read back while its folio is in memory, and again when only the device has it.
    assert_eq!(access(mm, cpu, (&own, &disk), (page::<A>(3), None)), 4);
    assert_eq!(published(mm), before, "{}: it is the folio that was there", A::NAME);
    disk.write_back(mm, swap, &spaces).unwrap();
    let word = access(mm, cpu, (&own, &disk), (page::<A>(20), None));
    assert!(word != 0 && published(mm) > before, "{}: {word}", A::NAME);
    sound(mm, "swap-in");
    cpu.leave();
    mm.destroy(own);
    mm.paging().swap_off(swap).unwrap();
}

/// A program's file of `PAGES` pages.
fn text<A: Arch>(mm: &HostedMm<'_, '_, A>, store: Store) -> (FileId, Disk) {
    let (file, disk) = (mm.files().open(store, PAGES, Order::ZERO).unwrap(), Disk::new());
    (0..PAGES).for_each(|at| disk.put(file.0, at, at + 1));
    (file, disk)
}

fn read_of_a_file<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (file, disk) = text(mm, Store::ReadOnly);
    // As data first: read, but not published.
    let backing = Backing::File { id: file, page: 0 };
    let data = space(mm, cpu, (2, Prot::READ, backing));
    while let Err(Stop::Need(Need::Read(reads))) = mm.fault(&data, page::<A>(3), Access::Read) {
        disk.serve(mm, reads).unwrap();
    }
    assert_eq!(published(mm), 0, "{}", A::NAME);
    let own = space(mm, cpu, (1, Prot::RX, backing));
    for at in 0..PAGES {
        let got = access(mm, cpu, (&own, &disk), (page::<A>(at), None));
        assert_eq!(got, word(at + 1, 0), "{}", A::NAME);
    }
    sound(mm, "reads into text");
    let before = published(mm);
    assert!((1..=PAGES).contains(&before), "{}: {before}", A::NAME);
    let again = space(mm, cpu, (3, Prot::RX, backing));
    assert_eq!(access(mm, cpu, (&again, &disk), (page::<A>(7), None)), word(8, 0));
    assert_eq!(published(mm), before, "{}: each folio once", A::NAME);
    cpu.leave();
    [data, own, again].into_iter().for_each(|space| mm.destroy(space));
    mm.files().close(file).unwrap();
}

fn collapse_of_a_file<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (file, disk) = text(mm, Store::ReadOnly);
    let own = space(mm, cpu, (1, Prot::RX, Backing::File { id: file, page: 0 }));
    for at in [3, 20] {
        access(mm, cpu, (&own, &disk), (page::<A>(at), None));
    }
    mm.spaces().set_read_order(&own, span::<A>(0, PAGES), Some(Order::new(4))).unwrap();
    let spaces = [&own];
    let done = loop {
        let _op = cpu.operation("collapse");
        match mm.reclaim().collapse_file(&own, span::<A>(0, PAGES), &spaces[..]) {
            Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads).unwrap(),
            done => break done.unwrap(),
        }
    };
    assert_eq!((done.made + done.already, done.refused), (2, 0), "{}: {done:?}", A::NAME);
    sound(mm, "collapse of a file");
    assert_eq!(access(mm, cpu, (&own, &disk), (page::<A>(20), None)), word(21, 0));
    sound(mm, "a fetch of a file");
    end(mm, cpu, own);
    mm.files().close(file).unwrap();
}

/// The library zeroes, the embedder writes, and a debugger plants a breakpoint.
fn changes_of_code<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (file, disk) = text(mm, Store::ReadWrite);
    let backing = Backing::File { id: file, page: 0 };
    let own = space(mm, cpu, (1, Prot::RX, backing));
    mm.spaces().set_read_order(&own, span::<A>(0, PAGES), Some(Order::new(4))).unwrap();
    for at in 0..PAGES {
        access(mm, cpu, (&own, &disk), (page::<A>(at), None));
    }
    let (ram, before) = (mm.hardware().ram(), published(mm));
    let (mut reader, wanted) = (Readahead::default(), FilePages::new(9, 10));
    let (held, _) = mm.files().read(file, wanted, &mut reader, Pattern::Normal).unwrap();
    let frame = held.frames().start;
    ram.write_word(frame.addr(A::PAGE_SHIFT), 77);
    mm.hardware().rewritten(FrameSpan::new(frame, 1));
    mm.files().mark_dirty(file, 9).unwrap();
    mm.files().release(held);
    assert_eq!((fetch(mm, cpu, &own, 9), published(mm)), (77, before + 1), "{}", A::NAME);
    let pinned = mm.pin_change(&own, page::<A>(9));
    if let Ok(pinned) = pinned {
        let copied = published(mm);
        ram.write_word(pinned.frame().addr(A::PAGE_SHIFT), 99);
        mm.hardware().rewritten(FrameSpan::new(pinned.frame(), 1));
        mm.unpin(pinned);
        assert_eq!((fetch(mm, cpu, &own, 9), published(mm)), (99, copied + 1), "{}", A::NAME);
    } else {
        panic!("{}: {pinned:?}", A::NAME);
    }
    disk.write_back(mm, file, &[&own]).unwrap();
    // The folio across the end is held, so it is not split: the library zeroes a part of it.
    let wanted = FilePages::new(17, 18);
    let (held, _) = mm.files().read(file, wanted, &mut reader, Pattern::Normal).unwrap();
    let before = published(mm);
    {
        let _op = cpu.operation("truncate");
        mm.files().truncate(file, 18, &[&own][..]).unwrap();
        mm.files().truncate(file, PAGES, &[&own][..]).unwrap();
    }
    mm.files().release(held);
    assert_eq!(published(mm), before + 1, "{}: zeroes", A::NAME);
    sound(mm, "truncate");
    assert_eq!(access(mm, cpu, (&own, &disk), (page::<A>(17), None)), word(18, 0));
    access(mm, cpu, (&own, &disk), (page::<A>(19), None));
    sound(mm, "a fetch after a truncation");
    end(mm, cpu, own);
    mm.files().close(file).unwrap();
}

#[test]
fn a_first_touch_of_code_is_published_once_for_each_folio() {
    on_each!(first_touch);
}

#[test]
fn data_is_never_published() {
    on_each!(data_is_not_published);
}

#[test]
fn copies_of_code_are_published() {
    on_each!(copy_on_write);
    on_each!(copy_for_a_child);
}

#[test]
fn collapsed_code_is_published() {
    on_each!(collapse);
    on_each!(collapse_of_a_file);
}

#[test]
fn code_that_is_divided_or_moves_is_not_published_again() {
    on_each!(parts_and_moves);
}

#[test]
fn memory_is_published_when_it_becomes_executable() {
    on_each!(rights_that_come_later);
}

#[test]
fn code_that_comes_back_from_a_swap_device_is_published() {
    on_each!(swap_in);
}

#[test]
fn code_read_from_a_file_is_published_when_a_program_may_execute_it() {
    on_each!(read_of_a_file);
}

#[test]
fn code_that_the_library_or_the_embedder_changes_is_published_again() {
    on_each!(changes_of_code);
}

/// Without the law there is no test of it: an embedder whose hardware publishes nothing is found.
#[test]
fn the_examiner_finds_code_that_is_shown_unpublished() {
    let shown = |coherent_code| {
        let config = Config { coherent_code, ..Config::arm64_4k() };
        let mut ram = quire_sim::system::ram(1024 << 12).unwrap();
        quire_sim::system::with::<Arm4k, _>(config, &mut ram, |machine, mm| {
            let cpu = machine.cpu(0);
            let own = space(mm, &cpu, (1, Prot::RX, Backing::Anon));
            access(mm, &cpu, (&own, &Disk::new()), (page::<Arm4k>(0), None));
            // The embedder changes it and tells no CPU.
            let leaf = quire_sim::stage::leaves(mm, &own)[0];
            machine.rewritten(FrameSpan::new(leaf.frame, 1));
            cpu.fetch(page::<Arm4k>(0).addr(12)).unwrap();
            cpu.leave();
            mm.destroy(own);
            machine.violations().first().map(|violation| violation.rule)
        })
        .unwrap()
    };
    assert_eq!([shown(false), shown(true)], [Some(Rule::StaleCode), None]);
}
