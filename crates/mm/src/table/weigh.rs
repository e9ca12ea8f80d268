//! How much a tree has, from what its tables count.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::walk::Step;
use super::{Tables, What};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// How many pages have an entry: mapped, or marked. A table of pages says so itself, so that
    /// this is one look for each table, and not one for each run.
    pub(crate) fn weigh(&self) -> u64 {
        let mut pages = 0;
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.each(all, |locked, part| -> Step<()> {
            if locked.level().is_last() {
                pages += locked.present();
                return Step::To(part.end);
            }
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Absent => {}
                    What::Leaf { .. } | What::Marker(_) => pages += end.offset_from(at),
                }
                at = end;
            }
            Step::To(at)
        });
        pages
    }
}
