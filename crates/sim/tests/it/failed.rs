//! Memory that fails (row D4): the page is lost, and nothing else is.

use quire::cache::{FilePages, Store};
use quire::space::{AreaFlags, At, Backing, Request};
use quire::table::Sight;
use quire::{Errno, Error, Loss, Need, Scope, Stop};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::Config;
use quire_sim::program::Program;
use quire_sim::stage::{place, space_of, span, stage};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, Order, Pfn, Vpn};

const NONE: AreaFlags = AreaFlags::empty();

fn page<A: Arch>(at: u64) -> Vpn {
    place::<A>().add(at)
}

fn frame_at<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &quire::space::Space<A>, at: u64) -> Pfn {
    let mut found = None;
    mm.spaces().runs(space, span::<A>(at, 1), &mut |seen| {
        if let Sight::Leaf { frame, .. } = seen.what {
            found = Some(frame);
        }
    });
    found.expect("the page is there")
}

/// One page of a folio of 2^`order` pages is lost, and no more frames than `kept` are out of use.
fn loses_one<A: Arch>(config: Config, order: u8, shared: bool) {
    let sizes = if order > 0 { vec![order] } else { vec![] };
    stage::<A>(config, 16384, &sizes, |mm, cpu| {
        let free = mm.phys().free_frames();
        let pages = 8 << order;
        let space = space_of(mm, pages, NONE);
        let program = Program::on(cpu, mm, &space);
        (0..pages).for_each(|at| drop(program.write(page::<A>(at), at + 1).unwrap()));
        let child = shared.then(|| mm.fork(&space, Asid(2)).unwrap());
        let bad = frame_at(mm, &space, 3);
        let all: Vec<_> = core::iter::once(&space).chain(&child).collect();
        assert_eq!(mm.memory_failed(bad, &all[..]), Ok(Loss::Content));
        for of in &all {
            let program = Program::on(cpu, mm, of);
            for at in (0..pages).filter(|at| *at != 3) {
                assert_eq!(program.read(page::<A>(at)), Ok(at + 1), "{} {at}", A::NAME);
            }
            let fault = mm.fault(of, page::<A>(3), Access::Read);
            assert_eq!(fault, Err(Error::Poisoned(bad).into()));
            assert_eq!(fault.unwrap_err().errno(), Errno::EHWPOISON);
        }
        assert_eq!(mm.memory_failed(bad, &all[..]), Ok(Loss::Elsewhere), "no space maps it now");
        quire::check::system(mm, &all[..]).unwrap();
        // It goes with its area, and a new page comes in its place.
        mm.discard(&space, span::<A>(3, 1)).unwrap();
        assert_eq!(Program::on(cpu, mm, &space).read(page::<A>(3)), Ok(0));
        cpu.leave();
        child.into_iter().for_each(|child| mm.destroy(child));
        mm.destroy(space);
        let kept = if shared { 1 << order } else { 1 };
        assert_eq!(free - mm.phys().free_frames(), kept, "{}", A::NAME);
        assert!(mm.memory_mended(bad) && !mm.memory_mended(bad));
    });
}

#[test]
fn d4_one_page_of_a_folio_is_lost_and_the_others_are_not() {
    for order in [0, 4, 9] {
        loses_one::<X86_64>(Config::x86_64(), order, false);
        loses_one::<Arm4k>(Config::arm64_4k(), order, false);
        loses_one::<Sv39>(Config::riscv64_sv39(), order, false);
    }
}

#[test]
fn d4_all_that_have_a_page_lose_it() {
    for order in [0, 4, 9] {
        loses_one::<X86_64>(Config::x86_64(), order, true);
        loses_one::<Arm4k>(Config::arm64_4k(), order, true);
    }
}

#[test]
fn d4_failed_memory_is_not_paged_out() {
    stage::<X86_64>(Config::x86_64(), 8192, &[4], |mm, cpu| {
        let space = space_of(mm, 32, NONE);
        let program = Program::on(cpu, mm, &space);
        (0..32).for_each(|at| drop(program.write(page::<X86_64>(at), at + 1).unwrap()));
        let device = mm.paging().swap_on(1024).unwrap();
        let child = mm.fork(&space, Asid(2)).unwrap();
        let all = [&space, &child];
        let bad = frame_at(mm, &space, 3);
        mm.memory_failed(bad, &all[..]).unwrap();
        let out =
            mm.paging().page_out(&space, span::<X86_64>(0, 32), Scope::All, &all[..]).unwrap();
        assert_eq!((out.pages, out.stay), (16, 1), "a folio that failed is let alone");
        cpu.leave();
        mm.destroy(child);
        mm.destroy(space);
        mm.paging().swap_off(device).unwrap();
        assert!(mm.memory_mended(bad));
    });
}

