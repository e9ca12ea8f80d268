//! Taking the mappings of chosen folios out of a space's tables.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Spaces;
use crate::folio::Folio;
use crate::space::Space;
use crate::table::Gather;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Takes the mappings of folios for which `such` is true out of `span` of a space, into
    /// `gather`, which is flushed and freed when it is full.
    pub(crate) fn detach(
        &self,
        space: &Space<A>,
        span: PageSpan,
        gather: &mut Gather,
        such: &impl Fn(Folio) -> bool,
    ) {
        let (tables, mut at) = (self.base().view(space).tables(), span.start);
        while let Some(page) = tables.detach(PageSpan::new(at, span.end), gather, such) {
            self.base().settle(space, gather);
            at = page;
        }
    }
}
