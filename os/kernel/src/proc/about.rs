//! Status of a process or thread: identity, state, memory, limits.

use core::sync::atomic::Ordering;

use quire::FolioMap;
use quire::space::{AreaFlags, OptOut};
use quire::units::Prot;
use quire_linux::files::{Caller, Text};
use quire_linux::signal::status::NS_PER_TICK;
use quire_linux::signal::{Handler, Set, Signal};
use quire_linux::text::{Masks, Peaks, Sizes, Stat, Status};
use quire_linux::{Errno, Result};

use super::process::Subject;
use crate::disk::swap;
use crate::isa;
use crate::memory::{Memory, PAGE, mm, reserved};
use crate::task::queue;

/// Signals that may be pending for a process.
const SIGNALS_MAX: usize = 1024;

/// `comm`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn comm(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.push(&of.name()?)?;
    out.push(b"\n")
}

/// Renames a thread of the caller's process; 15 bytes count.
///
/// # Errors
/// `EINVAL` for others, `ESRCH` when it has ended.
pub(super) fn set_comm(of: &Subject, who: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    if of.process.pid != who.pid {
        return Err(Errno::EINVAL);
    }
    let task = of.task.as_ref().ok_or(Errno::ESRCH)?;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let count = bytes.len().min(15);
    let mut name = [0; 16];
    name[..count].copy_from_slice(&bytes[..count]);
    *task.name.lock() = name;
    Ok(())
}

/// Its state: a letter and a word.
pub(super) fn state(of: &Subject) -> (char, &'static str) {
    if of.process.is_zombie() {
        return ('Z', "zombie");
    }
    if of.process.is_stopped.load(Ordering::Relaxed) {
        return ('T', "stopped");
    }
    match &of.task {
        Some(task) if !queue::is_parked(task.tid) => ('R', "running"),
        Some(task) if queue::is_deaf(task.tid) => ('D', "disk sleep"),
        _ => ('S', "sleeping"),
    }
}

/// How large its memory is.
fn sizes(memory: &Memory) -> Sizes {
    let mut sizes = Sizes::default();
    mm().spaces().folio_map(memory.space(), |map| add(&mut sizes, map));
    if swap::is_on() {
        sizes.swap = mm().paging().swapped(memory.space()) * PAGE;
    }
    sizes
}

fn add(sizes: &mut Sizes, map: &FolioMap) {
    let (area, resident) = (&map.area, map.resident() * PAGE);
    let bytes = area.span.count() * PAGE;
    let writes = area.prot.contains(Prot::WRITE);
    let is = |flag| area.flags.contains(flag);
    sizes.total += bytes;
    match is(AreaFlags::SHARED) {
        _ if reserved::of_area(area).is_some() => sizes.reserved += resident,
        true => sizes.shared += resident,
        false => sizes.anon += resident,
    }
    if is(AreaFlags::LOCKED) {
        sizes.locked += bytes;
    }
    if is(AreaFlags::GROWS_DOWN) {
        sizes.stack += bytes;
    } else if writes && !is(AreaFlags::SHARED) {
        sizes.data += bytes;
    } else if area.prot.contains(Prot::EXEC) {
        sizes.code += bytes;
    }
}

/// `statm`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn statm(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    of.memory().map_or(Sizes::default(), |memory| sizes(&memory)).print(out, PAGE)
}

/// The signals it has pending, blocks, ignores and catches.
fn masks(of: &Subject) -> Masks {
    let mut masks = Masks::default();
    {
        let signals = of.process.signals.lock();
        masks.shared_pending = signals.pending.set().0;
        for signal in (1..=u64::from(Signal::MAX)).filter_map(|number| Signal::new(number).ok()) {
            let bit = Set::of(signal).0;
            match signals.actions.get(signal).handler {
                Handler::Default => {}
                Handler::Ignore => masks.ignored |= bit,
                Handler::At(_) => masks.caught |= bit,
            }
        }
    }
    if let Some(task) = &of.task {
        let own = task.signals.lock();
        masks.pending = own.pending.set().0;
        masks.blocked = own.blocked.0;
    }
    masks
}

/// Faults that brought something in, as far as they were counted.
fn faults(of: &Subject) -> u64 {
    let counted = of.process.family.lock().usage.minor_faults;
    let mapped = of.memory().map_or(0, |memory| memory.space().counters().allocs().iter().sum());
    counted.max(mapped)
}

/// `stat`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn stat(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let name = of.name()?;
    let memory = of.memory();
    let sizes = memory.as_ref().map_or(Sizes::default(), |memory| sizes(memory));
    let (program, ids) = (of.process.program.lock().clone(), *of.process.ids.lock());
    let masks = masks(of);
    let (status, children) = {
        let family = of.process.family.lock();
        (family.ended.map_or(0, |status| status.word()), family.children_usage)
    };
    let stat = Stat {
        id: of.id,
        name: &name,
        state: state(of).0,
        parent: of.process.parent_pid(),
        group: ids.group,
        session: ids.session,
        ran: of.process.ran.load(Ordering::Relaxed) / NS_PER_TICK,
        children_ran: (children.user_ns + children.system_ns) / NS_PER_TICK,
        faults: (faults(of), children.minor_faults),
        threads: of.process.threads.lock().len(),
        began: of.process.began / NS_PER_TICK,
        total: sizes.total,
        resident_pages: sizes.resident() / PAGE,
        stack: program.stack,
        signals: [masks.pending, masks.blocked, masks.ignored, masks.caught],
        cpu: 0,
        heap: memory.map_or(0, |memory| memory.heap.lock().start),
        args: program.args,
        envs: program.envs,
        status,
    };
    stat.print(out)
}

/// `status`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn status(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let name = of.name()?;
    let memory = of.memory();
    let ids = *of.process.ids.lock();
    let usage = of.process.family.lock().usage;
    let peaks = Peaks { total: 0, resident: usage.resident_kib_max << 10, tables: 0 };
    let opt_out = memory.as_ref().map_or(OptOut::No, |memory| memory.space().opt_out());
    let status = Status {
        name: &name,
        umask: of.process.here.lock().umask(),
        state: state(of),
        may: &of.process.may(),
        pid: of.process.pid,
        tid: of.id,
        parent: of.process.parent_pid(),
        group: ids.group,
        session: ids.session,
        descriptors: 64,
        memory: memory.map(|memory| (sizes(&memory), peaks)),
        thp: opt_out == OptOut::No,
        threads: of.process.threads.lock().len(),
        signals_max: SIGNALS_MAX,
        masks: masks(of),
        cpus: isa::cpu_count(),
        switches: (usage.waits, usage.preemptions),
    };
    status.print(out)
}

/// `limits`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn limits(of: &Subject, _: &Caller<'_>, out: &mut Text) -> Result<()> {
    let rows = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let (soft, hard) = ("Soft Limit", "Hard Limit");
    out.print(format_args!("{:<25} {soft:<20} {hard:<20} {:<10}\n", "Limit", "Units"))?;
    for (what, (name, unit)) in (0..).zip(rows) {
        out.print(format_args!("{name:<25} "))?;
        for limit in of.process.limits.get(what) {
            match limit {
                u64::MAX => out.print(format_args!("{:<20} ", "unlimited"))?,
                limit => out.print(format_args!("{limit:<20} "))?,
            }
        }
        out.print(format_args!("{unit:<10}\n"))?;
    }
    Ok(())
}
