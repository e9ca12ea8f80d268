//! Results: one record for each figure, and the run that saves them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::cpu::Machine;
use crate::plot::Plot;
use crate::size::Size;

/// One figure; one line of `--format json`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Record {
    pub(crate) bench: String,
    /// The work that was measured: a [`Case`] as text.
    pub(crate) case: String,
    /// The way it was done: `chosen`, `page-at-a-time`, `raw-<backend>`, `linux`.
    pub(crate) variant: String,
    /// The kind of figure: `rate`, `cost`, `clear`, `rest`.
    pub(crate) metric: String,
    /// `GB/s` (1e9 bytes per second), `ns`, `ratio`, `count`.
    pub(crate) unit: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) n: usize,
}

/// The work that was measured, of which size, under which circumstances:
/// `demand 64K (2 threads, thp 64kB=always)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    /// The form: `cold`, `then-read`, `demand`, `populate`, …
    pub(crate) form: String,
    /// The size of the extent or folio, where there is one.
    pub(crate) size: Option<Size>,
    /// Circumstances that are not the default.
    pub(crate) notes: Vec<String>,
}

impl Case {
    /// A case without circumstances.
    pub(crate) fn new(form: &str, size: Option<Size>) -> Case {
        Case { form: form.to_owned(), size, notes: Vec::new() }
    }

    /// The case with one more circumstance; an empty note is none.
    pub(crate) fn with(mut self, note: &str) -> Case {
        self.notes.extend((!note.is_empty()).then(|| note.to_owned()));
        self
    }

    /// The case with the number of threads, where it is more than one.
    pub(crate) fn on_threads(self, threads: u32) -> Case {
        if threads == 1 { self } else { self.with(&format!("{threads} threads")) }
    }

    pub(crate) fn has(&self, note: &str) -> bool {
        self.notes.iter().any(|known| known == note)
    }

    /// The first note: the format, where a bench has several.
    pub(crate) fn format(&self) -> &str {
        self.notes.first().map_or("", String::as_str)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.form)?;
        if let Some(size) = self.size {
            write!(f, " {size}")?;
        }
        if self.notes.is_empty() { Ok(()) } else { write!(f, " ({})", self.notes.join(", ")) }
    }
}

/// A table of figures.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    /// Names, and in each column the place of a figure among the records of the run.
    pub(crate) rows: Vec<(String, Vec<Option<usize>>)>,
}

/// A row of the table that sums up all benches.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Headline {
    pub(crate) what: String,
    pub(crate) quire: String,
    /// Page-at-a-time, and the host's kernel.
    pub(crate) pages: Option<String>,
    pub(crate) linux: Option<String>,
    /// How many times as fast as page-at-a-time Quire is.
    pub(crate) ratio: Option<String>,
    /// The goal, and whether it is met.
    pub(crate) goal: Option<(String, bool)>,
}

/// One run of a bench with all that is needed to judge its figures later. Sentences are whole.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Run {
    pub(crate) bench: String,
    /// When it ended, UTC: `2026-01-31 23:59:59`.
    pub(crate) date: String,
    /// The heading in the report, and what stands below it.
    pub(crate) title: String,
    pub(crate) about: String,
    /// The machine it ran on.
    pub(crate) machine: Machine,
    /// Settings it ran under, and what they mean for the figures.
    pub(crate) settings: Vec<String>,
    /// Conclusions computed from the figures.
    pub(crate) findings: Vec<String>,
    /// Costs and circumstances that the figures leave out.
    pub(crate) limits: Vec<String>,
    /// Skipped measurements, each with its reason.
    pub(crate) skipped: Vec<String>,
    pub(crate) headlines: Vec<Headline>,
    pub(crate) tables: Vec<Table>,
    pub(crate) plots: Vec<Plot>,
    pub(crate) records: Vec<Record>,
}

