//! Reads of files from their beginning to their end, by rows of folios.

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, OrderSet};

use super::{Files, OpenFile, ReadFailed};
use crate::base::Error;
use crate::cache::{
    Entry, FileId, FilePages, Note, Read, ReadRun, Reads, Row, Store, Window, identity,
};
use crate::files::Kind;
use crate::folio::FolioFlags;
use crate::limits::ROW_MOST;
use crate::stats::Event;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// The next folio of `reads` to be read; `None` when all of it is in memory or being read.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when there is none for the page that a caller waits for; readahead does
    /// without. [`Error::NoFile`].
    pub fn next_read(&self, reads: &mut Reads) -> Result<Option<Read>, Error> {
        let mut next = None;
        self.begin_reads(reads, 1, &mut |read| next = Some(read))?;
        Ok(next)
    }

    /// The same with the folios of its size right behind it, up to 16, into `run`, which is empty
    /// and stays so when nothing is left to read: pages side by side are read as one, at less cost
    /// for each.
    ///
    /// # Errors
    /// See [`next_read`](Self::next_read).
    pub fn next_reads(&self, reads: &mut Reads, run: &mut ReadRun) -> Result<(), Error> {
        debug_assert!(run.is_empty(), "its reads have ended");
        let room = run.reads.remaining_capacity();
        self.begin_reads(reads, room, &mut |read| run.reads.push(read))
    }

    /// Begins the next reads, at most `most`, and gives each to `take`.
    fn begin_reads(
        &self,
        reads: &mut Reads,
        most: usize,
        take: &mut dyn FnMut(Read),
    ) -> Result<(), Error> {
        let file = self.opened(reads.file)?;
        while reads.at < reads.window.pages.end.min(file.pages()) {
            let (entry, pages) = file.index.find(reads.at);
            if let Entry::Folio { .. } = entry {
                reads.at = pages.end;
                continue;
            }
            match file.begin_row(reads, entry, most, take) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => match reads.wanted.filter(|&wanted| wanted >= reads.at) {
                    // The pages before it were only readahead.
                    Some(wanted) if wanted > reads.at => reads.at = wanted,
                    Some(_) => return Err(error),
                    None => break,
                },
            }
        }
        Ok(())
    }

    /// Ends a read: the frames hold the file's contents, or `done` is an error.
    pub fn read_done(&self, read: Read, done: Result<(), ReadFailed>) {
        let Read { file: id, page, folio, wanted, .. } = read;
        match (self.opened(id), done) {
            (Ok(file), Err(ReadFailed)) => {
                self.base().count(Event::FileReadsFailed, 1);
                let single = folio.order <= file.smallest();
                let note = if single && wanted { Note::Failed } else { Note::Small };
                if file.forget_folio(page, folio, Some(note)) {
                    self.base().unclaim_slots(id, FilePages::block(page, folio.order));
                }
                self.base().put(folio);
            }
            (Ok(_), Ok(())) => self.end_reads(id, &Row::of(page, folio)),
            // Closed meanwhile.
            (Err(_), _) => self.base().put(folio),
        }
    }

    /// Ends all reads of a run, which is empty afterwards: the frames hold the file's contents.
    /// Where a read failed, its caller [takes](ReadRun::drain) them out and ends each by itself.
    pub fn reads_done(&self, run: &mut ReadRun) {
        let Some(first) = run.reads.first() else { return };
        let (id, mut row) = (first.file, Row::new(first.page, first.folio.order));
        run.reads.drain(..).for_each(|read| row.push(read.folio.head));
        self.end_reads(id, &row);
    }

    /// The folios of a row hold the file's contents.
    fn end_reads(&self, id: FileId, row: &Row) {
        let (base, folios) = (self.base(), self.base().folios());
        for (folio, at) in row.iter() {
            if let Some(cached) = folios.cached(folio.head, identity(id, at.start)) {
                cached.learn(cached.known() | FolioFlags::UPTODATE);
            }
            base.put(folio);
        }
        base.read_ended(id, row);
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Begins to read the folio at `reads.at`, where the index had `before`, and those of its size
    /// behind it, at most `most`; `false` if there is a folio by now.
    fn begin_row(
        &self,
        reads: &mut Reads,
        before: Entry,
        most: usize,
        take: &mut dyn FnMut(Read),
    ) -> Result<bool, Error> {
        let (at, window) = (reads.at, reads.window);
        let empty = self.index.empty_order(at, window.preferred());
        let is_small = matches!(before, Entry::Note { note: Note::Small, .. });
        let order = window.order_at(at, if is_small { Order::ZERO } else { empty });
        let (first, order) = self.frames_for(&window, order)?;
        let mut runs = ArrayVec::<Option<FrameRun>, ROW_MOST>::new();
        runs.push(Some(first));
        // Behind a note, or a folio of another size, the next one is decided anew.
        if before == Entry::Empty && order == window.preferred() {
            let end = window.pages.end.min(self.pages());
            let room = (end.saturating_sub(at) >> order.get()).min(most.min(ROW_MOST) as u64);
            let bare = self.index.bare_from(at, order, room as usize);
            runs.extend((1..bare).map_while(|_| self.base().frames(order, false).ok().map(Some)));
        }
        let is_swap = self.store() == Some(Store::Swap);
        if is_swap {
            let claimed = self.claim(reads, order, runs.len());
            runs.drain(claimed..).for_each(|run| self.base().free(run));
            if claimed == 0 {
                return Ok(false);
            }
        }
        let upto = self.enter_reads(reads, order, &mut runs, take);
        let pages = FilePages::new(at, at + ((runs.len() as u64) << order.get()));
        let begun = *upto.as_ref().unwrap_or(&at);
        if is_swap && begun < pages.end {
            self.base().unclaim_slots(self.index.id, FilePages::new(begun, pages.end));
        }
        if upto? == at {
            return Ok(false);
        }
        reads.at = begun;
        self.base().count(Event::FilePagesRead, begun - at);
        let wanted = reads.wanted.is_some_and(|page| (at..begun).contains(&page));
        self.came_back(before, order.pages(), wanted);
        Ok(true)
    }

    /// Puts folios made of `runs` into the file from `reads.at` on, and gives a read of each to
    /// `take`. Returns the page behind the last.
    fn enter_reads(
        &self,
        reads: &Reads,
        order: Order,
        runs: &mut [Option<FrameRun>],
        take: &mut dyn FnMut(Read),
    ) -> Result<u64, Error> {
        let is_in = |page: Option<u64>, block: FilePages| page.is_some_and(|at| block.contains(at));
        let known = |block| match is_in(reads.window.mark, block) {
            true => FolioFlags::READAHEAD,
            false => FolioFlags::empty(),
        };
        let mut upto = reads.at;
        self.enter_row(reads.at, order, runs, &known, &mut |page, folio, run| {
            let wanted = is_in(reads.wanted, FilePages::block(page, order));
            upto = page + order.pages();
            take(Read { file: self.index.id, page, folio, run, wanted });
        })?;
        Ok(upto)
    }

    /// Frames of `order`, or of a smaller one where memory is short.
    fn frames_for(&self, window: &Window, mut order: Order) -> Result<(FrameRun, Order), Error> {
        loop {
            let last = window.below(order);
            match (self.base().frames(order, last.is_none()), last) {
                (Ok(run), _) => return Ok((run, order)),
                (Err(_), Some(smaller)) => order = smaller,
                (Err(error), None) => return Err(error),
            }
        }
    }

    /// Counts the cost of reading a folio of `pages` pages where the index had `before`.
    fn came_back(&self, before: Entry, pages: u64, wanted: bool) {
        let frames = self.base().all_frames();
        if self.store() == Some(Store::Swap) {
            if wanted {
                self.files.balance.cost(Kind::Anon, pages, frames);
                self.base().count(Event::RefaultAnon, pages);
            }
        } else if let Entry::Note { note, .. } = before
            && self.files.balance.is_recent(note, frames)
        {
            self.files.balance.cost(Kind::File, pages, frames);
            self.base().count(Event::RefaultFile, pages);
        }
    }

    /// Claims the slots of a swap device for reads of `count` folios; returns how many it could. If
    /// that is none, makes the read smaller, or skips the slots.
    fn claim(&self, reads: &mut Reads, order: Order, count: usize) -> usize {
        let slots = FilePages::new(reads.at, reads.at + ((count as u64) << order.get()));
        let claimed = self.base().claim_slots(self.index.id, slots, order);
        if claimed == 0 {
            reads.window.sizes = OrderSet::of(Order::ZERO);
            reads.at += u64::from(order == Order::ZERO);
        }
        claimed
    }
}
