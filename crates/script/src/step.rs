//! One step of a script, as data and as a line of text.
//!
//! ```text
//!   1 0 write 17 ! slow 12
//!   │ │ │     │  └─ a fault that strikes during this step, and a number that says when
//!   │ │ │     └─ arguments, as the verb says
//!   │ │ └─ the verb
//!   │ └─ which process
//!   └─ on which CPU
//! ```

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::verb::{ARGS, Verb};

/// A fault that strikes during a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// The n-th allocation fails.
    Alloc,
    /// The n-th copy meets memory that has lost its content.
    Copy,
    /// The n-th transfer of a disk fails.
    Fail,
    /// The n-th transfer of a disk ends half way, and fails.
    Short,
    /// Transfers that disks begin end only n steps later.
    Slow,
    /// Other CPUs touch their memory while the step is between two stores to page tables, or has
    /// asked for a flush and not got it yet; n is the seed of what they do.
    Race,
}

impl Fault {
    /// All but none.
    pub const ALL: &'static [Fault] =
        &[Fault::Alloc, Fault::Copy, Fault::Fail, Fault::Short, Fault::Slow, Fault::Race];

    /// Its name in scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::Alloc => "alloc",
            Fault::Copy => "copy",
            Fault::Fail => "fail",
            Fault::Short => "short",
            Fault::Slow => "slow",
            Fault::Race => "race",
        }
    }
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// On which CPU, modulo how many there are.
    pub cpu: u32,
    /// By which process, modulo how many there are.
    pub process: u32,
    /// The verb.
    pub verb: Verb,
    /// Its arguments; unused ones are 0.
    pub args: [u32; ARGS],
    /// The fault.
    pub fault: Fault,
    /// When, or how.
    pub nth: u32,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.cpu, self.process, self.verb)?;
        for arg in &self.args[..self.verb.args().len()] {
            write!(f, " {arg}")?;
        }
        match self.fault {
            Fault::None => Ok(()),
            fault => write!(f, " ! {} {}", fault.name(), self.nth),
        }
    }
}

fn number(text: Option<&str>, what: &str) -> Result<u32, String> {
    let text = text.ok_or_else(|| format!("{what} is missing"))?;
    text.parse().map_err(|_| format!("{what} is a number, not {text:?}"))
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (call, fault) = match line.split_once('!') {
            Some((call, fault)) => (call, Some(fault)),
            None => (line, None),
        };
        let mut words = call.split_whitespace();
        let cpu = number(words.next(), "the CPU")?;
        let process = number(words.next(), "the process")?;
        let verb: Verb = words.next().ok_or("the verb is missing")?.parse()?;
        let mut args = [0; ARGS];
        for (at, arg) in args.iter_mut().enumerate().take(verb.args().len()) {
            *arg = number(words.next(), &format!("argument {} of {verb}", at + 1))?;
        }
        if let Some(more) = words.next() {
            return Err(format!("{verb} has no argument {more:?}"));
        }
        let (fault, nth) = fault.map_or(Ok((Fault::None, 0)), parse_fault)?;
        Ok(Step { cpu, process, verb, args, fault, nth })
    }
}

fn parse_fault(text: &str) -> Result<(Fault, u32), String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("the fault is missing")?;
    let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
    let fault = *fault.ok_or_else(|| format!("there is no fault {name:?}"))?;
    let nth = number(words.next(), "the number of the fault")?;
    words.next().map_or(Ok((fault, nth)), |more| Err(format!("{name} is followed by {more:?}")))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_step_is_read_as_it_was_written() {
        for (at, &verb) in Verb::ALL.iter().enumerate() {
            let mut args = [0; ARGS];
            (0..verb.args().len()).for_each(|arg| args[arg] = (7 * arg + at) as u32);
            let all = Fault::ALL.iter().copied().chain([Fault::None]);
            for fault in all {
                let nth = if fault == Fault::None { 0 } else { 3 };
                let step = Step { cpu: 1, process: 2, verb, args, fault, nth };
                assert_eq!(step.to_string().parse(), Ok(step));
            }
        }
    }

    #[test]
    fn a_line_that_is_no_step_is_refused_in_one_sentence() {
        for line in [
            "",
            "x",
            "1",
            "1 1",
            "1 1 fly",
            "1 1 read",
            "1 1 read x",
            "1 1 read 1 2",
            "1 1 read 1 !",
            "1 1 read 1 ! rain 1",
            "1 1 read 1 ! fail",
            "1 1 read 1 ! fail 1 2",
        ] {
            let error = line.parse::<Step>().unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{line:?}: {error}");
        }
    }
}
