//! A populated space with a swap device that has just as much room.
//!
//! The device keeps its data in frames of the same machine, so that a write or a read is a copy.
//! The RAM stays the host's from scene to scene: no page fault of the host is in a figure.

use std::ops::Deref;

use anyhow::{Context, Result};
use quire::cache::FileId;
use quire_arch::Arch;
use quire_hw::FrameRun;
use quire_machine::Ram;
use quire_units::FrameSpan;

use crate::bench::scene::{self, Backing, CPU, MARGIN, backed_ram};
use crate::isa::Isa;

/// RAM for `bytes` that are paged out, and for the data that the device keeps.
pub(super) fn ram_bytes(bytes: u64) -> u64 {
    2 * bytes + MARGIN
}

/// The same, backed by the host.
pub(super) fn ram(bytes: u64) -> Result<Ram> {
    backed_ram(ram_bytes(bytes))
}

/// The space and its device.
pub(super) struct Scene<'a, 's, 'm, 'r, A: Arch> {
    base: &'a scene::Scene<'s, 'm, 'r, A>,
    pub(super) device: FileId,
    /// Frames that were taken to keep account of its slots.
    pub(super) slot_frames: u64,
    /// The data of the device, a block of slots in each run.
    store: Vec<FrameRun>,
}

impl<'s, 'm, 'r, A: Arch> Deref for Scene<'_, 's, 'm, 'r, A> {
    type Target = scene::Scene<'s, 'm, 'r, A>;

    fn deref(&self) -> &Self::Target {
        self.base
    }
}

/// Works on a machine of `ram` with memory in this format and backing, and of this size in bytes.
pub(super) fn with_scene<A: Arch, T>(
    ram: &mut Ram,
    place: (Isa, Backing, u64),
    work: impl FnOnce(&Scene<'_, '_, '_, '_, A>) -> Result<T>,
) -> Result<T> {
    scene::with_scene(ram, place, false, |base: &scene::Scene<'_, '_, '_, A>| {
        let (mm, pages, block) = (base.mm, base.span.count(), A::block_order());
        let before = mm.phys().free_frames();
        let device = mm.paging().swap_on(pages)?;
        let slot_frames = before - mm.phys().free_frames();
        let store = (0..pages.div_ceil(block.pages())).map(|_| mm.bare_phys().alloc(CPU, block));
        let store = store.collect::<Option<_>>().context("the machine has too little RAM")?;
        work(&Scene { base, device, slot_frames, store })
    })
}

impl<A: Arch> Scene<'_, '_, '_, '_, A> {
    /// The number of folios of the area.
    pub(super) fn folios(&self) -> u64 {
        self.span.count() >> self.order.get()
    }

    /// The place of the slots from `slot` on, which lie in one block.
    pub(super) fn stored(&self, slot: u64) -> (&FrameRun, u64) {
        let pages = A::block_order().pages();
        (&self.store[(slot / pages) as usize], slot % pages)
    }

    /// The same as frames, `count` of them.
    pub(super) fn stored_frames(&self, slot: u64, count: u64) -> FrameSpan {
        let (run, at) = self.stored(slot);
        FrameSpan::new(run.start().add(at), count)
    }
}
