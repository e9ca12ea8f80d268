//! Threads and processes: scheduling, waits, exit.
//!
//! **Owns** every thread that does not run right now, and the state of processes. **Key types**:
//! [`Thread`] (registers, and the progress of a call; one owner at a time), [`Task`] (the part of a
//! thread that others see), [`Process`]. **Never** interprets a system call. **Next room**: `proc`.
//!
//! ```text
//!                 ┌────────── ready ◄──────── wake ─────────┐
//!                 ▼                                         │
//!   a CPU owns the Thread ── must wait ──► parked (by tid, with an hour to give up)
//!                 │
//!                 └── ends ──► its process, when it was the last, is a zombie until waited for
//! ```
//!
//! A thread that must wait is parked *with its call*, and makes it again from the start when woken.
//! A wake promises nothing; so waking too often is never wrong, and there are no lost wakes: each
//! leaves a token that parking looks for.
//!
//! | lock | protects | taken before |
//! |---|---|---|
//! | `Process::family` | children and their states | signals |
//! | `Process::threads` | the list of tasks | signals |
//! | `Process::signals`, then `Task::signals` | pending signals, actions, masks | queues |
//! | queues | ready and parked threads | nothing |

mod attributes;
pub(crate) mod cgroup;
pub(crate) mod collapse;
pub(crate) mod compact;
pub(crate) mod exit;
pub(crate) mod futex;
pub(crate) mod oom;
mod limits;
mod process;
pub(crate) mod queue;
pub(crate) mod reclaim;
pub(crate) mod segments;
pub(crate) mod semaphores;
pub(crate) mod send;
mod thread;
pub(crate) mod timer;
pub(crate) mod tree;

pub(crate) use process::{
    IDS_MAX, Ids, MAJOR_FAULTS, Process, Program, enlist, find, find_task, new_id, processes, start,
};
pub(crate) use thread::{Answer, Resume, Stop, Task, Thread};
