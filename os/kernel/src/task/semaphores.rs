//! The semaphores of System V: their table, and sets of values.
//!
//! A set is locked while its operations are tried, all of them or none. A thread that cannot go on
//! is woken by each change of the set, and tries again.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire_linux::credentials::Credentials;
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use super::{Process, queue};

/// The most values of a set, sets, operations of a call, and the highest value (`SEMMSL`, `SEMMNI`,
/// `SEMOPM`, `SEMVMX`).
pub(crate) const VALUES_MOST: usize = 32_000;
pub(crate) const SETS_MOST: u32 = 32_000;
pub(crate) const OPERATIONS_MOST: usize = 500;
pub(crate) const VALUE_MOST: i32 = 32_767;

/// Bits of an id that are the index.
const INDEX_BITS: u32 = 15;
/// The key of sets that only their id leads to.
pub(crate) const PRIVATE: i32 = 0;

/// One value, and the process that changed it last.
#[derive(Clone, Copy, Default)]
pub(crate) struct Value {
    pub(crate) value: i32,
    pub(crate) changer: u32,
}

/// A set of semaphores.
pub(crate) struct Set {
    pub(crate) id: u32,
    pub(crate) key: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) creator_uid: u32,
    pub(crate) creator_gid: u32,
    pub(crate) mode: u32,
    /// Seconds since 1970 of the last operation, and of the last change.
    pub(crate) operated: i64,
    pub(crate) changed: i64,
    pub(crate) values: Vec<Value>,
    /// The threads that wait, by number: for which value, and whether for zero. They may have given
    /// up since.
    pub(crate) waiting: BTreeMap<u32, (usize, bool)>,
    /// The change that the end of a process makes to a value, by process and value.
    pub(crate) undo: BTreeMap<(u32, usize), i32>,
    /// It was removed.
    pub(crate) is_gone: bool,
}

/// A change of one value.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) number: usize,
    pub(crate) change: i32,
    pub(crate) waits: bool,
    pub(crate) undoes: bool,
}

