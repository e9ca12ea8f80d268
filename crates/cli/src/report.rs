//! `report`: one page with the plots of the last runs, in one file that needs no other.

use std::fmt::Write;
use std::fs;
use std::io::{self, Write as _};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::args::ReportArgs;
use crate::bench::entries::{self, Task};
use crate::bench::{clear, exec, fault, pageout, read, sweep};
use crate::headline;
use crate::plot::{self, Bar, Line, Weight};
use crate::record::{self, Case, Record, Run};
use crate::size::Size;
use crate::{Refused, table};

const STYLE: &str = include_str!("report.css");

/// Writes the page and tells where.
///
/// # Errors
/// [`Refused`] without any run; else what prevents reading or writing.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let mut runs = Vec::new();
    let entries = Task::value_variants().iter().map(|task| task.name());
    let own = [clear::NAME, sweep::NAME, fault::NAME, read::NAME];
    for bench in own.into_iter().chain(entries).chain([exec::NAME, pageout::NAME]) {
        runs.extend(record::last(bench)?);
    }
    if runs.is_empty() {
        let folder = record::state_folder()?;
        return Err(Refused(format!(
            "there is no run to report in {}; `quire bench clear` makes one",
            folder.display()
        ))
        .into());
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => record::state_folder()?.join("report.html"),
    };
    fs::write(&path, page(&runs)?).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = io::stdout().lock();
    if !args.summary {
        return Ok(writeln!(out, "{}", path.display())?);
    }
    writeln!(out, "{}\n{RATIO}", headline::table(&runs))?;
    let mut left: Vec<&String> = runs.iter().flat_map(|run| &run.limits).collect();
    left.retain(|limit| limit.ends_with("left out."));
    left.dedup();
    for sentence in left {
        writeln!(out, "Left out: {}", sentence.trim_end_matches("; left out."))?;
    }
    Ok(writeln!(out, "All figures, settings and limits: {}", path.display())?)
}

const RATIO: &str = "Times are medians for one fault, entry or page. The ratio is to page-at-a-time; \
    of the cached file, to a bare copy.";

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub(crate) fn page(runs: &[Run]) -> Result<String> {
    let mut body = String::new();
    for run in runs {
        let (title, text, plots) = match run.bench.as_str() {
            clear::NAME => ("Clearing", CLEAR_TEXT, clear_plots(run)?),
            sweep::NAME => ("Units and checks", SWEEP_TEXT, String::new()),
            fault::NAME => ("Faults", FAULT_TEXT, fault_plots(run)?),
            read::NAME => ("Files", READ_TEXT, String::new()),
            "fork" => ("Fork", FORK_TEXT, entries_plots(run)?),
            exec::NAME => ("Text", EXEC_TEXT, String::new()),
            pageout::NAME => ("Paging out", PAGEOUT_TEXT, String::new()),
            "zap" => ("Unmap", ZAP_TEXT, entries_plots(run)?),
            _ => ("Protect", PROTECT_TEXT, entries_plots(run)?),
        };
        let _ = write!(body, "<section><h2>{title}</h2><p>{text}</p>");
        list(&mut body, "findings", "", &run.findings);
        body.push_str(&plots);
        tables(&mut body, run);
        facts(&mut body, run);
        body.push_str("</section>");
    }
    Ok(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Quire: measured</title><style>{STYLE}</style></head><body><main>\
         <header><h1>Quire, measured</h1><p>{INTRO}</p></header>{body}</main></body></html>\n"
    ))
}

const INTRO: &str = "Large-folio memory management works on runs, never on pages. \
    These are the last runs of its benches on one machine. All figures are medians over rounds in \
    which every variant was measured once, in shuffled order.";
const CLEAR_TEXT: &str = "How fast memory becomes zero, against the extent that the CPU is told \
    at once. <em>Chosen</em> is what Quire's calibration picked for each size, \
    <em>page-at-a-time</em> what it replaces.";
const SWEEP_TEXT: &str = "A large folio may be cleared as one extent or in units with a check for \
    waiting tasks after each. Which of the two costs, the check or the smaller extent?";
const FAULT_TEXT: &str = "What it costs until memory is there, per 4 KiB of it, so that folio \
    sizes can be compared; below the plots per folio.";

const READ_TEXT: &str = "What it costs to read a file that is in memory: through the cache, beside \
    a bare copy of the same frames, and what finding a page takes.";
const FORK_TEXT: &str = "What it costs to copy a space, and to end the copy, for each page of \
    populated memory. The host's kernel is another thing: it keeps accounts that Quire's hosted \
    figures have not, and enters and leaves the kernel.";
const ZAP_TEXT: &str = "What it costs to unmap populated memory and to free it, for each page. \
    The host's kernel does more for it.";
