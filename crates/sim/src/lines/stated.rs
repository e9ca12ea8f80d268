//! The lines that operations may share, with the reason for each, and the table of them.

use std::fmt::Write;

use super::Outcome;

/// Fields that operations share for one reason.
struct Reason {
    /// The beginnings of the operations' names; empty for all.
    of: &'static [&'static str],
    /// The beginnings of the fields' names.
    fields: &'static [&'static str],
    why: &'static str,
}

/// Less than a tenth of a line for each operation is not told.
const LEAST: f64 = 0.1;
/// The most lines for each operation that come from neighbouring slots.
const NEIGHBOURS: f64 = 0.3;

const REASONS: &[Reason] = &[
    Reason {
        of: &["map", "unmap", "protect", "discard"],
        fields: &["space.areas", "slot.lock of a area node", "words of a area node"],
        why: "The areas of a space are one tree with one writer, as in Linux (`mmap_lock`). Spaces \
              of their own share nothing.",
    },
    Reason {
        of: &["map", "unmap", "protect", "discard"],
        fields: &["slot.lock of a table", "slot.counts of a table", "words of a table"],
        why: "One upper table translates the neighbouring stretches: a change that links, empties \
              or looks for tables locks it. Eight of its entries share a line.",
    },
    Reason {
        of: &["touch"],
        fields: &["space.counters"],
        why: "A space counts its folios in four shards, and 64 CPUs run it. Only reports read \
              them.",
    },
    Reason {
        of: &["allocate and free 2M"],
        fields: &["phys.zone.lists", "slot."],
        why: "A CPU's cache has no blocks above 64K: these come from the zone, under its lock. To \
              clear such a block takes many times as long.",
    },
    Reason {
        of: &["read one page of a file", "show one page of a file"],
        fields: &["slot."],
        why: "All CPUs take a reference to one folio, or count a mapping of it.",
    },
    Reason {
        of: &["page out", "page in"],
        fields: &["swap.", "slot.", "cache.file.cached", "words of a index node", "files.balance"],
        why: "The swap device is one file: its clusters, the nodes of its index, and the counts of \
              its slots and pages belong to all. The device itself is shared, too.",
    },
    Reason {
        of: &["page in"],
        fields: &["phys.zone.lists"],
        why: "A folio that comes back is larger than a page, and not every CPU has one in its \
              cache.",
    },
    Reason {
        of: &[],
        fields: &["slot.", "words of a free frame", "words of a table"],
        why: "Frames pass from CPU to CPU through the zone, half a shelf at a time, and two slots \
              share a line: less than a third of a line for each operation.",
    },
];

impl Reason {
    fn explains(&self, outcome: &Outcome, field: &str, lines: f64) -> bool {
        let of = self.of.iter().any(|name| outcome.name.starts_with(name));
        let few = self.of.is_empty() && lines <= NEIGHBOURS;
        (of || few) && self.fields.iter().any(|name| field.starts_with(name))
    }
}

/// The fields that are worth telling, with the number of their reason, if there is one.
fn told(outcome: &Outcome) -> impl Iterator<Item = (&str, f64, Option<usize>)> {
    let lines = outcome.fields.iter().map(|(field, shared)| (field.as_str(), shared.written));
    lines.filter(|(_, lines)| *lines >= LEAST).map(|(field, lines)| {
        let reason = REASONS.iter().position(|reason| reason.explains(outcome, field, lines));
        (field, lines, reason)
    })
}

/// The lines that operations share without a reason; one sentence each.
#[must_use]
pub fn unstated(outcomes: &[Outcome]) -> Vec<String> {
    let of = |outcome: &Outcome| {
        let missing = told(outcome).filter(|(.., reason)| reason.is_none());
        let sentence = |(field, lines, _): (&str, f64, _)| {
            format!("{}: {lines:.1} lines of {field} have no reason", outcome.name)
        };
        missing.map(sentence).collect::<Vec<_>>()
    };
    outcomes.iter().flat_map(of).collect()
}

/// The table in docs/scaling.md.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| operation | lines written in common | only read | interrupts | fields and reasons |\n\
         |---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        let field = |(field, lines, reason): (&str, f64, Option<usize>)| {
            let number = reason.map_or_else(|| "?".to_owned(), |at| (at + 1).to_string());
            format!("`{field}` {lines:.1} ({number})")
        };
        let fields: Vec<String> = told(outcome).map(field).collect();
        let (all, interrupts) = (&outcome.all, outcome.interrupts);
        let (name, fields) = (outcome.name, fields.join(", "));
        let row =
            format!("{name} | {:.1} | {:.1} | {interrupts:.0} | {fields}", all.written, all.read);
        _ = writeln!(text, "| {row} |");
    }
    _ = writeln!(text);
    for (at, reason) in REASONS.iter().enumerate() {
        _ = writeln!(text, "{}. {}", at + 1, reason.why);
    }
    text
}
