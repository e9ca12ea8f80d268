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
    pub(super) fn visit<A: Arch>(
        self,
        spaces: &dyn AllSpaces<A>,
        sought: Homes,
        known: &Known,
        see: &mut dyn FnMut(&Space<A>, u32),
    ) {
        let among = match self {
            _ if sought.0.is_empty() => return,
            Pass::All => return spaces.visit(&mut |space| see(space, space.number())),
            Pass::Known => &known.0[..],
            Pass::Home => &sought.0[..],
        };
        if !among.is_empty() {
            spaces.visit_some(among, &mut |space| {
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

/// The spaces of the homes of the folios that are looked for, each once.
#[derive(Default)]
pub(super) struct Homes(ArrayVec<u32, LEAVE_MOST>);

impl FromIterator<u32> for Homes {
    fn from_iter<I: IntoIterator<Item = u32>>(homes: I) -> Self {
        let mut all = Self::default();
        for home in homes {
            if !all.0.contains(&home) {
                all.0.push(home);
            }
        }
        all
    }
}

/// The numbers of the spaces where folios were found that had left their homes, the last one first.
/// Folios that are neighbours in memory are often those of one space.
#[derive(Clone, Default)]
pub(super) struct Known(ArrayVec<u32, KNOWN>);

impl Known {
    pub(super) fn add(&mut self, number: u32) {
        if self.0.first() == Some(&number) {
            return;
        }
        match self.0.iter().position(|known| *known == number) {
            Some(at) => drop(self.0.remove(at)),
            None => self.0.truncate(KNOWN - 1),
        }
        self.0.insert(0, number);
    }
}
