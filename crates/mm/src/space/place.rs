//! The place of a new area.

use core::fmt;

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Prot, Vpn};

use super::{Area, AreaFlags, Backing, Space, View};

/// A program's request for an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How many pages.
    pub pages: u64,
    /// The place.
    pub at: At,
    /// The rights to them.
    pub prot: Prot,
    /// The most that a later change of the rights may allow.
    pub max_prot: Prot,
    /// The kind of the area and the advice for it.
    pub flags: AreaFlags,
    /// The content of the pages until they are written.
    pub backing: Backing,
}

impl Request {
    /// `pages` zeroed pages for loads and stores, anywhere.
    pub const fn anon(pages: u64) -> Self {
        Self {
            pages,
            at: At::Anywhere,
            prot: Prot::RW,
            max_prot: Prot::all(),
            flags: AreaFlags::empty(),
            backing: Backing::Anon,
        }
    }

    /// The same at another place.
    pub const fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    /// The same with other rights.
    pub const fn prot(self, prot: Prot) -> Self {
        Self { prot, ..self }
    }

    /// The same with a bound of later rights.
    pub const fn max_prot(self, max_prot: Prot) -> Self {
        Self { max_prot, ..self }
    }

    /// The same with other flags.
    pub const fn flags(self, flags: AreaFlags) -> Self {
        Self { flags, ..self }
    }

    /// The same with another backing: the pages of a file.
    pub const fn backing(self, backing: Backing) -> Self {
        Self { backing, ..self }
    }
}

/// The place where an area should begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Any place with room: as high as possible, aligned for the largest folio that is wanted and
    /// fits.
    Anywhere,
    /// At this page if it is free, otherwise anywhere.
    Hint(Vpn),
    /// At this page; the pages there are unmapped first (`MAP_FIXED`).
    Fixed(Vpn),
    /// At this page, if it is free (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(Vpn),
}

/// The reason why an area cannot be mapped. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// No pages, more pages than exist, or pages beyond those that a program may map.
    Invalid,
    /// This area exists already.
    Exists(Area),
    /// No free stretch has this many pages.
    NoRoom(u64),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Invalid => f.write_str("these pages are not the program's to map"),
            MapError::Exists(area) => write!(f, "{:?} is mapped already", area.span),
            MapError::NoRoom(pages) => write!(f, "no {pages} free pages side by side"),
        }
    }
}

impl core::error::Error for MapError {}

impl<A: Arch, H: Hardware> View<'_, A, H> {
    /// Where `request` goes. The caller holds the right to change the areas. `align` is the order
    /// of the folio for which a place without an address is aligned, if it can be; a page of a file
    /// gets the same offset in such a block as it has in the file.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn place(&self, request: &Request, align: Order) -> Result<PageSpan, MapError> {
        let fixed = |page| match PageSpan::at(page, request.pages) {
            Some(span) if Space::<A>::may_map(span) => Ok(span),
            _ => Err(MapError::Invalid),
        };
        let taken = |span| self.areas().overlapping(span).next();
        match request.at {
            At::Fixed(page) => fixed(page),
            At::FixedNoReplace(page) => {
                let span = fixed(page)?;
                taken(span).map_or(Ok(span), |area| Err(MapError::Exists(area)))
            }
            At::Hint(page) => match fixed(page) {
                Ok(span) if taken(span).is_none() => Ok(span),
                _ => self.place_anywhere(request, align),
            },
            At::Anywhere => self.place_anywhere(request, align),
        }
    }

    fn place_anywhere(&self, request: &Request, align: Order) -> Result<PageSpan, MapError> {
        let pages = request.pages;
        if pages == 0 {
            return Err(MapError::Invalid);
        }
        let window = self.space.window();
        let find = |align: Order| {
            // A file's folios are aligned in the file, so its pages keep their offset in a block.
            let skew = match request.backing {
                Backing::File { page, .. } => page & (align.pages() - 1),
                // A large leaf needs a page that is aligned as its frame is.
                Backing::Frames { first, .. } => first.get() & (align.pages() - 1),
                Backing::Anon => 0,
            };
            let room = pages.checked_add(skew)?;
            let gap = self.areas().find_gap(room, align, window).0?;
            Some(PageSpan::new(gap.start.add(skew), gap.end))
        };
        find(align).or_else(|| find(Order::ZERO)).ok_or(MapError::NoRoom(pages))
    }
}
