//! How much a tree has, from what its tables count.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Tables;
use super::visit::Step;

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// How many pages have an entry: mapped, or marked. A table of pages says so itself, so that
    /// this is one look for each table, and not one for each run.
    pub(crate) fn weigh(&self) -> u64 {
        let mut pages = 0;
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.each(all, |table, part| -> Step<()> {
            if table.level().is_last() {
                pages += table.present();
                return Step::Next;
            }
            table.runs(part, |found| {
                pages += found.pages.count();
                Step::Next
            })
        });
        pages
    }
}
