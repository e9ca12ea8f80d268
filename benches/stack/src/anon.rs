//! Calls on anonymous memory: spaces, areas, faults, fork, swap, reclaim.

use quire::arch::Arch;
use quire::cache::FileId;
use quire::hw::{FrameRun, Memory as _, Reuse};
use quire::space::{Advice, AreaFlags, At, Request};
use quire::units::{Access, Asid, Order, PageSpan, Prot, Vpn};
use quire::{Move, Need, ScanCursor, ScanLimits, Scope, Stop};

use crate::paint::Paint;
use crate::{FAULT, Format, LONG, Memory, Space, WINDOW};

const BLOCK: u64 = 512;

/// A process, and the pages of it that the calls are about.
struct Process<'m> {
    mm: &'m Memory,
    space: Space,
}

fn part(span: PageSpan, from: u64, pages: u64) -> PageSpan {
    PageSpan::new(span.start.add(from), span.start.add(from + pages))
}

impl Process<'_> {
    fn map(&self, pages: u64, flags: AreaFlags) -> PageSpan {
        self.mm.map(&self.space, &Request::anon(pages).flags(flags)).expect("there is room")
    }

    /// Accesses every page of `span`, as a CPU without a TLB would.
    fn touch(&self, span: PageSpan, access: Access) {
        for at in 0..span.count() {
            self.fault(span.start.add(at), access);
        }
    }

    /// Resolves a fault, and reads what it lacks.
    fn fault(&self, page: Vpn, access: Access) {
        while let Err(stop) = self.mm.fault(&self.space, page, access) {
            let Stop::Need(Need::Read(reads)) = stop else { panic!("{stop}") };
            crate::files::read(self.mm, reads);
        }
    }
}

/// Measures them all.
pub fn measure(mm: &Memory, paint: &mut Paint) {
    mm.policy().set_sizes("64K:always;2M:madvise", Format::PAGE_SHIFT).expect("sizes of the ISA");
    let mut place = None;
    let mut root = Some(root(mm));
    paint.measure("space_in", LONG, || {
        let root = root.take().expect("once");
        mm.space_in(&mut place, root, Asid(1), WINDOW).expect("sound");
    });
    let parent = Process { mm, space: place.take().expect("it is there") };
    areas(&parent, paint);
    faults(&parent, paint);
    let mut child = None;
    fork(&parent, &mut child, paint);
    let child = Process { mm, space: child.expect("memory") };
    written(&parent, &child, paint);
    pages_move(&parent, paint);
    leave(&parent, &child, paint);
    let mut spaces = [Some(parent.space), Some(child.space)];
    paint.measure("destroy_in", LONG, || {
        spaces.iter_mut().for_each(|space| mm.destroy_in(space));
    });
}

/// A root table without entries of a kernel.
pub fn root(mm: &Memory) -> FrameRun {
    let run = mm.phys().alloc(Order::ZERO).expect("memory");
    mm.hardware().clear(&run, 0..1, Reuse::Soon);
    run.dirtied()
}

