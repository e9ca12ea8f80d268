//! The guard itself: borrow, change, give back.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::note::{self, Knob, Note};
use super::switches::{self, Switches};
use crate::host::Host;
use crate::host::keeper::{Keeper, quoted};
use crate::size::Size;

pub(super) const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";
/// The words by which only advised areas get folios of a size, or none does.
const ON: &str = "madvise";
const OFF: &str = "never";

/// The settings, borrowed: the guard changes them, and its end restores them.
pub(crate) struct Guard {
    host: Host,
    /// `None` where the settings cannot be changed.
    loan: Option<Arc<Mutex<Loan>>>,
}

/// Values to be written back.
struct Loan {
    host: Host,
    knobs: Vec<Knob>,
    /// Writes them back at once when this process is killed; `None` without a shell.
    keeper: Option<Keeper>,
    returned: bool,
}

impl Guard {
    /// Remembers the settings, first restoring what a killed run left behind.
    ///
    /// Where they cannot be changed, the guard leaves everything as it is; `says` gets the reason,
    /// and a sentence about restored settings.
    pub(crate) fn new(host: &Host, says: &mut Vec<String>) -> Guard {
        let guard = Guard::until_dropped(host, says);
        if let Some(loan) = &guard.loan
            && let Err(e) = restore_on_signals(Arc::downgrade(loan))
        {
            says.push(format!("An interrupt will leave the huge-page settings changed ({e})."));
        }
        guard
    }

    /// The same for a caller that ends by itself, and drops the guard, when a signal arrives.
    pub(crate) fn until_dropped(host: &Host, says: &mut Vec<String>) -> Guard {
        let loan = match borrow(host, says) {
            Ok(loan) => Some(Arc::new(Mutex::new(loan))),
            Err(why) => {
                says.push(why);
                None
            }
        };
        Guard { host: host.clone(), loan }
    }

    /// Whether the settings can be changed.
    pub(crate) fn holds(&self) -> bool {
        self.loan.is_some()
    }

    /// Lets advised areas have folios of `size` and of no other size above the base page.
    ///
    /// Without permission to change the settings this does nothing; see [`in_force`].
    pub(crate) fn only(&self, size: Size) -> io::Result<()> {
        let Some(loan) = &self.loan else { return Ok(()) };
        let loan = lock(loan);
        let wanted = folder_of(size);
        let sizes: Vec<&Knob> =
            loan.knobs.iter().filter(|k| k.path.contains("hugepages-")).collect();
        for knob in &sizes {
            let on = knob.path.starts_with(&wanted);
            write_word(&self.host, &knob.path, if on { ON } else { OFF })?;
        }
        if sizes.is_empty() {
            // Before 6.8 there is one switch, for the one size there is.
            write_word(&self.host, &format!("{FOLDER}/enabled"), ON)?;
        }
        // Direct compaction, so that a folio is found or its lack is final.
        write_word(&self.host, &format!("{FOLDER}/defrag"), ON)
    }

