//! `PROCMAP_QUERY`: the area at an address, or the next one that is such (linux/fs.h).

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::take;
use crate::files::Source;
use crate::text::AreaLine;
use crate::{Errno, Result};

/// A question after an area, and its answer, as a program lays them out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct AreaQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name_address: u64,
    build_id_address: u64,
}

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
/// The next area will do where none covers the address.
const OR_NEXT: u64 = 16;
/// Of a file.
const FILE: u64 = 32;
const RIGHTS: u64 = READABLE | WRITABLE | EXECUTABLE | SHARED;

/// All bytes of a question.
const BYTES: usize = size_of::<AreaQuery>();
/// The fewest: up to the address.
const LEAST: usize = 24;
/// The most that a question may have, in a program that is newer than this.
const MOST: usize = 4096;

impl AreaQuery {
    /// Its number among the requests of `ioctl`.
    pub const REQUEST: u32 = 0xc068_6611;

    /// A program's query.
    ///
    /// # Errors
    /// [`Errno::E2BIG`] for unknown fields that are set, [`Errno::EINVAL`] for a malformed one,
    /// [`Errno::EFAULT`].
    pub fn read(input: &mut dyn Source) -> Result<Self> {
        let mut bytes = [0; BYTES];
        take(input, &mut bytes[..8])?;
        let size = u64::from_ne_bytes(*bytes.first_chunk().unwrap_or(&[0; 8])) as usize;
        if size > MOST {
            return Err(Errno::E2BIG);
        }
        if size < LEAST {
            return Err(Errno::EINVAL);
        }
        take(input, &mut bytes[8..size.min(BYTES)])?;
        for _ in BYTES..size {
            let mut more = [0];
            take(input, &mut more)?;
            if more != [0] {
                return Err(Errno::E2BIG);
            }
        }
        let query = Self::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
        let paired = |bytes: u32, address: u64| (bytes == 0) == (address == 0);
        let is_good = query.flags & !(RIGHTS | OR_NEXT | FILE) == 0
            && paired(query.name_bytes, query.name_address)
            && paired(query.build_id_bytes, query.build_id_address);
        if is_good { Ok(query) } else { Err(Errno::EINVAL) }
    }

    /// The address that it is about.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Looks at the next area that ends above the address, the first one first: whether it is the
    /// one that is meant.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when it is not, and none behind it can be.
    pub fn is_meant(&self, area: &AreaLine<'_>) -> Result<bool> {
        let wanted = self.flags & RIGHTS;
        let is_such = rights(area) & wanted == wanted
            && (self.flags & FILE == 0 || area.inode != 0)
            && (self.flags & OR_NEXT != 0 || area.start <= self.address);
        match is_such || self.flags & OR_NEXT != 0 {
            true => Ok(is_such),
            false => Err(Errno::ENOENT),
        }
    }

    /// Answers with `area`; the address for its name, with a zero behind it, if the query asks for
    /// it.
    ///
    /// # Errors
    /// [`Errno::ENAMETOOLONG`] when it does not fit.
    pub fn answer(&mut self, area: &AreaLine<'_>, page_bytes: u64) -> Result<Option<u64>> {
        let is_file = area.inode != 0;
        (self.start, self.end, self.rights) = (area.start, area.end, rights(area));
        self.page_bytes = page_bytes;
        self.offset = if is_file { area.offset } else { 0 };
        self.inode = area.inode;
        self.device = [area.device.0, area.device.1];
        // No program has one that is known here.
        self.build_id_bytes = 0;
        let room = self.name_bytes as usize;
        self.name_bytes = match area.name.len() {
            0 => 0,
            bytes if bytes < room => bytes as u32 + 1,
            _ if room == 0 => 0,
            _ => return Err(Errno::ENAMETOOLONG),
        };
        Ok((self.name_bytes > 0).then_some(self.name_address))
    }

    /// The answer for the program: no more than it has room for.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.as_bytes()[..BYTES.min(self.size as usize)]
    }
}

