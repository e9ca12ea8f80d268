//! The shared memory segments of System V: their table, and what is known about each.
//!
//! ```text
//!   id = sequence << 15 | index        the index is the lowest that is free
//! ```
//!
//! The table owns a segment until it is removed; from then on only the spaces that show it do, so
//! that it ends with the last of them. Attachments are counted by a look at all spaces.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use linux_raw_sys::general as abi;
use quire::units::Order;
use quire_linux::credentials::Credentials;
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use crate::memory::commit::Number;
use crate::memory::{Keeper, PAGE, attachments, new_segment};

/// The most segments (`SHMMNI`).
pub(crate) const MOST: u32 = 4096;
/// Bits of an id that are the index.
const INDEX_BITS: u32 = 15;
/// The highest limit of their number (`IPCMNI`).
pub(crate) const MOST_EVER: u32 = 1 << INDEX_BITS;

/// `shmmax`, `shmall` and `shmmni`: the bytes of a segment, the pages and the number of all.
pub(crate) static BYTES: Number = Number::new(u64::MAX - (1 << 24), u64::MAX);
pub(crate) static PAGES: Number = Number::new(u64::MAX - (1 << 24), u64::MAX);
pub(crate) static COUNT: Number = Number::new(MOST as u64, MOST_EVER as u64);

/// `shm_next_id`: the next segment gets this id, if it is free; below 0, any.
pub(crate) static NEXT_ID: AtomicI32 = AtomicI32::new(-1);

/// The key of segments that only their id leads to.
pub(crate) const PRIVATE: i32 = 0;

/// The changing facts about a segment.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    /// Seconds since 1970 of the last attachment, detachment and change.
    pub(crate) attached: i64,
    pub(crate) detached: i64,
    pub(crate) changed: i64,
    /// The process that attached or detached it last.
    pub(crate) last: u32,
}

/// A segment.
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) creator: u32,
    pub(crate) creator_uid: u32,
    pub(crate) creator_gid: u32,
    /// The number of its pages for the memory manager.
    pub(crate) file: u32,
    /// The reserved folios that they are in.
    pub(crate) whole: Option<Order>,
    _pages: Keeper,
    pub(crate) state: SpinMutex<State>,
}

impl Segment {
    /// How often it is attached.
    pub(crate) fn attachments(&self) -> u64 {
        attachments(self.file)
    }