fn areas(of: &Process<'_>, paint: &mut Paint) {
    let (mm, space) = (of.mm, &of.space);
    paint.measure("map", LONG, || {
        for number in 0..200 {
            let prot = if number % 2 == 0 { Prot::READ } else { Prot::READ | Prot::WRITE };
            mm.map(space, &Request::anon(3).prot(prot)).expect("there is room");
        }
    });
    let area = of.map(8 * BLOCK, AreaFlags::HUGE);
    of.touch(part(area, 0, 6 * BLOCK), Access::Write);
    paint.measure("protect", FAULT, || {
        mm.protect(space, part(area, 100, 700), Prot::READ).expect("mapped");
        mm.protect(space, part(area, 700, 3), Prot::READ | Prot::WRITE).expect("mapped");
    });
    paint.measure("advise", FAULT, || {
        mm.advise(space, part(area, 77, 900), Advice::NoHuge).expect("mapped");
    });
    paint.measure("mlock", FAULT, || mm.mlock(space, part(area, 9, 99)).expect("memory"));
    paint.measure("munlock", FAULT, || {
        mm.spaces().munlock(space, part(area, 9, 99)).expect("mapped");
    });
    paint.measure("guard", FAULT, || {
        mm.spaces().guard(space, part(area, 1500, 100)).expect("mapped");
    });
    paint.measure("unguard", FAULT, || {
        mm.spaces().unguard(space, part(area, 1530, 20)).expect("mapped");
    });
    paint.measure("track", FAULT, || {
        mm.spaces().track(space, part(area, 2000, 300)).expect("mapped");
    });
    paint.measure("free_lazily", LONG, || {
        mm.spaces().free_lazily(space, part(area, 2100, 10)).expect("mapped");
    });
    paint.measure("discard", FAULT, || {
        mm.discard(space, part(area, 1300, 600)).expect("mapped");
    });
    paint.measure("unmap", FAULT, || {
        mm.unmap(space, part(area, 2500, 10)).expect("mapped");
        mm.unmap(space, WINDOW).expect("mapped");
    });
}

fn faults(of: &Process<'_>, paint: &mut Paint) {
    let (mm, space) = (of.mm, &of.space);
    let area = of.map(64, AreaFlags::NORESERVE);
    paint.measure("fault: 64K", FAULT, || of.touch(area, Access::Write));
    let area = of.map(4 * BLOCK, AreaFlags::HUGE);
    paint.measure("fault: 2M", FAULT, || of.touch(part(area, 0, 2 * BLOCK), Access::Write));
    let area = of.map(64, AreaFlags::NOHUGE);
    paint.measure("fault: base page", FAULT, || of.touch(part(area, 0, 40), Access::Read));
    paint.measure("fault: present", FAULT, || of.touch(part(area, 0, 40), Access::Write));
    let stack = mm
        .map(
            space,
            &Request::anon(4).at(At::Fixed(Vpn::new(0x80_0000))).flags(AreaFlags::GROWS_DOWN),
        )
        .expect("there is room");
    paint.measure("fault: a stack grows", FAULT, || {
        of.fault(Vpn::new(stack.start.get() - 20), Access::Write);
    });
    paint.measure("fault: refused", FAULT, || {
        mm.fault(space, Vpn::new(0x90_0000), Access::Write).expect_err("there is no area");
    });
    let area = of.map(4 * BLOCK, AreaFlags::HUGE);
    paint.measure("populate", FAULT, || {
        mm.populate(space, part(area, 10, 3 * BLOCK)).expect("memory");
    });
    paint.measure("populate_written", FAULT, || {
        mm.populate_written(space, part(area, 0, 3 * BLOCK)).expect("memory");
    });
    paint.measure("pin", FAULT, || {
        let pinned = mm.pin(space, area.start.add(3), Access::Write).expect("memory");
        mm.unpin(pinned);
    });
}

fn fork(of: &Process<'_>, child: &mut Option<Space>, paint: &mut Paint) {
    let (mm, space) = (of.mm, &of.space);
    let area = of.map(BLOCK, AreaFlags::HUGE);
    of.touch(part(area, 0, 100), Access::Write);
    let pinned = mm.pin(space, area.start.add(3), Access::Write).expect("memory");
    let mut root = Some(root(mm));
    paint.measure("fork_in", LONG, || {
        let root = root.take().expect("once");
        mm.fork_in(child, space, root, Asid(2)).expect("memory");
    });
    mm.unpin(pinned);
}

