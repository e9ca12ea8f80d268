//! The scene: a program, its areas, and one fault that is recorded.
//!
//! The area in which it happens is eight folios long, and one page in the neighbourhood is mapped
//! already. So there is room for the folio, but not for one four times as large, which would take
//! that page's place, nor for one sixteen times as large, which the area is too short for. The
//! tour then has a reason to tell for every size.

use anyhow::{Context, Result, anyhow, bail};
use quire::fault::SizePolicy;
use quire::limits::{ORDER_MAX, ORDERS};
use quire::phys::{CpuCache, Kind, Slot, Zone};
use quire::space::{Area, Request, Space};
use quire::stats::{Counters, Totals};
use quire::{Mm, Parts, Resolved};
use quire_arch::{Arch, Attrs, Entry};
use quire_hw::{Chosen, Hardware};
use quire_machine::{Config, Counts, Machine, Trap};
use quire_sim::system;
use quire_units::{Access, Asid, FrameSpan, Order, PageSpan, Pfn, Prot, VirtAddr, Vpn};

use super::recorder::{Effect, Recorder};
use crate::isa::{Isa, with_isa};
use crate::size::Size;

/// How many times as large as the folio the area is, as a power of two.
const AREA: u8 = 3;
/// The larger sizes that are wanted as well, as powers of two times the folio.
const ALSO: [u8; 2] = [2, 4];
/// RAM beside the folio.
const MARGIN: u64 = 32 << 20;

/// The traces of a fault, from which the whole story is told.
pub(super) struct Evidence {
    pub(super) format: &'static str,
    pub(super) page_shift: u32,
    pub(super) addr: VirtAddr,
    pub(super) page: Vpn,
    pub(super) trap: Trap,
    /// Counts of the MMU for the access that trapped.
    pub(super) missed: Counts,
    /// How many areas the program has, and the one it touched.
    pub(super) areas: u64,
    pub(super) area: Area,
    /// The sizes that the policy wants, as a mask of orders.
    pub(super) wanted: u32,
    pub(super) before: Totals,
    pub(super) after: Totals,
    /// Free frames by order before and after, and those in the CPU's cache.
    pub(super) free: [[u64; ORDERS]; 2],
    pub(super) cached: [u64; 2],
    pub(super) effects: Vec<Seen>,
    pub(super) pages: PageSpan,
    pub(super) order: Order,
    pub(super) entries: u64,
    pub(super) clears: Chosen,
    /// Counts of the MMU for the access when it was tried again.
    pub(super) hit: Counts,
    pub(super) value: u64,
}

/// An effect with the use of its frame and, for a word of a table, its meaning.
pub(super) struct Seen {
    pub(super) effect: Effect,
    pub(super) place: Place,
}

/// The use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A node of the area tree.
    Node,
    /// A table, its level above the last, and the meaning of the word.
    Table { level: u8, entry: Entry },
    /// Something else.
    Other,
}

/// How much RAM the scene for folios of `size` takes. Blocks are aligned, as RAM is; so the first
/// of that size is whole.
pub(super) fn ram_bytes(size: Size, page_shift: u32) -> u64 {
    // Base pages of 64 KiB make tables 16 times as large.
    size.bytes().max(1 << 21) + (MARGIN << (page_shift - 12))
}

/// The traces of a fault that gives a folio of `size`, in the format `isa`.
pub(super) fn record(isa: Isa, size: Size) -> Result<Evidence> {
    with_isa!(isa, A => record_as::<A>(isa.config(), size))
}

fn record_as<A: Arch>(config: Config, size: Size) -> Result<Evidence> {
    let order = Order::of_bytes(size.bytes(), A::PAGE_SHIFT)
        .ok_or_else(|| anyhow!("{} has no folios of {size}", A::NAME))?;
    let mut ram = system::ram(usize::try_from(ram_bytes(size, A::PAGE_SHIFT))?)?;
    // A caller that has the bytes may have written them: then there is memory to clear.
    let _ = ram.bytes_mut();
    let (machine, frames) = Machine::new(config, &mut ram)?;
    let recorder = Recorder::new(&machine);
    let all = frames.span();
    let mut slots: Vec<Slot> = (0..all.count).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new()];
    let counters = [Counters::new()];
    let mut zones = [Zone::new(all)];
    let parts = Parts::new(all.start, &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<A, _>::new(&recorder, parts).map_err(|e| anyhow!("{e:?}"))?;
    mm.add(frames).map_err(|e| anyhow!("{e:?}"))?;
    play(&machine, &recorder, &mm, order)
}

