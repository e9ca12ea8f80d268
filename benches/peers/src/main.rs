//! Quire beside other crates on the same work, one file for each comparison.
//!
//! ```text
//! quire-peers [--format table|json] [--rounds N] [NAME…]
//! ```
//!
//! All variants of a case run in each round, one after the other, so that a change of the host's
//! speed affects them alike; the figures are the median, minimum and maximum of the rounds. `NAME`
//! selects comparisons; the default is all of them.

mod buddy;
mod report;
mod tables;

use std::process::ExitCode;

use report::{Format, Report};

/// A comparison: its name, and the function that runs it.
type Comparison = (&'static str, fn(&mut Report));

const COMPARISONS: &[Comparison] = &[("buddy", buddy::compare), ("tables", tables::compare)];

/// With fewer rounds than this a median is meaningless.
const ROUNDS_MIN: usize = 15;

struct Options {
    format: Format,
    rounds: usize,
    names: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { format: Format::Table, rounds: 31, names: Vec::new() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--format" => {
                options.format = match words.next().as_deref() {
                    Some("table") => Format::Table,
                    Some("json") => Format::Json,
                    other => return Err(format!("--format is table or json, not {other:?}")),
                }
            }
            "--rounds" => {
                let given = words.next().and_then(|rounds| rounds.parse().ok());
                options.rounds = given
                    .filter(|rounds| *rounds >= ROUNDS_MIN)
                    .ok_or(format!("--rounds takes a number, {ROUNDS_MIN} or more"))?;
            }
            name if COMPARISONS.iter().any(|(known, _)| *known == name) => options.names.push(word),
            other => return Err(format!("there is no comparison or option {other:?}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::new(options.format, options.rounds);
    for (name, compare) in COMPARISONS {
        if options.names.is_empty() || options.names.iter().any(|wanted| wanted == name) {
            compare(&mut report);
        }
    }
    ExitCode::SUCCESS
}
