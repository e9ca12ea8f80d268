//! Mutants drawn by a seed: first a function, then one of the operators that fit it, then a place.
//! So large functions and frequent operators do not hide the others.

use std::collections::BTreeMap;

use super::functions::Function;
use super::operators::{Operator, Site};

/// A function with one slip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mutant {
    /// Its file, relative to the workspace.
    pub(crate) file: String,
    /// The line where the change begins, from 1.
    pub(crate) line: usize,
    /// The room of `mm`, or the crate.
    pub(crate) room: String,
    /// The function's name after that of its type.
    pub(crate) function: String,
    /// The change.
    pub(crate) site: Site,
}

/// The mutants of a seed, one after the other, without end but for a room that has no more. None
/// overlaps another, so that one program can have them all.
pub(crate) struct Draw<'a> {
    functions: Vec<&'a Function>,
    /// The text of each file, for the lines.
    texts: &'a dyn Fn(&str) -> &'a str,
    state: u64,
    taken: BTreeMap<&'a str, Vec<&'a Site>>,
}

/// After how many draws in vain all places count as taken.
const TRIES: usize = 10_000;

impl<'a> Draw<'a> {
    /// Those of `functions` that belong to `room`, or to any.
    pub(crate) fn new(
        functions: &'a [Function],
        room: Option<&str>,
        seed: u64,
        texts: &'a dyn Fn(&str) -> &'a str,
    ) -> Self {
        let is_in = |one: &&Function| room.is_none_or(|room| one.room == room);
        let functions = functions.iter().filter(is_in).collect();
        Self { functions, texts, state: seed, taken: BTreeMap::new() }
    }

    /// A number below `end`, by SplitMix64 (Steele, Lea and Flood, 2014): the same for ever.
    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % end as u64) as usize
    }
}

impl Iterator for Draw<'_> {
    type Item = Mutant;

    fn next(&mut self) -> Option<Mutant> {
        for _ in 0..TRIES {
            if self.functions.is_empty() {
                return None;
            }
            let index = self.below(self.functions.len());
            let function = self.functions[index];
            let mut operators: Vec<Operator> =
                function.sites.iter().map(|site| site.operator).collect();
            operators.sort();
            operators.dedup();
            let operator = operators[self.below(operators.len())];
            let fitting: Vec<&Site> =
                function.sites.iter().filter(|site| site.operator == operator).collect();
            let site = fitting[self.below(fitting.len())];
            let taken = self.taken.entry(&function.file).or_default();
            if taken.iter().any(|other| overlap(other, site)) {
                continue;
            }
            taken.push(site);
            let before = &(self.texts)(&function.file)[..site.range.start];
            return Some(Mutant {
                file: function.file.clone(),
                line: before.matches('\n').count() + 1,
                room: function.room.clone(),
                function: function.name.clone(),
                site: site.clone(),
            });
        }
        None
    }
}

fn overlap(one: &Site, other: &Site) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
}
