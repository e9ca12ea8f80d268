//! The spaces that are searched for the pages that map folios, the likeliest first.

use arrayvec::ArrayVec;
use quire_arch::Arch;

use crate::base::AllSpaces;
use crate::limits::LEAVE_MOST;
use crate::space::Space;

/// How many spaces [`Known`] has.
const KNOWN: usize = 8;

/// One of the searches. Each looks for what those before it did not find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// In the spaces of the folios' homes: most are mapped there alone.
    Home,
    /// In the spaces where other folios were that had left their homes.
    Known,
    /// In all spaces, those of the homes as well: an embedder may not have found them by number.
    All,
}

impl Pass {
    pub(super) const EACH: [Self; 3] = [Self::Home, Self::Known, Self::All];

    /// Calls `see` with each space of this pass, if anything is sought.
    pub(super) fn visit<A: Arch, T>(
        self,
        spaces: &dyn AllSpaces<A>,
        sought: &[(T, u32)],
        known: &Known,
        see: &mut dyn FnMut(&Space<A>, u32),
    ) {
        let mut among = ArrayVec::<u32, LEAVE_MOST>::new();
        match self {
            _ if sought.is_empty() => {}
            Pass::All => return spaces.visit(&mut |space| see(space, space.number())),
            Pass::Known => among.extend(known.0.iter().copied()),
            Pass::Home => {
                for (_, home) in sought {
                    if !among.contains(home) {
                        among.push(*home);
                    }
                }
            }
        }
        if !among.is_empty() {
            spaces.visit_some(&among, &mut |space| {
                let own = space.number();
                if among.contains(&own) {
                    see(space, own);
                }
            });
        }
    }

    /// Whether this pass looks for a folio with `home` in the space `own`.
    pub(super) fn looks(self, home: u32, own: u32) -> bool {
        self != Pass::Home || home == own
    }
}

/// The folios of a batch that are looked for, and the space of each one's home.
pub(super) type Sought<T> = ArrayVec<(T, u32), LEAVE_MOST>;

/// The numbers of the spaces where folios were found last that had left their homes. Folios that
/// are neighbours in memory are often those of one space.
#[derive(Clone, Default)]
pub(super) struct Known(ArrayVec<u32, KNOWN>);

impl Known {
    pub(super) fn add(&mut self, number: u32) {
        if self.0.contains(&number) {
            return;
        }
        if self.0.is_full() {
            self.0.remove(0);
        }
        self.0.push(number);
    }
}
