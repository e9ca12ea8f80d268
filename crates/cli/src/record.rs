//! Results: one record per measured thing, and the run that saves them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::cpu::Machine;
use crate::size::Size;
use crate::stats::Summary;

/// One measured thing; one line of `--format json`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(crate) struct Record {
    /// The bench: `clear`, `sweep`, `fault`.
    pub(crate) bench: String,
    /// What was done: a [`Case`] as text.
    pub(crate) case: String,
    /// Who did it: `chosen`, `page-at-a-time`, `raw-<backend>`, `linux`.
    pub(crate) variant: String,
    /// What was measured: `rate`, `cost`, `clear`, `rest`.
    pub(crate) metric: String,
    /// In which unit: `GB/s` (1e9 bytes per second) or `ns`.
    pub(crate) unit: String,
    /// The middle value.
    pub(crate) median: f64,
    /// The smallest value.
    pub(crate) min: f64,
    /// The largest value.
    pub(crate) max: f64,
    /// How many values there were.
    pub(crate) n: usize,
}

impl Record {
    /// A record of `summary`.
    pub(crate) fn new(
        bench: &str,
        case: &Case,
        variant: &str,
        (metric, unit): (&str, &str),
        summary: Summary,
    ) -> Record {
        let Summary { median, min, max, n } = summary;
        Record {
            bench: bench.to_owned(),
            case: case.to_string(),
            variant: variant.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            median,
            min,
            max,
            n,
        }
    }

    /// The case, taken apart.
    pub(crate) fn case(&self) -> Case {
        Case::parse(&self.case)
    }
}

/// What was done, to how much, under which circumstances:
/// `demand 64K (2 threads, thp 64kB=always)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    /// The form: `cold`, `then-read`, `demand`, `populate`, …
    pub(crate) form: String,
    /// The size of the extent or folio, where there is one.
    pub(crate) size: Option<Size>,
    /// Circumstances that are not the default, separated by commas.
    pub(crate) notes: String,
}

impl Case {
    /// A case without circumstances.
    pub(crate) fn new(form: &str, size: Option<Size>) -> Case {
        Case { form: form.to_owned(), size, notes: String::new() }
    }

    /// The case with one more circumstance.
    pub(crate) fn with(mut self, note: &str) -> Case {
        if !note.is_empty() {
            self.notes += if self.notes.is_empty() { "" } else { ", " };
            self.notes += note;
        }
        self
    }

    /// The case with the number of threads, where it is more than one.
    pub(crate) fn on_threads(self, threads: u32) -> Case {
        if threads == 1 { self } else { self.with(&format!("{threads} threads")) }
    }

    fn parse(text: &str) -> Case {
        let (head, notes) = match text.strip_suffix(')').and_then(|t| t.split_once(" (")) {
            Some((head, notes)) => (head, notes),
            None => (text, ""),
        };
        let (form, size) = match head.rsplit_once(' ').map(|(f, s)| (f, s.parse())) {
            Some((form, Ok(size))) => (form, Some(size)),
            _ => (head, None),
        };
        Case { form: form.to_owned(), size, notes: notes.to_owned() }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.form)?;
        if let Some(size) = self.size {
            write!(f, " {size}")?;
        }
        if self.notes.is_empty() { Ok(()) } else { write!(f, " ({})", self.notes) }
    }
}

/// One run of a bench with all that is needed to judge its figures later.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Run {
    /// The bench.
    pub(crate) bench: String,
    /// When it ended, UTC: `2026-01-31 23:59:59`.
    pub(crate) date: String,
    /// The machine it ran on.
    pub(crate) machine: Machine,
    /// Settings it ran under, and what they mean for the figures; one sentence each.
    pub(crate) settings: Vec<String>,
    /// What the figures say, computed from them; one sentence each.
    pub(crate) findings: Vec<String>,
    /// What the figures leave out; one sentence each.
    pub(crate) limits: Vec<String>,
    /// The figures.
    pub(crate) records: Vec<Record>,
}

/// Saves `run` in the state folder and returns the file.
///
/// # Errors
/// The folder or the file cannot be written.
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

/// The last run of `bench`; `None` if there is none. A file that is no run is skipped.
///
/// # Errors
/// The folder exists and cannot be read.
pub(crate) fn last(bench: &str) -> Result<Option<Run>> {
    let folder = runs_folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", folder.display())),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or("");
        !name.starts_with('.') && name.ends_with(&format!("-{bench}.json"))
    });
    paths.sort();
    Ok(paths.iter().rev().find_map(|p| serde_json::from_str(&fs::read_to_string(p).ok()?).ok()))
}

/// The state folder: `target/quire` of the workspace one is in, else `$XDG_STATE_HOME/quire`,
/// else `~/.local/state/quire`.
///
/// # Errors
/// Neither is known.
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
    fn a_case_reads_back_from_its_print() {
        for case in [
            Case::new("cold", Some(Size(4096))),
            Case::new("demand", Some(Size(1 << 30))).on_threads(2).with("thp 64kB=always"),
            Case::new("trap syscall", None),
            Case::new("trap read fault", None).with("zero page"),
        ] {
            assert_eq!(Case::parse(&case.to_string()), case);
        }
    }

    #[test]
    fn a_record_is_one_json_line_with_the_agreed_names() {
        let summary = Summary::of(&[1.0, 2.0, 3.0]).unwrap();
        let case = Case::new("cold", Some(Size(4096)));
        let record = Record::new("clear", &case, "chosen", ("rate", "GB/s"), summary);
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            concat!(
                r#"{"bench":"clear","case":"cold 4K","variant":"chosen","metric":"rate","#,
                r#""unit":"GB/s","median":2.0,"min":1.0,"max":3.0,"n":3}"#
            )
        );
    }
}
