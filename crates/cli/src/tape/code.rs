//! The body of a recording: events as bytes, and back.
//!
//! ```text
//!   number  event      fields
//!        0  Space      number
//!        1  Time       milliseconds
//!        2  Begin
//!        3  Held       pages, zigzag
//!        4  Map        start, pages, flags, and for a file: its number, its first page
//!        5  Unmap      start, pages
//!        6  Protect    start, pages, rights
//!        7  Advise     start, pages, advice
//!        8  Move       start, pages, target's start, its pages, keep
//!        9  Fork       number
//!       10  Exit
//!       11  Mark                                                     (since version 3)
//! ```

use super::event::{Access, Advice, Area, Backing, Event, Rights, Span};

/// Makes a body.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    last: u64,
    /// How many touches it has.
    touches: u64,
}

const SPACE: u64 = 0;
const TIME: u64 = 1;
const BEGIN: u64 = 2;
const HELD: u64 = 3;
const MAP: u64 = 4;
const UNMAP: u64 = 5;
const PROTECT: u64 = 6;
const ADVISE: u64 = 7;
const MOVE: u64 = 8;
const FORK: u64 = 9;
const EXIT: u64 = 10;
const MARK: u64 = 11;

impl Writer {
    /// Appends an event.
    pub(crate) fn push(&mut self, event: Event) {
        match event {
            Event::Touch { page, access } => self.touch(page, access),
            Event::Space(number) => self.words(SPACE, &[u64::from(number)]),
            Event::Time(ms) => self.words(TIME, &[ms]),
            Event::Begin => self.words(BEGIN, &[]),
            Event::Held(pages) => self.words(HELD, &[zigzag(pages)]),
            Event::Map(area) => self.area(&area),
            Event::Unmap(span) => self.words(UNMAP, &[span.start, span.count()]),
            Event::Protect(span, rights) => {
                self.words(PROTECT, &[span.start, span.count(), rights.bits()]);
            }
            Event::Advise(span, advice) => {
                self.words(ADVISE, &[span.start, span.count(), advice_number(advice)]);
            }
            Event::Move { from, to, keep } => {
                self.words(
                    MOVE,
                    &[from.start, from.count(), to.start, to.count(), u64::from(keep)],
                );
            }
            Event::Fork(child) => self.words(FORK, &[u64::from(child)]),
            Event::Exit => self.words(EXIT, &[]),
            Event::Mark => self.words(MARK, &[]),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many touches there are.
    pub(crate) fn touches(&self) -> u64 {
        self.touches
    }

    /// The body.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn touch(&mut self, page: u64, access: Access) {
        let access = match access {
            Access::Read => 0,
            Access::Write => 1,
            Access::Fetch => 2,
        };
        let far = zigzag(page.wrapping_sub(self.last) as i64);
        self.word(far << 3 | access << 1);
        self.last = page;
        self.touches += 1;
    }

    fn area(&mut self, area: &Area) {
        let backing = match area.backing {
            Backing::Anon => 0,
            Backing::File { .. } => 1,
            Backing::Shared => 2,
            Backing::Other => 3,
        };
        let huge = match area.huge {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        };
        let flags = area.rights.bits()
            | backing << 3
            | u64::from(area.shared) << 5
            | u64::from(area.grows) << 6
            | u64::from(area.populate) << 7
            | huge << 8
            | u64::from(area.alone) << 10;
        self.words(MAP, &[area.span.start, area.span.count(), flags]);
        if let Backing::File { file, first } = area.backing {
            self.word(u64::from(file));
            self.word(first);
        }
    }

    fn words(&mut self, number: u64, fields: &[u64]) {
        self.word(number << 1 | 1);
        fields.iter().for_each(|field| self.word(*field));
    }

    fn word(&mut self, mut word: u64) {
        while word >= 0x80 {
            self.bytes.push(word as u8 | 0x80);
            word >>= 7;
        }
        self.bytes.push(word as u8);
    }
}

/// Reads a body. It ends at the first damage, which `at` shows.
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
    /// How many bytes are read.
    pub(crate) at: usize,
    last: u64,
}

impl<'b> Reader<'b> {
    /// From the begin of `bytes`.
    pub(crate) fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes, at: 0, last: 0 }
    }

    fn word(&mut self) -> Option<u64> {
        let mut word = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(word);
            }
        }
        None
    }

    fn number(&mut self) -> Option<u32> {
        u32::try_from(self.word()?).ok()
    }

    fn span(&mut self) -> Option<Span> {
        let (start, count) = (self.word()?, self.word()?);
        let end = start.checked_add(count)?;
        (end < 1 << 52).then_some(Span { start, end })
    }

    fn area(&mut self) -> Option<Area> {
        let span = self.span()?;
        let flags = self.word()?;
        let backing = match flags >> 3 & 3 {
            0 => Backing::Anon,
            1 => Backing::File { file: self.number()?, first: self.word()? },
            2 => Backing::Shared,
            _ => Backing::Other,
        };
        let huge = match flags >> 8 & 3 {
            0 => None,
            1 => Some(true),
            _ => Some(false),
        };
        let has = |bit: u64| flags >> bit & 1 != 0;
        let rights = Rights::of_bits(flags & 7);
        let (shared, grows, populate, alone) = (has(5), has(6), has(7), has(10));
        Some(Area { span, rights, backing, shared, grows, populate, huge, alone })
    }

    fn event(&mut self) -> Option<Event> {
        let word = self.word()?;
        if word & 1 == 0 {
            let access = match word >> 1 & 3 {
                0 => Access::Read,
                1 => Access::Write,
                _ => Access::Fetch,
            };
            self.last = self.last.wrapping_add(unzigzag(word >> 3) as u64);
            return (self.last < 1 << 52).then_some(Event::Touch { page: self.last, access });
        }
        Some(match word >> 1 {
            SPACE => Event::Space(self.number()?),
            TIME => Event::Time(self.word()?),
            BEGIN => Event::Begin,
            HELD => Event::Held(unzigzag(self.word()?)),
            MAP => Event::Map(self.area()?),
            UNMAP => Event::Unmap(self.span()?),
            PROTECT => Event::Protect(self.span()?, Rights::of_bits(self.word()?)),
            ADVISE => Event::Advise(self.span()?, advice_of(self.word()?)?),
            MOVE => {
                let (from, to, keep) = (self.span()?, self.span()?, self.word()? != 0);
                Event::Move { from, to, keep }
            }
            FORK => Event::Fork(self.number()?),
            EXIT => Event::Exit,
            MARK => Event::Mark,
            _ => return None,
        })
    }
}

impl Iterator for Reader<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let before = self.at;
        let event = self.event();
        if event.is_none() {
            self.at = before;
        }
        event
    }
}

const ADVICES: [Advice; 7] = [
    Advice::Huge,
    Advice::NoHuge,
    Advice::Forget,
    Advice::Alone(true),
    Advice::Alone(false),
    Advice::Populate,
    Advice::Collapse,
];

fn advice_number(advice: Advice) -> u64 {
    ADVICES.iter().position(|known| *known == advice).unwrap_or_default() as u64
}

fn advice_of(number: u64) -> Option<Advice> {
    ADVICES.get(usize::try_from(number).ok()?).copied()
}

/// Small numbers of both signs as small numbers: 0, -1, 1, -2, 2, …
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(word: u64) -> i64 {
    (word >> 1) as i64 ^ -((word & 1) as i64)
}
