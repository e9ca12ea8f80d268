//! Collapse: the due result for each block, beside the real one.

use std::ops::Range;

use quire::inject::FailPlan;
use quire::space::{Advice, AreaFlags, Backing, OptOut};
use quire::{Collapsed, Error, Hindrance};
use quire_arch::Arch;
use quire_script::Part;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::super::violation::{Wrong, ensure};
use super::super::world::World;
use super::compare::{New, Pages};
use super::model::Model;

/// The due result for a block, if there is memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outlook {
    Made,
    Already,
    Refused(Hindrance),
}

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn collapse(
        &mut self,
        process: usize,
        (at, count): Part,
        order: Order,
    ) -> Result<(), Wrong> {
        let span = self.span(at, count);
        let blocks = self.outlooks(process, span, order)?;
        let planned = self.mm.bare_phys().fail_plan() != FailPlan::Never;
        let roomy = self.mm.phys().free_by_order()[order.index()..].iter().sum::<u64>();
        let real =
            self.call(process, "collapse", |mm, space| mm.reclaim().collapse(space, span, order))?;
        if span.is_empty() {
            ensure(real == Err(Error::Invalid), "a refusal", (span, real))?;
            return self.settle(process, New::None);
        }
        let pages = self.resident(process)?;
        let model = self.model(process)?;
        let mut made = blocks.iter().filter(|(_, outlook)| *outlook == Outlook::Made);
        let mut sum = Collapsed::default();
        blocks.iter().for_each(|(_, outlook)| outlook.add_to(&mut sum));
        match real {
            Ok(done) => ensure(done == sum, "the due counts", (done, sum, &blocks))?,
            Err(Error::NoMemory(of)) => {
                ensure(of == order && (planned || roomy < sum.made), "memory", (of, roomy, &sum))?;
            }
            Err(error) => return Err(Wrong::unexpected(error)),
        }
        let all = real.is_ok();
        let done = made.by_ref().take_while(|(block, _)| {
            // The folio was taken while the block still had its old frames.
            let frame = |at| model.resident.get(&at).map(|here| here.frame);
            let mut places = model.places(*block);
            all || places.any(|at| pages.get(&at).map(|found| found.frame) != frame(at))
        });
        for (block, _) in done {
            self.take_over(process, model.places(*block), order, &pages)?;
        }
        self.settle(process, New::Some)?;
        let here = self.exact().resident[process].len();
        ensure(pages.len() == here, "no other new pages", (pages.len(), here))
    }

    /// The aligned blocks of `span`, each with its due result.
    fn outlooks(
        &self,
        process: usize,
        span: PageSpan,
        order: Order,
    ) -> Result<Vec<(PageSpan, Outlook)>, Wrong> {
        let (model, opt_out) = (self.model(process)?, self.space(process)?.opt_out());
        let leaves: Vec<_> = self.leaves(process)?.iter().map(|leaf| leaf.pages).collect();
        let first = span.start.get().next_multiple_of(order.pages());
        let starts = (first..).step_by(1 << order.get());
        let blocks = starts.map(|start| PageSpan::block(Vpn::new(start), order));
        let blocks = blocks.take_while(|block| block.end <= span.end);
        Ok(blocks.map(|block| (block, self.due(&model, opt_out, block, order, &leaves))).collect())
    }

    fn due(
        &self,
        model: &Model,
        opt_out: OptOut,
        block: PageSpan,
        order: Order,
        leaves: &[PageSpan],
    ) -> Outlook {
        let areas = model.areas_in(block);
        let fits = model.is_one_area(block)
            && areas[0].backing == Backing::Anon
            && !areas[0].flags.contains(AreaFlags::SHARED);
        if !fits {
            return Outlook::Refused(Hindrance::Area);
        }
        if Advice::of(areas[0].flags) == Advice::NoHuge || opt_out == OptOut::All {
            return Outlook::Refused(Hindrance::Advice);
        }
        let here = model.resident.range(model.places(block));
        let frames: Vec<Pfn> = here.map(|(_, here)| here.frame).collect();
        let Some(&first) = frames.first() else {
            return Outlook::Refused(Hindrance::Empty);
        };
        let pinned = self.pinned();
        if frames.iter().any(|frame| pinned.iter().any(|folio| folio.contains(*frame))) {
            return Outlook::Refused(Hindrance::Pinned);
        }
        let steady = (0..).zip(&frames).all(|(n, frame)| *frame == first.add(n));
        let whole = frames.len() as u64 == order.pages() && first.is_aligned(order.pages());
        let folio = self.folio(first).is_some_and(|folio| folio.order >= order);
        let leaf = leaves.iter().any(|leaf| leaf.covers(block));
        let large = order < A::block_order() || leaf;
        if steady && whole && folio && large { Outlook::Already } else { Outlook::Made }
    }

    /// Takes a block into the model that has become a folio: the same contents in other frames.
    fn take_over(
        &mut self,
        process: usize,
        block: Range<usize>,
        order: Order,
        pages: &Pages,
    ) -> Result<(), Wrong> {
        let first = pages.get(&block.start).map(|found| found.frame);
        let first = first.ok_or_else(|| "a collapsed block begins with nothing".to_owned())?;
        let folio = self.folio(first).map(|folio| folio.span());
        let own = FrameSpan::new(first, order.pages());
        ensure(folio == Some(own), "a folio of just that size", (&block, folio))?;
        for (number, at) in (0..).zip(block) {
            let now = pages.get(&at).ok_or_else(|| format!("page {at} is missing"))?;
            let fine = now.frame == first.add(number) && !now.is_cow();
            ensure(fine, "a page of it", (at, now))?;
            if let Some(here) = self.exact_mut().resident[process].get_mut(&at) {
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
