//! Taking out what maps certain folios, and leaving the rest: pages of files that nobody uses. They
//! can be had again from their file, so that nothing is put in their place.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Vpn};

use super::map::FOREIGN;
use super::walk::Step;
use super::{Gather, Locked, Tables, What};
use crate::folio::{Folio, Folios};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Takes the leaves of `span` that map folios which are `such` out of the tree, and into
    /// `gather`. Leaves that reach beyond the span stay. Where it stopped, if the gather is full:
    /// settle it and go on from there.
    pub(crate) fn detach(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        such: &impl Fn(Folio) -> bool,
    ) -> Option<Vpn> {
        self.each(span, |locked, part| {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                let pages = locked.pages(&run);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { .. } if gather.is_full() => return Step::Stop(at),
                    What::Leaf { frame, attrs, .. }
                        if !attrs.contains(FOREIGN) && span.covers(pages) =>
                    {
                        let frames = FrameSpan::new(frame, pages.count());
                        let upto = self.detach_folios(locked, (pages, frames), gather, such);
                        if upto < end {
                            return Step::Stop(upto);
                        }
                    }
                    What::Leaf { .. } | What::Absent | What::Marker(_) => {}
                }
                at = end;
            }
            Step::To(at)
        })
    }

    /// The same for a run of leaves; the page before which all is done.
    fn detach_folios(
        &self,
        locked: &Locked<'_, A, H>,
        (pages, frames): (PageSpan, FrameSpan),
        gather: &mut Gather,
        such: &impl Fn(Folio) -> bool,
    ) -> Vpn {
        let unit = A::order(locked.level());
        let mut from = pages.start;
        let folios = Folios::new(self.meta);
        let done = folios.each(frames, |folio, piece| {
            let pages = PageSpan::new(from, from.add(piece.count));
            if such(folio) {
                if gather.is_full() {
                    return false;
                }
                let (index, count) = (locked.index(from), (piece.count >> unit.get()) as usize);
                locked.part(index, count);
                locked.clear(index, count);
                gather.mapping(self.meta, folio, piece);
                gather.flush(pages, unit);
            }
            from = pages.end;
            true
        });
        // What is no folio is passed.
        if done < frames.count && !gather.is_full() { pages.end } else { from }
    }
}
