//! The output of a test on the console: lines of TAP (`ok 3 name`, `not ok 4 name`), or the
//! coloured words of `khugepaged`, which is older.

use std::collections::BTreeMap;

/// How one check went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Skipped, or it failed as its author expects.
    Skipped,
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    /// Its name, after the heading under which it stands.
    pub name: String,
    pub outcome: Outcome,
}

/// The results of a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Said {
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The number of checks it planned, if it said so.
    pub planned: usize,
    /// The exit status: 0 good, 1 failed, 4 skipped; 101, 124, 125 when the machine went wrong.
    pub status: u8,
    /// Why it gave up, or did nothing.
    pub reason: Option<String>,
}

/// The exit status of a program that has nothing to check here.
const SKIPPED: u8 = 4;

impl Said {
    /// Reads the console's lines.
    pub(super) fn read(lines: &[String], status: u8) -> Self {
        let mut said = Self { status, ..Self::default() };
        let mut heading = String::new();
        let is_tap = lines.iter().any(|line| line.starts_with("TAP version"));
        for line in lines {
            said.take(line, &mut heading, !is_tap);
        }
        // A program without checks counts as one.
        if said.checks.is_empty() && !is_tap && status != SKIPPED {
            said.planned = 1;
            let outcome = if status == 0 { Outcome::Passed } else { Outcome::Failed };
            said.checks.push(Check { name: "the exit status".to_owned(), outcome });
        }
        said
    }

    fn take(&mut self, line: &str, heading: &mut String, has_colours: bool) {
        if let Some(rest) = line.strip_prefix("Run test: ") {
            self.add(rest, Outcome::Passed);
        } else if let Some(rest) = line.strip_prefix("# [RUN] ") {
            rest.clone_into(heading);
        } else if let Some((name, rest)) = result(line, "ok ") {
            let outcome = if is_skip(rest) { Outcome::Skipped } else { Outcome::Passed };
            self.add(&under(heading, name), outcome);
        } else if let Some((name, _)) = result(line, "not ok ") {
            self.add(&under(heading, name), Outcome::Failed);
        } else if let Some(plan) = line.strip_prefix("1..") {
            let mut words = plan.splitn(2, " # SKIP ");
            self.planned = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            self.reason = words.next().map(str::to_owned).or(self.reason.take());
        } else if let Some(reason) = line.strip_prefix("Bail out!") {
            self.reason = Some(reason.trim().to_owned());
        } else if line.contains(": Assertion ") {
            self.reason = Some(line.to_owned());
        } else if has_colours {
            self.colour(line);
        }
    }

    /// The words that follow `Run test:`: red for failed, yellow for skipped.
    fn colour(&mut self, line: &str) {
        let Some(last) = self.checks.last_mut() else { return };
        if line.contains("\u{1b}[31m") {
            last.outcome = Outcome::Failed;
        } else if line.contains("\u{1b}[33m") && last.outcome == Outcome::Passed {
            last.outcome = Outcome::Skipped;
        }
    }

    fn add(&mut self, name: &str, outcome: Outcome) {
        self.checks.push(Check { name: name.to_owned(), outcome });
    }

    /// The number of checks with this outcome.
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.checks.iter().filter(|check| check.outcome == outcome).count()
    }

    /// The number of planned checks that did not run.
    pub(super) fn left(&self) -> usize {
        self.planned.saturating_sub(self.checks.len())
    }

    /// Whether every check passed here that passed in `other`, the same program elsewhere.
    pub(super) fn is_as_good_as(&self, other: &Self) -> bool {
        let ends_as_well = self.status == other.status || self.status == 0;
        ends_as_well && other.lost_in(self).is_empty()
    }

    /// The names of the checks that passed here and not in `other`.
    pub(super) fn lost_in<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let mut theirs: BTreeMap<&str, usize> = BTreeMap::new();
        for check in other.checks.iter().filter(|check| check.outcome == Outcome::Passed) {
            *theirs.entry(&check.name).or_default() += 1;
        }
        let ours = self.checks.iter().filter(|check| check.outcome == Outcome::Passed);
        let lost = ours.filter(|check| match theirs.get_mut(check.name.as_str()) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        });
        lost.map(|check| check.name.as_str()).collect()
    }
}

