//! An area: consecutive pages with the same rights, advice and backing (Linux: a VMA).
//!
//! An area is a plain value of four words, so that a tree node can hold it and a reader can take it
//! out without a lock:
//!
//! ```text
//! word 0   first page
//! word 1   page after the last
//! word 2   63     56 55     32 31              8 7..6   5..3   2..0
//!          | watcher | object | flags           | kind | max  | prot |
//! word 3   what the first page of the area shows
//!
//! kind       object         word 3
//! 0 anon     0              0
//! 1 file     number         page of the file
//! 2 frames   memory type    frame
//! ```
//!
//! Word 0 is the key of the tree, and no word names memory: [`Area::unpack`] turns garbage from a
//! reused node into a harmless value or `None`.

use bitflags::bitflags;
use quire_units::{Access, MemoryType, Order, PageSpan, Pfn, Prot, Vpn};

use super::watch::{Watch, WatchFor, Watched, Watcher};
use crate::table::Inherit;

bitflags! {
    /// The kind of an area and the advice for it, besides its rights.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AreaFlags: u32 {
        /// Writes reach the file and all spaces that map it (`MAP_SHARED`); otherwise the area is
        /// private and a write makes a copy.
        const SHARED = 1 << 0;
        /// Large folios are wanted (`MADV_HUGEPAGE`).
        const HUGE = 1 << 1;
        /// Large folios are not wanted (`MADV_NOHUGEPAGE`).
        const NOHUGE = 1 << 2;
        /// A fault just below extends the area down to it: a stack (`MAP_GROWSDOWN`).
        const GROWS_DOWN = 1 << 3;
        /// Its pages stay in memory (`mlock`).
        const LOCKED = 1 << 4;
        /// With `LOCKED`: pages become resident at their first access, not ahead (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = 1 << 5;
        /// A child does not inherit it (`MADV_DONTFORK`).
        const DONTFORK = 1 << 6;
        /// A child inherits it filled with zeroes (`MADV_WIPEONFORK`).
        const WIPEONFORK = 1 << 7;
        /// It is read in ascending order (`MADV_SEQUENTIAL`).
        const SEQUENTIAL = 1 << 8;
        /// It is read in no order, so reading ahead is wasted (`MADV_RANDOM`).
        const RANDOM = 1 << 9;
        /// It is left out of core dumps (`MADV_DONTDUMP`).
        const DONTDUMP = 1 << 10;
        /// It is not counted against the commit limit (`MAP_NORESERVE`).
        const NORESERVE = 1 << 11;
        /// Its leaves tell which pages were written since tracking began (soft-dirty). Without the
        /// flag all pages count as written.
        const TRACKED = 1 << 12;
        /// It keeps its place, rights and contents (`mseal`).
        const SEALED = 1 << 13;
        /// Its content may be lost when memory is short, and reads as zero then (`MAP_DROPPABLE`).
        const DROPPABLE = 1 << 14;
        /// The order of the folios in which its file is best read, in five bits; 0: no advice. See
        /// [`read_order`](Self::read_order).
        const READ_ORDER = 31 << READ_ORDER_AT;
        /// Its watcher answers accesses to missing pages ([`WatchFor::MISSING`]).
        const WATCH_MISSING = 1 << 20;
        /// Its watcher answers accesses to pages that its file has in memory and the area does not
        /// map ([`WatchFor::MINOR`]).
        const WATCH_MINOR = 1 << 21;
        /// Its watcher answers writes to pages that are [protected](crate::Spaces::write_protect)
        /// ([`WatchFor::WRITE`]).
        const WATCH_WRITE = 1 << 22;
        /// Such a write ends the page's protection by itself ([`WatchFor::ASYNC`]).
        const WATCH_ASYNC = 1 << 23;
        /// The watch goes with pages that move ([`WatchFor::MOVED`]).
        const WATCH_MOVED = 1 << 24;
        /// Children inherit the watch ([`WatchFor::FORKED`]).
        const WATCH_FORKED = 1 << 25;
        /// The number of its watcher, in six bits. See [`watch`](Self::watch).
        const WATCHER = (Watcher::MAX as u32) << WATCHER_AT;
    }
}

