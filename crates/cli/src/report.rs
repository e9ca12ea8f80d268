//! `report`: one page with the plots and tables of the last runs, in one file that needs no other,
//! and their main figures on one screen.

use std::fmt::Write;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::record::{self, Run};
use crate::refused::Refused;
use crate::table;

/// Options of `report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Where to write the page; otherwise beside the saved runs
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Print the main figures of all benches as one table, and what was left out
    #[arg(long)]
    summary: bool,
}

const STYLE: &str = include_str!("report.css");
const INTRO: &str = "Quire manages memory in large folios and works on runs of pages. \
    These are the last runs of its benches on one machine. All figures are medians over rounds in \
    which every variant was measured once, in shuffled order.";
const RATIO: &str = "Times are medians for one fault, table entry or page; rates are in GB/s. The \
    ratio is to\npage-at-a-time; for the cached file, to a bare copy.";

/// Writes the page and says where.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let runs = record::last_runs()?;
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
    writeln!(out, "{}\n{RATIO}", table::headlines(&runs))?;
    let mut skipped: Vec<&String> = runs.iter().flat_map(|run| &run.skipped).collect();
    skipped.sort();
    skipped.dedup();
    for sentence in skipped {
        writeln!(out, "Skipped: {}", sentence.replace("; left out.", "."))?;
    }
    Ok(writeln!(out, "All figures, settings and limits: {}", path.display())?)
}

/// The page; an error when a plot cannot be drawn.
fn page(runs: &[Run]) -> Result<String> {
    let mut body = String::new();
    for run in runs {
        let _ = write!(body, "<section><h2>{}</h2><p>{}</p>", run.title, run.about);
        let [(_, findings), facts @ ..] = run.sentences();
        list(&mut body, "findings", "", &findings);
        for plot in run.plots.iter().filter(|plot| !plot.is_empty()) {
            let (svg, legend) = plot.draw()?;
            figure(&mut body, &plot.caption, &svg, &legend);
        }
        tables(&mut body, run);
        body.push_str("<div class=\"facts\">");
        facts.iter().for_each(|(head, sentences)| list(&mut body, "", head, sentences));
        body.push_str("</div></section>");
    }
    Ok(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Quire: measured</title><style>{STYLE}</style></head><body><main>\
         <header><h1>Quire, measured</h1><p>{INTRO}</p></header>{body}</main></body></html>\n"
    ))
}

fn figure(html: &mut String, caption: &str, svg: &str, legend: &[(String, String)]) {
    let caption = escape(caption);
    let _ = write!(html, "<figure><figcaption>{caption}</figcaption>{svg}<div class=\"legend\">");
    for (name, color) in legend {
        let _ = write!(html, "<span><i style=\"background:{color}\"></i>{}</span>", escape(name));
    }
    html.push_str("</div></figure>");
}

/// The figures, folded away where lines show them all.
fn tables(html: &mut String, run: &Run) {
    html.push_str("<details open><summary>Figures</summary>");
    for table in &run.tables {
        let title = escape(&table.title);
        let _ = write!(html, "<h3>{title}</h3><div class=\"wide\"><table><tr><th></th>");
        for column in &table.columns {
            let _ = write!(html, "<th>{}</th>", escape(column));
        }
        html.push_str("</tr>");
        for (name, cells) in &table.rows {
            let _ = write!(html, "<tr><td>{}</td>", escape(name));
            for cell in cells {
                let record = cell.and_then(|at| run.records.get(at));
                let (value, spread) = record.map_or(("–".to_owned(), String::new()), |r| {
                    let spread = format!("{:.4} to {:.4} {}, n = {}", r.min, r.max, r.unit, r.n);
                    (table::value(&r.unit, r.median), spread)
                });
                let _ = write!(html, "<td title=\"{}\">{}</td>", escape(&spread), escape(&value));
            }
            html.push_str("</tr>");
        }
        html.push_str("</table></div>");
    }
    html.push_str("</details>");
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
    use crate::bench::sheet::{Key, Place, tests::empty};
    use crate::plot::{Bar, Plot};
    use crate::record::Case;
    use crate::size::Size;

    #[test]
    fn the_page_is_one_file_that_needs_no_other_and_tells_what_the_figures_leave_out() {
        let mut sheet = empty();
        let case = Case::new("demand", Some(Size(4096)));
        sheet.put(Key::new(&case, "a<b>", ("cost", "ns")), vec![163.0]);
        sheet.limit("a <b> & c");
        let place = |key: &Key| Place::by_size(key, "title", key.variant.clone());
        let mut run = sheet.finish(place, &[]);
        let bar = Bar { name: "linux".to_owned(), parts: vec![(163.0, 0), (1214.0, 1)] };
        let groups = vec![("4K".to_owned(), vec![bar])];
        run.plots = vec![
            Plot::bars("bars", "ns", &["clearing", "all else"], groups),
            Plot::lines("nothing", "ns", Vec::new()),
        ];
        let page = page(&[run]).unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
        for word in ["a &lt;b&gt; &amp; c", "1377", "<td>a&lt;b&gt;</td>", ">163 ns<", "all else"] {
            assert!(page.contains(word), "{word} in {page}");
        }
        // Nothing is loaded from elsewhere.
        for word in ["<link", "<script", "src=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
