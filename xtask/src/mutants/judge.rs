//! One mutant before the suites: the cheapest tests first, up to the first that notices.

use std::time::Instant;

use super::build::Build;
use super::draw::Mutant;
use super::process::End;
use super::suites::{Suite, Test, chosen};

/// The fate of a mutant.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fate {
    /// A test of this suite noticed it.
    Noticed {
        /// The suite's index.
        suite: usize,
        /// The test, or how the process ended.
        by: String,
    },
    /// All tests that reach it passed: how many.
    Survived(usize),
    /// It is known to change nothing.
    Equivalent,
}

/// How long the first tests that run in one process took together without a mutant, and how much
/// longer the next ones: most mutants are noticed by a few short tests.
const FIRST_SECONDS: f64 = 0.5;
const GROWTH: f64 = 3.0;

/// How long tests may take on a CPU: as long as without a mutant times this, and some seconds more.
const SLOWER: f64 = 10.0;
const SECONDS_MORE: f64 = 10.0;

/// Judges mutant `number`. The tests are in any order.
///
/// # Errors
/// A program cannot be started.
pub(crate) fn judge(
    number: usize,
    mutant: &Mutant,
    suites: &[Suite],
    tests: &[Test],
) -> Result<Fate, String> {
    let mut asked = 0;
    for group in groups(number, mutant, suites, tests) {
        let suite = group[0].suite;
        let names: Vec<&str> = group.iter().map(|test| test.name.as_str()).collect();
        let seconds = group.iter().map(|test| test.seconds).sum::<f64>() * SLOWER + SECONDS_MORE;
        let (name, value) = chosen(number);
        let (end, _) = suites[suite].run(&names, (name, &value), seconds)?;
        asked += group.len();
        let by = match end {
            End::Passed => continue,
            End::Failed(by) => by,
            End::TookTooLong(last) => format!("too much time, after: {last}"),
        };
        return Ok(Fate::Noticed { suite, by });
    }
    Ok(Fate::Survived(asked))
}

/// The tests that reach a mutant, in the order in which they are asked, as they share a process.
pub(crate) fn groups<'a>(
    number: usize,
    mutant: &Mutant,
    suites: &[Suite],
    tests: &'a [Test],
) -> Vec<Vec<&'a Test>> {
    let room = format!("{}::", mutant.room);
    let is_model = |test: &Test| matches!(suites[test.suite].build, Build::Loom | Build::Shuttle);
    let mut fitting: Vec<&Test> = tests
        .iter()
        .filter(|test| test.reaches.contains(&number))
        .filter(|test| !mutant.site.operator.is_for_models() || is_model(test))
        .collect();
    fitting.sort_by(|one, other| {
        let key = |test: &Test| (test.suite, !test.name.starts_with(&room));
        key(one).cmp(&key(other)).then(one.seconds.total_cmp(&other.seconds))
    });
    let mut groups: Vec<Vec<&Test>> = Vec::new();
    let (mut most, mut sum) = (FIRST_SECONDS, 0.0);
    for test in fitting {
        let is_alone = suites[test.suite].build == Build::Simulator;
        let fits = |group: &Vec<&Test>| {
            group[0].suite == test.suite && !is_alone && sum + test.seconds <= most
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.push(test),
            None => {
                if groups.last().is_some_and(|group| group[0].suite == test.suite) {
                    most *= GROWTH;
                } else {
                    most = FIRST_SECONDS;
                }
                sum = 0.0;
                groups.push(vec![test]);
            }
        }
        sum += test.seconds;
    }
    groups
}

/// The time that is left before `end`, if there is an end.
pub(crate) fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}
