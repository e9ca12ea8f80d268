//! Faults in areas that map files.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Access, Order, OrderSet, PageSpan, Prot};

use super::open::usable;
use super::{Files, OpenFile};
use crate::base::{Error, Need, Stop};
use crate::cache::{
    Entry, FilePages, Index, Mapped, Pattern, Preference, Readahead, Reads, Shown, grant_write,
    leaf_order, map_around,
};
use crate::fault::FilePage;
use crate::fault::plan::Reach;
use crate::limits::{POPULATE_ORDER, SHOW_BEHIND};
use crate::space::{Advice, Area, AreaFlags, Space, View};
use crate::spaces::{Fault, Lack, Resolved, Served};
use crate::stats::Event;
use crate::sync::{Ordering, spin_loop};
use crate::table::Touched;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Maps a page of a file, and its neighbours worth mapping. `None` when a change interfered, or
    /// when tables or pages were made for another try.
    pub(crate) fn show(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        how: &mut Fault<'_>,
    ) -> Served {
        let file = self.opened(fault.file).map_err(|_| Error::Missing(fault.page))?;
        if fault.at >= file.pages() {
            return Err(Error::Missing(fault.page).into());
        }
        if fault.is_there {
            return Ok(file.let_write(view, fault));
        }
        if let Some(order) = file.whole().filter(|_| file.is_private(fault)) {
            file.tell_watcher(fault, false, how.access)?;
            let wanted = fault.at - FilePages::block(fault.at, order).start;
            let zeroes = &mut |run: FrameRun| {
                self.base().clear(&run, wanted, how.resched);
                Ok(run)
            };
            return file.fill_reserved(view, fault, order, how.access, zeroes);
        }
        let leaf = leaf_order(&file.index, fault);
        if fault.area.flags.intersects(AreaFlags::WATCH) {
            // Pages that have left are not missing.
            file.come_back(fault.at)?;
            let leaf = leaf.or_else(|| leaf_order(&file.index, fault));
            file.tell_watcher(fault, leaf.is_some(), how.access)?;
        }
        let Some(leaf) = leaf else {
            return file.lacking(view, fault, how.resched).map(|()| None);
        };
        self.spaces().deepen_to(view, fault.page, leaf, Some(fault.seq))?;
        let around = match leaf {
            Order::ZERO => file.around(view.space, fault, how.reach),
            // A folio is mapped as far as its blocks go.
            _ => file.behind(view.space, fault, how.reach),
        };
        let Some(shown) = map_around(view, &file.index, fault, leaf, around) else {
            self.spaces().wait(view, fault.page);
            return Ok(None);
        };
        self.base().groups.draw(view.space, shown.pages.count());
        self.base().count(Event::EntriesMade, shown.entries);
        if !shown.hit {
            file.lacking(view, fault, how.resched)?;
            return Ok(None);
        }
        let ahead = if file.is_memory() { None } else { file.mapped(fault, &shown) };
        // A write must still copy the page, or mark its folio dirty: the next try decides that.
        let more = how.access == Access::Write && !is_free(&file.index, fault);
        Ok((!more).then_some(Resolved::Paged { pages: shown.pages, ahead }))
    }

    /// Maps the pages of files in `span` of a space that are in memory and free to map now: an
    /// access maps the rest.
    pub(crate) fn map_cached(&self, space: &Space<A>, span: PageSpan) {
        let nothing = &mut || {};
        let _ = self.spaces().populate(space, span, Access::Read, nothing, &|view, lack, fault| {
            match lack {
                Lack::File(page) => self.show(view, &page, fault),
                Lack::Swap(_) => Err(Error::Invalid.into()),
            }
        });
    }

    /// The preferred sizes of faults in an area: its own preference, or the policy's.
    pub(crate) fn preference_in(&self, area: &Area) -> Preference {
        let preference = self.base().file_policy.preference();
        match area.flags.read_order() {
            Some(order) => Preference { exec: OrderSet::of(order), ..preference },
            None => preference,
        }
    }
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// The pages that are mapped besides the one that faulted: no others, where the space's group
    /// has no room for all of them.
    fn around(&self, space: &Space<A>, fault: &FilePage, reach: Reach) -> PageSpan {
        let around = match reach {
            Reach::Folio => {
                let block = PageSpan::block(fault.page, self.base().file_policy.around());
                let shown = self.shown_at(fault);
                if shown.exec && !shown.preference.exec.is_empty() {
                    // For code, the pages that one fault's read covers.
                    let bounds = self.bounds();
                    let read = shown.code_around(fault.at, &bounds);
                    let page = |at: u64| fault.page_of(at, fault.area.span);
                    PageSpan::new(block.start.min(page(read.start)), block.end.max(page(read.end)))
                } else {
                    block
                }
            }
            Reach::Upto(end) | Reach::Answer(end) => {
                let most = fault.page.add(POPULATE_ORDER.pages());
                PageSpan::new(fault.page, end.min(most))
            }
        };
        match self.base().groups.charge(space, around.count()) {
            Ok(()) => around,
            Err(_) => PageSpan::block(fault.page, Order::ZERO),
        }
    }

    /// The page that faulted, and of shared reserved folios, which never leave memory, those behind
    /// it that may be mapped with it: none where the space's group has no room for all of them.
    fn behind(&self, space: &Space<A>, fault: &FilePage, reach: Reach) -> PageSpan {
        let one = PageSpan::block(fault.page, Order::ZERO);
        let is_watched = fault.area.flags.intersects(AreaFlags::WATCH);
        let Some(order) = self.whole().filter(|_| is_free(&self.index, fault) && !is_watched)
        else {
            return one;
        };
        let most = order.pages() * SHOW_BEHIND;
        let end = match reach {
            Reach::Folio => fault.area.span.end,
            Reach::Upto(end) | Reach::Answer(end) => end,
        };
        let end = end.min(PageSpan::block(fault.page, order).end.add(most));
        match self.base().groups.charge(space, most) {
            Ok(()) => PageSpan::new(fault.page, end),
            Err(_) => one,
        }
    }

    /// A write to a shared page of a file: marks the folio dirty, then grants the write.
    fn let_write(&self, view: &View<'_, A, H>, fault: &FilePage) -> Option<Resolved> {
        let granted = grant_write(view, &self.index, fault).map(|_| Touched::Now);
        self.spaces().noted(view, fault.page, granted)
    }

    /// The page is not in memory, or not ready: brings it, or returns what is lacking.
    fn lacking(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        resched: &mut dyn FnMut(),
    ) -> Result<(), Stop> {
        let (entry, pages) = self.index.find(fault.at);
        if let Entry::Folio { folio, .. } = entry {
            let frame = folio.head.add(fault.at - pages.start);
            let Some(cached) = self.cached(pages.start, folio) else {
                // Another CPU is about to move, divide, join or drop it.
                spin_loop();
                return Ok(());
            };
            // Otherwise it was read or mapped by another CPU meanwhile.
            return usable(cached.known(), self.index.id, frame);
        }
        if let Entry::Away { .. } = entry {
            return self.come_back(fault.at);
        }
        if self.is_memory() {
            let advice = Advice::of(fault.area.flags);
            let sizes = self.sizes_in_memory(advice, view.space);
            return Ok(self.bring(fault.at, sizes, resched)?);
        }
        self.take_read_error(entry, fault.at)?;
        Err(Need::Read(self.plan_reads(fault)).into())
    }

    /// The plan of reads for a fault.
    fn plan_reads(&self, fault: &FilePage) -> Reads {
        let bounds = self.bounds();
        let shown = self.shown_at(fault);
        let window = change_reader(&self.index, |reader| reader.fault(fault.at, &shown, &bounds));
        Reads::new(self.index.id, window, Some(fault.at))
    }

    /// The area of a fault in pages of its file.
    fn shown_at(&self, fault: &FilePage) -> Mapped {
        let flags = fault.area.flags;
        let own = flags.read_order().is_some();
        let code = own || fault.area.prot.contains(Prot::EXEC);
        let mut preference = self.files.preference_in(&fault.area);
        let beside = !code && !preference.exec.is_empty() && self.holds_code();
        if beside {
            // Programs use less of their constants and data than of their code.
            let least = preference.exec.smallest().unwrap_or_default();
            preference.exec = OrderSet::of(least);
        }
        let start = fault.file_page(fault.area.span.start);
        Mapped {
            pages: FilePages::new(start, start + fault.area.span.count()),
            exec: code || beside,
            huge: flags.contains(AreaFlags::HUGE) && !own,
            pattern: pattern(flags),
            preference,
        }
    }

    /// Records that pages were found in memory; returns the pages worth reading next.
    fn mapped(&self, fault: &FilePage, shown: &Shown) -> Option<Reads> {
        let area = self.shown_at(fault);
        let Some(folio) = shown.marked else {
            change_reader(&self.index, |reader| reader.hit(shown.count, &area));
            return None;
        };
        let bounds = self.bounds();
        let missing = self.missing_from(folio.end, bounds.window);
        let window = change_reader(&self.index, |reader| {
            reader.hit(shown.count, &area);
            reader.marked(folio, missing, &bounds, area.pattern)
        });
        window.map(|window| Reads::new(self.index.id, window, None))
    }
}

/// Whether the page may be written without a copy or a dirty mark.
fn is_free<A: Arch, H: Hardware>(index: &Index<'_, A, H>, fault: &FilePage) -> bool {
    fault.area.flags.contains(AreaFlags::SHARED) && index.file.is_memory()
}

/// Changes the record of the faults in a file. Concurrent changes may be lost: these are hints.
fn change_reader<A: Arch, H: Hardware, T>(
    index: &Index<'_, A, H>,
    change: impl FnOnce(&mut Readahead) -> T,
) -> T {
    let words = &index.file.ahead;
    let before = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
    let mut reader = Readahead::from_words(before);
    let done = change(&mut reader);
    for ((word, now), before) in words.iter().zip(reader.to_words()).zip(before) {
        if now != before {
            word.store(now, Ordering::Relaxed);
        }
    }
    done
}

/// The read pattern that an area was advised.
fn pattern(flags: AreaFlags) -> Pattern {
    if flags.contains(AreaFlags::SEQUENTIAL) {
        Pattern::Sequential
    } else if flags.contains(AreaFlags::RANDOM) {
        Pattern::Random
    } else {
        Pattern::Normal
    }
}
