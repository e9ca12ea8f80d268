//! Rates and survivors, for people.

use std::collections::BTreeMap;

use super::draw::Mutant;
use super::judge::Fate;
use super::records::Name;
use super::suites::Suite;

/// A mutant and what became of it.
pub(crate) type Judged<'a> = (&'a Mutant, &'a Fate);

/// How many of some mutants were noticed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Rate {
    pub(crate) drawn: usize,
    pub(crate) equivalent: usize,
    pub(crate) noticed: usize,
}

impl Rate {
    fn add(&mut self, fate: &Fate) {
        self.drawn += 1;
        self.equivalent += usize::from(*fate == Fate::Equivalent);
        self.noticed += usize::from(matches!(fate, Fate::Noticed { .. }));
    }

    /// Of those that change something, in percent; 100 if there are none.
    pub(crate) fn percent(self) -> usize {
        (self.noticed * 100).checked_div(self.drawn - self.equivalent).unwrap_or(100)
    }

    fn row(self, name: &str) -> String {
        let Self { drawn, equivalent, noticed } = self;
        format!("| {name} | {drawn} | {equivalent} | {noticed} | {} % |", self.percent())
    }
}

/// The rate of all.
pub(crate) fn total(judged: &[Judged<'_>]) -> Rate {
    let mut rate = Rate::default();
    judged.iter().for_each(|(_, fate)| rate.add(fate));
    rate
}

/// A table with a row for each name that `of` gives.
pub(crate) fn table(title: &str, judged: &[Judged<'_>], of: fn(&Mutant) -> String) -> String {
    let mut rates: BTreeMap<String, Rate> = BTreeMap::new();
    for (mutant, fate) in judged {
        rates.entry(of(mutant)).or_default().add(fate);
    }
    let mut lines = vec![
        format!("| {title} | drawn | equivalent | noticed | rate |"),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(rates.iter().map(|(name, rate)| rate.row(&format!("`{name}`"))));
    lines.push(total(judged).row("all"));
    lines.join("\n")
}

/// How many each suite noticed.
pub(crate) fn by_suite(judged: &[Judged<'_>], suites: &[Suite]) -> String {
    let mut counts = vec![0; suites.len()];
    for (_, fate) in judged {
        if let Fate::Noticed { suite, .. } = fate {
            counts[*suite] += 1;
        }
    }
    let named = suites.iter().zip(counts).filter(|(_, count)| *count > 0);
    let named: Vec<String> =
        named.map(|(suite, count)| format!("{} {count}", suite.name())).collect();
    format!("noticed by: {}", named.join(", "))
}

/// A mutant and a word about it, as a record that only lacks its argument.
pub(crate) fn shown(mutant: &Mutant, word: &str) -> String {
    format!("{}:{}: {word}\n{}", mutant.file, mutant.line, Name::of(mutant).block())
}

/// A word about a survivor: how many tests were asked.
pub(crate) fn passed(asked: usize) -> String {
    match asked {
        0 => "no test reaches it".to_owned(),
        count => format!("{count} tests that reach it pass"),
    }
}
