//! Comparing the two sides.

use std::collections::BTreeMap;
use std::fmt::Debug;

use quire::check;
use quire::inject::{Folio, Folios};
use quire::space::{Area, AreaFlags, Space};
use quire_arch::{Arch, Attrs};
use quire_units::{PageSpan, Pfn, PhysAddr, Prot, Vpn};

use super::Beside;
use super::access::granted;
use super::judge::Sharing;
use crate::fork::Resident;
use crate::system::HostedMm;

/// The new pages that a call may have mapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum New {
    /// None.
    None,
    /// All of these, and no others.
    Exactly(PageSpan),
    /// All of these, and others: what lies around them in their folios.
    Around(PageSpan),
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

pub(super) type Pages = BTreeMap<u64, Found>;

impl<A: Arch> Beside<'_, '_, '_, A> {
    /// The resident pages. The accessed and dirty bits in any entry of a contiguous block count for
    /// all of its pages.
    pub(super) fn resident(&self, at: usize) -> Result<Pages, String> {
        let mut pages = Pages::new();
        let mut blocks: BTreeMap<u64, (PageSpan, Attrs)> = BTreeMap::new();
        let told = check::leaves(self.mm, &self.lives[at].space, |leaf| {
            for page in 0..leaf.pages.count() {
                let found = Found { frame: leaf.frame.add(page), attrs: leaf.attrs };
                pages.insert(leaf.pages.start.add(page).get(), found);
            }
            if let Some(order) = A::fold_order(leaf.level).filter(|_| leaf.folded) {
                let block = PageSpan::block(leaf.pages.start, order);
                let noted = blocks.entry(block.start.get()).or_insert((block, Attrs::empty()));
                noted.1 |= leaf.attrs & (Attrs::YOUNG | Attrs::DIRTY);
            }
        });
        for (block, noted) in blocks.into_values() {
            for (_, found) in pages.range_mut(block.start.get()..block.end.get()) {
                found.attrs |= noted;
            }
        }
        told.map(|()| pages).map_err(|violation| violation.to_string())
    }

    /// Compares the resident pages with the model, and takes new ones into it: they must be zero,
    /// and get a mark.
    pub(super) fn settle(&mut self, at: usize, new: New) -> Result<(), String> {
        self.settle_shared(at, new, Sharing::Kept)
    }

    /// The same; and takes into the model the fate of shared pages.
    pub(super) fn settle_shared(
        &mut self,
        at: usize,
        new: New,
        sharing: Sharing,
    ) -> Result<(), String> {
        let real = self.resident(at)?;
        self.judge(at, &real, sharing)?;
        let all = match new {
            New::Exactly(span) | New::Around(span) => span.start.get()..span.end.get(),
            New::None | New::Some => 0..0,
        };
        if let Some(page) = all.clone().find(|page| !real.contains_key(page)) {
            return Err(format!("{} should be resident ({new:?})", Vpn::new(page)));
        }
        for (page, found) in real {
            if let Some(here) = self.lives[at].model.resident.get_mut(&page) {
                here.frame = found.frame;
                here.cow = found.is_cow();
                continue;
            }
            let allowed = match new {
                New::None => false,
                New::Exactly(_) => all.contains(&page),
                New::Around(_) | New::Some => true,
            };
            ensure(allowed, "no new page here", (Vpn::new(page), new))?;
            self.welcome(at, page, &found)?;
        }
        Ok(())
    }

    /// Takes a new page into the model.
    fn welcome(&mut self, at: usize, page: u64, found: &Found) -> Result<(), String> {
        let words = self.words(found.frame);
        ensure(words == [Some(0); 3], "a zeroed page", (Vpn::new(page), found, words))?;
        ensure(!found.is_cow(), "a page of one's own", (Vpn::new(page), found))?;
        let mark = self.marks.next();
        let [_, middle, last] = self.places(found.frame);
        self.machine.ram().write_word(middle, mark);
        self.machine.ram().write_word(last, mark);
        self.lives[at].model.resident.insert(page, Resident::new(found.frame, mark));
        Ok(())
    }

    /// The words of a frame that are looked at: the program's, and two where marks are left.
    pub(super) fn places(&self, frame: Pfn) -> [PhysAddr; 3] {
        let start = frame.addr(A::PAGE_SHIFT).get();
        [0, (1 << A::PAGE_SHIFT) / 2, (1 << A::PAGE_SHIFT) - 8].map(|at| PhysAddr::new(start + at))
    }

    fn words(&self, frame: Pfn) -> [Option<u64>; 3] {
        self.places(frame).map(|place| self.machine.ram().read_word(place))
    }

    /// The folio that a frame is part of.
    pub(super) fn folio(&self, frame: Pfn) -> Option<Folio> {
        Folios::new(self.mm.bare_phys().meta()).of(frame)
    }

    /// Compares areas and memory, and calls in all walkers.
    pub(super) fn agree(&mut self, at: usize) -> Result<(), String> {
        let live = &self.lives[at];
        let areas = areas_of(self.mm, &live.space);
        let wanted = live.model.areas.areas();
        ensure(areas == wanted, "equal areas", (areas, wanted))?;
        let (real, told) = (self.resident(at)?, self.told(at));
        let differs = real.iter().find(|(page, found)| told.get(page) != Some(found));
        let same = differs.is_none() && told.len() == real.len();
        ensure(same, "to be told what there is", (differs, told.len(), real.len()))?;
        for at in 0..self.lives.len() {
            self.look(at)?;
        }
        self.walk()
    }

    /// Compares all memory of a space: frames, contents, rights, and what the leaves remember.
    fn look(&mut self, at: usize) -> Result<(), String> {
        let real = self.resident(at)?;
        let model = &self.lives[at].model;
        ensure(real.len() == model.resident.len(), "no other pages", (at, real.len()))?;
        for ((&page, found), (also, here)) in real.iter().zip(&model.resident) {
            let name = Vpn::new(page);
            ensure(page == *also && found.is_still(here), "the same page", (name, found, here))?;
            let granted = model.areas.page(name).map_or(Prot::empty(), |area| granted::<A>(&area));
            let rights = found.attrs.prot();
            ensure(granted.contains(rights), "no more rights", (name, found, granted))?;
            let safe = !here.cow || !rights.contains(Prot::WRITE);
            ensure(safe, "no stores to what others may have", (name, found))?;
            let kept = (!here.dirty || found.attrs.contains(Attrs::DIRTY))
                && (!here.young || found.attrs.contains(Attrs::YOUNG));
            ensure(kept, "nothing forgotten", (name, found, here))?;
            let words = self.words(found.frame);
            let wanted = [here.word.get(), here.mark, here.mark].map(Some);
            ensure(words == wanted, "the words that were left there", (at, name, words, wanted))?;
        }
        for (found, here) in real.values().zip(self.lives[at].model.resident.values_mut()) {
            here.young |= found.attrs.contains(Attrs::YOUNG);
            here.dirty |= found.attrs.contains(Attrs::DIRTY);
        }
        Ok(())
    }

    pub(super) fn walk(&self) -> Result<(), String> {
        let spaces: Vec<_> = self.lives.iter().map(|live| &live.space).collect();
        let totals = check::system(self.mm, &spaces).map_err(|violation| violation.to_string())?;
        let mapped: usize = self.lives.iter().map(|live| live.model.resident.len()).sum();
        ensure(totals.held == 0, "no frame lost", totals)?;
        ensure(totals.mapped == mapped as u64, "no others", (totals, mapped))?;
        ensure(totals.pinned == self.pinned_folios(), "no other pins", totals)?;
        self.check_sharing()?;
        self.machine.verdict().map_err(|violation| violation.to_string())
    }

    /// I11 and I13: a frame that several spaces map is COW in all of them, or in a shared area.
    fn check_sharing(&self) -> Result<(), String> {
        let mut mapped = Vec::new();
        for (at, live) in self.lives.iter().enumerate() {
            for (&page, here) in &live.model.resident {
                let flags = live.model.areas.page(Vpn::new(page)).map(|area| area.flags);
                let common = flags.is_some_and(|flags| flags.contains(AreaFlags::SHARED));
                mapped.push((here.frame, at, page, here.cow, common));
            }
        }
        mapped.sort();
        for pair in mapped.windows(2) {
            let [(frame, at, _, cow, common), (other, also, _, is_cow, is_common)] = *pair else {
                continue;
            };
            let fine = at != also && (cow && is_cow || common && is_common);
            ensure(frame != other || fine, "one owner, or none", pair)?;
        }
        Ok(())
    }
}

/// Marks that are left in pages; no two are equal. So it shows when a page is cleared while a
/// program has it, is given to the next without being cleared, or is taken for another.
#[derive(Default)]
pub(super) struct Marks(u64);

impl Marks {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}

pub(super) fn areas_of<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<Area> {
    let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
    mm.spaces().areas(space, all).collect()
}

pub(super) fn ensure(holds: bool, what: &str, evidence: impl Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("expected {what}: {evidence:?}")) }
}
