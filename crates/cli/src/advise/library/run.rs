//! All settings through the library, each on a machine of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use quire::fault::{Enabled, SizePolicy};
use quire::inject::FailPlan;
use quire::limits::ORDER_MAX;
use quire_arch::Arch;
use quire_machine::{Config, Ram, TlbGeometry};
use quire_sim::system::{self, HostedMm};
use quire_units::Order;

use super::replay::{Replay, SPACES};
use crate::advise::linux::rules::LEAST;
use crate::advise::linux::{Setting, Word};
use crate::advise::memory::Memory;
use crate::isa::{Isa, with_isa};
use crate::stats::thread_ns;
use crate::tape::Tape;
use crate::threads;

/// The counts of a replay through the library. Memory is in pages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(in crate::advise) struct Own {
    /// Page faults, those of files and shared memory as recorded.
    pub(in crate::advise) faults: u64,
    /// The most resident pages of one process.
    pub(in crate::advise) peak: u64,
    pub(in crate::advise) cleared: u64,
    pub(in crate::advise) copied: u64,
    /// Attempts to take a large folio for which there was no memory.
    pub(in crate::advise) scarce: u64,
    /// The most contiguous blocks that were folded at an exit.
    pub(in crate::advise) folded: u64,
    /// Blocks and other large folios that the background made.
    pub(in crate::advise) collapsed: u64,
    /// Pages that left for the swap device, and that came back.
    pub(in crate::advise) out: u64,
    pub(in crate::advise) back: u64,
    /// The limit was raised: so often no page could leave.
    pub(in crate::advise) short: u64,
    pub(in crate::advise) touches: u64,
}

/// All replays.
pub(in crate::advise) struct Replayed {
    pub(in crate::advise) all: Vec<Own>,
    /// Seconds of CPU time that they took.
    pub(in crate::advise) busy: f64,
}

/// RAM beside the pages of programs, in bytes: tables, nodes, copies of several pages.
const MARGIN: u64 = 64 << 20;
/// Replays at a time, where there are [`MANY`] touches in all; else one, since the host clears the
/// memory of each thread first, and that takes longer than few touches.
const THREADS: usize = 2;
const MANY: u64 = 1 << 19;
/// The machine's CPU keeps few translations: the touches of a recording are each page's first, and
/// a search of many takes longer than a walk.
const TLB: TlbGeometry = TlbGeometry { first: 4, sets: 0, ways: 0, walks: 8 };

/// The RAM for a tape whose programs have up to `pages` pages of private memory.
pub(in crate::advise) fn ram_bytes(pages: u64, page: u64) -> u64 {
    let tables = u64::from(SPACES) * 16 + pages / 64;
    ((pages + pages / 2 + tables) * page).next_multiple_of(2 << 20) + MARGIN
}

/// Replays `tape` under each of `settings` in the format `isa`; the memory of each thread has room
/// for `most` pages of programs.
pub(in crate::advise) fn all(
    tape: &Tape,
    settings: &[Setting],
    isa: Isa,
    most: u64,
    memory: Memory,
) -> Result<Replayed> {
    let next = AtomicUsize::new(0);
    let some = || {
        let start = thread_ns();
        let mut ram = system::ram(usize::try_from(ram_bytes(most, tape.page))?)?;
        // A caller that has the bytes may have written them: the library clears each page.
        let _ = ram.bytes_mut();
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(setting) = settings.get(at) else { break };
            done.push((at, replay(tape, setting, isa, &mut ram, memory)?));
        }
        Ok((done, thread_ns() - start))
    };
    let count = if tape.touches() * settings.len() as u64 >= MANY { THREADS } else { 1 };
    let threads = threads::all((0..count).map(|_| some))?;
    let busy = threads.iter().map(|(_, ns)| ns / 1e9).sum();
    let mut all: Vec<(usize, Own)> = threads.into_iter().flat_map(|(done, _)| done).collect();
    all.sort_by_key(|(at, _)| *at);
    Ok(Replayed { all: all.into_iter().map(|(_, own)| own).collect(), busy })
}

/// Replays `tape` under `setting` in the format `isa`, on a machine with `ram`, all of which counts
/// as written before.
fn replay(tape: &Tape, setting: &Setting, isa: Isa, ram: &mut Ram, memory: Memory) -> Result<Own> {
    with_isa!(isa, A => {
        anyhow::ensure!(
            tape.page == 1 << A::PAGE_SHIFT,
            "the recording has pages of {} bytes, and {} has others",
            tape.page,
            isa.name()
        );
        let config = Config { tlb: TLB, ..isa.config().bare() };
        system::with::<A, _>(config, ram, |machine, mm| {
            apply(setting, mm);
            fragment(memory, mm);
            Replay::new(machine, mm, memory)?.run(tape)
        })?
    })
}

/// Large blocks are as rare as in the column of Linux: the same share of attempts fails.
fn fragment<A: Arch>(memory: Memory, mm: &HostedMm<'_, '_, A>) {
    let chance = (memory.lacks(1) * 65_536.0).round() as u16;
    if chance > 0 {
        mm.bare_phys().set_fail_plan(FailPlan::Scarce { chance, seed: memory.seed });
    }
}

/// Sets the library's switches.
fn apply<A: Arch>(setting: &Setting, mm: &HostedMm<'_, '_, A>) {
    mm.policy().set_enabled(match setting.top {
        Word::Always => Enabled::Always,
        Word::Madvise => Enabled::Madvise,
        Word::Never | Word::Inherit => Enabled::Never,
    });
    for order in 1..=ORDER_MAX.get() {
        let word = setting.sizes.get(usize::from(order)).filter(|_| order >= LEAST);
        let choice = match word {
            Some(Word::Always) => SizePolicy::Always,
            Some(Word::Madvise) => SizePolicy::Madvise,
            Some(Word::Inherit) => SizePolicy::Inherit,
            Some(Word::Never) | None => SizePolicy::Never,
        };
        // Every order from 1 to the largest has a choice.
        let _ = mm.policy().set_size(Order::new(order), choice);
    }
}
