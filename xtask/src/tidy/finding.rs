//! The result of a rule.

use std::fmt;

/// One place that breaks one rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The file, relative to the workspace.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The rule's name, as in STYLE.md.
    pub rule: &'static str,
    /// The fault, as one sentence.
    pub sentence: String,
}

impl Finding {
    /// A finding at `path`:`line`.
    pub fn new(path: &str, line: usize, rule: &'static str, sentence: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, sentence: sentence.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.sentence)
    }
}