    /// Sets all switches; a size that `switches` does not name gets no folios.
    ///
    /// Without permission to change the settings this does nothing.
    pub(crate) fn put(&self, switches: &Switches) -> io::Result<()> {
        let Some(loan) = &self.loan else { return Ok(()) };
        let loan = lock(loan);
        for knob in &loan.knobs {
            let name = knob.path.strip_prefix(FOLDER).unwrap_or_default();
            if let Some(word) = switches.word(name) {
                write_word(&self.host, &knob.path, word)?;
            }
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(loan) = &self.loan {
            lock(loan).give_back();
        }
    }
}

impl Loan {
    /// Writes every value back; the note goes when all of them are.
    fn give_back(&mut self) {
        if self.returned {
            return;
        }
        self.returned = true;
        match restore(&self.host, &self.knobs) {
            Ok(()) => note::remove(&self.host),
            Err(e) => eprintln!("quire: the huge-page settings could not be restored: {e}"),
        }
        // It has ended before another run may change them.
        drop(self.keeper.take());
    }
}

/// The settings that decide whether an area gets folios of `size`, for people.
pub(crate) fn in_force(host: &Host, size: Size) -> String {
    let own = format!("{}/enabled", folder_of(size));
    let mut parts = Vec::new();
    match word(host, &own) {
        Some(word) if word != "inherit" => parts.push(format!("{}kB={word}", size.bytes() >> 10)),
        found => {
            let name = if found.is_some() { "inherit:" } else { "" };
            let word = word(host, &format!("{FOLDER}/enabled"));
            parts.push(format!("{name}enabled={}", word.as_deref().unwrap_or("none")));
        }
    }
    if let Some(word) = word(host, &format!("{FOLDER}/defrag")) {
        parts.push(format!("defrag={word}"));
    }
    format!("thp {}", parts.join(" "))
}

/// All settings, for people.
pub(crate) fn settings(host: &Host) -> String {
    let knobs = knob_paths(host);
    if knobs.is_empty() {
        return "none".to_owned();
    }
    let show = |path: &String| {
        let short = path.strip_prefix(FOLDER)?.trim_start_matches('/');
        let name =
            short.strip_prefix("hugepages-").map_or(short, |s| s.trim_end_matches("/enabled"));
        Some(format!("{name}={}", word(host, path)?))
    };
    knobs.iter().filter_map(show).collect::<Vec<_>>().join(" ")
}

/// How many folios of `size` the kernel has given to anonymous faults since it booted; `None` if
/// it does not count.
pub(crate) fn folios_given(host: &Host, size: Size) -> Option<u64> {
    host.read(format!("{}/stats/anon_fault_alloc", folder_of(size)))?.parse().ok()
}

/// Reads the settings and leaves the note; after that they may be changed.
fn borrow(host: &Host, says: &mut Vec<String>) -> Result<Loan, String> {
    settle_note(host, says)?;
    let paths = knob_paths(host);
    if paths.is_empty() {
        return Err("The host has no transparent huge pages to set.".to_owned());
    }
    let mut knobs = Vec::new();
    for path in paths {
        let there = writable(&host.path(&path));
        let value = word(host, &path);
        let (Ok(()), Some(value)) = (there, value) else {
            return Err(format!(
                "The huge-page settings stay as they are: no permission to set /{path}."
            ));
        };
        knobs.push(Knob { path, value });
    }
    note::write(host, &knobs).map_err(|e| {
        format!("The huge-page settings stay as they are: no note can be left ({e}).")
    })?;
    let keeper = keeper(host, &knobs).ok();
    Ok(Loan { host: host.clone(), knobs, keeper, returned: false })
}

/// A process that writes the values back, and takes the note away, when this one ends.
fn keeper(host: &Host, knobs: &[Knob]) -> io::Result<Keeper> {
    let mut keeper = Keeper::new()?;
    keeper.promise(&format!("rm -f {}", quoted(&note::note_path(host))))?;
    for Knob { path, value } in knobs {
        keeper.promise(&format!("printf %s {value} > {}", quoted(&host.path(path))))?;
    }
    Ok(keeper)
}

/// How long the keeper of a run that was killed is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Deals with the note of an earlier run.
fn settle_note(host: &Host, says: &mut Vec<String>) -> Result<(), String> {
    let Some(Note { pid, knobs, .. }) = note::read(host)? else { return Ok(()) };
    if note::owner_lives(host) {
        return Err(format!(
            "The huge-page settings stay as they are: run {pid} has changed them."
        ));
    }
    let start = Instant::now();
    while note::note_path(host).exists() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    restore(host, &knobs).map_err(|e| {
        format!(
            "A killed run left the huge-page settings changed and they cannot be restored: {e}."
        )
    })?;
    note::remove(host);
    says.push("The huge-page settings that a killed run had left changed are restored.".to_owned());
    Ok(())
}

/// Waits for a signal in a thread of its own, restores, and ends the process.
fn restore_on_signals(loan: Weak<Mutex<Loan>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            let loan = loan.upgrade();
            // Held until the process is gone, so that no thread changes a setting after this.
            let mut held = loan.as_ref().map(|loan| lock(loan));
            if let Some(loan) = &mut held {
                loan.give_back();
            }
            process::exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// Writes every value back, also after one has failed, whose error is returned.
fn restore(host: &Host, knobs: &[Knob]) -> io::Result<()> {
    knobs.iter().map(|k| write_word(host, &k.path, &k.value)).fold(Ok(()), Result::and)
}

/// The switches as they are.
pub(crate) fn switches(host: &Host) -> Switches {
    let read = |name: &str| word(host, &format!("{FOLDER}/{name}"));
    let mut sizes = Vec::new();
    for path in knob_paths(host) {
        let size = path.strip_prefix(FOLDER).and_then(switches::size_of);
        sizes.extend(size.zip(word(host, &path)));
    }
    Switches {
        top: read("enabled").unwrap_or_else(|| OFF.to_owned()),
        defrag: read("defrag"),
        sizes,
    }
}

/// All knobs: `enabled`, `defrag` and each size's own `enabled`.
fn knob_paths(host: &Host) -> Vec<String> {
    let mut sizes: Vec<(u64, String)> = Vec::new();
    for entry in fs::read_dir(host.path(FOLDER)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib = name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB"));
        if let Some(kib) = kib.and_then(|k| k.parse().ok()) {
            sizes.push((kib, format!("{FOLDER}/{name}/enabled")));
        }
    }
    sizes.sort();
    let global = ["enabled", "defrag"].map(|name| format!("{FOLDER}/{name}"));
    let all = global.into_iter().chain(sizes.into_iter().map(|(_, path)| path));
    all.filter(|path| host.path(path).exists()).collect()
}

fn folder_of(size: Size) -> String {
    format!("{FOLDER}/hugepages-{}kB", size.bytes() >> 10)
}

/// The chosen word of a knob, which stands in brackets where there are others to choose:
/// `always [madvise] never`.
fn word(host: &Host, path: &str) -> Option<String> {
    let text = host.read(path)?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Some(chosen.map_or(text.as_str(), |(word, _)| word).to_owned())
}

/// Sets a knob, unless it has that value.
fn write_word(host: &Host, path: &str, value: &str) -> io::Result<()> {
    if word(host, path).as_deref() == Some(value) {
        return Ok(());
    }
    fs::write(host.path(path), value)
        .map_err(|e| io::Error::new(e.kind(), format!("/{path} to {value}: {e}")))
}

fn writable(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path).map(drop)
}

/// The loan, also after a panic elsewhere: then it is needed most.
fn lock(loan: &Mutex<Loan>) -> MutexGuard<'_, Loan> {
    loan.lock().unwrap_or_else(PoisonError::into_inner)
}
