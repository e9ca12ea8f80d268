//! The walk: from a page to memory, through TLB, walk cache and tables.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use quire_units::{Access, CpuId, Order, PageSpan, Pfn, PhysAddr, Prot, VirtAddr, Vpn};

use crate::counters::add;
use crate::cpu::{Bank, Core, TrapKind};
use crate::examiner::{Holding, Key, Ledger, Place};
use crate::machine::Machine;
use crate::mmu::{Flaw, Leaf, Meaning, Table, survey};
use crate::tlb::{Hit, TablePointer, Translation};

/// The position of a walk.
#[derive(Clone, Copy)]
struct At {
    cpu: CpuId,
    page: Vpn,
    access: Access,
    level: u8,
    table: Pfn,
    /// The rights that the levels above allow.
    limits: Prot,
}

/// The target of an entry.
enum Step {
    Down(Table),
    /// To memory. `whole` means that the entry is part of an intact contiguous block, so any part
    /// of the block may be cached, as one translation or page by page.
    Done {
        held: Translation,
        whole: bool,
    },
}

impl Machine<'_> {
    /// Translates `addr` for `access`. The caller holds the core's lock until the access is done,
    /// so a flush, which takes the same lock, waits for it as on real CPUs.
    pub(crate) fn translate(
        &self,
        cpu: CpuId,
        core: &mut Core,
        addr: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, TrapKind> {
        let page = self.geometry.page(addr).ok_or(TrapKind::NotPresent)?;
        let root = core.root.ok_or(TrapKind::NotPresent)?;
        if let (Some(is_other), Some(mut ledger)) = (core.installed.take(), self.ledger()) {
            ledger.begins(cpu, core.asid, is_other);
        }
        let held = match self.cached(cpu, core, page, access)? {
            Some(held) => held,
            None => {
                let held = self.walk(cpu, core, root, page, access)?;
                core.tlb.insert(held);
                held
            }
        };
        let shift = self.geometry.page_shift;
        let frame = held.frame.add(page.offset_from(held.page));
        let within = addr.get() & ((1 << shift) - 1);
        Ok(frame.addr(shift).add(within))
    }

    /// A walk ended with a trap: the CPU may keep that there is no entry.
    fn absent(&self, core: &mut Core, at: At, kind: TrapKind) {
        if self.config.caches_absence && kind == TrapKind::NotPresent {
            let pages = PageSpan::block(at.page, self.geometry.order(at.level));
            core.absences.keep(core.asid, at.level, pages);
        }
    }

    /// A program accesses `addr`: a fetch must not see what the frame held before.
    #[inline]
    pub(crate) fn fetched(&self, cpu: CpuId, addr: PhysAddr, access: Access) {
        let frame = addr.pfn(self.geometry.page_shift);
        if access == Access::Execute
            && self.ram.span().contains(frame)
            && let Some(mut ledger) = self.ledger()
        {
            ledger.fetched(cpu, frame);
        }
    }

    /// The cached translation of `page`, if it serves `access` as it is.
    fn cached(
        &self,
        cpu: CpuId,
        core: &mut Core,
        page: Vpn,
        access: Access,
    ) -> Result<Option<Translation>, TrapKind> {
        let Some((held, hit)) = core.tlb.lookup(core.asid, page) else { return Ok(None) };
        let allowed = held.prot.allows(access);
        if allowed && (access != Access::Write || held.dirty) {
            let counters = &self.bank(cpu).counters;
            match hit {
                Hit::First => add(&counters.first_hits, 1),
                Hit::Second => add(&counters.second_hits, 1),
            }
            return Ok(Some(held));
        }
        if !allowed && !self.config.rewalks_on_denial {
            return Err(TrapKind::Permission);
        }
        core.tlb.drop_if(|other| other.asid == held.asid && other.page == held.page);
        Ok(None)
    }

    fn walk(
        &self,
        cpu: CpuId,
        core: &mut Core,
        root: Pfn,
        page: Vpn,
        access: Access,
    ) -> Result<Translation, TrapKind> {
        if core.absences.cover(core.asid, page) {
            return Err(TrapKind::NotPresent);
        }
        let counters = &self.bank(cpu).counters;
        add(&counters.walks, 1);
        let (level, limits) = (self.geometry.root_level(), Prot::all());
        let mut at = At { cpu, page, access, level, table: root, limits };
        if let Some(near) = core.walks.lookup(core.asid, page) {
            add(&counters.walk_cache_hits, 1);
            at = At { level: near.level - 1, table: near.table, limits: near.limits, ..at };
        }
        loop {
            self.faults.opportunity();
            let step = self.step(core, at).inspect_err(|kind| self.absent(core, at, *kind))?;
            match step {
                Step::Done { held, .. } => return Ok(held),
                Step::Down(lower) => {
                    let order = self.geometry.order(at.level);
                    let limits = at.limits & lower.limits;
                    core.walks.insert(TablePointer {
                        asid: core.asid,
                        level: at.level,
                        page: page.align_down(order.pages()),
                        order,
                        table: lower.frame,
                        limits,
                    });
                    at = At { level: at.level - 1, table: lower.frame, limits, ..at };
                }
            }
        }
    }

    /// Reads one entry and acts on it. Where a flag has to be set and the word has changed since it
    /// was read, the entry is read and judged again.
    fn step(&self, core: &Core, at: At) -> Result<Step, TrapKind> {
        let mut ledger = self.ledger();
        let index = self.geometry.index(at.page, at.level);
        loop {
            add(&self.bank(at.cpu).counters.words_walked, 1);
            let word = self.ram.load(at.table, index);
            let (step, marked) = match self.config.decode(word, at.level, index) {
                Meaning::Absent => return Err(TrapKind::NotPresent),
                Meaning::Malformed(flaw) => return self.malformed(ledger, at, word, flaw),
                Meaning::Table(lower) if !self.ram.span().contains(lower.frame) => {
                    return self.malformed(ledger, at, word, Flaw::OutsideRam);
                }
                Meaning::Table(lower) => (Step::Down(lower), self.config.isa.passed(word)),
                Meaning::Leaf(leaf) => {
                    let marked = self.touch(at, word, &leaf)?;
                    let whole = self.is_whole_block(&mut ledger, at, index, word, &leaf);
                    let block = whole && self.config.joins_contiguous;
                    let held = self.translation(core, at, &leaf, block);
                    (Step::Done { held, whole }, marked)
                }
            };
            if marked != word && !self.mark(at, index, (word, marked), &step) {
                continue;
            }
            if let Some(ledger) = &mut ledger {
                self.hold(ledger, core, at, index, &step);
            }
            return Ok(step);
        }
    }

    /// Sets flags in the entry, or in another entry of the block that is cached as one: Arm ARM
    /// D8.7.1 and "Svnapot" let hardware choose any, and it stands for all. `false` when a word has
    /// changed meanwhile.
    fn mark(&self, at: At, index: usize, (word, marked): (u64, u64), step: &Step) -> bool {
        self.faults.opportunity();
        let (mut chosen, mut old, mut new) = (index, word, marked);
        if let Step::Done { held, whole: true } = step
            && held.order > self.geometry.order(at.level)
        {
            chosen = self.choose(at, index, held.order);
            if chosen != index {
                old = self.ram.load(at.table, chosen);
                let Some(word) = self.marked_as_well(at, index, word, chosen, old) else {
                    return false;
                };
                new = word;
            }
        }
        if new == old {
            return true;
        }
        let addr = at.table.addr(self.geometry.page_shift).add(chosen as u64 * 8);
        let done = self.ram.exchange_word(addr, old, new) == Some(Ok(()));
        if done {
            add(&self.bank(at.cpu).counters.flags_set, 1);
        }
        done
    }

    /// Chooses the entry of a block that gets the flags: the one that was walked, the first, or
    /// any.
    fn choose(&self, at: At, index: usize, block: Order) -> usize {
        let entries = 1usize << (block.get() - self.geometry.order(at.level).get());
        let first = index & !(entries - 1);
        let walks = self.bank(at.cpu).counters.walks.load(Ordering::Relaxed);
        match walks % 3 {
            0 => index,
            1 => first,
            _ => first + (walks / 3 * 7) as usize % entries,
        }
    }

    /// The word of entry `chosen` with the flags that the access would set in entry `index`, if it
    /// is still part of the same block.
    fn marked_as_well(
        &self,
        at: At,
        index: usize,
        word: u64,
        chosen: usize,
        other: u64,
    ) -> Option<u64> {
        let isa = self.config.isa;
        let Meaning::Leaf(leaf) = isa.decode(word, at.level, index) else { return None };
        let Meaning::Leaf(near) = isa.decode(other, at.level, chosen) else { return None };
        let base = |frame: Pfn| frame.align_down(leaf.block.pages());
        let same =
            (near.block, near.prot, base(near.frame)) == (leaf.block, leaf.prot, base(leaf.frame));
        same.then(|| isa.touched(other, at.access == Access::Write))
    }

    fn malformed<T>(
        &self,
        ledger: Option<MutexGuard<'_, Ledger>>,
        at: At,
        word: u64,
        flaw: Flaw,
    ) -> Result<T, TrapKind> {
        if let Some(mut ledger) = ledger {
            let index = self.geometry.index(at.page, at.level);
            let place = Place { table: at.table, index, level: at.level, page: at.page };
            ledger.met_malformed(at.cpu, place, word, flaw);
        }
        Err(TrapKind::Malformed(flaw))
    }

    /// The leaf's word with the flags that the access sets, or the trap.
    fn touch(&self, at: At, word: u64, leaf: &Leaf) -> Result<u64, TrapKind> {
        if !(leaf.prot & at.limits).allows(at.access) {
            return Err(TrapKind::Permission);
        }
        let store = at.access == Access::Write;
        if !leaf.accessed && !self.config.sets_accessed {
            return Err(TrapKind::AccessFlag);
        }
        if store && !leaf.dirty && !self.config.sets_dirty {
            return Err(TrapKind::Permission);
        }
        let marks = !leaf.accessed || (store && !leaf.dirty);
        Ok(if marks { self.config.isa.touched(word, store) } else { word })
    }

    /// Whether the contiguous block around a leaf is in order.
    fn is_whole_block(
        &self,
        ledger: &mut Option<MutexGuard<'_, Ledger>>,
        at: At,
        index: usize,
        word: u64,
        leaf: &Leaf,
    ) -> bool {
        if !leaf.is_contiguous() {
            return false;
        }
        let isa = self.config.isa;
        let block = survey(isa, &self.ram, (at.table, index, at.level), leaf);
        if let Some(flaw) = block.flaw_on_the_way(isa, self.config.relaxed())
            && let Some(ledger) = ledger
        {
            let place = Place { table: at.table, index, level: at.level, page: at.page };
            ledger.met_torn_block(at.cpu, place, word, flaw);
        }
        block.is_whole()
    }

    fn translation(&self, core: &Core, at: At, leaf: &Leaf, block: bool) -> Translation {
        let order = if block { leaf.block } else { leaf.order };
        let page = at.page.align_down(order.pages());
        Translation {
            asid: core.asid,
            global: leaf.global,
            page,
            order,
            frame: leaf.frame.align_down(order.pages()),
            prot: leaf.prot & at.limits,
            dirty: leaf.dirty || at.access == Access::Write,
        }
    }

    /// Tells the examiner what may be cached from here on: the entry itself, and all entries of a
    /// whole block, each by itself. A block cached as one needs no record of its own, since a flush
    /// of any of its pages drops it.
    fn hold(&self, ledger: &mut Ledger, core: &Core, at: At, index: usize, step: &Step) {
        let order = self.geometry.order(at.level);
        let (whole, prot, dirty, global) = match step {
            Step::Down(lower) => (false, at.limits & lower.limits, false, false),
            Step::Done { held, whole } => (*whole, held.prot, held.dirty, held.global),
        };
        let entries = if whole { self.config.isa.contiguous_entries(at.level) } else { 1 };
        let first = index & !(entries - 1);
        let start = at.page.align_down(order.pages() * entries as u64);
        for entry in first..first + entries {
            let page = start.add(((entry - first) as u64) << order.get());
            let key = Key {
                cpu: at.cpu.index() as u16,
                asid: core.asid.0,
                level: at.level,
                page,
                table: at.table,
                index: entry as u16,
            };
            let word = self.ram.load(at.table, entry);
            let pages = PageSpan::block(page, order);
            ledger.hold(key, Holding { word, pages, prot, dirty, global, stale: None });
        }
    }

    /// The counters and core of `cpu`.
    #[inline]
    pub(crate) fn bank(&self, cpu: CpuId) -> &Bank {
        &self.banks[cpu.index()]
    }
}