const READ_ORDER_AT: u32 = 15;
const WATCHER_AT: u32 = 26;
/// Where the events are, in the order of [`WatchFor`].
const EVENTS_AT: u32 = 20;

const _: () = assert!(
    AreaFlags::WATCH.difference(AreaFlags::WATCHER).bits()
        == (WatchFor::all().bits() as u32) << EVENTS_AT,
    "the events have other places"
);

impl AreaFlags {
    /// The flags that advice may change.
    pub const ADVICE: Self = Self::HUGE
        .union(Self::NOHUGE)
        .union(Self::DONTFORK)
        .union(Self::WIPEONFORK)
        .union(Self::SEQUENTIAL)
        .union(Self::RANDOM)
        .union(Self::DONTDUMP);

    /// All that says who watches, and what for.
    pub const WATCH: Self = Self::WATCH_MISSING
        .union(Self::WATCH_MINOR)
        .union(Self::WATCH_WRITE)
        .union(Self::WATCH_ASYNC)
        .union(Self::WATCH_MOVED)
        .union(Self::WATCH_FORKED)
        .union(Self::WATCHER);

    /// The watcher and what it watches for, if there is one.
    pub fn watch(self) -> Option<Watch> {
        let watcher = Watcher::new((self.bits() >> WATCHER_AT) as u8)?;
        let events = WatchFor::from_bits_truncate((self.bits() >> EVENTS_AT) as u8);
        Some(Watch { watcher, events })
    }

    /// The same flags with this watch, or none.
    #[must_use]
    pub fn with_watch(self, watch: Option<Watch>) -> Self {
        let word = |watch: Watch| {
            u32::from(watch.watcher.get()) << WATCHER_AT
                | u32::from(watch.events.bits()) << EVENTS_AT
        };
        (self - Self::WATCH) | Self::from_bits_truncate(watch.map_or(0, word))
    }

    /// The order of the folios in which its file is best read, if there was such advice.
    #[inline]
    pub const fn read_order(self) -> Option<Order> {
        match self.intersection(Self::READ_ORDER).bits() >> READ_ORDER_AT {
            0 => None,
            order => Some(Order::new(order as u8)),
        }
    }

    /// The same flags with this order for reading, or none; 0 is no advice.
    #[must_use]
    pub fn with_read_order(self, order: Option<Order>) -> Self {
        let number = u32::from(order.unwrap_or_default().get()) << READ_ORDER_AT;
        (self - Self::READ_ORDER) | Self::from_bits_truncate(number) & Self::READ_ORDER
    }
}

/// The number of a file: its place among the files that the embedder lent, below 2^24.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// The content of an area's pages until they are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zeroes.
    Anon,
    /// Pages of a file.
    File {
        /// Which file.
        id: FileId,
        /// Which page of the file the first page of the area shows.
        page: u64,
    },
    /// Frames that the embedder has given the right to
    /// ([`map_frames`](crate::Spaces::map_frames)): registers of a device, or its own RAM. All of
    /// them are mapped as long as the area is there.
    Frames {
        /// The frame that the first page of the area shows.
        first: Pfn,
        /// The type of their mappings.
        memory: MemoryType,
    },
}

impl Backing {
    /// The backing of the page `count` pages further on.
    #[inline]
    #[must_use]
    pub const fn advanced(self, count: u64) -> Self {
        match self {
            Backing::Anon => Backing::Anon,
            Backing::File { id, page } => Backing::File { id, page: page.wrapping_add(count) },
            Backing::Frames { first, memory } => {
                Backing::Frames { first: Pfn::new(first.get().wrapping_add(count)), memory }
            }
        }
    }
}

/// Consecutive pages with the same rights, advice and backing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Area {
    /// The pages; never empty in a tree.
    pub span: PageSpan,
    /// The rights of a program to them now.
    pub prot: Prot,
    /// The most that a later change of `prot` may allow.
    pub max_prot: Prot,
    /// The kind of the area and the advice for it.
    pub flags: AreaFlags,
    /// The content of its pages until they are written.
    pub backing: Backing,
}