fn rights(area: &AreaLine<'_>) -> u64 {
    let flags = [
        (area.rights.read, READABLE),
        (area.rights.write, WRITABLE),
        (area.rights.execute, EXECUTABLE),
        (area.shared, SHARED),
    ];
    flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Rights;

    fn asked(flags: u64, address: u64) -> AreaQuery {
        let mut words = [0_u64; 13];
        (words[0], words[1], words[2]) = (BYTES as u64, flags, address);
        AreaQuery::read(&mut words.as_bytes()).unwrap()
    }

    fn area(start: u64, end: u64, write: bool, inode: u64, name: &[u8]) -> AreaLine<'_> {
        let rights = Rights { read: true, write, execute: false };
        AreaLine { start, end, rights, shared: false, offset: 9, device: (0, 7), inode, name }
    }

    #[test]
    fn an_area_is_meant_where_it_covers_the_address_and_is_such() {
        let (low, high) = (area(0x1000, 0x2000, false, 0, b""), area(0x5000, 0x6000, true, 3, b""));
        assert_eq!(asked(0, 0x1fff).is_meant(&low), Ok(true));
        assert_eq!(asked(READABLE, 0x1000).is_meant(&low), Ok(true));
        assert_eq!(asked(WRITABLE, 0x1000).is_meant(&low), Err(Errno::ENOENT));
        assert_eq!(asked(0, 0x4000).is_meant(&high), Err(Errno::ENOENT), "it is the next one only");
        assert_eq!(asked(OR_NEXT, 0x4000).is_meant(&high), Ok(true));
        assert_eq!(asked(OR_NEXT | FILE, 0x1000).is_meant(&low), Ok(false), "another may be");
        assert_eq!(asked(OR_NEXT | FILE, 0x1000).is_meant(&high), Ok(true));
    }

    #[test]
    fn a_malformed_query_is_refused() {
        let read = |words: &[u64]| AreaQuery::read(&mut words.as_bytes()).map(|_| ());
        assert_eq!(read(&[23, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(read(&[24, 64, 0]), Err(Errno::EINVAL));
        assert_eq!(read(&[24, 0, 0]), Ok(()));
        assert_eq!(read(&[24, 0]), Err(Errno::EFAULT));
        assert_eq!(read(&[8192]), Err(Errno::E2BIG));
        let mut newer = [0; 14];
        newer[0] = 112;
        assert_eq!(read(&newer), Ok(()));
        newer[13] = 1;
        assert_eq!(read(&newer), Err(Errno::E2BIG));
        let mut named = [0; 13];
        (named[0], named[10]) = (104, 5);
        assert_eq!(read(&named), Err(Errno::EINVAL), "a name has no place");
    }

    #[test]
    fn an_answer_has_all_of_the_area_and_its_name_where_there_is_room() {
        let mut words = [0_u64; 13];
        (words[0], words[2], words[10], words[11]) = (BYTES as u64, 0x1000, 5, 0x7000);
        let mut query = AreaQuery::read(&mut words.as_bytes()).unwrap();
        let shown = area(0x1000, 0x2000, true, 4, b"/bin");
        assert_eq!(query.answer(&shown, 4096), Ok(Some(0x7000)));
        let mut told = [0_u64; 13];
        told.as_mut_bytes().copy_from_slice(query.bytes());
        assert_eq!(told[3..9], [0x1000, 0x2000, READABLE | WRITABLE, 4096, 9, 4]);
        assert_eq!(told[9..], [7 << 32, 5, 0x7000, 0][..]);
        let long = area(0x1000, 0x2000, true, 4, b"/bin/");
        let mut query = AreaQuery::read(&mut words.as_bytes()).unwrap();
        assert_eq!(query.answer(&long, 4096), Err(Errno::ENAMETOOLONG));
        let mut query = asked(0, 0x1000);
        assert_eq!(query.answer(&long, 4096), Ok(None), "the query did not ask for it");
    }
}
