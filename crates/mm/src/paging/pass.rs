//! The spaces that are searched for the pages that map folios, the likeliest first.

use arrayvec::ArrayVec;

use crate::base::AllSpaces;
use crate::space::Space;

/// How many spaces [`Known`] has.
const KNOWN: usize = 8;

/// One of the searches. A folio is looked for in its home by the first, and elsewhere by the
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// In the spaces of the folios' homes: most are mapped there alone.
    Home,
    /// In the spaces where other folios were that had left their homes.
    Known,
    /// In all spaces.
    All,
}

impl Pass {
    pub(super) const EACH: [Self; 3] = [Self::Home, Self::Known, Self::All];

    /// Calls `see` with each space of this pass, for folios with `homes`.
    pub(super) fn visit<A>(
        self,
        spaces: &dyn AllSpaces<A>,
        homes: &[u32],
        known: &Known,
        see: &mut dyn FnMut(&Space<A>, u32),
    ) where
        A: quire_arch::Arch,
    {
        let among = match self {
            Pass::Home => homes,
            Pass::Known => &known.0,
            Pass::All => return spaces.visit(&mut |space| see(space, space.number())),
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
        (home == own) == (self == Pass::Home)
    }
}

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
