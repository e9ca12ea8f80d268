//! How the memory of a bench is backed: folios of one size, mapped by entries or by blocks.

use std::fmt;

use crate::isa::Isa;
use crate::size::Size;

/// The circumstance of folios that one entry of a higher level maps.
pub(crate) const BLOCK: &str = "block";

/// Memory in folios of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Backing {
    /// The size of each folio.
    pub(crate) size: Size,
    /// One entry above the last level maps each folio; otherwise one entry maps each base page.
    pub(crate) block: bool,
}

impl Backing {
    /// The bytes that one entry maps, with pages of `page` bytes.
    pub(crate) fn entry_bytes(self, page: u64) -> u64 {
        if self.block { self.size.bytes() } else { page }
    }

    /// What is said of it beside its size.
    pub(crate) fn note(self) -> &'static str {
        if self.block { BLOCK } else { "" }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.size, if self.block { " " } else { "" }, self.note())
    }
}

/// The backings of `isa`: folios of `named` sizes, or of the usual ones. Folios of the smallest
/// block come twice, mapped by entries and by blocks. Why a named size is left out is said in
/// `lacking`.
pub(crate) fn backings(isa: Isa, named: &[Size], lacking: &mut Vec<String>) -> Vec<Backing> {
    let (page, block) = (isa.nearest(Size(1)), isa.block());
    let usual = [page, Size(16 << 10), Size(64 << 10), Size(2 << 20), block];
    let fits = |size: &Size| (page..=block).contains(size);
    let mut sizes: Vec<Size> = match named.is_empty() {
        true => usual.into_iter().filter(fits).collect(),
        false => named.iter().copied().filter(fits).collect(),
    };
    for size in named.iter().filter(|size| !fits(size)) {
        lacking.push(format!(
            "{} maps folios of {page} to {block} by one level of tables: {size} is left out.",
            isa.name()
        ));
    }
    sizes.sort();
    sizes.dedup();
    let both = |size: Size| {
        let entries = Backing { size, block: false };
        let blocks = (size == block).then_some(Backing { size, block: true });
        [Some(entries), blocks].into_iter().flatten()
    };
    sizes.into_iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(isa: Isa, named: &[Size]) -> (Vec<String>, Vec<String>) {
        let mut lacking = Vec::new();
        let all = backings(isa, named, &mut lacking);
        (all.iter().map(Backing::to_string).collect(), lacking)
    }

    #[test]
    fn c5_each_format_has_its_page_its_blocks_and_what_lies_between() {
        assert_eq!(names(Isa::X86_64, &[]).0, ["4K", "16K", "64K", "2M", "2M block"]);
        assert_eq!(names(Isa::Arm16k, &[]).0, ["16K", "64K", "2M", "32M", "32M block"]);
        assert_eq!(names(Isa::Sv48, &[Size(64 << 10)]).0, ["64K"]);
    }

    #[test]
    fn c5_a_named_size_that_the_format_has_not_is_left_out_with_a_sentence() {
        let (all, lacking) = names(Isa::Arm16k, &[Size(4096), Size(64 << 10), Size(1 << 30)]);
        assert_eq!((all.len(), lacking.len()), (1, 2));
        assert!(lacking[0].contains("16K to 32M") && lacking[0].contains("4K is left out"));
    }

    #[test]
    fn c5_an_entry_maps_a_page_or_a_block() {
        let size = Size(2 << 20);
        assert_eq!(Backing { size, block: false }.entry_bytes(4096), 4096);
        assert_eq!(Backing { size, block: true }.entry_bytes(4096), 2 << 20);
    }
}
