//! The cells: which formats, which backings, by which variant.

use super::task::Task;
use crate::bench::scene::Backing;
use crate::bench::sheet::{Key, LINUX, PAGES};
use crate::isa::Isa;
use crate::record::Case;
use crate::refused::Refused;
use crate::size::Size;

/// The library.
pub(super) const BY_RUNS: &str = "by-runs";
/// The baseline with a memory of one folio.
pub(super) const REMEMBERS: &str = "page-at-a-time, folio remembered";
/// Stands in the place of a format for the host's own kernel.
const HOST: &str = "this host";

pub(super) const K4: u64 = 4 << 10;
pub(super) const K16: u64 = 16 << 10;
pub(super) const K64: u64 = 64 << 10;
pub(super) const M2: u64 = 2 << 20;

/// The variant of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// The library, by runs.
    Runs,
    /// The baseline.
    Pages,
    /// The baseline that tries the folio of the page before first.
    Remembers,
    /// The host's kernel.
    Linux,
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Runs => BY_RUNS,
            By::Pages => PAGES,
            By::Remembers => REMEMBERS,
            By::Linux => LINUX,
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) by: By,
    /// The format; of the host's kernel x86-64, whose sizes it has.
    pub(super) isa: Isa,
    pub(super) backing: Backing,
}

impl Cell {
    /// The format's name, or the host.
    pub(super) fn format(self) -> String {
        if self.by == By::Linux { HOST.to_owned() } else { self.isa.name() }
    }

    pub(super) fn case(self, part: &str) -> Case {
        Case::new(part, Some(self.backing.size)).with(&self.format()).with(self.backing.note())
    }

    pub(super) fn key(self, part: &str, metric: (&str, &'static str)) -> Key {
        Key::new(&self.case(part), self.by.name(), metric)
    }

    /// The bytes that one entry maps.
    pub(super) fn entry_bytes(self) -> u64 {
        self.backing.entry_bytes(1 << self.isa.page_shift())
    }
}

/// Folios of `size` that entries map.
pub(super) fn entries(size: u64) -> Backing {
    Backing { size: Size(size), block: false }
}

/// The backings of `isa`: folios of `named` sizes, or of the usual ones. Folios of the smallest
/// block come twice, mapped by entries and by blocks. Sentences tell why named sizes are left out.
pub(super) fn backings(isa: Isa, named: &[Size]) -> (Vec<Backing>, Vec<String>) {
    let (page, block) = (isa.nearest(Size(1)), isa.block());
    let usual = [page, Size(K16), Size(K64), Size(M2), block];
    let fits = |size: &Size| (page..=block).contains(size);
    let all = if named.is_empty() { &usual[..] } else { named };
    let mut sizes: Vec<Size> = all.iter().copied().filter(fits).collect();
    sizes.sort();
    sizes.dedup();
    let both = |size: Size| {
        let blocks = (size == block).then_some(Backing { size, block: true });
        [Some(entries(size.bytes())), blocks].into_iter().flatten()
    };
    let lacking = named.iter().filter(|size| !fits(size)).map(|size| {
        let isa = isa.name();
        format!(
            "{isa} maps folios of {page} to {block} by one level of tables: {size} is left out."
        )
    });
    (sizes.into_iter().flat_map(both).collect(), lacking.collect())
}

/// The formats to measure, each once.
pub(super) fn isas(task: Task, named: &[Isa]) -> Vec<Isa> {
    let usual: &[Isa] = match task {
        Task::Fork => &[Isa::X86_64, Isa::Arm4k, Isa::Arm16k, Isa::Sv48],
        Task::Zap | Task::Protect => &[Isa::X86_64, Isa::Arm4k],
    };
    let mut isas = Vec::new();
    for isa in if named.is_empty() { usual } else { named } {
        if !isas.contains(isa) {
            isas.push(*isa);
        }
    }
    isas
}

/// Refuses a `region` that is no whole number of folios.
pub(super) fn whole(region: u64, backing: Backing) -> Result<(), Refused> {
    match region % backing.size.bytes() {
        0 => Ok(()),
        _ => {
            let (region, size) = (Size(region), backing.size);
            Err(Refused(format!("--region {region} is no whole number of folios of {size}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(isa: Isa, named: &[Size]) -> (Vec<String>, Vec<String>) {
        let (all, lacking) = backings(isa, named);
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
    fn c5_a_region_is_a_whole_number_of_folios() {
        let backing = Backing { size: Size(32 << 20), block: true };
        assert!(whole(64 << 20, backing).is_ok());
        assert!(whole(80 << 20, backing).unwrap_err().0.contains("folios of 32M"));
    }

    #[test]
    fn c5_a_format_that_is_named_twice_is_measured_once() {
        assert_eq!(isas(Task::Zap, &[Isa::Sv48, Isa::Sv48]), [Isa::Sv48]);
        assert_eq!(isas(Task::Fork, &[]).len(), 4);
    }
}