/// Writes of a child and of its parent.
fn written(parent: &Process<'_>, child: &Process<'_>, paint: &mut Paint) {
    let areas = |process: &Process<'_>, act: &dyn Fn(PageSpan)| {
        for area in process.mm.spaces().areas(&process.space, WINDOW) {
            act(area.span);
        }
    };
    paint.measure("fault: COW", FAULT, || {
        areas(child, &|span| child.fault(span.start.add(span.count() / 2), Access::Write));
    });
    paint.measure("fault: COW, no longer shared", FAULT, || {
        areas(parent, &|span| parent.touch(part(span, 0, span.count().min(600)), Access::Write));
    });
}

fn pages_move(of: &Process<'_>, paint: &mut Paint) {
    let (mm, space) = (of.mm, &of.space);
    let area = of.map(4 * BLOCK, AreaFlags::HUGE);
    of.touch(area, Access::Write);
    paint.measure("remap", LONG, || {
        let to = |page| Move::To(Vpn::new(page));
        mm.remap(space, part(area, 10, 600), 600, to(0xa0_0007)).expect("there is room");
        mm.remap(space, part(area, 1024, 1024), 1024, to(0xb0_0000)).expect("there is room");
        let at = PageSpan::new(Vpn::new(0xb0_0000), Vpn::new(0xb0_0400));
        mm.remap(space, at, 3000, Move::Allowed).expect("there is room");
        mm.remap(space, part(area, 0, 10), 5, Move::Never).expect("it is there");
    });
}

/// Pages leave for a swap device, and come back; memory is reclaimed and collapsed.
fn leave(parent: &Process<'_>, child: &Process<'_>, paint: &mut Paint) {
    let (mm, space) = (parent.mm, &parent.space);
    let both = [space, &child.space];
    let spaces = &both[..];
    let mut swap = FileId(0);
    paint.measure("swap_on", FAULT, || swap = mm.paging().swap_on(1 << 14).expect("once"));
    let area = parent.map(2 * BLOCK, AreaFlags::HUGE);
    parent.touch(area, Access::Write);
    paint.measure("page_out", LONG, || {
        mm.paging().page_out(space, part(area, 0, BLOCK), Scope::Own, spaces).expect("mapped");
        mm.paging().page_out(space, WINDOW, Scope::All, spaces).expect("mapped");
    });
    paint.measure("write to swap", LONG, || crate::files::write(mm, swap, spaces));
    paint.measure("fault: swap", FAULT, || parent.touch(area, Access::Write));
    parent.map(64, AreaFlags::NORESERVE);
    paint.measure("reclaim", LONG, || while mm.reclaim().reclaim(2000, spaces).pages() > 0 {});
    crate::files::write(mm, swap, spaces);
    parent.touch(part(area, 0, BLOCK + 100), Access::Read);
    mm.discard(space, part(area, 300, 5)).expect("mapped");
    paint.measure("collapse", LONG, || {
        let _ = mm.reclaim().collapse(space, area, Format::block_order());
    });
    mm.discard(space, part(area, 300, 5)).expect("mapped");
    let limits = ScanLimits { none: 511, swapped: 512, shared: 512, hard: true };
    paint.measure("scan", LONG, || {
        let mut cursor = ScanCursor::default();
        for _ in 0..64 {
            let scanned = mm.reclaim().scan(&mut cursor, 4096, &limits, spaces);
            if let Some(reads) = scanned.reads {
                crate::files::read(mm, reads);
            }
        }
    });
    paint.measure("age", LONG, || {
        mm.reclaim().age_all(spaces);
    });
    paint.measure("drop_zeroes", LONG, || {
        mm.reclaim().drop_zeroes(space, area).expect("mapped");
    });
    paint.measure("swap_off", LONG, || {
        for of in both {
            let mut from = WINDOW.start;
            while let Some(page) = mm.paging().next_swapped(of, swap, from) {
                while let Err(Stop::Need(Need::Read(reads))) = mm.paging().swap_in_page(of, page) {
                    crate::files::read(mm, reads);
                }
                from = page.add(1);
            }
        }
        let _ = mm.paging().swap_off(swap);
    });
}