const PROTECT_TEXT: &str = "What it costs to take the right to write from populated memory and to \
    give it back, for each page. The host's kernel does more for it.";

const PAGEOUT_TEXT: &str = "What it costs to page anonymous memory out and to bring it back, for each \
    page.";

const EXEC_TEXT: &str = "What becomes of real programs' text under different ways to read it: \
    recorded first touches are replayed on the hosted machine. All figures are counts.";

/// One plot for each form of clearing.
fn clear_plots(run: &Run) -> Result<String> {
    let mut html = String::new();
    for (form, _) in clear::FORMS {
        let rates: Vec<&Record> =
            run.records.iter().filter(|r| r.metric == "rate" && r.case().form == form).collect();
        if rates.is_empty() {
            continue;
        }
        let lines = clear_lines(&rates);
        let what = match form {
            "cold" => "Cold: memory that is in no cache, extent after extent",
            _ => "Then-read: each extent is read right after; cleared bytes over the time of both",
        };
        let svg = plot::lines("GB/s", &lines)?;
        figure(&mut html, what, &svg, &plot::legend(&lines));
    }
    Ok(html)
}

/// The variants as lines, and the best raw one at each size as their limit.
fn clear_lines(rates: &[&Record]) -> Vec<Line> {
    let mut variants: Vec<&str> = Vec::new();
    for rate in rates {
        if !variants.contains(&rate.variant.as_str()) {
            variants.push(&rate.variant);
        }
    }
    let points = |of: &dyn Fn(&Record) -> bool| {
        let mut points: Vec<(Size, f64)> = rates
            .iter()
            .filter(|r| of(r))
            .filter_map(|r| Some((r.case().size?, r.median)))
            .collect();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points
    };
    let mut limit = points(&|r| r.variant.starts_with("raw-"));
    limit.dedup_by_key(|point| point.0);
    let line = |variant: &&str| {
        let weight = match *variant {
            clear::CHOSEN => Weight::Marked,
            clear::PAGES => Weight::Baseline,
            _ => Weight::Thin,
        };
        let own =
            |r: &Record| r.variant == **variant && !r.case().notes.starts_with(clear::LAST_FIRST);
        Line { name: (*variant).to_owned(), weight, points: points(&own) }
    };
    let mut lines: Vec<Line> = variants.iter().map(line).collect();
    let turned = points(&|r| r.case().notes.starts_with(clear::LAST_FIRST));
    if !turned.is_empty() {
        let name = format!("{}, {}", clear::PAGES, clear::LAST_FIRST);
        lines.push(Line { name, weight: Weight::Second, points: turned });
    }
    if !limit.is_empty() {
        lines.push(Line { name: "raw limit".to_owned(), weight: Weight::Limit, points: limit });
    }
    lines
}

/// One plot for each form of faulting: per size a stack for each variant.
fn fault_plots(run: &Run) -> Result<String> {
    let mut html = String::new();
    for (form, what) in
        [("demand", "On demand: one fault per folio"), ("populate", "Populated in one call")]
    {
        let of = |metric: &str| -> Vec<(Case, &Record)> {
            let all = run.records.iter().map(|r| (r.case(), r));
            all.filter(|(case, r)| case.form == form && r.metric == metric).collect()
        };
        let (clears, rests) = (of("clear"), of("rest"));
        let mut sizes: Vec<Size> = clears.iter().filter_map(|(case, _)| case.size).collect();
        sizes.sort();
        sizes.dedup();
        let group = |size: &Size| {
            let here = clears.iter().filter(|(case, _)| case.size == Some(*size));
            let bar = |(case, cleared): &(Case, &Record)| {
                let same = |(c, r): &&(Case, &Record)| c == case && r.variant == cleared.variant;
                let rest = rests.iter().find(same)?.1;
                let per_page = 4096.0 / size.bytes() as f64;
                let parts = vec![(cleared.median * per_page, 0), (rest.median * per_page, 1)];
                // Its whole name is wider than a bar.
                let name = if cleared.variant == clear::PAGES { "pages" } else { &cleared.variant };
                Some(Bar { name: name.to_owned(), parts })
            };
            (size.to_string(), here.filter_map(bar).collect::<Vec<_>>())
        };
        let groups: Vec<_> = sizes.iter().map(group).collect();
        if groups.iter().any(|(_, bars)| !bars.is_empty()) {
            let legend = ["clearing", "all else"];
            let legend =
                legend.iter().enumerate().map(|(at, n)| ((*n).to_owned(), plot::part_color(at)));
            let svg = plot::bars("ns per 4 KiB", &groups)?;
            figure(&mut html, what, &svg, &legend.collect::<Vec<_>>());
        }
    }
    Ok(html)
}