/// Reads what a file with a disk of zeroes holds at a page, as a program's embedder does.
fn bring<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &quire::space::Space<A>, at: u64) {
    while let Err(Stop::Need(Need::Read(mut reads))) = mm.fault(space, page::<A>(at), Access::Write)
    {
        while let Ok(Some(read)) = mm.files().next_read(&mut reads) {
            mm.files().read_done(read, Ok(()));
        }
    }
}

/// A space that shows the eight pages of a new file twice: its own copy of it, and behind that the
/// file itself.
fn shows<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    store: Store,
) -> (quire::cache::FileId, quire::space::Space<A>) {
    let file = mm.files().open(store, 8, Order::ZERO).unwrap();
    let space = space_of(mm, 1, NONE);
    for (at, flags) in [(16, NONE), (24, AreaFlags::SHARED)] {
        let backing = Backing::File { id: file, page: 0 };
        let request = Request { backing, ..Request::anon(8) }.at(At::Fixed(page::<A>(at)));
        mm.map(&space, &request.flags(flags)).unwrap();
    }
    (file, space)
}

#[test]
fn d4_a_copy_of_a_page_stays_when_the_files_own_fails() {
    stage::<X86_64>(Config::x86_64(), 8192, &[], |mm, cpu| {
        let (file, space) = shows::<X86_64>(mm, Store::Memory);
        let program = Program::on(cpu, mm, &space);
        program.write(page::<X86_64>(24), 7).unwrap();
        program.write(page::<X86_64>(16), 8).unwrap();
        let bad = frame_at(mm, &space, 24);
        assert_eq!(mm.memory_failed(bad, &[&space][..]), Ok(Loss::Content));
        assert_eq!(
            mm.fault(&space, page::<X86_64>(24), Access::Read),
            Err(Error::Poisoned(bad).into())
        );
        assert_eq!(program.read(page::<X86_64>(16)), Ok(8), "it has memory of its own");
        // A second report changes nothing: one reference is dropped when the frame is mended.
        assert_eq!(mm.memory_failed(bad, &[&space][..]), Ok(Loss::Content));
        cpu.leave();
        mm.destroy(space);
        mm.files().close(file).unwrap();
        assert!(mm.memory_mended(bad));
    });
}

#[test]
fn d4_lost_pages_are_not_written_to_the_disk() {
    stage::<X86_64>(Config::x86_64(), 8192, &[], |mm, cpu| {
        let (file, space) = shows::<X86_64>(mm, Store::ReadWrite);
        let all = FilePages::new(0, 8);
        // Page 0 fails before it is written, and page 2 while it is.
        [24, 26].into_iter().for_each(|at| bring(mm, &space, at));
        let bad = [24, 26].map(|at| frame_at(mm, &space, at));
        assert_eq!(mm.memory_failed(bad[0], &[&space][..]), Ok(Loss::Content));
        let write = mm.files().next_write(file, &mut { all }, &[&space][..]).unwrap().unwrap();
        assert_eq!(write.pages(), FilePages::new(2, 3), "the content of page 0 is unknown");
        assert_eq!(mm.memory_failed(bad[1], &[&space][..]), Ok(Loss::Content));
        mm.files().write_done(write, Err(quire::WriteFailed));
        assert!(mm.files().next_write(file, &mut { all }, &[&space][..]).unwrap().is_none());
        // A page that is on the disk as well is read again.
        bring(mm, &space, 16 + 4);
        assert_eq!(
            mm.fault(&space, page::<X86_64>(26), Access::Read),
            Err(Error::Poisoned(bad[1]).into())
        );
        cpu.leave();
        mm.destroy(space);
        mm.files().close(file).unwrap();
        assert!(bad.into_iter().all(|bad| mm.memory_mended(bad)));
    });
}
