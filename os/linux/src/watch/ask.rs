//! The requests of `ioctl` on a userfaultfd (linux/userfaultfd.h).

use bitflags::bitflags;

use crate::files::{Sink, Source};
use crate::query::take;
use crate::{Errno, Result};

bitflags! {
    /// The features of the interface that exist here.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Features: u64 {
        /// Writes to protected pages are events.
        const PROTECTED = 1 << 0;
        /// Children are watched as well, and a fork is told.
        const FORK = 1 << 1;
        /// Areas that move are watched as well, and the move is told.
        const REMAP = 1 << 2;
        /// Pages whose content goes are told.
        const REMOVE = 1 << 3;
        /// Missing pages of reserved folios are events.
        const MISSING_RESERVED = 1 << 4;
        /// So are those of files in memory.
        const MISSING_SHARED = 1 << 5;
        /// Pages that are unmapped are told.
        const UNMAP = 1 << 6;
        /// A fault is no event but SIGBUS.
        const SIGBUS = 1 << 7;
        /// Messages name the thread.
        const THREAD_ID = 1 << 8;
        /// Pages that a file of reserved folios has and the area does not map are events.
        const MINOR_RESERVED = 1 << 9;
        /// So are those of files in memory.
        const MINOR_SHARED = 1 << 10;
        /// Messages have the address to the byte.
        const EXACT_ADDRESS = 1 << 11;
        /// Writes to protected pages of files in memory are events.
        const PROTECTED_SHARED = 1 << 12;
        /// Absent pages can be protected.
        const PROTECT_ABSENT = 1 << 13;
        /// Pages can be made to fail.
        const POISON = 1 << 14;
        /// A write to a protected page is no event, and ends its protection.
        const PROTECT_ASYNC = 1 << 15;
        /// Pages can be moved in.
        const MOVE = 1 << 16;
    }
}

bitflags! {
    /// The events for which a range is registered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Mode: u64 {
        /// Missing pages.
        const MISSING = 1 << 0;
        /// Writes to protected pages.
        const PROTECTED = 1 << 1;
        /// Pages that the file has.
        const MINOR = 1 << 2;
    }
}

/// Bytes, half-open: whole pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The byte behind the last one.
    pub end: u64,
}

/// A request by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// `UFFDIO_API`.
    Api,
    /// `UFFDIO_REGISTER`.
    Register,
    /// `UFFDIO_UNREGISTER`.
    Unregister,
    /// `UFFDIO_WAKE`.
    Wake,
    /// `UFFDIO_COPY`.
    Copy,
    /// `UFFDIO_ZEROPAGE`.
    Zero,
    /// `UFFDIO_WRITEPROTECT`.
    Protect,
    /// `UFFDIO_CONTINUE`.
    Continue,
    /// `UFFDIO_POISON`.
    Poison,
    /// `UFFDIO_MOVE`.
    Move,
}

/// A request with its argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// The version and the features that a program wants; whether both exist is the kernel's.
    Api(u64, u64),
    /// From now on these events are the watcher's.
    Register(Range, Mode),
    /// No more.
    Unregister(Range),
    /// Threads that wait for pages of the range try again.
    Wake(Range),
    /// Copies memory from an address into missing pages.
    Copy(Range, u64, Then),
    /// Fills missing pages with zeroes.
    Zero(Range, Then),
    /// Protects pages from writes, or ends that.
    Protect(Range, Then),
    /// Maps pages that the file has.
    Continue(Range, Then),
    /// Makes missing pages fail when they are accessed.
    Poison(Range, Then),
    /// Moves memory from an address to missing pages; with the flag, its holes as well.
    Move(Range, u64, bool, Then),
}

/// The effects of an answer besides those on its pages' content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Then {
    /// Threads that wait for them are woken.
    pub wakes: bool,
    /// They are protected from writes.
    pub protects: bool,
}

const READ: u32 = 2 << 30;
const READ_WRITE: u32 = 3 << 30;
const KIND: u32 = 0xaa << 8;

/// Mode of an answer: no thread is woken.
const DONT_WAKE: u64 = 1;

/// Mode of an answer that maps pages: they are protected.
const MAP_PROTECTED: u64 = 2;

/// Mode of [`Request::Move`]: pages that are missing at the source stay missing.
const MOVE_HOLES: u64 = 2;

/// Modes of [`Request::Protect`], which has them the other way round.
const PROTECT: u64 = 1;
const PROTECT_DONT_WAKE: u64 = 2;

impl Request {
    const ALL: [Self; 10] = [
        Self::Api,
        Self::Register,
        Self::Unregister,
        Self::Wake,
        Self::Copy,
        Self::Zero,
        Self::Protect,
        Self::Continue,
        Self::Poison,
        Self::Move,
    ];

