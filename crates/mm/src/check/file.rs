//! One file: its index, and the identities of its folios.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::{Miscount, Violation};
use crate::cache::{Entry, FileId, FilePages, Note, identity, root_of};
use crate::folio::{Folio, FolioFlags, Folios};
use crate::mm::Mm;
use crate::phys::Kind;
use crate::radix::Node;
use crate::sync::Ordering;

/// The part of a file that is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileReport {
    /// Nodes of its index.
    pub nodes: u64,
    /// Folios.
    pub folios: u64,
    /// Their pages.
    pub pages: u64,
    /// Folios that are dirty.
    pub dirty: u64,
    /// Pages that have left memory.
    pub away: u64,
    /// Blocks to which a reserved folio is promised.
    pub promised: u64,
}

/// Verifies one file: the identity and the word count of each node of its index; that its folios
/// are at their places, carry their identities, do not overlap, and begin before the file's end, as
/// do the blocks of pages that have left;
/// and that every link above a dirty folio is marked. Empty for a file that is not in use.
///
/// # Errors
/// The first [`Violation`].
pub fn file<A: Arch, H: Hardware>(mm: &Mm<'_, A, H>, id: FileId) -> Result<FileReport, Violation> {
    let mut report = FileReport::default();
    let Some(file) = mm.base().file(id) else { return Ok(report) };
    let mut walk = Walk { mm, id, report: &mut report, free_from: 0 };
    match root_of(file) {
        Entry::Node { node, .. } => walk.node(node, 0).map(drop)?,
        Entry::Folio { folio, .. } => walk.folio(folio, 0)?,
        Entry::Away { .. } => walk.away(root_of(file), 0)?,
        Entry::Note { note, .. } => walk.note(note),
        Entry::Empty => {}
    }
    let counted = Miscount::check(file.cached(), report.pages);
    counted.map_err(|count| Violation::FilePages(id, count)).and(Ok(report))
}

struct Walk<'w, 'm, A, H> {
    mm: &'w Mm<'m, A, H>,
    id: FileId,
    report: &'w mut FileReport,
    /// All folios so far end before this page.
    free_from: u64,
}

impl<A: Arch, H: Hardware> Walk<'_, '_, A, H> {
    /// Goes through one node and all below it; returns whether a folio there is dirty. Calls itself
    /// once a level.
    fn node(&mut self, Node { frame, level }: Node, base: u64) -> Result<bool, Violation> {
        let wrong = Violation::NotTheNode(frame, self.id, base);
        let slot = self.mm.allocator().meta().slot(frame).ok_or(wrong)?;
        let (state, owner) = (slot.state(), slot.owner.load(Ordering::Relaxed));
        let is_it = state.kind() == Kind::Index
            && state.order() == level
            && owner == identity(self.id, base);
        if !is_it {
            return Err(wrong);
        }
        self.report.nodes += 1;
        let bits = A::PAGE_SHIFT - 3;
        let (mut found, mut dirty) = (0, false);
        for at in 0..1_usize << bits {
            let page = base + ((at as u64) << (bits * level as u32));
            let entry = Entry::of(self.mm.hardware().load(frame, at));
            found += (entry != Entry::Empty) as u64;
            match entry {
                Entry::Node { node: lower, dirty: marked } => {
                    if lower.level + 1 != level {
                        return Err(Violation::NotTheNode(lower.frame, self.id, page));
                    }
                    let below = self.node(lower, page)?;
                    if below && !marked {
                        return Err(Violation::Unmarked(self.id, page));
                    }
                    dirty |= below;
                }
                Entry::Folio { folio, dirty: marked } => {
                    self.folio(folio, page)?;
                    self.report.dirty += marked as u64;
                    dirty |= marked;
                }
                Entry::Away { .. } => self.away(entry, page)?,
                Entry::Note { note, .. } => self.note(note),
                Entry::Empty => {}
            }
        }
        let counted = slot.counts.load(Ordering::Relaxed);
        let counted = Miscount::check(counted, found);
        counted.map_err(|count| Violation::Present(frame, count)).and(Ok(dirty))
    }

    fn note(&mut self, note: Note) {
        self.report.promised += u64::from(note == Note::Promised);
    }

    fn away(&mut self, entry: Entry, page: u64) -> Result<(), Violation> {
        let pages = FilePages::block(page, entry.order());
        let end = self.mm.base().file(self.id).map_or(0, |file| file.pages());
        if pages.start != page || page < self.free_from || page >= end {
            return Err(Violation::NotTheBlock(self.id, page));
        }
        self.free_from = pages.end;
        self.report.away += pages.count();
        Ok(())
    }

    fn folio(&mut self, folio: Folio, page: u64) -> Result<(), Violation> {
        let folios = Folios::new(self.mm.allocator().meta());
        let (known, owner) = folios.known(folio);
        let pages = FilePages::block(page, folio.order);
        let end = self.mm.base().file(self.id).map_or(0, |file| file.pages());
        let is_it = folios.of(folio.head) == Some(folio)
            && known.contains(FolioFlags::CACHED)
            && owner == identity(self.id, page)
            && folios.counts(folio).refs > 0
            && pages.start == page
            && page >= self.free_from
            && page < end;
        if !is_it {
            return Err(Violation::NotThePage(folio, self.id, page));
        }
        self.free_from = pages.end;
        self.report.folios += 1;
        self.report.pages += pages.count();
        Ok(())
    }
}