const MAX_AT: u32 = 3;
const FILE: u64 = 1 << 6;
const FRAMES: u64 = 1 << 7;
/// The word with rights, kind, flags and object.
pub(super) const TERMS: usize = 2;
/// The kinds whose word 3 counts pages: it goes on with them.
pub(super) const SHOWS: u64 = FILE | FRAMES;
const FLAGS_AT: u32 = 8;
const ID_AT: u32 = 32;
const IDS: u32 = (1 << (PACKED_REST_AT - ID_AT)) - 1;
/// The flags from this one on do not fit beside the others,
const REST_AT: u32 = ID_AT - FLAGS_AT;
/// and are here.
const PACKED_REST_AT: u32 = 56;
const PROTS: u64 = Prot::all().bits() as u64;

const _: () = assert!(PROTS < 1 << MAX_AT, "rights meet the bound of rights");

/// Flags in their places of word 2.
const fn packed_flags(flags: AreaFlags) -> u64 {
    let (low, rest) = (flags.bits() & ((1 << REST_AT) - 1), flags.bits() >> REST_AT);
    (low as u64) << FLAGS_AT | (rest as u64) << PACKED_REST_AT
}

const fn unpacked_flags(terms: u64) -> AreaFlags {
    let (rest, low) = ((terms >> PACKED_REST_AT) as u32, (terms >> FLAGS_AT) as u32);
    AreaFlags::from_bits_truncate(low & ((1 << REST_AT) - 1) | rest << REST_AT)
}

impl Area {
    /// Whether a tree can hold it: it has a page, and its file has a page for each of them.
    #[inline]
    pub const fn is_well_formed(&self) -> bool {
        if self.span.is_empty() {
            return false;
        }
        match self.backing {
            Backing::Anon => true,
            Backing::File { id, page } => {
                id.0 <= IDS && page.checked_add(self.span.count()).is_some()
            }
            Backing::Frames { first, .. } => first.get().checked_add(self.span.count()).is_some(),
        }
    }

    /// The area as four words, without loss if it is well formed and its flags are known.
    #[inline]
    pub const fn pack(&self) -> [u64; 4] {
        let (kind, id, page) = match self.backing {
            Backing::Anon => (0, 0, 0),
            Backing::File { id, page } => (FILE, id.0, page),
            Backing::Frames { first, memory } => (FRAMES, memory as u32, first.get()),
        };
        let rights =
            self.prot.bits() as u64 & PROTS | (self.max_prot.bits() as u64 & PROTS) << MAX_AT;
        let terms = rights | kind | packed_flags(self.flags) | ((id & IDS) as u64) << ID_AT;
        [self.span.start.get(), self.span.end.get(), terms, page]
    }

    /// The area that four words encode; `None` if no well-formed area has them.
    #[inline]
    pub const fn unpack(words: [u64; 4]) -> Option<Self> {
        let [start, end, terms, page] = words;
        let id = (terms >> ID_AT) as u32 & IDS;
        let backing = match (terms & (FILE | FRAMES), id as usize) {
            (FILE, _) => Backing::File { id: FileId(id), page },
            (FRAMES, code) if code < MemoryType::ALL.len() => {
                Backing::Frames { first: Pfn::new(page), memory: MemoryType::ALL[code] }
            }
            (0, 0) if page == 0 => Backing::Anon,
            _ => return None,
        };
        let area = Area {
            span: PageSpan { start: Vpn::new(start), end: Vpn::new(end) },
            prot: Prot::from_bits_truncate(terms as u8),
            max_prot: Prot::from_bits_truncate((terms >> MAX_AT) as u8),
            flags: unpacked_flags(terms),
            backing,
        };
        // Each bit of the word has a meaning.
        if area.is_well_formed() { Some(area) } else { None }
    }

