//! The memory of the search, beside a naive model with lists.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use proptest::prelude::*;
use quire_units::{FrameSpan, Pfn};

use super::{CHEAP, REFUSED, Search, WINDOW};
use crate::limits::GROUP_ORDER;

const FIRST: Pfn = Pfn::new(4 << GROUP_ORDER.get());

fn group(at: u64) -> Pfn {
    FIRST.add(at << GROUP_ORDER.get())
}

/// The same by plain lists.
#[derive(Default)]
struct Naive {
    next: u64,
    cheap: Vec<(u64, Pfn)>,
    refused: VecDeque<Pfn>,
}

impl Naive {
    /// The window, and the groups that were cheap, without those that are left out.
    fn advance(&mut self, all: u64) -> (Vec<Pfn>, Vec<(u64, Pfn)>) {
        let numbers = (0..WINDOW.min(all)).map(|ahead| (self.next + ahead) % all);
        let window: Vec<Pfn> = numbers.map(group).collect();
        self.next = (self.next + WINDOW.min(all)) % all;
        let shown = |group: &Pfn| !self.refused.contains(group);
        let cheap = self.cheap.iter().filter(|(_, group)| shown(group) && !window.contains(group));
        let cheap = cheap.copied().collect();
        (window.into_iter().filter(shown).collect(), cheap)
    }

    /// The groups whose cost is asked for, in that order. A group that was dearer than the
    /// cheapest is not asked again.
    fn choose(
        &mut self,
        (window, cheap): (Vec<Pfn>, Vec<(u64, Pfn)>),
        costs: &BTreeMap<Pfn, u64>,
    ) -> Vec<Pfn> {
        let mut asked = window;
        let mut known: Vec<(u64, Pfn)> =
            asked.iter().filter_map(|group| Some((*costs.get(group)?, *group))).collect();
        for (then, group) in cheap {
            if known.iter().all(|(cost, _)| then < *cost) {
                asked.push(group);
                known.extend(costs.get(&group).map(|cost| (*cost, group)));
            } else {
                known.push((then, group));
            }
        }
        known.sort();
        known.truncate(CHEAP);
        self.cheap = known;
        asked
    }

    fn refuse(&mut self, group: Pfn) {
        if self.refused.len() == REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back(group);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A group costs that much from now on, or can no longer be emptied.
    Cost(u64, Option<u64>),
    Search,
    Refuse(u64),
    Forgive,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..70, prop::option::of(0u64..40)).prop_map(|(at, cost)| Step::Cost(at, cost)),
        6 => Just(Step::Search),
        3 => (0u64..70).prop_map(Step::Refuse),
        1 => Just(Step::Forgive),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn e7_a_search_asks_for_the_window_and_for_those_that_may_be_cheaper(
        all in 1u64..70,
        first in prop::collection::vec(prop::option::of(0u64..40), 70),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let groups = FrameSpan::new(FIRST, all << GROUP_ORDER.get());
        let priced = first.into_iter().zip(0..).filter_map(|(cost, at)| Some((group(at), cost?)));
        let mut costs: BTreeMap<Pfn, u64> = priced.collect();
        let (mut search, mut naive) = (Search::new(), Naive::default());
        for step in steps {
            match step {
                Step::Cost(at, Some(cost)) => _ = costs.insert(group(at), cost),
                Step::Cost(at, None) => _ = costs.remove(&group(at)),
                Step::Refuse(at) => {
                    search.refuse(group(at));
                    naive.refuse(group(at));
                }
                Step::Forgive => {
                    search.forgive();
                    naive.refused.clear();
                }
                Step::Search => {
                    let (looks, expected) = (search.advance(groups), naive.advance(all));
                    let listed: Vec<Pfn> = looks.all().collect();
                    let cheap = expected.1.iter().map(|(_, group)| *group);
                    let both: Vec<Pfn> = expected.0.iter().copied().chain(cheap).collect();
                    prop_assert_eq!(listed, both);
                    let mut asked = Vec::new();
                    search.cheap = looks.cheapest(&mut |group| {
                        asked.push(group);
                        costs.get(&group).copied()
                    });
                    prop_assert_eq!(asked, naive.choose(expected, &costs));
                    prop_assert_eq!(&search.cheap[..], &naive.cheap[..]);
                }
            }
        }
    }
}
