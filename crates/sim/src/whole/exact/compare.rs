//! Comparing the two sides.

use std::collections::BTreeMap;

use quire::check::{self, Leaf};
use quire::inject::{Folio, Folios};
use quire::space::{Area, AreaFlags};
use quire::table::{Seen, Sight};
use quire_arch::{Arch, Attrs};
use quire_script::{Part, Window};
use quire_units::{PageSpan, Pfn, PhysAddr, Prot, Vpn};

use super::super::device::peek;
use super::super::violation::{Wrong, ensure};
use super::super::world::World;
use super::judge::Sharing;
use super::model::Resident;

/// The new pages that a call may have mapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum New {
    /// None.
    None,
    /// All of these, and no others.
    Exactly(Part),
    /// All of these, and others: what lies around them in their folios.
    Around(Part),
    /// Some.
    Some,
}

/// The frame of a page, and the rights and flags of its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) frame: Pfn,
    pub(super) attrs: Attrs,
}

impl Found {
    pub(super) fn is_cow(&self) -> bool {
        self.attrs.contains(Attrs::COW)
    }

    /// Whether it is the memory that the model has there, and as much one's own.
    pub(super) fn is_still(&self, model: &Resident) -> bool {
        (self.frame, self.is_cow()) == (model.frame, model.cow)
    }
}

/// Pages by their place in the window.
pub(super) type Pages = BTreeMap<usize, Found>;

/// Adds the pages of a leaf.
fn add(
    pages: &mut Pages,
    window: Window,
    span: PageSpan,
    (frame, attrs): (Pfn, Attrs),
) -> Result<(), Wrong> {
    for ahead in 0..span.count() {
        let page = span.start.add(ahead);
        let at = window.at(page).ok_or_else(|| format!("{page} is mapped, beyond the window"))?;
        pages.insert(at, Found { frame: frame.add(ahead), attrs });
    }
    Ok(())
}

