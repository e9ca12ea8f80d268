//! Program memory as where bytes go to, or come from: one range, or an array of `iovec`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire_linux::files::{Caller, Sink, Source};
use quire_linux::{Errno, Result, Wake};

use crate::disk;
use crate::isa;
use crate::memory::{PAGE, user};

/// The most bytes that one call moves, as on Linux.
pub(super) const MOST: usize = 0x7fff_f000;
/// The most pieces of one call (`IOV_MAX`).
const PIECES_MAX: usize = 1024;
/// Pieces that need no heap.
const FEW: usize = 8;

/// One piece of program memory: where it begins, and how many bytes it has.
type Piece = [usize; 2];

/// Pieces of program memory, one after the other: where bytes go to, or come from.
pub(super) struct Pieces {
    few: [Piece; FEW],
    /// All of them when there are more than a few, else nothing.
    many: Vec<Piece>,
    /// The piece that is next, and bytes of it that are done.
    next: usize,
    done: usize,
    left: usize,
    /// The thread to wake when the call returns early because a page of these is on a disk; without
    /// it, the call waits for the page.
    /// The thread that moves bytes, and its number.
    waiter: Option<(Arc<dyn Wake>, u32)>,
}

impl Pieces {
    /// `bytes` bytes from `address` on, at most as many as a call moves.
    ///
    /// # Errors
    /// `EFAULT` when these can be no program memory at all.
    pub(super) fn one(address: usize, bytes: usize) -> Result<Self> {
        check(&[address, bytes])?;
        Ok(Self::unchecked(address, bytes))
    }

    /// The same, for calls that may use less: nothing is checked before it is used.
    pub(super) fn unchecked(address: usize, bytes: usize) -> Self {
        let mut few = [[0; 2]; FEW];
        few[0] = [address, bytes];
        Self { few, many: Vec::new(), next: 0, done: 0, left: bytes.min(MOST), waiter: None }
    }

    /// Reads an array of `count` `iovec`, once.
    ///
    /// # Errors
    /// `EINVAL` when there are too many pieces or bytes, `EFAULT`, `ENOMEM`.
    pub(super) fn array(address: usize, count: usize) -> Result<Self> {
        if count > PIECES_MAX {
            return Err(Errno::EINVAL);
        }
        let mut pieces = Self::unchecked(0, 0);
        if count > FEW {
            pieces.many.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
            pieces.many.resize(count, [0; 2]);
        }
        let all = if count > FEW { &mut pieces.many[..] } else { &mut pieces.few[..count] };
        user::read_bytes(address as u64, zerocopy::IntoBytes::as_mut_bytes(all))?;
        let mut sum = 0_usize;
        for piece in all {
            let longer = sum.checked_add(piece[1]).filter(|sum| *sum <= isize::MAX as usize);
            sum = longer.ok_or(Errno::EINVAL)?;
            check(piece)?;
        }
        pieces.left = sum.min(MOST);
        Ok(pieces)
    }

    /// The next bytes that are together within a page, at most `most`: where, and how many.
    fn here(&mut self, most: usize) -> (u64, usize) {
        let most = most.min(self.left);
        if most == 0 {
            return (0, 0);
        }
        let all = if self.many.is_empty() { &self.few[..] } else { &self.many[..] };
        // Pieces have as many bytes together as are left, at least: this ends.
        while self.done == all[self.next][1] {
            self.next += 1;
            self.done = 0;
        }
        let [start, bytes] = all[self.next];
        let at = start as u64 + self.done as u64;
        (at, most.min(bytes - self.done).min((PAGE - at % PAGE) as usize))
    }

    fn advance(&mut self, bytes: usize) {
        self.done += bytes;
        self.left -= bytes;
    }

    /// From now on moving bytes does not wait for a page that lies on a disk: it fails with
    /// [`Errno::BLOCKED`], and `who` is woken when the page may have come.
    /// The same holds for a page that a watcher answers for.
    pub(super) fn wait_as(&mut self, who: &Caller<'_>) {
        self.waiter.get_or_insert_with(|| (who.wake.clone(), who.tid));
    }

    /// Copies by `copy`, in the way that [`wait_as`](Self::wait_as) says.
    fn copy(&self, mut copy: impl FnMut() -> Result<()>) -> Result<()> {
        let Some((who, tid)) = &self.waiter else { return copy() };
        loop {
            match disk::leaving(&mut copy) {
                (Err(Errno::EFAULT), Some((address, access))) => {
                    disk::want(who, *tid, address, access)?;
                }
                (done, _) => return done,
            }
        }
    }

    /// How many of the next `most` bytes are together within a page.
    pub(super) fn room(&mut self, most: usize) -> usize {
        self.here(most).1
    }

    /// Leaves out `bytes` bytes, or all when there are fewer.
    pub(super) fn skip(&mut self, mut bytes: usize) {
        while bytes > 0 && self.left > 0 {
            let (_, count) = self.here(bytes);
            self.advance(count);
            bytes -= count;
        }
    }
}

/// Refuses pieces beyond all program memory, as Linux does before it moves anything.
fn check(&[address, bytes]: &Piece) -> Result<()> {
    let end = address.checked_add(bytes).ok_or(Errno::EFAULT)?;
    if end as u64 <= isa::USER_END { Ok(()) } else { Err(Errno::EFAULT) }
}

impl Sink for Pieces {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let before = (self.next, self.done, self.left);
        let mut done = 0;
        while done < bytes.len() {
            let (at, count) = self.here(bytes.len() - done);
            let put = match count {
                0 => Err(Errno::EFAULT),
                _ => self.copy(|| user::write_bytes(at, &bytes[done..done + count])),
            };
            if put.is_err() {
                // None of them count.
                (self.next, self.done, self.left) = before;
                return put;
            }
            self.advance(count);
            done += count;
        }
        Ok(())
    }
}

impl Source for Pieces {
    fn take(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let (at, count) = self.here(into.len() - done);
            if count == 0 {
                return Ok(done);
            }
            let take = self.copy(|| user::read_bytes(at, &mut into[done..done + count]));
            match take {
                Ok(()) => self.advance(count),
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
            }
            done += count;
        }
    }

    fn left(&self) -> usize {
        self.left
    }
}
