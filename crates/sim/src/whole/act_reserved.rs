//! Carrying out one step: reserved folios (row A9), their pool, their promises, and their file.
//!
//! The model knows which blocks of the file have a folio and which have a promise, and gives each
//! page of a private block its own word as soon as the block has a folio of its own. The folios in
//! use are counted anew from all leaves:
//!
//! ```text
//!   in use  =  blocks of the file with a folio  +  folios of private blocks, those that a fork
//!              shares once
//! ```

use std::collections::BTreeSet;

use quire::cache::{FileId, FilePages, Store};
use quire::check;
use quire::limits::GROUP_ORDER;
use quire::{Error, PoolCounts};
use quire_arch::Arch;
use quire_script::{
    Fault, File, Page, Part, ShownWhole, Source, Step, UNOWNED, Verb, reserved_request,
};
use quire_units::{Access, Order, Pfn};

use super::act::Outcome;
use super::act_frames::FRAMES;
use super::violation::{Kind, Wrong};
use super::world::World;

/// The number of the file of reserved folios.
pub(super) const RESERVED: u8 = FRAMES + 1;

/// Blocks of this file at first.
const BLOCKS: u32 = 12;

/// The pool, and the file.
pub(super) struct Reserved {
    pub(super) id: FileId,
    pub(super) order: Order,
    /// Blocks of the file that have a folio.
    there: BTreeSet<u32>,
    /// Blocks that have a promise.
    promised: BTreeSet<u32>,
    /// The size that was asked for.
    asked: u64,
}

impl Reserved {
    /// A block of the file has a folio from now on.
    fn bring(&mut self, block: u32) {
        self.promised.remove(&block);
        self.there.insert(block);
    }