/// The pages that share the accessed and dirty bits of this leaf.
fn extent<A: Arch>(leaf: &Leaf) -> PageSpan {
    match A::fold_order(leaf.level).filter(|_| leaf.folded) {
        Some(order) => PageSpan::block(leaf.pages.start, order),
        None => leaf.pages,
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn leaves(&self, process: usize) -> Result<Vec<Leaf>, Wrong> {
        let mut leaves = Vec::new();
        check::leaves(self.mm, self.space(process)?, |leaf| leaves.push(*leaf))
            .map_err(|violation| violation.to_string())?;
        Ok(leaves)
    }

    /// The resident pages. The accessed and dirty bits in any entry of a contiguous block count for
    /// all of its pages.
    pub(super) fn resident(&self, process: usize) -> Result<Pages, Wrong> {
        let (window, leaves) = (self.window(), self.leaves(process)?);
        let mut noted: BTreeMap<Vpn, Attrs> = BTreeMap::new();
        for leaf in &leaves {
            let block = noted.entry(extent::<A>(leaf).start).or_insert(Attrs::empty());
            *block |= leaf.attrs & (Attrs::YOUNG | Attrs::DIRTY);
        }
        let mut pages = Pages::new();
        for leaf in &leaves {
            let attrs = leaf.attrs | noted[&extent::<A>(leaf).start];
            add(&mut pages, window, leaf.pages, (leaf.frame, attrs))?;
        }
        Ok(pages)
    }

    /// The library's own report, page by page.
    fn told(&self, process: usize) -> Result<Pages, Wrong> {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        let (mut pages, mut added, window) = (Pages::new(), Ok(()), self.window());
        self.mm.spaces().runs(self.space(process)?, all, &mut |seen: &Seen| {
            if let Sight::Leaf { frame, attrs, .. } = seen.what {
                added = added.clone().and(add(&mut pages, window, seen.pages, (frame, attrs)));
            }
        });
        added.map(|()| pages)
    }

    /// Nothing whose bit is that of pages of `span` alone may be young.
    pub(super) fn none_is_young(&self, process: usize, span: PageSpan) -> Result<(), Wrong> {
        let leaves = self.leaves(process)?;
        let is_young = |leaf: &&Leaf| leaf.attrs.contains(Attrs::YOUNG);
        let old = leaves.iter().filter(is_young).find(|leaf| span.covers(extent::<A>(leaf)));
        ensure(old.is_none(), "nothing young", old)
    }

    pub(super) fn areas_of(&self, process: usize) -> Result<Vec<Area>, Wrong> {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        Ok(self.mm.spaces().areas(self.space(process)?, all).collect())
    }

    /// Compares the resident pages with the model, and takes new ones into it: they must be zero,
    /// and get a mark.
    pub(super) fn settle(&mut self, process: usize, new: New) -> Result<(), Wrong> {
        self.settle_shared(process, new, Sharing::Kept)
    }

    /// The same; and takes into the model the fate of shared pages.
    pub(super) fn settle_shared(
        &mut self,
        process: usize,
        new: New,
        sharing: Sharing,
    ) -> Result<(), Wrong> {
        let real = self.resident(process)?;
        self.judge_sharing(process, &real, sharing)?;
        let all = match new {
            New::Exactly((at, count)) | New::Around((at, count)) => at..at + count,
            New::None | New::Some => 0..0,
        };
        if let Some(at) = all.clone().find(|at| !real.contains_key(at)) {
            return Err(format!("page {at} should be resident ({new:?})").into());
        }
        for (at, found) in real {
            if let Some(here) = self.exact_mut().resident[process].get_mut(&at) {
                here.frame = found.frame;
                here.cow = found.is_cow();
                continue;
            }
            let allowed = match new {
                New::None => false,
                New::Exactly(_) => all.contains(&at),
                New::Around(_) | New::Some => true,
            };
            ensure(allowed, "no new page here", (at, new))?;
            self.welcome(process, at, &found)?;
        }
        Ok(())
    }

    /// Takes a new page into the model.
    fn welcome(&mut self, process: usize, at: usize, found: &Found) -> Result<(), Wrong> {
        let frame = found.frame;
        let words = (peek(self.machine.ram(), A::PAGE_SHIFT, frame), self.mark_of(frame));
        ensure(words == ((0, 0), Some(0)), "a zeroed page", (at, found, words))?;
        ensure(!found.is_cow(), "a page of one's own", (at, found))?;
        // No two marks are equal. So it shows when a page is cleared while a program has it, is
        // given to the next without being cleared, or is taken for another.
        let exact = self.exact_mut();
        exact.marks += 1;
        let mark = exact.marks.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let here = Resident { frame, cow: false, young: false, dirty: false, mark };
        exact.resident[process].insert(at, here);
        self.machine.ram().write_word(Self::middle(frame), mark);
        Ok(())
    }

    fn middle(frame: Pfn) -> PhysAddr {
        PhysAddr::new(frame.addr(A::PAGE_SHIFT).get() + (1 << A::PAGE_SHIFT) / 2)
    }

    fn mark_of(&self, frame: Pfn) -> Option<u64> {
        self.machine.ram().read_word(Self::middle(frame))
    }

    /// The folio that a frame is part of.
    pub(super) fn folio(&self, frame: Pfn) -> Option<Folio> {
        Folios::new(self.mm.bare_phys().meta()).of(frame)
    }

    /// Compares areas and memory, and calls in all walkers.
    pub(super) fn agree(&mut self, process: usize) -> Result<(), Wrong> {
        self.same_areas(process)?;
        let (real, told) = (self.resident(process)?, self.told(process)?);
        let differs = real.iter().find(|(at, found)| told.get(at) != Some(found));
        let same = differs.is_none() && told.len() == real.len();
        ensure(same, "to be told what there is", (differs, told.len(), real.len()))?;
        for process in 0..self.spaces.len() {
            self.same_memory(process)?;
            self.check_pages(process)?;
        }
        self.same_totals()?;
        self.check_sharing()
    }

    pub(super) fn same_areas(&self, process: usize) -> Result<(), Wrong> {
        let (areas, wanted) = (self.areas_of(process)?, self.model(process)?.areas());
        ensure(areas == wanted, "equal areas", (areas, wanted))
    }

    /// Compares all memory of a process: frames, marks, rights, and what the leaves remember.
    fn same_memory(&mut self, process: usize) -> Result<(), Wrong> {
        let real = match &self.spaces[process] {
            Some(_) => self.resident(process)?,
            None => Pages::new(),
        };
        let model = &self.exact().resident[process];
        ensure(real.len() == model.len(), "no other pages", (process, real.len()))?;
        for ((at, found), (also, here)) in real.iter().zip(model) {
            ensure(at == also && found.is_still(here), "the same page", (at, found, here))?;
            let granted = self.granted(process, Some(*at));
            let rights = found.attrs.prot();
            ensure(granted.contains(rights), "no more rights", (at, found, granted))?;
            let safe = !here.cow || !rights.contains(Prot::WRITE);
            ensure(safe, "no stores to what others may have", (at, found))?;
            let kept = (!here.dirty || found.attrs.contains(Attrs::DIRTY))
                && (!here.young || found.attrs.contains(Attrs::YOUNG));
            ensure(kept, "nothing forgotten", (at, found, here))?;
            let mark = self.mark_of(found.frame);
            ensure(mark == Some(here.mark), "the mark that was left there", (process, at, mark))?;
        }
        for (found, here) in real.values().zip(self.exact_mut().resident[process].values_mut()) {
            here.young |= found.attrs.contains(Attrs::YOUNG);
            here.dirty |= found.attrs.contains(Attrs::DIRTY);
        }
        Ok(())
    }

    fn same_totals(&self) -> Result<(), Wrong> {
        let totals = self.walk()?;
        let mapped: usize = self.exact().resident.iter().map(BTreeMap::len).sum();
        ensure(totals.mapped == mapped as u64, "no others", (totals, mapped))?;
        ensure(totals.pinned == self.pinned_folios(), "no other pins", totals)
    }

    /// I11 and I13: a frame that several spaces map is COW in all of them, or in a shared area.
    fn check_sharing(&self) -> Result<(), Wrong> {
        let mut mapped = Vec::new();
        for (process, resident) in self.exact().resident.iter().enumerate() {
            for (&at, here) in resident {
                let flags = self.naive[process].pages[at].flags;
                let common = flags.contains(AreaFlags::SHARED);
                mapped.push((here.frame, process, at, here.cow, common));
            }
        }
        mapped.sort();
        for pair in mapped.windows(2) {
            let [(frame, process, _, cow, common), (other, also, _, is_cow, is_common)] = *pair
            else {
                continue;
            };
            let fine = process != also && (cow && is_cow || common && is_common);
            ensure(frame != other || fine, "one owner, or none", pair)?;
        }
        Ok(())
    }
}
