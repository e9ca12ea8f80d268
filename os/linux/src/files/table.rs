//! The descriptors of a process: small numbers for open descriptions.
//!
//! `fork` copies a table and shares the descriptions; threads share the table. A description that
//! is taken out is dropped after the lock is free, since that may wake others.

use alloc::sync::Arc;
use alloc::vec::Vec;

use spin::mutex::SpinMutex;

use super::open::Description;
use crate::{Errno, Result};

/// How many descriptors a process may have at first (RLIMIT_NOFILE).
pub const LIMIT: u32 = 1024;

/// The most that the limit can be set to.
pub const LIMIT_MAX: u32 = 1 << 16;

#[derive(Clone)]
struct Slot {
    open: Arc<Description>,
    /// Whether a new program does not get it.
    private: bool,
}

struct Slots {
    slots: Vec<Option<Slot>>,
    /// No number below is free.
    lowest: usize,
    limit: usize,
}

/// The descriptors of a process.
pub struct Table(SpinMutex<Slots>);

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// No descriptors; at most [`LIMIT`].
    pub const fn new() -> Self {
        Self(SpinMutex::new(Slots { slots: Vec::new(), lowest: 0, limit: LIMIT as usize }))
    }

    /// A copy that shares all descriptions, as for `fork`.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn duplicate(&self) -> Result<Self> {
        let from = self.0.lock();
        let mut slots = Vec::new();
        slots.try_reserve_exact(from.slots.len()).map_err(|_| Errno::ENOMEM)?;
        slots.extend(from.slots.iter().cloned());
        Ok(Self(SpinMutex::new(Slots { slots, lowest: from.lowest, limit: from.limit })))
    }

    /// How many descriptors there may be.
    pub fn limit(&self) -> u32 {
        self.0.lock().limit as u32
    }

    /// Sets how many descriptors there may be; those beyond stay open.
    ///
    /// # Errors
    /// [`Errno::EPERM`] beyond [`LIMIT_MAX`].
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        if limit > LIMIT_MAX {
            return Err(Errno::EPERM);
        }
        self.0.lock().limit = limit as usize;
        Ok(())
    }

    /// The file that is open as `number`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn get(&self, number: u32) -> Result<Arc<Description>> {
        let table = self.0.lock();
        Ok(table.slot(number)?.open.clone())
    }

    /// Whether one more descriptor could be opened.
    ///
    /// # Errors
    /// [`Errno::EMFILE`].
    pub fn check_room(&self) -> Result<()> {
        self.0.lock().free(0).map(drop)
    }

    /// Gives it the lowest free number that is at least `least`. `private` descriptors are closed
    /// by a new program.
    ///
    /// # Errors
    /// [`Errno::EMFILE`]; [`Errno::EINVAL`] if `least` is beyond the limit; [`Errno::ENOMEM`].
    pub fn add(&self, open: Arc<Description>, private: bool, least: u32) -> Result<u32> {
        let mut table = self.0.lock();
        let number = table.free(least as usize)?;
        table.set(number, Slot { open, private })?;
        Ok(number as u32)
    }

    /// Gives two descriptions numbers, or neither.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_two(&self, two: [Arc<Description>; 2], private: bool) -> Result<[u32; 2]> {
        let [first, second] = two;
        let first = self.add(first, private, 0)?;
        match self.add(second, private, 0) {
            Ok(second) => Ok([first, second]),
            Err(errno) => {
                let _ = self.close(first);
                Err(errno)
            }
        }
    }

    /// Makes `to` a copy of `from`, and closes the file that it had (`dup3`).
    ///
    /// # Errors
    /// [`Errno::EBADF`] if `from` is not open or `to` beyond the limit, [`Errno::ENOMEM`].
    pub fn copy_to(&self, from: u32, to: u32, private: bool) -> Result<u32> {
        let mut table = self.0.lock();
        let open = table.slot(from)?.open.clone();
        if to as usize >= table.limit {
            return Err(Errno::EBADF);
        }
        let old = table.set(to as usize, Slot { open, private })?;
        drop(table);
        drop(old);
        Ok(to)
    }

    /// Closes `number`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn close(&self, number: u32) -> Result<()> {
        let old = self.0.lock().take(number as usize);
        old.map(drop).ok_or(Errno::EBADF)
    }

    /// Closes all from `first` to `last`, both inclusive.
    pub fn close_range(&self, first: u32, last: u32) {
        self.close_where(|number, _| (first..=last).contains(&number));
    }

    /// Marks all from `first` to `last`, both inclusive, as private.
    pub fn hide_range(&self, first: u32, last: u32) {
        let mut table = self.0.lock();
        let end = (last as usize).saturating_add(1).min(table.slots.len());
        let start = (first as usize).min(end);
        table.slots[start..end].iter_mut().flatten().for_each(|slot| slot.private = true);
    }

    /// Closes all private ones: a new program begins.
    pub fn close_private(&self) {
        self.close_where(|_, private| private);
    }

    /// Closes all: the process ends.
    pub fn close_all(&self) {
        self.close_where(|_, _| true);
    }

    /// Whether `number` is closed by a new program.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn is_private(&self, number: u32) -> Result<bool> {
        Ok(self.0.lock().slot(number)?.private)
    }

    /// Sets whether `number` is closed by a new program.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn set_private(&self, number: u32, private: bool) -> Result<()> {
        let mut table = self.0.lock();
        let slot = table.slots.get_mut(number as usize).and_then(Option::as_mut);
        slot.ok_or(Errno::EBADF)?.private = private;
        Ok(())
    }

    /// The lowest number from `from` on that is open: to list them.
    pub fn next(&self, from: u32) -> Option<u32> {
        let table = self.0.lock();
        let mut slots = table.slots.iter().enumerate().skip(from as usize);
        slots.find(|(_, slot)| slot.is_some()).map(|(number, _)| number as u32)
    }

    fn close_where(&self, is_closed: impl Fn(u32, bool) -> bool) {
        let mut from = 0;
        loop {
            let mut table = self.0.lock();
            let mut slots = table.slots.iter().enumerate().skip(from);
            let found = slots.find_map(|(number, slot)| {
                slot.as_ref().filter(|slot| is_closed(number as u32, slot.private))?;
                Some(number)
            });
            let Some(number) = found else { return };
            let old = table.take(number);
            drop(table);
            drop(old);
            from = number + 1;
        }
    }
}

impl Slots {
    fn slot(&self, number: u32) -> Result<&Slot> {
        self.slots.get(number as usize).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    fn free(&self, least: usize) -> Result<usize> {
        if least > 0 && least >= self.limit {
            return Err(Errno::EINVAL);
        }
        let from = least.max(self.lowest);
        let mut slots = self.slots.iter().skip(from);
        let number = from
            + slots
                .position(Option::is_none)
                .unwrap_or_else(|| self.slots.len().saturating_sub(from));
        if number >= self.limit { Err(Errno::EMFILE) } else { Ok(number) }
    }

    fn set(&mut self, number: usize, slot: Slot) -> Result<Option<Slot>> {
        if number >= self.slots.len() {
            let more = number + 1 - self.slots.len();
            self.slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.slots.resize(number + 1, None);
        }
        if number == self.lowest {
            self.lowest += 1;
        }
        Ok(self.slots[number].replace(slot))
    }

    fn take(&mut self, number: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(number)?.take()?;
        self.lowest = self.lowest.min(number);
        Some(slot)
    }
}
