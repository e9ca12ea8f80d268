//! Clearing accessed bits, and the library's own report of mapped pages.

use quire::check::{self, Leaf};
use quire::table::{Seen, Sight};
use quire_arch::{Arch, Attrs};
use quire_units::{PageSpan, Vpn};

use super::Beside;
use super::compare::{Found, New, Pages, ensure};

impl<A: Arch> Beside<'_, '_, '_, A> {
    pub(super) fn age(&mut self, at: usize, span: PageSpan) -> Result<(), String> {
        {
            let _op = self.cpu.operation("clear_young");
            self.mm.spaces().clear_young(&self.lives[at].space, span);
        }
        let mut old = None;
        let told = check::leaves(self.mm, &self.lives[at].space, |leaf| {
            let young = leaf.attrs.contains(Attrs::YOUNG);
            if young && span.covers(extent::<A>(leaf)) {
                old = old.or(Some(*leaf));
            }
        });
        told.map_err(|violation| violation.to_string())?;
        ensure(old.is_none(), "nothing young", old)?;
        let range = span.start.get()..span.end.get().max(span.start.get());
        for (_, here) in self.lives[at].model.resident.range_mut(range) {
            here.young = false;
        }
        self.settle(at, New::None)
    }

    /// The report of [`Mm::runs`](quire::Mm::runs), page by page.
    pub(super) fn told(&self, at: usize) -> Pages {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        let mut pages = Pages::new();
        self.mm.spaces().runs(&self.lives[at].space, all, &mut |seen: &Seen| {
            if let Sight::Leaf { frame, attrs, .. } = seen.what {
                for page in 0..seen.pages.count() {
                    let found = Found { frame: frame.add(page), attrs };
                    pages.insert(seen.pages.start.add(page).get(), found);
                }
            }
        });
        pages
    }
}

/// The pages that share the accessed and dirty bits of this leaf.
fn extent<A: Arch>(leaf: &Leaf) -> PageSpan {
    match A::fold_order(leaf.level).filter(|_| leaf.folded) {
        Some(order) => PageSpan::block(leaf.pages.start, order),
        None => leaf.pages,
    }
}