    /// Whether a caller has all of `rights` (4 read, 2 write).
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn check(&self, may: &Credentials, rights: u32) -> Result<()> {
        let state = *self.state.lock();
        let owns = [state.uid, self.creator_uid].contains(&may.users.effective);
        let is_in = |group: u32| may.groups.effective == group || may.others.contains(&group);
        let class = match owns {
            true => 6,
            false if is_in(state.gid) || is_in(self.creator_gid) => 3,
            false => 0,
        };
        let has = state.mode >> class & rights == rights;
        if has || may.can(abi::CAP_IPC_OWNER) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a caller may change or remove it.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_owner(&self, may: &Credentials) -> Result<()> {
        let uid = self.state.lock().uid;
        let owns = [uid, self.creator_uid].contains(&may.users.effective);
        if owns || may.can(abi::CAP_SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// A segment in the table.
enum Slot {
    /// Found by its key.
    Kept(i32, Arc<Segment>),
    /// Removed, and perhaps still attached.
    Removed(Weak<Segment>),
}

impl Slot {
    fn segment(&self) -> Option<Arc<Segment>> {
        match self {
            Self::Kept(_, segment) => Some(segment.clone()),
            Self::Removed(segment) => segment.upgrade(),
        }
    }

    fn key(&self) -> i32 {
        if let Self::Kept(key, _) = self { *key } else { PRIVATE }
    }
}

static TABLE: SpinMutex<BTreeMap<u32, Slot>> = SpinMutex::new(BTreeMap::new());

/// The segment with this id, and its key; whether it was removed.
///
/// # Errors
/// `EINVAL`, also when another has its place now.
pub(crate) fn by_id(id: u32) -> Result<(Arc<Segment>, i32, bool)> {
    let (segment, key, is_removed) = by_index(id & ((1 << INDEX_BITS) - 1))?;
    if segment.id == id { Ok((segment, key, is_removed)) } else { Err(Errno::EINVAL) }
}

/// The same for the index alone.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn by_index(index: u32) -> Result<(Arc<Segment>, i32, bool)> {
    let table = TABLE.lock();
    let slot = table.get(&index).ok_or(Errno::EINVAL)?;
    let segment = slot.segment().ok_or(Errno::EINVAL)?;
    Ok((segment, slot.key(), matches!(slot, Slot::Removed(_))))
}

/// The segment with this key.
pub(crate) fn by_key(key: i32) -> Option<Arc<Segment>> {
    let table = TABLE.lock();
    table.values().find(|slot| slot.key() == key && key != PRIVATE).and_then(Slot::segment)
}

/// The segment that has these pages.
pub(crate) fn by_file(file: u32) -> Option<Arc<Segment>> {
    let table = TABLE.lock();
    table.values().filter_map(Slot::segment).find(|segment| segment.file == file)
}

/// All segments, by index, with their keys.
pub(crate) fn each(mut see: impl FnMut(u32, i32, &Arc<Segment>)) {
    let mut next = 0;
    loop {
        let found = {
            let table = TABLE.lock();
            let mut rest = table.range(next..);
            rest.find_map(|(&index, slot)| Some((index, slot.key(), slot.segment()?)))
        };
        let Some((index, key, segment)) = found else { return };
        next = index + 1;
        see(index, key, &segment);
    }
}

/// Makes a segment.
///
/// # Errors
/// `ENOSPC` when there are too many, `ENOMEM`; `EEXIST` when the key has one by now.
pub(crate) fn make(
    key: i32,
    (bytes, whole): (u64, Option<Order>),
    mode: u32,
    (pid, may): (u32, &Credentials),
    now: i64,
) -> Result<u32> {
    static SEQUENCE: AtomicU32 = AtomicU32::new(0);
    let (file, pages) = new_segment(bytes, whole)?;
    let (uid, gid) = (may.users.effective, may.groups.effective);
    let state =
        State { uid, gid, mode: mode & 0o777, attached: 0, detached: 0, changed: now, last: 0 };
    let mut table = TABLE.lock();
    if table.values().any(|slot| slot.key() == key && key != PRIVATE) {
        return Err(Errno::EEXIST);
    }
    table.retain(|_, slot| slot.segment().is_some());
    let taken: u64 =
        table.values().filter_map(Slot::segment).map(|it| it.bytes.div_ceil(PAGE)).sum();
    if table.len() as u64 >= COUNT.get() || taken + bytes.div_ceil(PAGE) > PAGES.get() {
        return Err(Errno::ENOSPC);
    }
    let wanted = u32::try_from(NEXT_ID.swap(-1, Ordering::Relaxed)).ok();
    let is_free = |index: &u32| !table.contains_key(index);
    let asked = wanted.filter(|id| is_free(&(id & (MOST_EVER - 1))));
    let index = match asked {
        Some(id) => id & (MOST_EVER - 1),
        None => (0..MOST_EVER).find(is_free).ok_or(Errno::ENOSPC)?,
    };
    let sequence = match wanted {
        Some(id) => id >> INDEX_BITS,
        None => SEQUENCE.fetch_add(1, Ordering::Relaxed) & 0x7fff,
    };
    let segment = Segment {
        id: sequence << INDEX_BITS | index,
        bytes,
        creator: pid,
        creator_uid: uid,
        creator_gid: gid,
        file,
        whole,
        _pages: pages,
        state: SpinMutex::new(state),
    };
    let id = segment.id;
    table.insert(index, Slot::Kept(key, Arc::new(segment)));
    Ok(id)
}

/// Removes a segment from the table: it ends with its last attachment.
pub(crate) fn remove(segment: &Arc<Segment>) {
    let old = {
        let mut table = TABLE.lock();
        let slot = table.get_mut(&(segment.id & ((1 << INDEX_BITS) - 1)));
        slot.map(|slot| core::mem::replace(slot, Slot::Removed(Arc::downgrade(segment))))
    };
    drop(old);
}
