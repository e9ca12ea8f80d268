//! Loading any run of slots.

use crate::codec;
use crate::entry::{Content, Entry, Unit};
use crate::heap::Heap;
use crate::pool::Found;
use crate::{Error, Lender, Pool};

impl<L: Lender> Pool<'_, L> {
    /// Copies the contents of the `count` slots from `first` on to `out`. Each unit is decompressed
    /// once, right into `out` where the caller asks for all of it. A unit that is loaded in part is
    /// remembered: until another unit is loaded in part, further parts of it are only copied. The
    /// stored data stays.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::WrongLength`]: nothing was done. [`Error::Absent`],
    /// [`Error::Corrupt`]: the contents of `out` are unspecified. The other slots can be loaded.
    pub fn load(&mut self, first: u64, count: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check_range(first, count)?;
        self.check_length(out.len(), count)?;
        let result = self.load_parts(first, first + count, out);
        match result {
            Ok(()) => self.counters.loads += 1,
            Err(Error::Corrupt { .. }) => self.counters.corrupt_units += 1,
            Err(_) => {}
        }
        result
    }

    fn load_parts(&mut self, first: u64, end: u64, out: &mut [u8]) -> Result<(), Error> {
        let mut slot = first;
        let mut rest = out;
        while slot < end {
            let found = self.find(slot)?.ok_or(Error::Absent { slot })?;
            let stop = self.part_end(&found, slot, end);
            let length = (stop - slot) as usize * self.config.page_bytes();
            let (now, later) = rest.split_at_mut_checked(length).ok_or(found.corrupt())?;
            self.load_part(&found, slot, now).ok_or(found.corrupt())?;
            if !found.unit.is_touched {
                let touched = Unit { is_touched: true, ..found.unit };
                self.set_entry(found.head, Entry::Head(touched));
            }
            (slot, rest) = (stop, later);
        }
        Ok(())
    }

    /// Decodes the slots of a unit from `slot` on; `None` when it is damaged.
    fn load_part(&mut self, found: &Found, slot: u64, out: &mut [u8]) -> Option<()> {
        if let Content::Same(word) = found.unit.content {
            verify(found, &word.to_le_bytes())?;
            codec::repeat(word, out);
            return Some(());
        }
        let page_bytes = self.config.page_bytes();
        let unit_bytes = page_bytes << found.unit.order.get();
        if out.len() == unit_bytes {
            self.counters.decoded_units += 1;
            return decode(&self.lender, self.packed, found, out);
        }
        let plain = self.plain.get_mut(..unit_bytes)?;
        let this = Some((found.owner(), found.unit.checksum));
        if self.plain_of != this {
            self.plain_of = None;
            self.counters.decoded_units += 1;
            decode(&self.lender, self.packed, found, plain)?;
            self.plain_of = this;
        }
        let start = (slot - found.base) as usize * page_bytes;
        out.copy_from_slice(plain.get(start..start + out.len())?);
        Some(())
    }
}

/// Decodes a whole unit that has an object, verified. `packed` is memory to assemble it in.
fn decode(lender: &impl Lender, packed: &mut [u8], found: &Found, out: &mut [u8]) -> Option<()> {
    let kept = kept(lender, packed, found)?;
    if let Content::Packed(..) = found.unit.content {
        return codec::unpack(kept, out);
    }
    out.copy_from_slice(kept.get(..out.len())?);
    Some(())
}

/// A unit's object in one piece, verified: in place, or assembled in `packed`.
fn kept<'a>(lender: &'a impl Lender, packed: &'a mut [u8], found: &Found) -> Option<&'a [u8]> {
    let (length, first) = found.unit.content.object()?;
    let kept = match Heap::whole(lender, found.owner(), first, length as usize) {
        Some(kept) => kept,
        None => {
            let kept = packed.get_mut(..length as usize)?;
            Heap::read(lender, found.owner(), first, kept)?;
            kept
        }
    };
    verify(found, kept)?;
    Some(kept)
}

fn verify(found: &Found, kept: &[u8]) -> Option<()> {
    let kind = found.unit.content.kind();
    (codec::checksum(found.owner(), kind, kept) == found.unit.checksum).then_some(())
}
