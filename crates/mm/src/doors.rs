//! Doors that stay shut: programs without `unsafe` that would make a second right to one frame.
//!
//! Each was a program that compiled before its door was sealed. None may compile again, with or
//! without the feature `inject`. Their first lines are those of this one, which does compile:
//!
//! ```
//! #![forbid(unsafe_code)]
//! use quire::arch::Arch;
//! use quire::Mm;
//! use quire::hw::Hardware;
//! use quire::units::Order;
//!
//! fn run<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>) {
//!     let run = mm.phys().alloc(Order::ZERO).unwrap();
//!     mm.phys().free(run);
//! }
//! ```
//!
//! # Through a folio's counts
//! A reference that is taken and given back was the last one.
//!
//! ```compile_fail,E0603
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::Arch, Mm, hw::{FrameRun, Hardware}};
//! use quire::folio::{Folio, Folios};
//! # use quire::units::Order;
//!
//! fn forge<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, run: &FrameRun) -> Option<FrameRun> {
//!     let folio = Folio { head: run.start(), order: Order::ZERO };
//!     let folios = Folios::new(mm.phys().meta());
//!     folios.get(folio);
//!     folios.put(folio)
//! }
//! ```
//!
//! # Through a slot
//! ```compile_fail,E0599
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::Arch, Mm, hw::{FrameRun, Hardware}};
//! fn look<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, run: &FrameRun) {
//!     let meta = mm.phys().meta();
//!     let _ = meta.slot(run.start());
//! }
//! ```
//!
//! # Through tables
//! Leaves for frames of another's.
//!
//! ```compile_fail,E0603
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::{Arch, Attrs}, hw::{FrameRun, Hardware}};
//! use quire::table::Tables;
//! # use quire::units::{PageSpan, Pfn};
//!
//! fn forge<A: Arch, H: Hardware>(tables: &Tables<'_, A, H>, mut span: PageSpan, mut of: Pfn) {
//!     let _ = tables.map(&mut span, &mut of, Attrs::WRITE, &mut None::<FrameRun>);
//! }
//! ```
//!
//! # Through a gather
//! An embedder takes a run out of its own tables and frees it before the CPUs have flushed it.
//!
//! ```compile_fail,E0603
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::Arch, Mm, hw::Hardware, units::PageSpan};
//! use quire::table::{Gather, Tables, Target};
//!
//! fn forge<A: Arch, H: Hardware>(
//!     (mm, tables): (&Mm<'_, A, H>, &Tables<'_, A, H>),
//!     (span, of_another): (PageSpan, Target<'_>),
//! ) {
//!     let mut gather = Gather::new();
//!     tables.take(span, &mut gather);
//!     gather.settle(mm.phys(), mm.hardware(), of_another);
//! }
//! ```
//!
//! # Through a section
//! The tables of a space without what its areas say.
//!
//! ```compile_fail,E0603
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::Arch, Mm, hw::Hardware};
//! use quire::space::{Section, Space, View};
//!
//! fn forge<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, space: &Space<A>) {
//!     let view = View { hw: mm.hardware(), meta: mm.phys().meta(), counters: &[], space };
//!     let _ = Section::begin(view);
//! }
//! ```
//!
//! # Through an allocator of one's own
//! Over the same frames, and past [`Hardware::freed`](crate::hw::Hardware::freed).
//!
//! ```compile_fail,E0603
//! # #![forbid(unsafe_code)]
//! # use quire::{hw::FrameRun, units::{CpuId, Pfn}};
//! use quire::phys::{CpuCache, Phys, Slot, Zone};
//!
//! fn free(slots: &mut [Slot], caches: &mut [CpuCache], run: FrameRun) {
//!     let phys = Phys::new(Pfn::new(0), slots, caches, &mut [Zone::new(run.span())]).unwrap();
//!     phys.free(CpuId::new(0), run);
//! }
//! ```
//!
//! # Through an area
//! A number of a frame is no right to map it.
//!
//! ```compile_fail,E0277
//! # #![forbid(unsafe_code)]
//! # use quire::{arch::Arch, Mm, hw::Hardware, space::{Request, Space}};
//! # use quire::units::{FrameSpan, Pfn};
//! fn show<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, space: &Space<A>) {
//!     let _ = mm.spaces().map_frames(space, &Request::anon(1), FrameSpan::new(Pfn::new(7), 1));
//! }
//! ```
//!
//! ```compile_fail,E0133
//! # use quire::{hw::ForeignFrames, units::{FrameSpan, MemoryType}};
//! fn forge(span: FrameSpan) -> ForeignFrames {
//!     ForeignFrames::new(span, MemoryType::Device)
//! }
//! ```
//!
//! A run that was kept for a mapping does not go back, and a loan ends once:
//!
//! ```compile_fail,E0382
//! # use quire::{arch::Arch, Mm, hw::{ForeignFrames, FrameRun, Hardware}, units::MemoryType};
//! fn free_as_well<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, run: FrameRun) -> ForeignFrames {
//!     let frames = ForeignFrames::keep(run, MemoryType::Usual);
//!     mm.phys().free(run);
//!     frames
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use quire::{arch::Arch, LentFrames, Mm, hw::Hardware};
//! fn end_twice<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, lent: LentFrames) {
//!     mm.spaces().release(lent);
//!     let _ = mm.spaces().take_back(lent);
//! }
//! ```
//!
//! # Doors that were never open
//! A run is no plain value:
//!
//! ```compile_fail,E0382
//! # use quire::{arch::Arch, Mm, hw::{FrameRun, Hardware}};
//! fn free_twice<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, run: FrameRun) {
//!     mm.phys().free(run);
//!     mm.phys().free(run);
//! }
//! ```
//!
//! ```compile_fail,E0451
//! # use quire::{hw::FrameRun, units::{FrameSpan, Pfn}};
//! fn forge() -> FrameRun {
//!     FrameRun { span: FrameSpan::new(Pfn::new(0), 1), zeroed: true }
//! }
//! ```
//!
//! ```compile_fail,E0133
//! # use quire::{hw::FrameRun, units::FrameSpan};
//! fn forge(span: FrameSpan) -> FrameRun {
//!     FrameRun::mint(span, true)
//! }
//! ```
//!
//! A right that is lent for a while stays with its owner:
//!
//! ```compile_fail,E0507
//! # use quire::{cache::Read, hw::FrameRun};
//! fn keep(read: &Read) -> FrameRun {
//!     *read.frames()
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use quire::{arch::Arch, Held, Mm, hw::Hardware};
//! fn release_twice<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, held: Held) {
//!     mm.files().release(held.clone());
//!     mm.files().release(held);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use quire::{arch::Arch, Mm, Pinned, hw::Hardware};
//! fn unpin_twice<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, pinned: Pinned) {
//!     mm.unpin(pinned);
//!     mm.unpin(pinned);
//! }
//! ```
