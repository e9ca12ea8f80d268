//! Collapse: the due result for each block, beside the real one.

use std::collections::BTreeMap;

use quire::check;
use quire::inject::FailPlan;
use quire::space::{Advice, AreaFlags, Backing, OptOut};
use quire::{Collapsed, Error, Hindrance};
use quire_arch::Arch;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::Beside;
use super::compare::{New, Pages, ensure};

/// The due result for a block, if there is memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outlook {
    Made,
    Already,
    Refused(Hindrance),
}

impl<A: Arch> Beside<'_, '_, '_, A> {
    pub(super) fn collapse(
        &mut self,
        at: usize,
        span: PageSpan,
        order: Order,
    ) -> Result<(), String> {
        let blocks = self.outlooks(at, span, order)?;
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let roomy = self.mm.phys().free_by_order()[order.index()..].iter().sum::<u64>();
        let real = {
            let _op = self.cpu.operation("collapse");
            self.mm.reclaim().collapse(&self.lives[at].space, span, order)
        };
        if span.is_empty() || span.end.get() > A::USER_PAGES {
            ensure(real == Err(Error::Invalid), "a refusal", (span, real))?;
            return self.settle(at, New::None);
        }
        let pages = self.resident(at)?;
        let mut made = blocks.iter().filter(|(_, outlook)| *outlook == Outlook::Made);
        let mut sum = Collapsed::default();
        blocks.iter().for_each(|(_, outlook)| outlook.add_to(&mut sum));
        match real {
            Ok(done) => ensure(done == sum, "the due counts", (done, sum, &blocks))?,
            Err(Error::NoMemory(of)) => {
                ensure(of == order && (planned || roomy < sum.made), "memory", (of, roomy, &sum))?;
            }
            Err(error) => return Err(format!("collapse: {error}")),
        }
        let all = real.is_ok();
        let done = made.by_ref().take_while(|(block, _)| {
            // The folio was taken while the block still had its old frames.
            let model = &self.lives[at].model.resident;
            let frame = |page| model.get(&page).map(|here| here.frame);
            let mut numbers = block.start.get()..block.end.get();
            all || numbers.any(|page| pages.get(&page).map(|found| found.frame) != frame(page))
        });
        let done: Vec<PageSpan> = done.map(|(block, _)| *block).collect();
        for block in done {
            self.take_over(at, block, order, &pages)?;
        }
        self.settle(at, New::Some)?;
        let here = self.lives[at].model.resident.len();
        ensure(pages.len() == here, "no other new pages", (pages.len(), here))
    }

    /// The aligned blocks of `span`, each with its due result.
    fn outlooks(
        &self,
        at: usize,
        span: PageSpan,
        order: Order,
    ) -> Result<Vec<(PageSpan, Outlook)>, String> {
        let mut leaves = BTreeMap::new();
        let told = check::leaves(self.mm, &self.lives[at].space, |leaf| {
            (0..leaf.pages.count()).for_each(|page| {
                leaves.insert(leaf.pages.start.add(page).get(), leaf.pages);
            });
        });
        told.map_err(|violation| violation.to_string())?;
        let first = span.start.get().next_multiple_of(order.pages());
        let starts = (first..).step_by(1 << order.get());
        let blocks = starts.map(|start| PageSpan::block(Vpn::new(start), order));
        let blocks = blocks.take_while(|block| block.end <= span.end);
        Ok(blocks.map(|block| (block, self.outlook_of(at, block, order, &leaves))).collect())
    }

    fn outlook_of(
        &self,
        at: usize,
        block: PageSpan,
        order: Order,
        leaves: &BTreeMap<u64, PageSpan>,
    ) -> Outlook {
        let model = &self.lives[at].model;
        let areas = model.areas_in(block);
        let fits = model.is_one_area(block)
            && areas[0].backing == Backing::Anon
            && !areas[0].flags.contains(AreaFlags::SHARED);
        if !fits {
            return Outlook::Refused(Hindrance::Area);
        }
        if Advice::of(areas[0].flags) == Advice::NoHuge || model.opt_out == OptOut::All {
            return Outlook::Refused(Hindrance::Advice);
        }
        let here = model.resident.range(block.start.get()..block.end.get());
        let frames: Vec<(u64, Pfn)> = here.map(|(page, here)| (*page, here.frame)).collect();
        let Some(&(_, first)) = frames.first() else {
            return Outlook::Refused(Hindrance::Empty);
        };
        let pinned = self.pinned();
        if frames.iter().any(|(_, frame)| pinned.iter().any(|folio| folio.contains(*frame))) {
            return Outlook::Refused(Hindrance::Pinned);
        }
        let steady = (0..).zip(&frames).all(|(n, (_, frame))| *frame == first.add(n));
        let whole = frames.len() as u64 == order.pages() && first.is_aligned(order.pages());
        let folio = self.folio(first).is_some_and(|folio| folio.order >= order);
        let leaf = leaves.get(&block.start.get()).is_some_and(|leaf| leaf.covers(block));
        let large = order < A::block_order() || leaf;
        if steady && whole && folio && large { Outlook::Already } else { Outlook::Made }
    }

    /// Takes a block into the model that has become a folio: the same contents in other frames.
    fn take_over(
        &mut self,
        at: usize,
        block: PageSpan,
        order: Order,
        pages: &Pages,
    ) -> Result<(), String> {
        let found = |page: u64| pages.get(&page).copied();
        let first = found(block.start.get()).ok_or("a collapsed block begins with nothing")?;
        let folio = self.folio(first.frame).map(|folio| folio.span());
        let own = FrameSpan::new(first.frame, order.pages());
        ensure(folio == Some(own), "a folio of just that size", (block, folio))?;
        for (number, page) in (0..).zip(block.start.get()..block.end.get()) {
            let now = found(page).ok_or_else(|| format!("{} is missing", Vpn::new(page)))?;
            let fine = now.frame == first.frame.add(number) && !now.is_cow();
            ensure(fine, "a page of it", (Vpn::new(page), now))?;
            if let Some(here) = self.lives[at].model.resident.get_mut(&page) {
                (here.frame, here.cow) = (now.frame, false);
            }
        }
        Ok(())
    }
}

impl Outlook {
    fn add_to(self, sum: &mut Collapsed) {
        match self {
            Outlook::Made => sum.made += 1,
            Outlook::Already => sum.already += 1,
            Outlook::Refused(why) => {
                sum.refused += 1;
                sum.why = Some(why);
            }
        }
    }
}
