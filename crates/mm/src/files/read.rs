//! Files: opening, reading pages into memory, and finding those in memory.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, OrderSet};

use super::open::usable;
use super::{Files, OpenFile};
use crate::base::{Error, Need, Stop};
use crate::cache::{
    Entry, FILE_PAGES_MAX, File, FileId, FilePages, Pattern, Readahead, Reads, Store,
};
use crate::folio::{Folio, FolioFlags};
use crate::limits::POPULATE_ORDER;
use crate::sync::Ordering;

/// The store could not give the pages of a [`Read`](crate::cache::Read).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadFailed;

/// Pages of a file that stay in memory until [`Files::release`].
#[derive(Debug)]
#[must_use = "the folio stays in memory: release it"]
pub struct Held {
    folio: Folio,
    frames: FrameSpan,
}

impl Held {
    /// The frames of the requested page, and of those behind it in its folio.
    pub fn frames(&self) -> FrameSpan {
        self.frames
    }
}

impl<'m, A: Arch, H: Hardware> Files<'m, A, H> {
    /// Opens a file of `pages` pages, none of which is in memory yet, in folios of order `smallest`
    /// at least. Its number is for areas ([`Backing::File`](crate::space::Backing::File)) and
    /// for the calls here.
    ///
    /// # Errors
    /// [`Error::NoFile`] when all are in use, [`Error::Invalid`] for a file that is too large, and
    /// for one of reserved folios without a [pool](Self::open_pool) of the order.
    pub fn open(&self, store: Store, pages: u64, smallest: Order) -> Result<FileId, Error> {
        let fits = match store {
            Store::Reserved => self.base().pool_orders().any(|order| order == smallest),
            _ => smallest <= A::block_order(),
        };
        if pages > FILE_PAGES_MAX || !fits {
            return Err(Error::Invalid);
        }
        let first = self.base().files.len().min(self.free_file.load(Ordering::Relaxed) as usize);
        // The hint may have missed a file that another CPU closed meanwhile.
        let mut all = (first..self.base().files.len()).chain(0..first);
        let found = all.find(|&at| self.base().files[at].open(store, pages, smallest));
        let id = found.ok_or(Error::NoFile)? as u32;
        self.free_file.store(id + 1, Ordering::Relaxed);
        Ok(FileId(id))
    }

