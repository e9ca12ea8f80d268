//! A script: a setup and steps, as text one line each. Lines that begin with `#` are remarks.

use std::fmt;
use std::str::FromStr;

use super::setup::Setup;
use quire_script::Step;

/// A script that can be run, printed, kept, and run again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The world.
    pub setup: Setup,
    /// The steps.
    pub steps: Vec<Step>,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let told = |at: usize, error: String| format!("line {at}: {error}");
        let (at, first) = lines.next().ok_or("the script is empty")?;
        let setup = first.parse().map_err(|error| told(at, error))?;
        let steps = lines.map(|(at, line)| line.parse().map_err(|error| told(at, error)));
        Ok(Script { setup, steps: steps.collect::<Result<_, _>>()? })
    }
}
