//! A write to a private page of a file copies the block around it, in the sizes of anonymous
//! faults: out of several folios of the file, where one does not cover it (rows B5, C4, E4).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan};

use super::Spaces;
use super::outcome::Resolved;
use crate::fault::{BlockSource, Cause, Source, Unshare};
use crate::folio::copy::copy_pieces;
use crate::space::View;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Copies the largest possible block of the `allowed` orders around the page, as far as it maps
    /// the area's file. `None`, and nothing has changed, where that is no more than `source` has.
    pub(crate) fn own_block(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        allowed: u32,
        resched: &mut dyn FnMut(),
    ) -> Option<Resolved> {
        if !unshare.is_of_file() {
            return None;
        }
        let orders = (1..=allowed.checked_ilog2().unwrap_or(0) as u8).rev();
        for order in orders.map(Order::new).filter(|order| allowed >> order.get() & 1 != 0) {
            let pages = PageSpan::block(unshare.page, order);
            if source.pages.covers(pages) {
                return None;
            }
            let Some(pieces) = BlockSource::hold(view, unshare, pages) else { continue };
            let hard = self.base().policy.tries_hard(unshare.advice());
            let done = self.own_pieces(view, unshare, &pieces, (pages, order), hard, resched);
            pieces.release(view, &mut |run| self.base().free(run));
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// Copies the pieces found for a block, and replaces them.
    fn own_pieces(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        pieces: &BlockSource,
        (pages, order): (PageSpan, Order),
        hard: bool,
        resched: &mut dyn FnMut(),
    ) -> Option<Resolved> {
        if !self.base().groups.affords(view.space, order) {
            self.fallback(view.space, order, Cause::Charge);
            return None;
        }
        let Ok(run) = self.base().frames(order, hard) else {
            self.fallback(view.space, order, Cause::Memory);
            return None;
        };
        let run = run.dirtied();
        let copied = copy_pieces(self.base().hw, &run, pieces.frames(), self.base().pace, resched);
        // Where memory has failed, a smaller block may still be sound.
        let placed = match copied {
            Ok(()) => pieces.replace(view, unshare, pages, run),
            Err(_) => Err(run),
        };
        match placed {
            Ok(()) => Some(self.copied(view, pages, order)),
            Err(run) => {
                self.base().free(run);
                None
            }
        }
    }
}
