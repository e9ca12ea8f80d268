//! The events that a recording of all memory is made of, decoded.

use super::layout::Layout;

/// A system call that changes areas, with its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Map { length: u64, rights: u64, flags: u64, file: u64, offset: u64 },
    Unmap { start: u64, length: u64 },
    Brk { end: u64 },
    Move { start: u64, length: u64, wanted: u64, flags: u64 },
    Protect { start: u64, length: u64, rights: u64 },
    Advise { start: u64, length: u64, advice: u64 },
    Exec,
}

/// One thing that the kernel reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A page fault.
    Fault {
        address: u64,
        code: u64,
    },
    /// A call begins, or ends with this result.
    Enter(Call),
    Leave(i64),
    /// The thread starts another, with these flags of `clone`.
    Born {
        thread: u32,
        flags: u64,
    },
    /// The thread has left its old memory and is about to have new.
    Prepare,
    /// It has executed a program; its number may have been another before.
    Exec {
        before: u32,
    },
    /// It ends.
    End,
    /// An address space has this much memory of a kind, in bytes.
    Held {
        space: u64,
        own: bool,
        kind: u64,
        bytes: i64,
    },
}

/// When what happened to which thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) time: u64,
    pub(super) thread: u32,
    pub(super) what: What,
}

/// An event of the kernel: its name, the fields that are wanted, and what they mean.
pub(super) struct Source {
    pub(super) name: &'static str,
    pub(super) fields: &'static [&'static str],
    /// Without it there is no recording.
    pub(super) needed: bool,
    of: fn([u64; 6]) -> What,
}

/// From the wanted fields to what happened.
type Meaning = fn([u64; 6]) -> What;

/// The result of a call.
const fn leave(name: &'static str) -> Source {
    Source { name, fields: &["ret"], needed: false, of: |[result, ..]| What::Leave(result as i64) }
}

const fn source(
    name: &'static str,
    fields: &'static [&'static str],
    needed: bool,
    of: fn([u64; 6]) -> What,
) -> Source {
    Source { name, fields, needed, of }
}

fn fault([address, code, ..]: [u64; 6]) -> What {
    What::Fault { address, code }
}

fn protect([start, length, rights, ..]: [u64; 6]) -> What {
    What::Enter(Call::Protect { start, length, rights })
}

const MAP: [&str; 6] = ["addr", "len", "prot", "flags", "fd", "off"];
const PROTECT: [&str; 3] = ["start", "len", "prot"];

/// All events.
pub(super) const SOURCES: [Source; 25] = [
    source("exceptions/page_fault_user", &["address", "error_code"], true, fault),
    source("exceptions/page_fault_kernel", &["address", "error_code"], true, fault),
    source("task/task_newtask", &["pid", "clone_flags"], true, |[thread, flags, ..]| What::Born {
        thread: thread as u32,
        flags,
    }),
    source("sched/sched_process_exec", &["old_pid"], true, |[before, ..]| What::Exec {
        before: before as u32,
    }),
    source("sched/sched_process_exit", &[], true, |_| What::End),
    source("sched/sched_prepare_exec", &[], false, |_| What::Prepare),
    source(
        "kmem/rss_stat",
        &["mm_id", "curr", "member", "size"],
        true,
        |[space, own, kind, bytes, ..]| What::Held {
            space,
            own: own != 0,
            kind,
            bytes: bytes as i64,
        },
    ),
    source("syscalls/sys_enter_mmap", &MAP, true, |[_, length, rights, flags, file, offset]| {
        What::Enter(Call::Map { length, rights, flags, file, offset })
    }),
    source("syscalls/sys_enter_munmap", &["addr", "len"], true, |[start, length, ..]| {
        What::Enter(Call::Unmap { start, length })
    }),
    source("syscalls/sys_enter_brk", &["brk"], true, |[end, ..]| What::Enter(Call::Brk { end })),
    source(
        "syscalls/sys_enter_mremap",
        &["addr", "old_len", "new_len", "flags"],
        true,
        |[start, length, wanted, flags, ..]| {
            What::Enter(Call::Move { start, length, wanted, flags })
        },
    ),
    source("syscalls/sys_enter_mprotect", &PROTECT, true, protect),
    source("syscalls/sys_enter_pkey_mprotect", &PROTECT, false, protect),
    source(
        "syscalls/sys_enter_madvise",
        &["start", "len_in", "behavior"],
        true,
        |[start, length, advice, ..]| What::Enter(Call::Advise { start, length, advice }),
    ),
    source("syscalls/sys_enter_execve", &[], false, |_| What::Enter(Call::Exec)),
    source("syscalls/sys_enter_execveat", &[], false, |_| What::Enter(Call::Exec)),
    leave("syscalls/sys_exit_mmap"),
    leave("syscalls/sys_exit_munmap"),
    leave("syscalls/sys_exit_brk"),
    leave("syscalls/sys_exit_mremap"),
    leave("syscalls/sys_exit_mprotect"),
    leave("syscalls/sys_exit_pkey_mprotect"),
    leave("syscalls/sys_exit_madvise"),
    leave("syscalls/sys_exit_execve"),
    leave("syscalls/sys_exit_execveat"),
];

/// The filter of [`What::Held`]: pages of files and shared memory only, since private memory comes
/// with its faults.
pub(super) const HELD_FILTER: (&str, &str) = ("kmem/rss_stat", "member == 0 || member == 3");

/// Which sources the kernel has, by the numbers of their events.
#[derive(Default)]
pub(super) struct Decoder {
    known: Vec<Option<(Layout, Meaning)>>,
}

impl Decoder {
    /// Adds a source, whose `format` this is; whether that has all fields.
    pub(super) fn add(&mut self, source: &Source, format: &str) -> bool {
        let Some(layout) = Layout::of(format, source.fields) else { return false };
        let id = usize::from(layout.id);
        if self.known.len() <= id {
            self.known.resize_with(id + 1, || None);
        }
        self.known[id] = Some((layout, source.of));
        true
    }

    /// The event that a record is, if it is one of ours.
    pub(super) fn decode(&self, time: u64, data: &[u8]) -> Option<Seen> {
        let id = u16::from_le_bytes(data.get(..2)?.try_into().ok()?);
        let (layout, of) = self.known.get(usize::from(id))?.as_ref()?;
        let (thread, values) = layout.read(data)?;
        Some(Seen { time, thread, what: of(values) })
    }
}