fn play<A: Arch>(
    machine: &Machine<'_>,
    recorder: &Recorder<'_, '_>,
    mm: &Mm<'_, A, Recorder<'_, '_>>,
    order: Order,
) -> Result<Evidence> {
    let mut wanted = 1 << order.get() & !1;
    for more in ALSO.map(|more| order.get() + more).into_iter().filter(|o| *o <= ORDER_MAX.get()) {
        wanted |= 1 << more;
    }
    let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
    let space = mm.space(Asid(1), window)?;
    let cpu = machine.cpu(0);
    space.enter(cpu.number());
    cpu.switch(space.root(), space.asid());
    let page = furnish(mm, &space, order, wanted)?;
    let addr = page.addr(A::PAGE_SHIFT);

    let (free, cached) = (mm.phys().free_by_order(), cached(mm)?);
    let before = mm.totals();
    let counts = machine.counts();
    let Err(trap) = cpu.write(addr, VALUE) else { bail!("the access did not trap") };
    let missed = machine.counts() - counts;
    let access = Access::Write;
    let (resolved, effects) = recorder.listen(|| mm.fault(&space, page, access));
    let Resolved::Mapped(installed) = resolved? else { bail!("nothing was mapped") };
    let counts = machine.counts();
    cpu.write(addr, VALUE).map_err(|trap| anyhow!("it trapped again: {trap}"))?;
    let hit = machine.counts() - counts;
    let value = cpu.read(addr).map_err(|trap| anyhow!("it trapped again: {trap}"))?;
    machine.audit().map_err(|e| anyhow!("the examiner objects: {e}"))?;

    let mut area = None;
    mm.spaces()
        .folio_map(&space, |map| area = area.or(map.area.span.contains(page).then_some(map.area)));
    let evidence = Evidence {
        format: A::NAME,
        page_shift: A::PAGE_SHIFT,
        addr,
        page,
        trap,
        missed,
        areas: space.area_count(),
        area: area.context("the area is gone")?,
        wanted,
        before,
        after: mm.totals(),
        free: [free, mm.phys().free_by_order()],
        cached: [cached, self::cached(mm)?],
        effects: effects.into_iter().map(|effect| see(mm, effect)).collect(),
        pages: installed.pages,
        order: installed.order,
        entries: installed.entries,
        clears: Chosen::default_with_vectors(),
        hit,
        value,
    };
    cpu.leave();
    drop(cpu);
    mm.destroy(space);
    Ok(evidence)
}

/// The value that the program stores.
const VALUE: u64 = 42;

/// Maps the program's areas and the page in the neighbourhood, and sets the policy. Returns the
/// page that the program is going to touch.
fn furnish<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    space: &Space<A>,
    order: Order,
    wanted: u32,
) -> Result<Vpn> {
    // Every order from 1 to the largest has a choice, so none is refused.
    let set = |order: u8, choice| mm.policy().set_size(Order::new(order), choice).ok();
    mm.map(space, &Request::anon(100).prot(Prot::READ | Prot::EXEC))?;
    // An area is aligned to the largest folio that is wanted and fits: so the whole of this one is.
    let whole = (order.get() + AREA).min(ORDER_MAX.get());
    set(whole, SizePolicy::Always);
    let area = mm.map(space, &Request::anon(order.pages() << AREA))?;
    set(whole, SizePolicy::Never);
    // The second folio of the area is going to be faulted in; a page of the first is there.
    mm.fault(space, area.start, Access::Write)?;
    // The areas change after that fault, so that the next one cannot begin with its record.
    mm.map(space, &Request::anon(33).prot(Prot::READ))?;
    for order in (1..=ORDER_MAX.get()).filter(|order| wanted >> order & 1 != 0) {
        set(order, SizePolicy::Always);
    }
    Ok(area.start.add(order.pages() + order.pages() * 5 / 8))
}

/// The number of frames in the CPU's cache.
fn cached<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>) -> Result<u64> {
    Ok(mm.phys().check().map_err(|e| anyhow!("{e:?}"))?.cached)
}

/// Finds out what the frame of an effect is.
fn see<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, effect: Effect) -> Seen {
    let word = match effect {
        Effect::Load { frame, word, .. } => Some((frame, word)),
        Effect::Fill { frame, first, .. } => Some((frame, first)),
        Effect::Exchange { frame, new, .. } => Some((frame, new)),
        _ => None,
    };
    let state = |frame: Pfn| Some((mm.bare_phys().meta().slot(frame)?.state(), frame));
    let place = match word.and_then(|(frame, word)| Some((state(frame)?.0, word))) {
        Some((state, _)) if state.kind() == Kind::Node => Place::Node,
        Some((state, word)) if state.kind() == Kind::Table => {
            let level = state.order();
            Place::Table { level, entry: A::decode(word, quire_arch::Level::new(level)) }
        }
        _ => Place::Other,
    };
    Seen { effect, place }
}

/// The frames of a run.
pub(super) fn frames(span: FrameSpan) -> String {
    match span.count {
        1 => format!("frame {:#x}", span.start.get()),
        _ => format!("frames {:#x} to {:#x}", span.start.get(), span.end().get() - 1),
    }
}

/// The rights and flags of a leaf, in words.
pub(super) fn grants(attrs: Attrs) -> String {
    let names = [
        (Attrs::READ, "read"),
        (Attrs::WRITE, "write"),
        (Attrs::EXEC, "execute"),
        (Attrs::USER, "user"),
        (Attrs::YOUNG, "young"),
        (Attrs::DIRTY, "dirty"),
    ];
    let set = names.iter().filter(|(attr, _)| attrs.contains(*attr));
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}
