//! The findings of a run.

use std::fmt;

use quire::Stop;

/// The check that found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A call answered what it must not.
    Answer,
    /// A page held what it must not.
    Content,
    /// Another CPU saw, in the middle of a step, what was neither before it nor after.
    Race,
    /// The areas are not those that the calls have made.
    Areas,
    /// A walker of the library found its state broken.
    Walker,
    /// The machine's examiner found that real hardware might go wrong.
    Examiner,
    /// Memory did not come back.
    Leak,
    /// Nothing stands in the way, and yet it does not happen.
    Progress,
    /// The library panicked.
    Panic,
    /// An exact world is not as its model.
    Exact,
}

/// A finding, without its step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) what: String,
}

impl Wrong {
    pub(super) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    pub(super) fn unexpected(why: impl Into<Stop>) -> Self {
        Self::new(Kind::Answer, format!("unexpected: {}", why.into()))
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { kind: Kind::Exact, what }
    }
}

/// Nothing wrong, if this is so.
pub(super) fn ensure(holds: bool, what: &str, evidence: impl fmt::Debug) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(format!("expected {what}: {evidence:?}").into()) }
}

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// In which step, counted from 0; as many as there are if it was at the end.
    pub step: usize,
    /// The check that found it.
    pub kind: Kind,
    /// In words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {:?}: {}", self.step, self.kind, self.what)
    }
}

impl std::error::Error for Violation {}
