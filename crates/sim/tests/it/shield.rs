//! Write-protection for watchers (D8), beside a model that goes page by page.

use proptest::prelude::*;
use quire::cache::{FilePages, Store};
use quire::inject::FailPlan;
use quire::space::{AreaFlags, At, Backing, Request, Space, Watch, WatchFor, Watcher};
use quire::table::{Seen, Sight};
use quire::{Error, Move, Need, Scope, Shield, Stop, is_protected};
use quire_arch::{Arch, Arm4k, Arm16k, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::Disk;
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{Meter, contiguous, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

const NONE: AreaFlags = AreaFlags::empty();
/// Of the property's area.
const PAGES: u64 = 96;

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

fn watch(events: WatchFor) -> Option<Watch> {
    Watcher::new(3).map(|watcher| Watch { watcher, events })
}

/// A system, a space with a watched area, and a disk to swap to.
struct Scene<'s, 'm, 'r, A: Arch> {
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: &'s Cpu<'m, 'r>,
    space: Space<A>,
    disk: Disk,
}

/// Plays where folios of `sizes` are wanted, in an area of `pages` that is watched for `events`.
fn play<A: Arch>(
    config: Config,
    sizes: &[u8],
    (pages, events): (u64, WatchFor),
    act: impl Fn(&Scene<'_, '_, '_, A>),
) {
    stage::<A>(config, 4096, sizes, |mm, cpu| {
        let space = space_of(mm, pages, NONE);
        mm.spaces().watch(&space, span::<A>(0, pages), watch(events)).unwrap();
        let scene = Scene { mm, cpu, space, disk: Disk::new() };
        act(&scene);
        verify(mm, &[&scene.space]);
        cpu.leave();
        mm.destroy(scene.space);
    });
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn shield(&self, from: u64, pages: u64, shield: Shield) {
        let _op = self.cpu.operation("write-protect");
        self.mm.spaces().write_protect(&self.space, span::<A>(from, pages), shield).unwrap();
    }

    /// Repeats an access until the disk has what it needs.
    fn touch<T>(&self, access: impl Fn() -> Result<T, Stopped>) -> Result<T, Stopped> {
        loop {
            match access() {
                Err(Stopped::Needs(Need::Read(reads))) => self.disk.serve(self.mm, reads)?,
                done => return done,
            }
        }
    }

    fn read(&self, at: u64) -> u64 {
        let read = || Program::on(self.cpu, self.mm, &self.space).read(page::<A>(at));
        self.touch(read).unwrap_or_else(|stopped| panic!("{}: page {at}: {stopped:?}", A::NAME))
    }

    /// Writes to a page; false where its watcher is to answer that.
    fn write(&self, at: u64, word: u64) -> bool {
        let program = || Program::on(self.cpu, self.mm, &self.space);
        match self.touch(|| program().write(page::<A>(at), word)) {
            Ok(_) => true,
            Err(Stopped::Needs(Need::Watcher(told))) => {
                assert_eq!(
                    (told.page, told.event, told.access, Some(told.watcher)),
                    (page::<A>(at), WatchFor::WRITE, Access::Write, Watcher::new(3))
                );
                false
            }
            Err(stopped) => panic!("{}: page {at}: {stopped:?}", A::NAME),
        }
    }

    fn seen(&self, of: &Space<A>, pages: u64) -> Vec<Seen> {
        let mut all = Vec::new();
        self.mm.spaces().runs(of, span::<A>(0, pages), &mut |seen| all.push(*seen));
        all
    }

    /// The numbers of the pages that are there and `such`.
    fn pages(&self, pages: u64, such: impl Fn(&Seen) -> bool) -> Vec<u64> {
        let all = self.seen(&self.space, pages).into_iter().filter(such);
        let numbers = all.flat_map(|seen| seen.pages.start.get()..seen.pages.end.get());
        numbers.map(|number| number - place::<A>().get()).collect()
    }

    fn protected(&self, pages: u64) -> Vec<u64> {
        self.pages(pages, is_protected)
    }
}

fn stays_whole<A: Arch>(config: Config) {
    let block = 1 << contiguous::<A>();
    let pages = 4 * block;
    play::<A>(config, &[contiguous::<A>()], (pages, WatchFor::WRITE), |scene| {
        (0..pages).for_each(|at| assert!(scene.write(at, at + 1)));
        let before = leaves(scene.mm, &scene.space);
        let meter = Meter::new(scene.mm);
        scene.shield(0, pages, Shield::Present);
        let folded = |all: &[quire::check::Leaf]| all.iter().filter(|leaf| leaf.folded).count();
        assert_eq!(folded(&leaves(scene.mm, &scene.space)), folded(&before), "{}", A::NAME);
        assert_eq!(meter.counts().flushes, 1, "{}: one flush for all", A::NAME);
        assert_eq!(scene.protected(pages), (0..pages).collect::<Vec<_>>());
        assert!(!scene.write(block + 1, 0), "{}", A::NAME);
        assert_eq!(scene.read(block + 1), block + 2, "{}: a read is no event", A::NAME);
        scene.shield(block + 1, 1, Shield::Off);
        let meter = Meter::new(scene.mm);
        assert!(scene.write(block + 1, 9), "{}", A::NAME);
        assert_eq!(meter.event(quire::stats::Event::CowCopy), 0, "{}: it is its own", A::NAME);
        assert_eq!(meter.event(quire::stats::Event::CowReuse), 0, "{}: no second fault", A::NAME);
        assert!(!scene.write(block, 9) && !scene.write(block + 2, 9), "{}", A::NAME);
        scene.shield(0, pages, Shield::Off);
        assert_eq!(folded(&leaves(scene.mm, &scene.space)), folded(&before), "{}", A::NAME);
        (0..pages).for_each(|at| assert!(scene.write(at, at + 7)));
    });
}

#[test]
fn d8_protected_blocks_stay_whole_until_a_page_is_released() {
    stays_whole::<X86_64>(Config::x86_64());
    stays_whole::<Arm4k>(Config::arm64_4k());
    stays_whole::<Arm16k>(Config::arm64_16k());
    stays_whole::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn d8_a_large_leaf_is_protected_whole_and_split_for_one_page() {
    let pages = X86_64::block_order().pages();
    let events = WatchFor::WRITE | WatchFor::ASYNC;
    play::<X86_64>(Config::x86_64(), &[9], (pages, events), |scene| {
        assert!(scene.write(0, 1));
        scene.shield(0, pages, Shield::All);
        assert_eq!(leaves(scene.mm, &scene.space).len(), 1);
        assert!(scene.write(77, 5), "the write ends the protection");
        let rest: Vec<u64> = (0..pages).filter(|at| *at != 77).collect();
        assert_eq!(scene.protected(pages), rest);
    });
}

#[test]
fn d8_absent_pages_are_protected_by_one_marker_a_block() {
    let block = X86_64::block_order().pages();
    play::<X86_64>(Config::x86_64(), &[4], (4 * block, WatchFor::WRITE), |scene| {
        scene.shield(1, 3 * block, Shield::All);
        let seen = scene.seen(&scene.space, 4 * block);
        assert!(seen.iter().any(|seen| seen.leaf == X86_64::block_order()), "{seen:?}");
        assert_eq!(scene.protected(4 * block), (1..1 + 3 * block).collect::<Vec<_>>());
        assert_eq!(scene.read(block + 20), 0);
        assert_eq!(leaves(scene.mm, &scene.space)[0].pages.count(), 1);
        assert_eq!(leaves(scene.mm, &scene.space).len(), 16, "a folio of the wanted size");
        assert!(!scene.write(block + 21, 4) && !scene.write(2 * block + 3, 4));
        scene.shield(block, block, Shield::Off);
        assert!(scene.write(block + 21, 4) && scene.write(block, 1));
        assert!(scene.write(0, 4), "it was never protected");
        scene.shield(0, 4 * block, Shield::Off);
        assert_eq!(scene.protected(4 * block), []);
    });
}

#[test]
fn d8_protection_ends_with_the_watch_with_a_move_and_in_a_child() {
    play::<Arm4k>(Config::arm64_4k(), &[4], (64, WatchFor::WRITE), |scene| {
        let (mm, all) = (scene.mm, span::<Arm4k>(0, 64));
        (0..40).for_each(|at| assert!(scene.write(at, at + 1)));
        scene.shield(0, 64, Shield::All);
        let child = mm.fork(&scene.space, Asid(2)).unwrap();
        assert!(scene.seen(&child, 64).iter().all(|seen| !is_protected(seen)));
        for at in [0, 17, 50] {
            Program::on(scene.cpu, mm, &child).write(page::<Arm4k>(at), 100).unwrap();
        }
        assert_eq!(scene.protected(64), (0..64).collect::<Vec<_>>(), "the parent's stay");
        assert!(!scene.write(17, 0));
        assert_eq!((scene.read(17), scene.read(50)), (18, 0));
        scene.cpu.leave();
        mm.destroy(child);
        // A move.
        let to = page::<Arm4k>(4096);
        let moved = mm.remap(&scene.space, span::<Arm4k>(16, 16), 16, Move::To(to)).unwrap();
        assert_eq!(moved.start, to);
        let program = Program::on(scene.cpu, mm, &scene.space);
        assert_eq!(program.read(to.add(1)), Ok(18));
        program.write(to.add(1), 3).unwrap();
        mm.unmap(&scene.space, moved).unwrap();
        // The watch.
        assert_eq!(
            mm.spaces().watch(&scene.space, all, None),
            Err(Error::NoArea(page::<Arm4k>(16)))
        );
        mm.spaces().watch(&scene.space, span::<Arm4k>(0, 16), None).unwrap();
        assert_eq!(scene.protected(64), (32..64).collect::<Vec<_>>());
        assert!(scene.write(3, 8) && !scene.write(33, 8));
    });
}

#[test]
fn d8_a_pinned_page_keeps_its_frame_through_protection_and_fork() {
    play::<X86_64>(Config::x86_64(), &[], (8, WatchFor::WRITE), |scene| {
        assert!(scene.write(2, 5));
        let mm = scene.mm;
        let pinned = mm.pin(&scene.space, page::<X86_64>(2), Access::Write).unwrap();
        scene.shield(0, 8, Shield::Present);
        let child = mm.fork(&scene.space, Asid(2)).unwrap();
        scene.shield(0, 8, Shield::Off);
        assert!(scene.write(2, 6));
        let seen = scene.seen(&scene.space, 8);
        assert!(matches!(seen[0].what, Sight::Leaf { frame, .. } if frame == pinned.frame()));
        assert_eq!(Program::on(scene.cpu, mm, &child).read(page::<X86_64>(2)), Ok(5));
        scene.cpu.leave();
        mm.destroy(child);
        mm.unpin(pinned);
    });
}

#[test]
fn d8_a_pin_for_writing_waits_for_the_watcher() {
    play::<Sv39>(Config::riscv64_sv39(), &[], (8, WatchFor::WRITE), |scene| {
        assert!(scene.write(2, 5));
        scene.shield(0, 8, Shield::Present);
        let pin = |access| scene.mm.pin(&scene.space, page::<Sv39>(2), access);
        assert!(matches!(pin(Access::Write), Err(Stop::Need(Need::Watcher(_)))));
        scene.shield(2, 1, Shield::Off);
        scene.mm.unpin(pin(Access::Write).unwrap());
    });
}

/// A file in memory that two areas of a space show; the first is watched.
fn shared_twice<A: Arch>(config: Config) {
    stage::<A>(config, 4096, &[contiguous::<A>()], |mm, cpu| {
        let block = 1 << contiguous::<A>();
        let pages = 2 * block;
        let file = mm.files().open(Store::Memory, pages, Order::ZERO).unwrap();
        let space = mm.space(Asid(1), PageSpan::new(page::<A>(0), page::<A>(4096))).unwrap();
        for at in [0, 2048] {
            let backing = Backing::File { id: file, page: 0 };
            let request = Request { backing, flags: AreaFlags::SHARED, ..Request::anon(pages) };
            mm.map(&space, &request.at(At::Fixed(page::<A>(at)))).unwrap();
        }
        let all = span::<A>(0, pages);
        mm.spaces().watch(&space, all, watch(WatchFor::WRITE)).unwrap();
        let program = Program::on(cpu, mm, &space);
        (0..block).for_each(|at| assert!(program.write(page::<A>(at), at + 1).is_ok()));
        let shield = |from, count, how| {
            let _op = cpu.operation("write-protect");
            mm.spaces().write_protect(&space, span::<A>(from, count), how).unwrap();
        };
        let is_told = |at: u64| {
            let write = program.write(page::<A>(at), 1000 + at);
            matches!(write, Err(Stopped::Needs(Need::Watcher(told)))
                if told.event == WatchFor::WRITE)
        };
        shield(0, pages, Shield::Present);
        assert!(is_told(1) && is_told(block + 1), "{}: those that are absent, too", A::NAME);
        assert_eq!(program.read(page::<A>(block - 1)), Ok(block), "{}", A::NAME);
        // The other area is not watched: it gives the file a page, which is protected in the first.
        assert!(program.write(page::<A>(2048 + block + 2), 7).is_ok());
        assert_eq!(program.read(page::<A>(block + 2)), Ok(7), "{}", A::NAME);
        assert!(is_told(block + 2), "{}", A::NAME);
        // Neither discarding nor reclaim ends it.
        mm.discard(&space, all).unwrap();
        mm.reclaim().reclaim(pages, &[&space][..]);
        assert_eq!(program.read(page::<A>(3)), Ok(4), "{}", A::NAME);
        assert!(is_told(3) && is_told(4), "{}", A::NAME);
        verify(mm, &[&space]);
        // Nor does a hole in the file, whose memory is free.
        let free = mm.phys().free_frames();
        mm.files().punch(file, FilePages::new(0, block / 2), &[&space][..]).unwrap();
        assert_eq!(mm.phys().free_frames(), free + block / 2, "{}", A::NAME);
        assert_eq!(program.read(page::<A>(2)), Ok(0), "{}", A::NAME);
        assert!(is_told(2) && is_told(1) && is_told(block - 1), "{}", A::NAME);
        verify(mm, &[&space]);
        shield(3, 1, Shield::Off);
        assert!(program.write(page::<A>(3), 9).is_ok() && is_told(4), "{}", A::NAME);
        shield(0, pages, Shield::Off);
        (0..pages).for_each(|at| assert!(program.write(page::<A>(at), at).is_ok()));
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
        mm.files().close(file).unwrap();
    });
}

#[test]
fn d8_shared_memory_is_protected_in_the_area_that_is_watched() {
    shared_twice::<X86_64>(Config::x86_64());
    shared_twice::<Arm4k>(Config::arm64_4k());
    shared_twice::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn d8_protecting_what_is_not_watched_for_writes_is_refused() {
    play::<X86_64>(Config::x86_64(), &[9], (1024, WatchFor::MISSING), |scene| {
        let protect = |pages, shield| scene.mm.spaces().write_protect(&scene.space, pages, shield);
        let none = Error::NoArea(page::<X86_64>(0));
        for shield in [Shield::Off, Shield::Present, Shield::All] {
            assert_eq!(protect(span::<X86_64>(0, 4), shield), Err(none));
        }
        let bad = PageSpan::new(page::<X86_64>(0), page::<X86_64>(0));
        assert_eq!(protect(bad, Shield::Present), Err(Error::Invalid));
        let all = span::<X86_64>(0, 1024);
        let lone = scene.mm.spaces().watch(&scene.space, all, watch(WatchFor::ASYNC));
        assert_eq!(lone, Err(Error::Invalid));
        scene.mm.spaces().watch(&scene.space, all, watch(WatchFor::WRITE)).unwrap();
        assert!(scene.write(0, 1));
        scene.mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        let split = protect(span::<X86_64>(0, 4), Shield::All);
        assert_eq!(split, Err(Error::NoMemory(Order::ZERO)));
        let table = protect(span::<X86_64>(512, 4), Shield::All);
        scene.mm.bare_phys().set_fail_plan(FailPlan::Never);
        assert!(table.is_ok(), "the plan failed once");
        assert_eq!(scene.protected(1024), (512..516).collect::<Vec<_>>());
    });
}

/// One action.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write(u64),
    Read,
    Shield(u8),
    Discard,
    Protect(bool),
    Fork,
    Out,
    Move,
    Release,
}

/// A page in the model.
#[derive(Clone, Copy, Default)]
struct Page {
    word: u64,
    protected: bool,
    read_only: bool,
}

fn acts() -> impl Strategy<Value = Vec<(Act, u64, u64)>> {
    let act = prop_oneof![
        4 => (1..1_u64 << 20).prop_map(Act::Write),
        2 => Just(Act::Read),
        3 => (0..3_u8).prop_map(Act::Shield),
        1 => Just(Act::Discard),
        1 => any::<bool>().prop_map(Act::Protect),
        1 => Just(Act::Fork),
        2 => Just(Act::Out),
        1 => Just(Act::Move),
        1 => Just(Act::Release),
    ];
    let one = (act, 0..PAGES, 1..40_u64)
        .prop_map(|(act, from, count)| (act, from, (from + count).min(PAGES)));
    prop::collection::vec(one, 1..50)
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn act(&self, model: &mut [Page], is_async: bool, (act, from, to): (Act, u64, u64)) {
        let (count, part) = (to - from, from as usize..to as usize);
        let spaces = [&self.space];
        match act {
            Act::Write(word) if model[from as usize].read_only => {
                let program = Program::on(self.cpu, self.mm, &self.space);
                let refused = program.write(page::<A>(from), word);
                assert!(matches!(refused, Err(Stopped::Refused(Error::Denied(..)))));
            }
            Act::Write(word) => {
                let one = &mut model[from as usize];
                assert_eq!(self.write(from, word), is_async || !one.protected, "page {from}");
                if !is_async && one.protected {
                    self.shield(from, 1, Shield::Off);
                    assert!(self.write(from, word));
                }
                (one.word, one.protected) = (word, false);
            }
            Act::Read => assert_eq!(self.read(from), model[from as usize].word, "page {from}"),
            Act::Shield(how) => {
                let there = self.pages(PAGES, |_| true);
                let shield = [Shield::Off, Shield::Present, Shield::All][usize::from(how)];
                self.shield(from, count, shield);
                for (at, page) in (from..to).zip(&mut model[part]) {
                    page.protected = match shield {
                        Shield::Off => false,
                        Shield::Present => page.protected || there.contains(&at),
                        Shield::All => true,
                    };
                }
            }
            Act::Discard => {
                self.mm.discard(&self.space, span::<A>(from, count)).unwrap();
                for page in &mut model[part] {
                    (page.word, page.protected) = (0, false);
                }
            }
            Act::Protect(read_only) => {
                let prot = if read_only { Prot::READ } else { Prot::RW };
                let _op = self.cpu.operation("protect");
                self.mm.protect(&self.space, span::<A>(from, count), prot).unwrap();
                model[part].iter_mut().for_each(|page| page.read_only = read_only);
            }
            Act::Fork => {
                let child = self.mm.fork(&self.space, Asid(9)).unwrap();
                assert!(self.seen(&child, PAGES).iter().all(|seen| !is_protected(seen)));
                verify(self.mm, &[&self.space, &child]);
                self.cpu.leave();
                self.mm.destroy(child);
            }
            Act::Out => {
                let out = span::<A>(from, count);
                let done = self.mm.paging().page_out(&self.space, out, Scope::All, &spaces[..]);
                done.unwrap();
                for (id, ..) in self.mm.paging().devices() {
                    self.disk.write_back(self.mm, id, &spaces).unwrap();
                }
            }
            Act::Move => {
                let pages = span::<A>(from, count);
                self.mm.paging().migrate(&self.space, pages, &spaces[..]).unwrap();
            }
            Act::Release => {
                self.shield(from, 1, Shield::Off);
                model[from as usize].protected = false;
            }
        }
        let all = (0..PAGES).filter(|at| model[*at as usize].protected);
        assert_eq!(self.protected(PAGES), all.collect::<Vec<_>>(), "{}: {act:?}", A::NAME);
    }
}

fn as_the_model<A: Arch>(config: Config, is_async: bool, acts: &[(Act, u64, u64)]) {
    let events = match is_async {
        true => WatchFor::WRITE | WatchFor::ASYNC,
        false => WatchFor::WRITE,
    };
    play::<A>(config, &[2, contiguous::<A>()], (PAGES, events), |scene| {
        let swap = scene.mm.paging().swap_on(1024).unwrap();
        let mut model = [Page::default(); PAGES as usize];
        for act in acts {
            scene.act(&mut model, is_async, *act);
        }
        for (at, page) in (0..).zip(&model) {
            assert_eq!(scene.read(at), page.word, "{}: page {at}", A::NAME);
        }
        verify(scene.mm, &[&scene.space]);
        scene.mm.discard(&scene.space, span::<A>(0, PAGES)).unwrap();
        scene.mm.paging().swap_off(swap).unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn i17_protection_is_as_a_model_of_pages_says(acts in acts(), is_async in any::<bool>()) {
        as_the_model::<X86_64>(Config::x86_64(), is_async, &acts);
        as_the_model::<Arm4k>(Config::arm64_4k(), is_async, &acts);
        as_the_model::<Sv39>(Config::riscv64_sv39(), is_async, &acts);
    }
}
