//! All processes of a script, as the library visits them.

use quire::AllSpaces;
use quire::space::Space;

/// All processes that there are.
pub(super) struct Everyone<'a, A> {
    spaces: Vec<&'a Space<A>>,
    index: Index,
}

/// The spaces that a search by numbers visits: all that have them need not be among them.
#[derive(Clone, Copy)]
enum Index {
    All,
    Exact,
    /// Every second one of these.
    Half,
    /// All others, and these twice.
    More,
}

impl<'a, A> Everyone<'a, A> {
    /// These spaces; `draw` chooses what a search by numbers visits.
    pub(super) fn new(spaces: impl Iterator<Item = &'a Space<A>>, draw: u64) -> Self {
        let index = [Index::All, Index::Exact, Index::Half, Index::More][draw as usize % 4];
        Self { spaces: spaces.collect(), index }
    }

    /// The same with one more.
    pub(super) fn and(mut self, space: &'a Space<A>) -> Self {
        self.spaces.push(space);
        self
    }

    pub(super) fn list(&self) -> &[&'a Space<A>] {
        &self.spaces
    }
}

impl<A> AllSpaces<A> for Everyone<'_, A>
where
    A: quire::arch::Arch,
{
    fn visit(&self, see: &mut dyn FnMut(&Space<A>)) {
        self.spaces.iter().for_each(|space| see(space));
    }

    fn visit_some(&self, numbers: &[u32], see: &mut dyn FnMut(&Space<A>)) {
        let such = self.spaces.iter().filter(|space| numbers.contains(&space.number()));
        match self.index {
            Index::All => self.visit(see),
            Index::Exact => such.for_each(|space| see(space)),
            Index::Half => such.step_by(2).for_each(|space| see(space)),
            Index::More => {
                self.visit(see);
                such.for_each(|space| see(space));
            }
        }
    }
}