impl Set {
    /// Whether a caller has all of `rights` (4 read, 2 change).
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn check(&self, may: &Credentials, rights: u32) -> Result<()> {
        let owns = [self.uid, self.creator_uid].contains(&may.users.effective);
        let is_in = |group: u32| may.groups.effective == group || may.others.contains(&group);
        let class = match owns {
            true => 6,
            false if is_in(self.gid) || is_in(self.creator_gid) => 3,
            false => 0,
        };
        let has = self.mode >> class & rights == rights;
        if has || may.can(abi::CAP_IPC_OWNER) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a caller may change or remove it.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_owner(&self, may: &Credentials) -> Result<()> {
        let owns = [self.uid, self.creator_uid].contains(&may.users.effective);
        if owns || may.can(abi::CAP_SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Tries operations, all or none. The number of the one that cannot be done, if so.
    ///
    /// # Errors
    /// `ERANGE`.
    pub(crate) fn attempt(&mut self, all: &[Operation], pid: u32) -> Result<Option<usize>> {
        let mut done = 0;
        let mut result = Ok(None);
        for (at, operation) in all.iter().enumerate() {
            let value = &mut self.values[operation.number].value;
            let next = *value + operation.change;
            let is_stuck = if operation.change == 0 { *value != 0 } else { next < 0 };
            if is_stuck || next > VALUE_MOST {
                result = if is_stuck { Ok(Some(at)) } else { Err(Errno::ERANGE) };
                break;
            }
            *value = next;
            done = at + 1;
        }
        if done < all.len() {
            all[..done].iter().for_each(|it| self.values[it.number].value -= it.change);
            return result;
        }
        for operation in all {
            self.values[operation.number].changer = pid;
            if operation.undoes && operation.change != 0 {
                *self.undo.entry((pid, operation.number)).or_insert(0) -= operation.change;
            }
        }
        Ok(None)
    }

    /// How many threads wait for a value to grow, or to be zero.
    pub(crate) fn count_waiting(&self, number: usize, for_zero: bool) -> usize {
        let waits = |(tid, how): (&u32, &(usize, bool))| {
            *how == (number, for_zero) && queue::is_parked(*tid)
        };
        self.waiting.iter().filter(|(tid, how)| waits((*tid, *how))).count()
    }
}

/// A set that threads may use at once.
pub(crate) struct Shared {
    pub(crate) set: SpinMutex<Set>,
    /// The threads that wait for a change.
    pub(crate) news: quire_linux::Waiters,
}

static TABLE: SpinMutex<BTreeMap<u32, Arc<Shared>>> = SpinMutex::new(BTreeMap::new());

/// The set with this id.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn by_id(id: u32) -> Result<Arc<Shared>> {
    let shared = by_index(id & ((1 << INDEX_BITS) - 1))?;
    let is_it = shared.set.lock().id == id;
    if is_it { Ok(shared) } else { Err(Errno::EINVAL) }
}

/// The same for the index alone.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn by_index(index: u32) -> Result<Arc<Shared>> {
    TABLE.lock().get(&index).cloned().ok_or(Errno::EINVAL)
}

/// The set with this key.
pub(crate) fn by_key(key: i32) -> Option<Arc<Shared>> {
    let table = TABLE.lock();
    table.values().find(|shared| key != PRIVATE && shared.set.lock().key == key).cloned()
}

/// How many sets and values there are, and the highest index.
pub(crate) fn totals() -> (usize, usize, u32) {
    let table = TABLE.lock();
    let values = table.values().map(|shared| shared.set.lock().values.len()).sum();
    (table.len(), values, table.keys().next_back().copied().unwrap_or(0))
}

/// Makes a set of `count` values, all zero.
///
/// # Errors
/// `ENOSPC` when there are too many, `ENOMEM`; `EEXIST` when the key has one by now.
pub(crate) fn make(key: i32, count: usize, mode: u32, may: &Credentials, now: i64) -> Result<u32> {
    static SEQUENCE: SpinMutex<u32> = SpinMutex::new(0);
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    values.resize(count, Value::default());
    let (uid, gid) = (may.users.effective, may.groups.effective);
    let mut table = TABLE.lock();
    if table.values().any(|shared| key != PRIVATE && shared.set.lock().key == key) {
        return Err(Errno::EEXIST);
    }
    let index = (0..SETS_MOST).find(|index| !table.contains_key(index)).ok_or(Errno::ENOSPC)?;
    let mut sequence = SEQUENCE.lock();
    *sequence = (*sequence + 1) & 0x7fff;
    let id = *sequence << INDEX_BITS | index;
    let set = Set {
        id,
        key,
        uid,
        gid,
        creator_uid: uid,
        creator_gid: gid,
        mode: mode & 0o777,
        operated: 0,
        changed: now,
        values,
        waiting: BTreeMap::new(),
        undo: BTreeMap::new(),
        is_gone: false,
    };
    let shared = Shared { set: SpinMutex::new(set), news: quire_linux::Waiters::new() };
    table.insert(index, Arc::new(shared));
    Ok(id)
}

/// Removes a set; threads that wait learn of it.
pub(crate) fn remove(shared: &Shared) {
    let id = {
        let mut set = shared.set.lock();
        set.is_gone = true;
        set.id
    };
    let gone = TABLE.lock().remove(&(id & ((1 << INDEX_BITS) - 1)));
    drop(gone);
    shared.news.wake();
}

/// A process ends: its operations that are to be undone are.
pub(crate) fn undo(process: &Process) {
    let mut next = 0;
    loop {
        let found = TABLE.lock().range(next..).next().map(|(at, shared)| (*at, shared.clone()));
        let Some((at, shared)) = found else { return };
        next = at + 1;
        let mut set = shared.set.lock();
        let mut is_changed = false;
        let all = (process.pid, 0)..=(process.pid, usize::MAX);
        while let Some((&(pid, number), &change)) = set.undo.range(all.clone()).next() {
            set.undo.remove(&(pid, number));
            let value = &mut set.values[number];
            value.value = (value.value + change).clamp(0, VALUE_MOST);
            value.changer = pid;
            is_changed = true;
        }
        drop(set);
        if is_changed {
            shared.news.wake();
        }
    }
}