    /// The file with this number, if it is in use.
    pub fn get(&self, id: FileId) -> Option<&'m File> {
        self.base().file(id)
    }

    /// The numbers of all files that are in use.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<'m, A, H> {
        let used = |(_, file): &(usize, &File)| file.store().is_some();
        self.base().files.iter().enumerate().filter(used).map(|(at, _)| FileId(at as u32))
    }

    /// The first folio of a file that has a page in `pages`: all of its pages, which may begin
    /// before `pages` and end behind it, and may still be unread.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn next_cached(&self, id: FileId, pages: FilePages) -> Result<Option<FilePages>, Error> {
        Ok(self.base().index(id)?.next(pages).map(|(_, at)| at))
    }

    /// The same for pages with content: those that are in memory, and of a file in memory also
    /// those that are on a swap device.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn next_content(&self, id: FileId, pages: FilePages) -> Result<Option<FilePages>, Error> {
        Ok(self.base().index(id)?.next_content(pages).map(|(_, at)| at))
    }

    /// How many pages of a file are in memory in folios of `order` or larger. The walk visits at
    /// most two folios of each block of that order.
    ///
    /// # Errors
    /// [`Error::NoFile`].
    pub fn cached_from(&self, id: FileId, order: Order) -> Result<u64, Error> {
        let file = self.opened(id)?;
        let (mut at, mut pages) = (0, 0);
        while let Some((folio, found)) = file.index.next(FilePages::new(at, FILE_PAGES_MAX)) {
            let large = folio.order >= order;
            pages += if large { found.count() } else { 0 };
            // A block that has a smaller folio has no folio of the order.
            at = if large { found.end } else { FilePages::block(found.start, order).end };
        }
        Ok(pages)
    }

    /// The page of a file at the beginning of `wanted`, which `reader` reads; the rest of `wanted`
    /// is its next reading, up to 512 pages. Returns also the pages worth reading next.
    ///
    /// # Errors
    /// [`Need::Read`] and [`Need::Wait`] when the page is not in memory yet: of the file, or of the
    /// swap device that has the page of a file in memory; [`Error::NoFile`];
    /// [`Error::Invalid`] beyond the file's end; [`Error::Failed`] when the page could not be read;
    /// [`Error::Poisoned`] when its memory failed; [`Error::NoMemory`] for a page of a file in
    /// memory that was never written.
    pub fn read(
        &self,
        id: FileId,
        wanted: FilePages,
        reader: &mut Readahead,
        pattern: Pattern,
    ) -> Result<(Held, Option<Reads>), Stop> {
        let file = self.opened(id)?;
        if wanted.is_empty() || wanted.start >= file.pages() {
            return Err(Error::Invalid.into());
        }
        let bounds = file.bounds();
        let most = wanted.start + POPULATE_ORDER.pages();
        let wanted = FilePages::new(wanted.start, wanted.end.min(most));
        loop {
            let found = match reader.last(wanted.start) {
                Some((folio, pages)) => (Entry::Folio { folio, dirty: false }, pages),
                None => file.index.find(wanted.start),
            };
            match found {
                (Entry::Folio { folio, .. }, pages) => {
                    let held = file.hold(folio, pages, wanted.start)?;
                    let Some((held, marked)) = held else {
                        reader.forget_last();
                        continue;
                    };
                    let ahead = marked.then(|| {
                        let missing = file.missing_from(pages.end, bounds.window);
                        reader.marked(pages, missing, &bounds, pattern)
                    });
                    let end = wanted.start + held.frames.count;
                    reader.read_of(folio, FilePages::new(wanted.start, end));
                    let plan = |window| Reads::new(id, window, None);
                    return Ok((held, ahead.flatten().map(plan)));
                }
                (Entry::Away { .. }, _) => file.come_back(wanted.start)?,
                _ if file.is_memory() => {
                    file.bring(wanted.start, OrderSet::EMPTY, &mut || {})?;
                }
                (entry, _) => {
                    file.take_read_error(entry, wanted.start)?;
                    let before = file.before(wanted.start, bounds.window);
                    let window = reader.miss(wanted, before, &bounds, pattern);
                    return Err(Need::Read(Reads::new(id, window, Some(wanted.start))).into());
                }
            }
        }
    }

    /// Releases pages that [`read`](Self::read) held.
    pub fn release(&self, held: Held) {
        self.base().put(held.folio);
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Takes a reference to a folio of a file, if it still is that, and clears its mark; returns
    /// whether it had one.
    fn hold(&self, folio: Folio, pages: FilePages, at: u64) -> Result<Option<(Held, bool)>, Stop> {
        let Some(cached) = self.cached(pages.start, folio) else {
            return Ok(None);
        };
        let known = cached.known();
        let frame = folio.head.add(at - pages.start);
        usable(known, self.index.id, frame)?;
        if !cached.hold() {
            return Ok(None);
        }
        // A read counts as an access.
        let read = known - (FolioFlags::READAHEAD | FolioFlags::IDLE_LOW | FolioFlags::IDLE_HIGH);
        if read != known {
            cached.learn(read);
        }
        let marked = known.contains(FolioFlags::READAHEAD);
        let count = pages.end.min(self.pages()).saturating_sub(at).max(1);
        Ok(Some((Held { folio, frames: FrameSpan::new(frame, count) }, marked)))
    }

    /// The first page from `page` on, among `most` and the one after them, that is not in memory.
    pub(crate) fn missing_from(&self, page: u64, most: u64) -> u64 {
        let mut at = page;
        while at - page <= most
            && let (Entry::Folio { .. }, pages) = self.index.find(at)
        {
            at = pages.end;
        }
        at
    }

    /// How many pages right before `page` are in memory, up to `most`.
    fn before(&self, page: u64, most: u64) -> u64 {
        let mut at = page;
        while at > 0
            && page - at < most
            && let (Entry::Folio { .. }, pages) = self.index.find(at - 1)
        {
            at = pages.start;
        }
        page - at
    }
}