    /// Blocks from `start` on, up to `end`, have nothing any more.
    fn cut(&mut self, start: u32, end: u32) {
        self.there.retain(|block| !(start..end).contains(block));
        self.promised.retain(|block| !(start..end).contains(block));
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// Makes the pool and its file, if the setup wants them.
    pub(super) fn open_reserved(&mut self) -> Result<(), Wrong> {
        let order = Order::new(self.setup.whole as u8);
        let pages = BLOCKS << order.get();
        self.files.push(File::new(vec![0; pages as usize]));
        if self.setup.pool == 0 || self.exact.is_some() {
            return Ok(());
        }
        self.mm.files().open_pool(order).map_err(Wrong::unexpected)?;
        let id = self.mm.files().open(Store::Reserved, pages.into(), order);
        let id = id.map_err(Wrong::unexpected)?;
        let (there, promised) = (BTreeSet::new(), BTreeSet::new());
        self.reserved = Some(Reserved { id, order, there, promised, asked: 0 });
        self.resize_pool(self.setup.pool.into()).map(drop)
    }

    pub(super) fn act_on_reserved(&mut self, step: &Step, process: usize) -> Outcome {
        let [first, second, third, ..] = step.args;
        if step.verb == Verb::Punch && first.is_multiple_of(2) {
            return self.punch_usual(second, third);
        }
        let Some(Reserved { id, .. }) = self.reserved else { return Ok(0) };
        let end = self.blocks_end();
        let blocks = (first % end.max(1), (first % end.max(1) + second.max(1)).min(end));
        match step.verb {
            Verb::Reserve => self.show_reserved(step, process),
            Verb::Pool => {
                self.resize_pool(first.into())?;
                let order = self.whole_order();
                let set = self.mm.files().set_surplus_most(order, second.into());
                set.map(|()| 1).ok_or(Wrong::new(Kind::Answer, "the pool is gone"))
            }
            Verb::Promise => self.promise(blocks),
            Verb::Renounce => {
                let pages = self.file_pages(blocks);
                self.mm.files().renounce(id, pages).map_err(Wrong::unexpected)?;
                self.reserved_mut(|of| of.promised.retain(|at| !(blocks.0..blocks.1).contains(at)));
                Ok(1)
            }
            Verb::Punch => self.punch(second, third),
            _ => self.cut_reserved(first % (2 * BLOCKS)),
        }
    }

    fn whole_order(&self) -> Order {
        Order::new(self.setup.whole as u8)
    }

    /// How many blocks the file has.
    fn blocks_end(&self) -> u32 {
        self.files[usize::from(RESERVED)].stamps.len() as u32 >> self.setup.whole
    }

    fn file_pages(&self, (start, end): (u32, u32)) -> FilePages {
        FilePages::new(u64::from(start) << self.setup.whole, u64::from(end) << self.setup.whole)
    }

    fn reserved_mut(&mut self, change: impl FnOnce(&mut Reserved)) {
        if let Some(of) = &mut self.reserved {
            change(of);
        }
    }

    fn counts(&self) -> Result<PoolCounts, Wrong> {
        let counts = self.mm.files().pool(self.whole_order());
        counts.ok_or(Wrong::new(Kind::Answer, "the pool is gone"))
    }

    /// Maps an area of reserved folios; mostly of whole ones.
    fn show_reserved(&mut self, step: &Step, process: usize) -> Outcome {
        let Some(Reserved { id, order, .. }) = self.reserved else { return Ok(0) };
        let args = &step.args;
        let block = args[3] % self.blocks_end().max(1);
        let (mut at, mut count) = self.part(args[0], args[1]);
        if !args[5].is_multiple_of(4) {
            let pages = order.pages() as usize;
            let skip = self.vpn(at).get().next_multiple_of(order.pages()) - self.vpn(at).get();
            at += skip as usize;
            count = count.next_multiple_of(pages);
            if at + count > self.setup.window as usize {
                count = (self.setup.window as usize).saturating_sub(at) & !(pages - 1);
            }
            if count == 0 {
                return Ok(0);
            }
        }
        if args[5] % 4 == 3 {
            let blocks = (block, (block + (count as u32 >> order.get())).min(self.blocks_end()));
            self.promise(blocks)?;
        }
        let shown =
            ShownWhole { file: RESERVED, id, order: order.get(), first: block << order.get() };
        let (request, page) = reserved_request(step, self.window(), (at, count), shown);
        let got = self.call(process, "map", |mm, space| mm.map(space, &request))?;
        let last = self.vpn(at + count);
        if !self.vpn(at).is_aligned(order.pages()) || !last.is_aligned(order.pages()) {
            return self.judge("map", Err(Error::Invalid), got).map(|_| 5);
        }
        self.placed(process, &request, page, got)
    }

    /// Another size of the pool, as far as there is memory and folios are free.
    fn resize_pool(&mut self, folios: u64) -> Outcome {
        let before = self.counts()?;
        let order = self.whole_order();
        let Some(now) = self.mm.files().resize_pool(order, folios) else { return Ok(0) };
        self.reserved_mut(|of| of.asked = folios);
        let kept = before.size - before.free + before.promised;
        let is_right = match folios {
            // Folios below a group leave only with the last of their group.
            _ if folios < before.size && order < GROUP_ORDER => now.size >= folios.max(kept),
            _ if folios < before.size => now.size == folios.max(kept),
            _ => now.size == folios || self.may_lack_groups(now.size, folios - now.size),
        };
        if is_right
            && (now.promised, now.surplus) == (before.promised, now.size.saturating_sub(folios))
        {
            return Ok(now.size);
        }
        Err(Wrong::new(Kind::Answer, format!("resized to {folios}, {before:?} became {now:?}")))
    }

    /// Whether the allocator may lack groups for as many folios more in a pool of this size.
    fn may_lack_groups(&self, size: u64, more: u64) -> bool {
        self.mm.phys().drain();
        let order = self.whole_order();
        let group = GROUP_ORDER.max(order).index();
        let large = self.mm.phys().free_by_order().into_iter().skip(group).zip(0..);
        let free: u64 = large.map(|(blocks, up)| blocks << up).sum();
        let each = 1 << GROUP_ORDER.get().saturating_sub(order.get());
        let needed = (size + more).div_ceil(each) - size.div_ceil(each);
        needed > free || self.faulty == Fault::Alloc
    }

    /// Whether a folio that no one was promised may be refused.
    pub(super) fn may_lack_reserved(&self, order: Order) -> bool {
        let Ok(counts) = self.counts() else { return false };
        let more = counts.surplus < counts.surplus_most;
        let grows = more && !self.may_lack_groups(counts.size, 1);
        order == self.whole_order() && counts.free <= counts.promised && !grows
    }

    /// Promises folios to the blocks that have neither a folio nor a promise: to all or to none.
    fn promise(&mut self, (start, end): (u32, u32)) -> Outcome {
        let Some(of) = &self.reserved else { return Ok(0) };
        let (id, pages) = (of.id, self.file_pages((start, end)));
        let has = |block: &u32| of.there.contains(block) || of.promised.contains(block);
        let new: Vec<u32> = (start..end).filter(|block| !has(block)).collect();
        let before = self.counts()?;
        let room =
            before.free - before.promised + before.surplus_most.saturating_sub(before.surplus);
        let lacks = (new.len() as u64).saturating_sub(before.free - before.promised);
        match self.mm.files().promise(id, pages) {
            Ok(()) if new.len() as u64 <= room => {
                self.reserved_mut(|of| of.promised.extend(new));
                Ok(1)
            }
            Err(Error::NoReserved(_))
                if new.len() as u64 > room || self.may_lack_groups(before.size, lacks) =>
            {
                Ok(2)
            }
            Err(error @ Error::NoMemory(_)) if self.may_fail(error) => {
                self.mm.files().renounce(id, pages).map_err(Wrong::unexpected)?;
                self.reserved_mut(|of| of.promised.retain(|at| !(start..end).contains(at)));
                Ok(3)
            }
            got => {
                let what = format!("{new:?} were promised of {before:?}: {got:?}");
                Err(Wrong::new(Kind::Answer, what))
            }
        }
    }

    /// Makes a hole in the usual file in memory.
    fn punch_usual(&mut self, first: u32, count: u32) -> Outcome {
        let file = usize::from(FRAMES) - 1;
        let pages = FilePages::new(first.into(), u64::from(first) + u64::from(count));
        self.complete(u64::MAX);
        self.punch_all(self.ids[file], pages)?;
        (first..first + count).for_each(|page| self.files[file].store(page, 0));
        Ok(1)
    }

    /// Makes a hole in the file of reserved folios. Private copies of whole folios go, too.
    fn punch(&mut self, first: u32, count: u32) -> Outcome {
        let Some(Reserved { id, order, .. }) = self.reserved else { return Ok(0) };
        let file = usize::from(RESERVED);
        let first = first % (self.blocks_end() << order.get()).max(1);
        self.punch_all(id, FilePages::new(first.into(), (first + count).into()))?;
        (first..first + count).for_each(|page| self.files[file].store(page, 0));
        let whole = (first.div_ceil(1 << order.get()), (first + count) >> order.get());
        self.cut_blocks(whole);
        Ok(2)
    }

    fn punch_all(&mut self, id: FileId, pages: FilePages) -> Result<(), Wrong> {
        for tries in 0.. {
            let got = {
                let _operation = self.machine.operation("punch").cleans();
                self.mm.files().punch(id, pages, &self.all())
            };
            self.settle_races()?;
            match got {
                Ok(()) => break,
                Err(error) if !self.may_fail(error) => return Err(Wrong::unexpected(error)),
                Err(_) if tries == 0 => self.relieve()?,
                Err(_) => self.end_largest(),
            }
        }
        Ok(())
    }

    /// The file has as many blocks from now on.
    fn cut_reserved(&mut self, blocks: u32) -> Outcome {
        let Some(Reserved { id, .. }) = self.reserved else { return Ok(0) };
        let pages = self.file_pages((0, blocks)).end;
        for tries in 0.. {
            let got = {
                let _operation = self.machine.operation("truncate").cleans();
                self.mm.files().truncate(id, pages, &self.all())
            };
            self.settle_races()?;
            match got {
                Ok(()) => break,
                Err(error) if !self.may_fail(error) => return Err(Wrong::unexpected(error)),
                Err(_) if tries == 0 => self.relieve()?,
                Err(_) => self.end_largest(),
            }
        }
        self.files[usize::from(RESERVED)].resize(pages as u32);
        self.cut_blocks((blocks, u32::MAX >> self.setup.whole));
        Ok(1)
    }

    /// These blocks have no folio and no promise any more, and no process has a copy of them.
    fn cut_blocks(&mut self, (start, end): (u32, u32)) {
        self.reserved_mut(|of| of.cut(start, end));
        for page in self.naive.iter_mut().flat_map(|process| &mut process.pages) {
            if block_of(page).is_some_and(|block| (start..end).contains(&block)) {
                page.forget();
            }
        }
    }

    /// A process has accessed a page: its block has a folio, of the file or of its own.
    pub(super) fn note_whole(&mut self, process: usize, at: usize, access: Access) {
        let page = self.naive[process].pages[at];
        let (Some(block), Some(of)) = (block_of(&page), &mut self.reserved) else { return };
        let is_there = of.there.contains(&block);
        if page.is_shared_file() {
            of.bring(block);
        } else if page.own == UNOWNED && !(is_there && access != Access::Write) {
            if !is_there {
                of.promised.remove(&block);
            }
            self.own_block(process, at);
        }
    }

    /// The block around a page has a folio of its own, with what it shows now.
    fn own_block(&mut self, process: usize, at: usize) {
        let Source::Whole { page, order, .. } = self.naive[process].pages[at].source else {
            return;
        };
        let first = at - (page & ((1 << order) - 1)) as usize;
        for at in first..first + (1 << order) {
            let word = self.naive[process].content(&self.files, at).unwrap_or(0);
            self.naive[process].pages[at].own = word;
        }
    }

    /// A call has brought pages of a process in, as far as it came.
    pub(super) fn note_brought(&mut self, process: usize) -> Result<(), Wrong> {
        if self.reserved.is_none() {
            return Ok(());
        }
        let mapped = self.whole_leaves(process)?;
        let brings = |page: &Page| page.is_shared_file();
        let shared = |pages: &[Page]| -> BTreeSet<Pfn> {
            mapped.iter().filter(|(at, _)| brings(&pages[*at])).map(|(_, head)| *head).collect()
        };
        let heads = shared(&self.naive[process].pages);
        for &(at, head) in &mapped {
            let page = self.naive[process].pages[at];
            let is_there = |of: &Reserved| block_of(&page).is_some_and(|at| of.there.contains(&at));
            let known = self.reserved.as_ref().is_some_and(is_there);
            if brings(&page) || !known && !heads.contains(&head) {
                self.note_whole(process, at, Access::Read);
            }
        }
        Ok(())
    }

    /// The mapped pages of reserved folios of a process, with the first frame of each one's folio.
    fn whole_leaves(&self, process: usize) -> Result<Vec<(usize, Pfn)>, Wrong> {
        let (mut mapped, pages) = (Vec::new(), &self.naive[process].pages);
        let Some(space) = &self.spaces[process] else { return Ok(mapped) };
        let walked = check::leaves(self.mm, space, |leaf| {
            for ahead in 0..leaf.pages.count() {
                let at = self.at(leaf.pages.start.add(ahead)).filter(|at| pages[*at].is_whole());
                let info = at.and_then(|_| self.mm.frame_info(leaf.frame.add(ahead)));
                mapped.extend(at.zip(info).map(|(at, info)| (at, info.head)));
            }
        });
        walked.map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
        Ok(mapped)
    }

    /// Whether an access to a page of a reserved folio may be refused for want of one.
    pub(super) fn may_be_refused(&self, process: usize, at: usize, access: Access) -> bool {
        let page = &self.naive[process].pages[at];
        let (Some(block), Some(of)) = (block_of(page), &self.reserved) else { return false };
        let writes = access == Access::Write;
        let is_there = of.there.contains(&block);
        let may = match (page.is_shared_file(), page.own == UNOWNED) {
            (true, _) => !is_there && !of.promised.contains(&block),
            (false, true) if is_there => writes,
            (false, true) => !of.promised.contains(&block),
            // A copy of what a fork shares.
            (false, false) => writes,
        };
        may && self.may_lack_reserved(of.order)
    }

    /// The pool has what the model says.
    pub(super) fn check_pool(&self) -> Result<(), Wrong> {
        let Some(of) = &self.reserved else { return Ok(()) };
        let counts = self.counts()?;
        let mut own = BTreeSet::new();
        for process in 0..self.spaces.len() {
            let pages = &self.naive[process].pages;
            let mapped = self.whole_leaves(process)?;
            own.extend(mapped.iter().filter(|(at, _)| pages[*at].own != UNOWNED).map(|it| it.1));
            let missing = |at: &usize| {
                let is_own = pages[*at].is_whole() && pages[*at].own != UNOWNED;
                is_own && mapped.binary_search_by_key(at, |(at, _)| *at).is_err()
            };
            if let Some(at) = (0..pages.len()).find(missing) {
                let what = format!("process {process}, page {at} of a reserved folio is gone");
                return Err(Wrong::new(Kind::Content, what));
            }
        }
        let used = (own.len() + of.there.len()) as u64;
        let spare = counts.surplus.min(counts.free.saturating_sub(counts.promised));
        if counts.size.checked_sub(counts.free) != Some(used)
            || counts.promised != of.promised.len() as u64
            || counts.promised > counts.free
            || counts.size < counts.surplus
            || spare > 0 && of.order >= GROUP_ORDER
        {
            let what = format!(
                "{counts:?}; {used} should be in use, {} promised, and {} were asked for",
                of.promised.len(),
                of.asked
            );
            return Err(Wrong::new(Kind::Leak, what));
        }
        Ok(())
    }

    /// All processes have ended: the pool is as large as its file needs, and empty without it.
    pub(super) fn end_reserved(&mut self) -> Result<(), Wrong> {
        self.check_pool()?;
        let Some(of) = self.reserved.take() else { return Ok(()) };
        self.mm.files().close(of.id).map_err(Wrong::unexpected)?;
        match self.mm.files().resize_pool(of.order, 0) {
            Some(PoolCounts { size: 0, free: 0, promised: 0, surplus: 0, .. }) => Ok(()),
            other => Err(Wrong::new(Kind::Leak, format!("an empty pool has {other:?}"))),
        }
    }

    /// Whether a frame is of a reserved folio that is in use.
    pub(super) fn is_reserved(&self, mapped: &[Part], file: Option<FileId>) -> bool {
        let own = |&(process, at): &Part| self.naive[process].pages[at].is_whole();
        mapped.iter().any(own)
            || file.is_some_and(|file| self.reserved.as_ref().is_some_and(|of| of.id == file))
    }
}

/// The block of the file that a page of a reserved folio shows.
fn block_of(page: &Page) -> Option<u32> {
    match page.source {
        Source::Whole { page, order, .. } => Some(page >> order),
        _ => None,
    }
}
