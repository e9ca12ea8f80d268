//! Several swap devices at once (D2): no page is taken for one of another device, each device comes
//! back after it went, and what it lends comes back when nothing refers to it any more.

use quire::cache::{FileId, FilePages};
use quire::space::{AreaFlags, Space};
use quire::{Error, Need, Scope, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::Disk;
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, Vpn};

const NONE: AreaFlags = AreaFlags::empty();

/// A system with its disks, and one CPU that runs programs.
struct Scene<'s, 'm, 'r, A: Arch> {
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: &'s Cpu<'m, 'r>,
    disk: Disk,
}

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn write(&self, space: &Space<A>, at: u64, word: u64) {
        let done = self.touch(|| {
            let program = Program::on(self.cpu, self.mm, space);
            program.write(page::<A>(at), word).map(drop)
        });
        done.unwrap_or_else(|stopped| panic!("page {at}: {stopped:?}"));
    }

    fn read(&self, space: &Space<A>, at: u64) -> u64 {
        let done = self.touch(|| Program::on(self.cpu, self.mm, space).read(page::<A>(at)));
        done.unwrap_or_else(|stopped| panic!("page {at}: {stopped:?}"))
    }

    /// Repeats an access until the disks have what it needs.
    fn touch<T>(&self, access: impl Fn() -> Result<T, Stopped>) -> Result<T, Stopped> {
        loop {
            match access() {
                Err(Stopped::Needs(Need::Read(reads))) => self.disk.serve(self.mm, reads)?,
                done => return done,
            }
        }
    }

    /// Pages `count` pages from `from` on out, all of them, and writes them to their devices.
    fn out(&self, from: u64, count: u64, spaces: &[&Space<A>]) {
        let paging = self.mm.paging();
        let done = paging.page_out(spaces[0], span::<A>(from, count), Scope::All, spaces);
        assert_eq!(done.map(|out| (out.pages >= count, out.stay)), Ok((true, 0)));
        for (id, ..) in self.mm.paging().devices() {
            self.disk.write_back(self.mm, id, spaces).expect("no slot is bad");
        }
    }

    /// Brings everything back from a device, and takes it out of use.
    fn off(&self, id: FileId, spaces: &[&Space<A>]) {
        let paging = self.mm.paging();
        paging.swap_closing(id, true).expect("it is in use");
        for space in spaces {
            while let Some(at) = paging.next_swapped(space, id, Vpn::new(0)) {
                match paging.swap_in_page(space, at) {
                    Ok(()) => {}
                    Err(Stop::Need(Need::Read(reads))) => self.disk.serve(self.mm, reads).unwrap(),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
        paging.swap_off(id).expect("nothing refers to it");
    }

    /// How many slots of a device are in use.
    fn used(&self, id: FileId) -> u64 {
        let all = self.mm.paging().devices();
        all.filter(|device| device.0 == id).map(|(.., used)| used).sum()
    }
}

/// Plays where folios of `sizes` are wanted.
fn play<A: Arch>(config: Config, sizes: &[u8], act: impl Fn(&Scene<'_, '_, '_, A>)) {
    stage::<A>(config, 4096, sizes, |mm, cpu| act(&Scene { mm, cpu, disk: Disk::new() }));
}

fn tells_apart<A: Arch>(config: Config) {
    play::<A>(config, &[2], |scene| {
        let mm = scene.mm;
        mm.policy().set_copy_most(Order::ZERO);
        let parent = space_of(mm, 4, NONE);
        (0..4).for_each(|at| scene.write(&parent, at, 1 + at));
        let child = mm.fork(&parent, Asid(2)).unwrap();
        let one = mm.paging().swap_on(64).unwrap();
        scene.out(0, 4, &[&parent, &child]);
        let other = mm.paging().swap_on(64).unwrap();
        mm.paging().swap_closing(one, true).unwrap();
        // Pages 0 and 1 of the child are its own, and go to slots 0 and 1 of the other device: the
        // numbers that the parent's pages have on the first.
        (0..2).for_each(|at| scene.write(&child, at, 11 + at));
        scene.out(0, 4, &[&child, &parent]);
        assert_eq!((scene.used(one), scene.used(other)), (4, 2));
        // The parent brings the folio of all four back.
        assert_eq!(scene.read(&parent, 0), 1);
        // The child's pages 2 and 3 belong to that folio, and the pages before them do not.
        assert_eq!([2, 3, 0, 1].map(|at| scene.read(&child, at)), [3, 4, 11, 12]);
        assert_eq!([0, 1, 2, 3].map(|at| scene.read(&parent, at)), [1, 2, 3, 4]);
        verify(mm, &[&parent, &child]);
        scene.cpu.leave();
        mm.destroy(parent);
        mm.destroy(child);
        [one, other].iter().for_each(|id| mm.paging().swap_off(*id).unwrap());
    });
}

#[test]
fn d2_a_page_on_one_device_is_not_taken_for_one_of_another() {
    tells_apart::<X86_64>(Config::x86_64());
    tells_apart::<Arm4k>(Config::arm64_4k());
}

#[test]
fn d2_only_the_pages_of_its_device_are_found_before_it_goes() {
    play::<X86_64>(Config::x86_64(), &[], |scene| {
        let (mm, space) = (scene.mm, space_of(scene.mm, 4, NONE));
        (0..2).for_each(|at| scene.write(&space, at, 1 + at));
        let one = mm.paging().swap_on(64).unwrap();
        scene.out(0, 1, &[&space]);
        let other = mm.paging().swap_on(64).unwrap();
        mm.paging().swap_closing(one, true).unwrap();
        scene.out(1, 1, &[&space]);
        let next = |id| mm.paging().next_swapped(&space, id, Vpn::new(0));
        assert_eq!([one, other].map(next), [Some(page::<X86_64>(0)), Some(page::<X86_64>(1))]);
        scene.off(one, &[&space]);
        assert_eq!([0, 1].map(|at| scene.read(&space, at)), [1, 2]);
        scene.cpu.leave();
        mm.destroy(space);
        mm.paging().swap_off(other).unwrap();
    });
}

#[test]
fn d2_a_device_that_went_takes_pages_when_it_comes_back() {
    play::<X86_64>(Config::x86_64(), &[], |scene| {
        let (mm, space) = (scene.mm, space_of(scene.mm, 8, NONE));
        (0..8).for_each(|at| scene.write(&space, at, 1 + at));
        for _ in 0..3 {
            let id = mm.paging().swap_on(16).unwrap();
            scene.out(0, 8, &[&space]);
            assert_eq!(scene.used(id), 8);
            scene.off(id, &[&space]);
            assert_eq!(mm.paging().devices().count(), 0);
        }
        assert_eq!([0, 7].map(|at| scene.read(&space, at)), [1, 8]);
        scene.cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn d2_a_device_that_could_not_go_takes_pages_as_before() {
    play::<X86_64>(Config::x86_64(), &[], |scene| {
        let (mm, space) = (scene.mm, space_of(scene.mm, 8, NONE));
        (0..8).for_each(|at| scene.write(&space, at, 1 + at));
        let id = mm.paging().swap_on(16).unwrap();
        scene.out(0, 1, &[&space]);
        assert_eq!(mm.paging().swap_off(id), Err(Error::InUse(id)));
        scene.out(1, 7, &[&space]);
        // A device that was closing before goes on closing.
        mm.paging().swap_closing(id, true).unwrap();
        assert_eq!(mm.paging().swap_off(id), Err(Error::InUse(id)));
        assert_eq!(scene.read(&space, 0), 1);
        let span = span::<X86_64>(0, 1);
        scene.write(&space, 0, 9);
        let done = mm.paging().page_out(&space, span, Scope::All, &[&space][..]).unwrap();
        assert_eq!(done.pages, 0, "no page goes there any more");
        scene.cpu.leave();
        mm.destroy(space);
        mm.paging().swap_off(id).unwrap();
    });
}

/// The frames of a device that went become clusters of another: a CPU that took slots from it last
/// takes none of the other's.
#[test]
fn d2_a_device_that_comes_back_knows_no_cluster_of_its_former_life() {
    play::<X86_64>(Config::x86_64(), &[], |scene| {
        let (mm, space) = (scene.mm, space_of(scene.mm, 8, NONE));
        (0..8).for_each(|at| scene.write(&space, at, 1 + at));
        let one = mm.paging().swap_on(64).unwrap();
        let other = mm.paging().swap_on(64).unwrap();
        mm.paging().swap_closing(one, true).unwrap();
        scene.out(0, 2, &[&space]);
        assert_eq!(scene.used(other), 2);
        [other, one].iter().for_each(|id| scene.off(*id, &[&space]));
        // The first device is larger now, and has the frames of both.
        let one = mm.paging().swap_on(4096).unwrap();
        scene.out(0, 2, &[&space]);
        let other = mm.paging().swap_on(64).unwrap();
        mm.paging().swap_closing(one, true).unwrap();
        scene.out(2, 2, &[&space]);
        assert_eq!([one, other].map(|id| scene.used(id)), [2, 2]);
        verify(mm, &[&space]);
        assert_eq!([0, 1, 2, 3].map(|at| scene.read(&space, at)), [1, 2, 3, 4]);
        scene.cpu.leave();
        mm.destroy(space);
        [one, other].iter().for_each(|id| mm.paging().swap_off(*id).unwrap());
    });
}

/// A device is used before those behind it, and folios leave whole where any device has room.
#[test]
fn d2_the_first_device_with_a_run_of_slots_takes_a_folio_whole() {
    play::<X86_64>(Config::x86_64(), &[2], |scene| {
        let (mm, space) = (scene.mm, space_of(scene.mm, 16, NONE));
        (0..16).for_each(|at| scene.write(&space, at, 1 + at));
        let small = mm.paging().swap_on(6).unwrap();
        let other = mm.paging().swap_on(64).unwrap();
        let before = mm.totals();
        scene.out(0, 8, &[&space]);
        assert_eq!([small, other].map(|id| scene.used(id)), [4, 4]);
        scene.out(8, 8, &[&space]);
        assert_eq!([small, other].map(|id| scene.used(id)), [4, 12]);
        let whole = mm.totals().swpout[2] - before.swpout[2];
        assert_eq!((whole, mm.totals().swpout_fallback[2] - before.swpout_fallback[2]), (4, 0));
        (0..16).for_each(|at| assert_eq!(scene.read(&space, at), 1 + at));
        scene.cpu.leave();
        mm.destroy(space);
        [small, other].iter().for_each(|id| mm.paging().swap_off(*id).unwrap());
    });
}

/// Small pages fill `clusters` times a folio's slots, and leave them in another order; then folios
/// as large take them whole.
fn comes_back_whole<A: Arch>(config: Config, order: Order, clusters: u64, slots: u64) {
    play::<A>(config, &[], |scene| {
        let (mm, pages) = (scene.mm, clusters * order.pages());
        let space = space_of(mm, pages, NONE);
        let id = mm.paging().swap_on(slots).unwrap();
        (0..pages).for_each(|at| scene.write(&space, at, 1 + at));
        scene.out(0, pages, &[&space]);
        for odd in [1, 0] {
            (0..pages / 2).for_each(|at| scene.write(&space, 2 * at + odd, 1 + 2 * at + odd));
        }
        mm.files().drop_clean(id, FilePages::new(0, slots)).unwrap();
        assert_eq!(scene.used(id), 0, "no entry refers to a slot");
        let done = mm.reclaim().collapse(&space, span::<A>(0, pages), order);
        assert_eq!(done.map(|done| done.made), Ok(clusters));
        let before = mm.totals();
        scene.out(0, pages, &[&space]);
        let (order, after) = (order.index(), mm.totals());
        assert_eq!(after.swpout[order] - before.swpout[order], clusters, "all leave whole");
        assert_eq!(after.swpout_fallback[order], before.swpout_fallback[order]);
        scene.cpu.leave();
        mm.destroy(space);
        mm.paging().swap_off(id).unwrap();
    });
}

#[test]
fn d2_large_folios_leave_whole_where_small_ones_were() {
    let block = X86_64::block_order();
    comes_back_whole::<X86_64>(Config::x86_64(), block, 2, 2 * block.pages());
}

#[test]
fn d2_large_folios_leave_whole_also_where_a_device_ends_within_a_cluster() {
    comes_back_whole::<X86_64>(Config::x86_64(), Order::new(5), 1, 50);
}

fn comes_back_at_the_end_of_its_table<A: Arch>(config: Config) {
    play::<A>(config, &[], |scene| {
        let (mm, last) = (scene.mm, A::block_order().pages() - 1);
        let space = space_of(mm, last + 2, NONE);
        let swap = mm.paging().swap_on(64).unwrap();
        scene.write(&space, last, 7);
        scene.out(last, 1, &[&space]);
        assert_eq!(scene.read(&space, last), 7, "{}", A::NAME);
        scene.out(last, 1, &[&space]);
        scene.off(swap, &[&space]);
        assert_eq!(scene.read(&space, last), 7, "{}", A::NAME);
        scene.cpu.leave();
        mm.destroy(space);
    });
}

#[test]
fn d4_the_last_page_of_a_table_comes_back() {
    comes_back_at_the_end_of_its_table::<X86_64>(Config::x86_64());
    comes_back_at_the_end_of_its_table::<Arm4k>(Config::arm64_4k());
}