    /// Whether `self` and `next` are one area cut in two: `next` begins where `self` ends, all
    /// attributes are equal, and the file's pages go on.
    #[inline]
    pub fn can_merge(&self, next: &Area) -> bool {
        self.span.end == next.span.start
            && self.prot == next.prot
            && self.max_prot == next.max_prot
            && self.flags == next.flags
            && self.backing.advanced(self.span.count()) == next.backing
    }

    /// The part before `page` and the part from `page` on. One of them has an empty span when
    /// `page` does not lie inside the area; `page` is moved to the nearer end then.
    #[inline]
    pub fn split_at(self, page: Vpn) -> (Area, Area) {
        let at = page.clamp(self.span.start, self.span.end);
        let head = Area { span: PageSpan::new(self.span.start, at), ..self };
        let tail = Area {
            span: PageSpan::new(at, self.span.end),
            backing: self.backing.advanced(head.span.count()),
            ..self
        };
        (head, tail)
    }

    /// Whether its pages are private, and zero until they are written.
    #[inline]
    pub fn is_private_anon(&self) -> bool {
        self.backing == Backing::Anon && !self.flags.contains(AreaFlags::SHARED)
    }

    /// Whether it shows frames by number, all of which are mapped. Nothing else can fill a page of
    /// it, so no page may lose its mapping while the area stays.
    #[inline]
    pub const fn is_of_frames(&self) -> bool {
        matches!(self.backing, Backing::Frames { .. })
    }

    /// Whether its content must stay (`mseal`): it is sealed and anonymous, and the program could
    /// not write it anew.
    #[inline]
    pub fn keeps_content(&self) -> bool {
        let is_lost = self.is_private_anon() && !self.prot.contains(Prot::WRITE);
        self.flags.contains(AreaFlags::SEALED) && is_lost
    }

    /// The access of a program to a page of the area, if its watcher answers such an event.
    pub fn watched(&self, page: Vpn, event: WatchFor, access: Access) -> Option<Watched> {
        let watch = self.flags.watch().filter(|watch| watch.events.contains(event))?;
        Some(Watched { watcher: watch.watcher, page, event, access })
    }

    /// The area of a child; `None` with `DONTFORK`. As on Linux, a child inherits no locks, and a
    /// watch only if it asks for that.
    pub fn inherited(&self) -> Option<Area> {
        let keeps = self.flags.contains(AreaFlags::WATCH_FORKED);
        let watch = if keeps { AreaFlags::empty() } else { AreaFlags::WATCH };
        let flags = self.flags - AreaFlags::LOCKED - AreaFlags::LOCK_ON_FAULT - watch;
        let inherits = !self.flags.contains(AreaFlags::DONTFORK);
        inherits.then_some(Area { flags, ..*self })
    }

    /// How a child with the area inherits its pages; `None` where it gets none of them.
    pub fn inherits_pages(&self) -> Option<Inherit> {
        if self.flags.contains(AreaFlags::WIPEONFORK) {
            None
        } else if self.flags.contains(AreaFlags::SHARED) {
            Some(Inherit::Shared)
        } else {
            Some(Inherit::Private)
        }
    }

    /// The part of the area within `span`; its span is empty if there is none.
    #[inline]
    #[must_use]
    pub fn clipped(self, span: PageSpan) -> Area {
        self.split_at(span.end).0.split_at(span.start).1
    }

    /// Its pages that show those of file `id` from number `first` up to but not including `end`;
    /// an empty span if there are none.
    pub fn showing(&self, id: FileId, first: u64, end: u64) -> PageSpan {
        let nothing = PageSpan::new(self.span.start, self.span.start);
        let Backing::File { id: own, page } = self.backing else { return nothing };
        let at =
            |number: u64| self.span.start.add(number.saturating_sub(page).min(self.span.count()));
        if own == id && first < end { PageSpan::new(at(first), at(end)) } else { nothing }
    }

    /// The backing of `page`, which lies in the area.
    #[inline]
    pub const fn backing_of(&self, page: Vpn) -> Backing {
        self.backing.advanced(page.get().wrapping_sub(self.span.start.get()))
    }
}