/// The name and all that follows the number in a line of TAP that begins with `word`.
fn result<'a>(line: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(word)?;
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    number.parse::<u32>().ok()?;
    // The names of some end in what they found, which differs from run to run.
    let name = rest.split(" # ").next().unwrap_or(rest);
    Some((name.trim_start_matches("# SKIP ").trim(), rest))
}

/// Whether a passed check says that it did nothing, or failed as expected.
fn is_skip(rest: &str) -> bool {
    rest.contains("# SKIP") || rest.contains("# XFAIL")
}

fn under(heading: &str, name: &str) -> String {
    if heading.is_empty() { name.to_owned() } else { format!("{heading}: {name}") }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Said};

    fn read(text: &str, status: u8) -> Said {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Said::read(&lines, status)
    }

    fn counts(said: &Said) -> [usize; 4] {
        let count = |outcome| said.count(outcome);
        [count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped), said.left()]
    }

    #[test]
    fn each_line_of_tap_counts_once_and_what_was_planned_and_not_done_is_left() {
        let said = read(
            "TAP version 13\n1..6\n# [RUN] fork\nok 1 No leak\nnot ok 2 No leak\n\
             ok 3 # SKIP no swap\nok 4 # XFAIL too slow\nokay\nok then\nBail out! no memory\n",
            1,
        );
        assert_eq!(counts(&said), [1, 1, 2, 2]);
        assert_eq!(said.checks[1].name, "fork: No leak");
        assert_eq!(said.reason.as_deref(), Some("no memory"));
    }

    #[test]
    fn a_program_without_tap_is_one_check_unless_it_has_headings() {
        assert_eq!(counts(&read("hello\n", 0)), [1, 0, 0, 0]);
        assert_eq!(counts(&read("hello\n", 134)), [0, 1, 0, 0]);
        assert_eq!(counts(&read("TAP version 13\n", 0)), [0, 0, 0, 0]);
        let said = read(
            "Run test: full (anon)\nAllocate... \u{1b}[32mOK\u{1b}[0m\nRun test: swap (anon)\n\
             Swap out... \u{1b}[31mFail\u{1b}[0m\nCheck... \u{1b}[33mSkip\u{1b}[0m\n\
             Run test: none\nFork... \u{1b}[33mSkip\u{1b}[0m\n",
            1,
        );
        assert_eq!(counts(&said), [1, 1, 1, 0]);
    }

    #[test]
    fn colours_of_a_program_with_tap_are_of_its_children_and_count_nothing() {
        let said =
            read("TAP version 13\n1..2\nok 1 a\nFork... \u{1b}[31mFail\u{1b}[0m\nok 2 b\n", 0);
        assert_eq!(counts(&said), [2, 0, 0, 0]);
    }

    #[test]
    fn one_that_has_nothing_to_do_here_is_skipped_with_its_reason() {
        let said = read("TAP version 13\n1..0 # SKIP no soft-dirty\n", 4);
        assert_eq!(counts(&said), [0, 0, 0, 0]);
        assert_eq!(said.reason.as_deref(), Some("no soft-dirty"));
    }

    #[test]
    fn a_case_that_passed_elsewhere_and_not_here_is_lost_and_each_time_counts() {
        let linux = read("1..3\nok 1 a\nok 2 a\nok 3 b\n", 0);
        let quire = read("1..3\nok 1 b\nok 2 a\nnot ok 3 a\n", 1);
        assert_eq!(linux.lost_in(&quire), ["a"]);
        assert!(!quire.is_as_good_as(&linux));
        assert!(linux.is_as_good_as(&quire));
        let halted = read("1..3\nok 1 a\nok 2 a\nok 3 b\n", 124);
        assert!(!halted.is_as_good_as(&linux));
    }
}
