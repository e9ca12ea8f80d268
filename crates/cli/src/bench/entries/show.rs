//! The figures of a run as plots: time for each base page, so that all backings can be compared.

use clap::ValueEnum;

use super::backing::BLOCK;
use super::own::{EXIT, FIRST, Task};
use super::plan::HOST;
use crate::bench::clear::PAGES;
use crate::isa::Isa;
use crate::plot::Bar;
use crate::record::{Case, Record, Run};
use crate::size::Size;

/// One plot: bars beside each other, in groups.
pub(crate) struct Plot {
    /// What it shows.
    pub(crate) caption: String,
    /// The parts that each bar is stacked from.
    pub(crate) parts: &'static [&'static str],
    /// A group for each backing, a bar for each variant.
    pub(crate) groups: Vec<(String, Vec<Bar>)>,
}

/// A plot for each format, and for the host's kernel.
pub(crate) fn plots(run: &Run) -> Vec<Plot> {
    let Some(task) = Task::value_variants().iter().find(|task| task.name() == run.bench) else {
        return Vec::new();
    };
    // A later fork is no part of what one fork costs from begin to end.
    let parts: &[&str] = if *task == Task::Fork { &[FIRST, EXIT] } else { task.parts() };
    let figures: Vec<(Case, &Record)> = run
        .records
        .iter()
        .filter(|r| r.metric == "per-entry")
        .map(|record| (record.case(), record))
        .collect();
    let mut formats: Vec<String> = Vec::new();
    for (case, _) in &figures {
        let format = format_of(case).to_owned();
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    let plot = |format: &String| {
        let own: Vec<&(Case, &Record)> =
            figures.iter().filter(|(case, _)| format_of(case) == format).collect();
        Plot { caption: format.clone(), parts, groups: groups(format, parts, &own) }
    };
    formats.iter().map(plot).collect()
}

fn format_of(case: &Case) -> &str {
    case.notes.split(", ").next().unwrap_or("")
}

fn groups(format: &str, parts: &[&str], figures: &[&(Case, &Record)]) -> Vec<(String, Vec<Bar>)> {
    let mut backings: Vec<(Size, bool)> = figures.iter().filter_map(|f| backing_of(&f.0)).collect();
    backings.sort();
    backings.dedup();
    let group = |(size, block): &(Size, bool)| {
        let here: Vec<&&(Case, &Record)> =
            figures.iter().filter(|f| backing_of(&f.0) == Some((*size, *block))).collect();
        let mut variants: Vec<&str> = here.iter().map(|f| f.1.variant.as_str()).collect();
        variants.dedup();
        let pages = if *block { size.bytes() / page(format) } else { 1 };
        let bar = |variant: &&str| {
            let ns = |part: &str| {
                let found = here.iter().find(|f| f.0.form == part && f.1.variant == *variant);
                found.map_or(0.0, |f| f.1.median / pages as f64)
            };
            let parts = parts.iter().enumerate().map(|(at, part)| (ns(part), at)).collect();
            // Its whole name is wider than a bar.
            let name = if *variant == PAGES { "pages" } else { variant };
            Bar { name: name.to_owned(), parts }
        };
        let name = if *block { format!("{size} {BLOCK}") } else { size.to_string() };
        (name, variants.iter().map(bar).collect())
    };
    backings.iter().map(group).collect()
}

fn backing_of(case: &Case) -> Option<(Size, bool)> {
    Some((case.size?, case.notes.split(", ").any(|note| note == BLOCK)))
}

/// Bytes of a base page of `format`.
fn page(format: &str) -> u64 {
    let isa = Isa::value_variants().iter().find(|isa| isa.name() == format);
    debug_assert!(isa.is_some() || format == HOST);
    isa.map_or(4096, |isa| 1 << isa.page_shift())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::empty_run;
    use crate::host::Host;
    use crate::stats::Summary;

    #[test]
    fn c5_plots_show_each_base_page_so_that_blocks_are_divided_by_their_pages() {
        let mut run = empty_run("fork", &Host::new(std::path::Path::new("/nonexistent")));
        for (part, note, variant, ns) in [
            (FIRST, "arm64_16k", "by-runs", 3.0),
            (EXIT, "arm64_16k", "by-runs", 1.0),
            (FIRST, "arm64_16k, block", "by-runs", 2048.0),
            (FIRST, "this host, thp 2048kB=madvise", "linux", 30.0),
        ] {
            let case = Case::new(part, Some(Size(32 << 20))).with(note);
            let summary = Summary::of(&[ns]).unwrap();
            run.records.push(Record::new("fork", &case, variant, ("per-entry", "ns"), summary));
        }
        let plots = plots(&run);
        let captions: Vec<&str> = plots.iter().map(|plot| plot.caption.as_str()).collect();
        assert_eq!(captions, ["arm64_16k", "this host"]);
        let [(entries, bars), (block, blocks)] = &plots[0].groups[..] else { panic!("two groups") };
        assert_eq!((entries.as_str(), block.as_str()), ("32M", "32M block"));
        assert_eq!(bars[0].parts, [(3.0, 0), (1.0, 1)]);
        assert_eq!(blocks[0].parts, [(1.0, 0), (0.0, 1)]);
    }
}
