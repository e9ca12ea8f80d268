//! docs/mutants.md: mutants that no test can notice, each with its argument.
//!
//! ````text
//!   ```mutant
//!   crates/mm/src/room/file.rs Type::function edge      file, function, operator
//!   - a < b                                             the text as it is
//!   + a <= b                                            the text that the mutant has
//!   ```
//!   The argument, up to the next record.
//! ````
//!
//! Blanks and line ends do not matter, so neither formatting nor a move within the function makes a
//! record stale. Any other change of that text does: then the argument must be thought again.

use super::draw::Mutant;
use super::functions::Function;
use super::operators::{Operator, Site};

/// The document.
pub(crate) const DOCUMENT: &str = "docs/mutants.md";

const FENCE: &str = "```";
const BEGIN: &str = "```mutant";

/// The name of a mutant that does not depend on its line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    /// File, function and operator.
    of: String,
    was: String,
    becomes: String,
}

impl Name {
    fn new(file: &str, function: &str, operator: Operator, site: &Site) -> Self {
        let of = format!("{file} {function} {operator}");
        Self { of, was: plain(&site.was), becomes: plain(&site.becomes) }
    }

    /// That of a mutant.
    pub(crate) fn of(mutant: &Mutant) -> Self {
        Self::new(&mutant.file, &mutant.function, mutant.site.operator, &mutant.site)
    }

    /// Its first line, and the texts before and after.
    pub(crate) fn parts(&self) -> (&str, &str, &str) {
        (&self.of, &self.was, &self.becomes)
    }

    /// As a record has it, in lines of the documents' width.
    pub(crate) fn block(&self) -> String {
        let mut lines = vec![BEGIN.to_owned(), self.of.clone()];
        lines.extend(wrapped("- ", &self.was));
        lines.extend(wrapped("+ ", &self.becomes));
        lines.push(FENCE.to_owned());
        lines.join("\n")
    }
}

/// A record: the name, its line, and whether an argument follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) name: Name,
    pub(crate) line: usize,
    pub(crate) is_argued: bool,
}

/// All records of the document.
pub(crate) fn read(document: &str) -> Vec<Record> {
    read_as(BEGIN, document)
}

/// All records of a document, whose first line is `begin`.
pub(crate) fn read_as(begin: &str, document: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut inside = false;
    for (at, line) in document.lines().enumerate() {
        let line = line.trim();
        let last = records.last_mut();
        match (line, inside, last) {
            (line, false, _) if line == begin => {
                inside = true;
                let name = Name { of: String::new(), was: String::new(), becomes: String::new() };
                records.push(Record { name, line: at + 1, is_argued: false });
            }
            (FENCE, true, _) => inside = false,
            (_, true, Some(record)) => {
                let name = &mut record.name;
                let (part, text) = match line.split_at_checked(1) {
                    Some(("-", rest)) => (&mut name.was, rest),
                    Some(("+", rest)) => (&mut name.becomes, rest),
                    _ => (&mut name.of, line),
                };
                *part = plain(&format!("{part} {text}"));
            }
            (text, false, Some(record)) => {
                record.is_argued |= !text.is_empty() && !text.starts_with('#');
            }
            _ => {}
        }
    }
    records
}

/// The findings about records: no mutant of `functions` has the name, or nothing is argued.
pub(crate) fn findings(records: &[Record], functions: &[Function]) -> Vec<String> {
    let known = |name: &Name| {
        let mut fitting = functions
            .iter()
            .filter(|one| name.of.starts_with(&format!("{} {} ", one.file, one.name)));
        fitting.any(|one| {
            one.sites
                .iter()
                .any(|site| *name == Name::new(&one.file, &one.name, site.operator, site))
        })
    };
    let mut found = Vec::new();
    for Record { name, line, is_argued } in records {
        if !known(name) {
            found.push(format!("{DOCUMENT}:{line}: stale: no such mutant of {}.", name.of));
        } else if !is_argued {
            found.push(format!("{DOCUMENT}:{line}: no argument for {}.", name.of));
        }
    }
    found
}

/// The words of a text, without its comments, one blank between them.
fn plain(text: &str) -> String {
    let code = |line: &'_ str| line.split("//").next().unwrap_or_default().to_owned();
    let lines: Vec<String> = text.lines().map(code).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

const WIDTH: usize = 100;

fn wrapped(begin: &str, text: &str) -> Vec<String> {
    let mut lines = vec![begin.trim_end().to_owned()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let last = lines.last_mut().expect("the list begins with one");
        if last.len() + 1 + word.len() > WIDTH {
            lines.push(format!("{begin}{word}"));
        } else {
            last.push(' ');
            last.push_str(word);
        }
    }
    lines
}