impl Run {
    /// A run without figures.
    pub(crate) fn new(bench: &str, machine: Machine) -> Run {
        Run {
            bench: bench.to_owned(),
            date: now_utc(),
            title: String::new(),
            about: String::new(),
            machine,
            settings: Vec::new(),
            findings: Vec::new(),
            limits: Vec::new(),
            skipped: Vec::new(),
            headlines: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The sentences beside the figures, under their headings.
    pub(crate) fn sentences(&self) -> [(&'static str, Vec<String>); 4] {
        let mut machine = self.machine.lines();
        machine.push(format!("measured {} UTC", self.date));
        let limits = self.limits.iter().chain(&self.skipped).cloned().collect();
        [
            ("Findings", self.findings.clone()),
            ("Machine", machine),
            ("Settings", self.settings.clone()),
            ("Not in these figures, or to be known", limits),
        ]
    }
}

/// Saves `run` in the state folder and returns the file.
pub(crate) fn save(run: &Run) -> Result<PathBuf> {
    let folder = runs_folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let stamp: String = run.date.chars().filter(char::is_ascii_digit).collect();
    let path = folder.join(format!("{stamp}-{}.json", run.bench));
    // A reader never sees half a run: the name appears when the file is whole.
    let part = folder.join(format!(".{stamp}-{}.{}", run.bench, std::process::id()));
    let text = serde_json::to_string_pretty(run)?;
    fs::write(&part, text).with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The last run of each bench, in the order in which they were run. A file that is no run is
/// skipped.
pub(crate) fn last_runs() -> Result<Vec<Run>> {
    let folder = runs_folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", folder.display())),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let mut runs: Vec<Run> = Vec::new();
    for path in paths.iter().rev() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        // `20260131235959-clear.json`.
        let bench = name.split_once('-').and_then(|(_, rest)| rest.strip_suffix(".json"));
        if bench.is_none_or(|bench| runs.iter().any(|run| run.bench == bench)) {
            continue;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        runs.extend(serde_json::from_str::<Run>(&text));
    }
    runs.reverse();
    Ok(runs)
}

/// The state folder: `target/quire` of the workspace one is in, else `$XDG_STATE_HOME/quire`,
/// else `~/.local/state/quire`.
pub(crate) fn state_folder() -> Result<PathBuf> {
    let here = env::current_dir().context("the current folder is gone")?;
    if let Some(root) = here.ancestors().find(|dir| is_workspace(dir)) {
        return Ok(root.join("target/quire"));
    }
    if let Some(state) = env::var_os("XDG_STATE_HOME").filter(|s| Path::new(s).is_absolute()) {
        return Ok(PathBuf::from(state).join("quire"));
    }
    let home = env::var_os("HOME").context("neither XDG_STATE_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".local/state/quire"))
}

fn runs_folder() -> Result<PathBuf> {
    Ok(state_folder()?.join("runs"))
}

fn is_workspace(dir: &Path) -> bool {
    dir.join("Cargo.toml").is_file() && dir.join("crates/mm/Cargo.toml").is_file()
}

/// The time, UTC: `2026-01-31 23:59:59`.
pub(crate) fn now_utc() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Year, month and day of the day that is `days` after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last of its year; 400 such years,
/// an *era*, have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    // 0000-03-01 is 719,468 days before 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March: 31, 30, 31, 30, 31 days, over and over: 153 days for every five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(19_722), (2023, 12, 31));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }

    #[test]
    fn a_case_prints_its_form_size_and_notes() {
        let case = Case::new("demand", Some(Size(1 << 30))).on_threads(2).with("").with("thp on");
        assert_eq!(case.to_string(), "demand 1G (2 threads, thp on)");
        assert_eq!(Case::new("trap getppid", None).on_threads(1).to_string(), "trap getppid");
        assert!(case.has("thp on") && !case.has("thp") && case.format() == "2 threads");
    }

    #[test]
    fn a_record_is_one_json_line_with_the_agreed_names() {
        let words = ["clear", "cold 4K", "chosen", "rate", "GB/s"].map(str::to_owned);
        let [bench, case, variant, metric, unit] = words;
        let (median, min, max, n) = (2.0, 1.0, 3.0, 3);
        let record = Record { bench, case, variant, metric, unit, median, min, max, n };
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            concat!(
                r#"{"bench":"clear","case":"cold 4K","variant":"chosen","metric":"rate","#,
                r#""unit":"GB/s","median":2.0,"min":1.0,"max":3.0,"n":3}"#
            )
        );
    }
}
