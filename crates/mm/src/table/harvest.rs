//! Harvesting what the hardware noted: which folios were touched since the last time.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan};

use super::map::FOREIGN;
use super::walk::Step;
use super::{Gather, Tables, What};
use crate::folio::{Folio, Folios};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Makes every leaf of `span` old, and tells `hear` of each folio that is mapped there whether
    /// it was young: folio by folio, a contiguous block being one. The flush goes into `gather`.
    /// How many pages were looked at.
    pub(crate) fn harvest(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        mut hear: impl FnMut(Folio, bool),
    ) -> u64 {
        let mut looked = 0;
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { frame, attrs, .. } if !attrs.contains(FOREIGN) => {
                        let pages = locked.pages(&run);
                        let frames = FrameSpan::new(frame, pages.count());
                        let mut from = pages.start;
                        Folios::new(self.meta).each(frames, |folio, piece| {
                            let pages = PageSpan::new(from, from.add(piece.count));
                            hear(folio, locked.forget(pages, Attrs::YOUNG, gather));
                            from = pages.end;
                            true
                        });
                        looked += pages.count();
                    }
                    What::Leaf { .. } | What::Absent | What::Marker(_) => {}
                }
                at = end;
            }
            Step::To(at)
        });
        looked
    }
}
