//! Operations that commute: each CPU's is about memory, pages or spaces of its own, so that their
//! order makes no difference to their callers.

use quire::{Scope, Stop};
use quire_units::{Access, Asid, Order, Prot, Vpn};

use super::scene::{PAGES, STRETCH, Scene, made, shown, touched};

/// A step of one CPU.
pub(super) type Step = fn(&Scene<'_, '_, '_>, usize) -> Result<(), Stop>;

/// An operation, what must be before it, and what takes it back.
pub(super) struct Play {
    pub(super) name: &'static str,
    /// The folio sizes that are wanted, as orders.
    pub(super) sizes: &'static [u8],
    pub(super) before: Step,
    pub(super) act: Step,
    pub(super) after: Step,
}

const PAGE: &[u8] = &[0];
const LARGE: &[u8] = &[4];
const BLOCK: &[u8] = &[9];

fn none(_: &Scene<'_, '_, '_>, _: usize) -> Result<(), Stop> {
    Ok(())
}

fn pair(scene: &Scene<'_, '_, '_>, order: u8) -> Result<(), Stop> {
    let order = Order::new(order);
    let run = scene.mm.phys().alloc(order).ok_or(quire::Error::NoMemory(order))?;
    scene.mm.phys().free(run);
    Ok(())
}

fn touch(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    scene.fault(scene.space(cpu, own), touched(cpu).start, Access::Write)
}

fn discard(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    Ok(scene.mm.discard(scene.space(cpu, own), touched(cpu))?)
}

fn map(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    scene.map(scene.space(cpu, own), made(cpu))
}

fn mapped(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    map(scene, cpu, own)?;
    scene.write(scene.space(cpu, own), made(cpu))
}

fn unmap(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    Ok(scene.mm.unmap(scene.space(cpu, own), made(cpu))?)
}

fn protect(scene: &Scene<'_, '_, '_>, cpu: usize, own: bool) -> Result<(), Stop> {
    Ok(scene.mm.protect(scene.space(cpu, own), made(cpu), Prot::READ)?)
}

fn fill(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    scene.write(&scene.own[cpu], touched(cpu))
}

fn fork(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    let asid = Asid((256 + cpu) as u16);
    scene.children.borrow_mut()[cpu] = Some(scene.mm.fork(&scene.own[cpu], asid)?);
    Ok(())
}

fn filled_and_forked(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    fill(scene, cpu)?;
    fork(scene, cpu)
}

fn end_child(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    let child = scene.children.borrow_mut()[cpu].take();
    child.into_iter().for_each(|child| scene.mm.destroy(child));
    Ok(())
}

fn write_own(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    touch(scene, cpu, true)
}

fn page_out(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    let space = &scene.own[cpu];
    let all: &[&_] = &[space];
    scene.mm.paging().page_out(space, touched(cpu), Scope::Own, all)?;
    Ok(())
}

fn paged_out(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    fill(scene, cpu)?;
    page_out(scene, cpu)?;
    scene.write_back(&scene.own[cpu])
}

fn come_back(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    scene.fault(&scene.own[cpu], touched(cpu).start, Access::Write)
}

fn forget(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    scene.write_back(&scene.own[cpu])?;
    discard(scene, cpu, true)
}

fn page_of(cpu: usize) -> u64 {
    cpu as u64 * PAGES
}

fn unmap_shown(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    let pages = quire_units::PageSpan::new(shown(0), shown(scene.own.len() as u64 * STRETCH));
    Ok(scene.mm.discard(&scene.own[cpu], pages)?)
}

/// Brings a page of the file into memory.
fn bring(scene: &Scene<'_, '_, '_>, cpu: usize) -> Result<(), Stop> {
    scene.read(cpu, 0)?;
    scene.read(cpu, page_of(cpu))
}

fn show(scene: &Scene<'_, '_, '_>, cpu: usize, page: Vpn) -> Result<(), Stop> {
    scene.fault(&scene.own[cpu], page, Access::Read)
}

/// An operation for which nothing is prepared.
const fn alone(name: &'static str, act: Step) -> Play {
    Play { name, sizes: PAGE, before: none, act, after: none }
}

/// All operations that are counted.
pub(super) const PLAYS: &[Play] = &[
    alone("allocate and free 4K", |scene, _| pair(scene, 0)),
    alone("allocate and free 64K", |scene, _| pair(scene, 4)),
    alone("allocate and free 2M", |scene, _| pair(scene, 9)),
    Play {
        after: |scene, cpu| discard(scene, cpu, false),
        ..alone("touch 4K, one space", |scene, cpu| touch(scene, cpu, false))
    },
    Play {
        sizes: LARGE,
        after: |scene, cpu| discard(scene, cpu, false),
        ..alone("touch 64K, one space", |scene, cpu| touch(scene, cpu, false))
    },
    Play {
        sizes: BLOCK,
        after: |scene, cpu| discard(scene, cpu, false),
        ..alone("touch 2M, one space", |scene, cpu| touch(scene, cpu, false))
    },
    Play {
        after: |scene, cpu| discard(scene, cpu, true),
        ..alone("touch 4K, own space", |scene, cpu| touch(scene, cpu, true))
    },
    Play {
        after: |scene, cpu| unmap(scene, cpu, false),
        ..alone("map, one space", |scene, cpu| map(scene, cpu, false))
    },
    Play {
        after: |scene, cpu| unmap(scene, cpu, true),
        ..alone("map, own space", |scene, cpu| map(scene, cpu, true))
    },
    Play {
        before: |scene, cpu| mapped(scene, cpu, false),
        ..alone("unmap, one space", |scene, cpu| unmap(scene, cpu, false))
    },
    Play {
        before: |scene, cpu| mapped(scene, cpu, true),
        ..alone("unmap, own space", |scene, cpu| unmap(scene, cpu, true))
    },
    Play {
        before: |scene, cpu| mapped(scene, cpu, false),
        after: |scene, cpu| unmap(scene, cpu, false),
        ..alone("protect, one space", |scene, cpu| protect(scene, cpu, false))
    },
    Play {
        before: |scene, cpu| mapped(scene, cpu, true),
        after: |scene, cpu| unmap(scene, cpu, true),
        ..alone("protect, own space", |scene, cpu| protect(scene, cpu, true))
    },
    Play {
        before: |scene, cpu| touch(scene, cpu, false),
        ..alone("discard, one space", |scene, cpu| discard(scene, cpu, false))
    },
    Play {
        before: |scene, cpu| touch(scene, cpu, true),
        ..alone("discard, own space", |scene, cpu| discard(scene, cpu, true))
    },
    Play { before: fill, after: end_child, ..alone("fork", fork) },
    Play { before: filled_and_forked, ..alone("end a child", end_child) },
    Play { before: filled_and_forked, after: end_child, ..alone("write to shared", write_own) },
    alone("pin and unpin", |scene, cpu| {
        touch(scene, cpu, true)?;
        scene.mm.unpin(scene.mm.pin(&scene.own[cpu], touched(cpu).start, Access::Write)?);
        Ok(())
    }),
    Play { before: bring, ..alone("read one page of a file", |scene, cpu| scene.read(cpu, 0)) },
    Play {
        before: bring,
        ..alone("read own pages of a file", |scene, cpu| scene.read(cpu, page_of(cpu)))
    },
    Play {
        before: bring,
        after: unmap_shown,
        ..alone("show one page of a file", |scene, cpu| show(scene, cpu, shown(0)))
    },
    Play {
        before: bring,
        after: unmap_shown,
        ..alone("show own pages of a file", |scene, cpu| show(scene, cpu, shown(page_of(cpu))))
    },
    Play { before: fill, after: forget, ..alone("page out 64K of pages", page_out) },
    Play { before: paged_out, after: forget, ..alone("page in 4K", come_back) },
];