/// One plot for each format.
fn entries_plots(run: &Run) -> Result<String> {
    let mut html = String::new();
    for plot in entries::plots(run) {
        let legend = plot.parts.iter().enumerate();
        let legend = legend.map(|(at, part)| ((*part).to_owned(), plot::part_color(at)));
        let svg = plot::bars("ns per base page", &plot.groups)?;
        figure(&mut html, &plot.caption, &svg, &legend.collect::<Vec<_>>());
    }
    Ok(html)
}

fn figure(html: &mut String, caption: &str, svg: &str, legend: &[(String, String)]) {
    let _ = write!(
        html,
        "<figure><figcaption>{}</figcaption>{svg}<div class=\"legend\">",
        escape(caption)
    );
    for (name, color) in legend {
        let _ = write!(html, "<span><i style=\"background:{color}\"></i>{}</span>", escape(name));
    }
    html.push_str("</div></figure>");
}

/// The figures, folded away where there are plots of them.
fn tables(html: &mut String, run: &Run) {
    let open = if run.bench == clear::NAME { "" } else { " open" };
    let _ = write!(html, "<details{open}><summary>Figures</summary>");
    for (title, records) in table::groups(&run.records) {
        let grid = table::Grid::new(&records, run.bench == sweep::NAME);
        let _ = write!(html, "<h3>{}</h3><div class=\"wide\"><table><tr><th></th>", escape(&title));
        for column in &grid.columns {
            let _ = write!(html, "<th>{column}</th>");
        }
        html.push_str("</tr>");
        for (name, cells) in &grid.rows {
            let _ = write!(html, "<tr><td>{}</td>", escape(name));
            for cell in cells {
                let (value, spread) = cell.map_or(("–".to_owned(), String::new()), |r| {
                    (
                        table::value(r),
                        format!("{:.4} to {:.4} {}, n = {}", r.min, r.max, r.unit, r.n),
                    )
                });
                let _ = write!(html, "<td title=\"{}\">{}</td>", escape(&spread), escape(&value));
            }
            html.push_str("</tr>");
        }
        html.push_str("</table></div>");
    }
    html.push_str("</details>");
}

/// What one must know to judge the figures.
fn facts(html: &mut String, run: &Run) {
    html.push_str("<div class=\"facts\">");
    let mut machine = run.machine.lines();
    machine.push(format!("measured {} UTC", run.date));
    list(html, "", "Machine", &machine);
    list(html, "", "Settings", &run.settings);
    list(html, "", "Not in these figures, or to be known", &run.limits);
    html.push_str("</div>");
}

fn list(html: &mut String, class: &str, head: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = write!(html, "<div class=\"{class}\"><h3>{head}</h3><ul>");
    for sentence in sentences {
        let _ = write!(html, "<li>{}</li>", escape(sentence));
    }
    html.push_str("</ul></div>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::empty_run;
    use crate::host::Host;
    use crate::stats::Summary;
    use std::path::Path;

    fn run(bench: &str, records: &[(&str, u64, &str, &str, f64)]) -> Run {
        let mut run = empty_run(bench, &Host::new(Path::new("/nonexistent")));
        for (form, size, variant, metric, value) in records {
            let case = Case::new(form, Some(Size(*size)));
            let summary = Summary::of(&[*value]).unwrap();
            run.records.push(Record::new(bench, &case, variant, (metric, "ns"), summary));
        }
        run
    }

    #[test]
    fn the_raw_limit_is_the_best_raw_backend_at_each_size() {
        let run = run(
            "clear",
            &[
                ("cold", 4096, "raw-a", "rate", 25.0),
                ("cold", 8192, "raw-a", "rate", 44.0),
                ("cold", 4096, "raw-b", "rate", 27.0),
                ("cold", 8192, "raw-b", "rate", 40.0),
                ("cold", 4096, "chosen", "rate", 99.0),
            ],
        );
        let lines = clear_lines(&run.records.iter().collect::<Vec<_>>());
        let limit = lines.iter().find(|l| l.weight == Weight::Limit).unwrap();
        assert_eq!(limit.points, [(Size(4096), 27.0), (Size(8192), 44.0)]);
        let marked = lines.iter().find(|l| l.weight == Weight::Marked).unwrap();
        assert_eq!((marked.name.as_str(), marked.points.len()), ("chosen", 1));
    }

    #[test]
    fn the_page_is_one_file_that_needs_no_other_and_tells_what_the_figures_leave_out() {
        let mut clear = run("clear", &[("cold", 4096, "chosen", "rate", 25.0)]);
        clear.limits.push("a <b> & c".to_owned());
        let fault = run(
            "fault",
            &[("demand", 4096, "linux", "clear", 163.0), ("demand", 4096, "linux", "rest", 1214.0)],
        );
        let page = page(&[clear, fault]).unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("a &lt;b&gt; &amp; c"));
        assert!(page.contains("1377"));
        // Nothing is loaded from elsewhere.
        for word in ["<link", "<script", "src=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