    /// Its place among the requests, as masks of them have it; and how many words it has.
    const fn form(self) -> (u32, u32) {
        match self {
            Self::Api => (0x3f, 3),
            Self::Register => (0, 4),
            Self::Unregister => (1, 2),
            Self::Wake => (2, 2),
            Self::Copy => (3, 5),
            Self::Zero => (4, 4),
            Self::Protect => (6, 3),
            Self::Continue => (7, 4),
            Self::Poison => (8, 4),
            Self::Move => (5, 5),
        }
    }

    /// The request with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|request| request.number() == number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        let (at, words) = self.form();
        // These two were declared the wrong way round, and stay so.
        let way = if matches!(self, Self::Unregister | Self::Wake) { READ } else { READ_WRITE };
        way | ((words * 8) << 16) | KIND | at
    }

    /// Its bit in a mask of requests.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.form().0
    }

    /// Whether it maps pages, and tells how many bytes they are.
    #[must_use]
    pub const fn maps(self) -> bool {
        matches!(self, Self::Copy | Self::Zero | Self::Continue | Self::Poison | Self::Move)
    }

    /// How many bytes it reads. Behind them is the word for its answer, if it has one.
    const fn bytes(self) -> usize {
        match self {
            Self::Api
            | Self::Register
            | Self::Zero
            | Self::Protect
            | Self::Continue
            | Self::Poison => 24,
            Self::Copy | Self::Move => 32,
            Self::Unregister | Self::Wake => 16,
        }
    }

    /// Reads the words of its argument.
    ///
    /// # Errors
    /// [`Errno::EFAULT`].
    pub fn read(self, input: &mut dyn Source) -> Result<[u64; 4]> {
        let mut bytes = [0; 32];
        take(input, &mut bytes[..self.bytes()])?;
        let mut words = [0; 4];
        let (read, _) = bytes.as_chunks::<8>();
        words.iter_mut().zip(read).for_each(|(word, bytes)| *word = u64::from_ne_bytes(*bytes));
        Ok(words)
    }

    /// Writes `answer` behind the words that it read.
    ///
    /// # Errors
    /// [`Errno::EFAULT`].
    pub fn answer(self, words: &[u64; 4], answer: u64, output: &mut dyn Sink) -> Result<()> {
        let count = self.bytes();
        let mut bytes = [0; 40];
        bytes[..32].copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
        bytes[count..count + 8].copy_from_slice(&answer.to_ne_bytes());
        output.put(&bytes[..count + 8])
    }
}

impl Ask {
    /// The argument of `request` as `words` give it. Programs have memory below `limit`, with this
    /// page size in bytes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown modes, for a range that is empty or no whole pages, and for
    /// one that exceeds the program's memory, or whose source does.
    pub fn of(request: Request, words: &[u64; 4], limit: u64, page_bytes: u64) -> Result<Self> {
        let range = |bytes: u64| range(words[0], bytes, limit, page_bytes);
        let then = |mode: u64, most: u64| match mode & !most {
            0 => Ok(Then { wakes: mode & DONT_WAKE == 0, protects: mode & MAP_PROTECTED != 0 }),
            _ => Err(Errno::EINVAL),
        };
        Ok(match request {
            Request::Api => Self::Api(words[0], words[1]),
            Request::Register => {
                let mode = Mode::from_bits(words[2]).filter(|mode| !mode.is_empty());
                Self::Register(range(words[1])?, mode.ok_or(Errno::EINVAL)?)
            }
            Request::Unregister => Self::Unregister(range(words[1])?),
            Request::Wake => Self::Wake(range(words[1])?),
            Request::Zero => Self::Zero(range(words[1])?, then(words[2], DONT_WAKE)?),
            Request::Poison => Self::Poison(range(words[1])?, then(words[2], DONT_WAKE)?),
            Request::Continue => {
                Self::Continue(range(words[1])?, then(words[2], DONT_WAKE | MAP_PROTECTED)?)
            }
            Request::Protect => {
                let then = match words[2] {
                    0 => Then { wakes: true, protects: false },
                    PROTECT => Then { wakes: false, protects: true },
                    PROTECT_DONT_WAKE => Then { wakes: false, protects: false },
                    _ => return Err(Errno::EINVAL),
                };
                Self::Protect(range(words[1])?, then)
            }
            Request::Copy => {
                let then = then(words[3], DONT_WAKE | MAP_PROTECTED)?;
                let range = range(words[2])?;
                let end = words[1].checked_add(words[2]);
                if end.is_none_or(|end| end > limit) {
                    return Err(Errno::EINVAL);
                }
                Self::Copy(range, words[1], then)
            }
            Request::Move => {
                let wakes = then(words[3] & !MOVE_HOLES, DONT_WAKE)?;
                let source = self::range(words[1], words[2], limit, page_bytes)?;
                Self::Move(range(words[2])?, source.start, words[3] & MOVE_HOLES != 0, wakes)
            }
        })
    }
}

fn range(start: u64, bytes: u64, limit: u64, page_bytes: u64) -> Result<Range> {
    let whole = start.is_multiple_of(page_bytes) && bytes.is_multiple_of(page_bytes);
    match start.checked_add(bytes) {
        Some(end) if whole && bytes > 0 && end <= limit => Ok(Range { start, end }),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn of(request: Request, words: [u64; 4]) -> Result<Ask> {
        Ask::of(request, &words, 1 << 47, PAGE)
    }

    #[test]
    fn d8_requests_have_linuxs_numbers() {
        let numbers = [
            (Request::Api, 0xc018_aa3f),
            (Request::Register, 0xc020_aa00),
            (Request::Unregister, 0x8010_aa01),
            (Request::Wake, 0x8010_aa02),
            (Request::Copy, 0xc028_aa03),
            (Request::Zero, 0xc020_aa04),
            (Request::Protect, 0xc018_aa06),
            (Request::Continue, 0xc020_aa07),
            (Request::Poison, 0xc020_aa08),
            (Request::Move, 0xc028_aa05),
        ];
        for (request, number) in numbers {
            assert_eq!(request.number(), number, "{request:?}");
            assert_eq!(Request::of(number), Some(request));
        }
        assert_eq!(Request::of(0), None);
    }

    #[test]
    fn d8_ranges_are_whole_pages_of_the_program() {
        let good = Range { start: PAGE, end: 3 * PAGE };
        assert_eq!(of(Request::Wake, [PAGE, 2 * PAGE, 0, 0]), Ok(Ask::Wake(good)));
        for (start, bytes) in [(1, PAGE), (0, 1), (0, 0), (1 << 47, PAGE), (PAGE, u64::MAX - 4095)]
        {
            assert_eq!(of(Request::Wake, [start, bytes, 0, 0]), Err(Errno::EINVAL));
        }
        let silent = Then { wakes: false, protects: false };
        assert_eq!(of(Request::Copy, [PAGE, 7, 2 * PAGE, 1]), Ok(Ask::Copy(good, 7, silent)));
        let protected = Then { wakes: true, protects: true };
        assert_eq!(of(Request::Copy, [PAGE, 7, 2 * PAGE, 2]), Ok(Ask::Copy(good, 7, protected)));
        assert_eq!(of(Request::Copy, [PAGE, 7, 2 * PAGE, 4]), Err(Errno::EINVAL));
        let moved = |source, mode| of(Request::Move, [PAGE, source, 2 * PAGE, mode]);
        assert_eq!(moved(8 * PAGE, 3), Ok(Ask::Move(good, 8 * PAGE, true, silent)));
        assert_eq!(moved(7, 0), Err(Errno::EINVAL), "the source is whole pages as well");
        assert_eq!(moved(8 * PAGE, 4), Err(Errno::EINVAL));
        let protect = |mode| of(Request::Protect, [PAGE, 2 * PAGE, mode, 0]);
        let done = |wakes, protects| Ok(Ask::Protect(good, Then { wakes, protects }));
        assert_eq!(
            [0, 1, 2].map(protect),
            [done(true, false), done(false, true), done(false, false)]
        );
        assert_eq!(protect(3), Err(Errno::EINVAL), "to protect wakes no thread anyway");
        assert_eq!(of(Request::Copy, [PAGE, 1 << 47, PAGE, 0]), Err(Errno::EINVAL));
        assert_eq!(of(Request::Zero, [PAGE, 2 * PAGE, 2, 0]), Err(Errno::EINVAL));
        let mode = Mode::MISSING | Mode::MINOR;
        assert_eq!(of(Request::Register, [PAGE, 2 * PAGE, 5, 0]), Ok(Ask::Register(good, mode)));
        for mode in [0, 8] {
            assert_eq!(of(Request::Register, [PAGE, PAGE, mode, 0]), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn d8_an_answer_is_behind_the_argument() {
        let words = [1, 2, 3, 4].map(u64::to_ne_bytes);
        let mut input = &words.as_flattened()[..24];
        let read = Request::Zero.read(&mut input).unwrap();
        assert_eq!(read, [1, 2, 3, 0]);
        let mut output = alloc::vec::Vec::new();
        Request::Zero.answer(&read, 9, &mut output).unwrap();
        assert_eq!(output, [1, 2, 3, 9].map(u64::to_ne_bytes).as_flattened());
        let mut short = &words.as_flattened()[..23];
        assert_eq!(Request::Zero.read(&mut short), Err(Errno::EFAULT));
    }
}
