//! The note that outlives a killed run.

use std::io::{self, Write};
use std::path::PathBuf;
use std::{fs, process};

use serde::{Deserialize, Serialize};

use crate::host::Host;

/// One setting: a file and its word.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Knob {
    /// Below the host's root, without a leading slash.
    pub(super) path: String,
    /// The word that was chosen before the run.
    pub(super) value: String,
}

/// The process that has changed the settings, and their values before.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Note {
    pub(super) pid: u32,
    /// When it started, in clock ticks since boot: a process number alone is used again.
    started: Option<u64>,
    /// The settings before.
    pub(super) knobs: Vec<Knob>,
}

/// The file of the note.
pub(super) fn note_path(host: &Host) -> PathBuf {
    host.path("run/quire-thp.json")
}

/// Leaves the note of this process.
pub(super) fn write(host: &Host, knobs: &[Knob]) -> io::Result<()> {
    let pid = process::id();
    let note = Note { pid, started: started(host, pid), knobs: knobs.to_vec() };
    let path = note_path(host);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = serde_json::to_vec(&note).map_err(io::Error::from);
    written.and_then(|bytes| file.write_all(&bytes)).inspect_err(|_| remove(host))
}

/// The note, if there is one; an error where it is not understood.
pub(super) fn read(host: &Host) -> Result<Option<Note>, String> {
    let path = note_path(host);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("The note {} cannot be read: {e}.", path.display())),
    };
    let note = serde_json::from_str(&text);
    note.map(Some).map_err(|_| {
        let path = path.display();
        format!("The huge-page settings stay as they are: {path} is not understood; remove it.")
    })
}

/// Whether the process that left the note still runs.
pub(super) fn owner_lives(host: &Host) -> bool {
    let Ok(Some(note)) = read(host) else { return false };
    let now = started(host, note.pid);
    now.is_some() && now == note.started
}

/// Takes the note away; there may be none.
pub(super) fn remove(host: &Host) {
    let _ = fs::remove_file(note_path(host));
}

/// When process `pid` started: the 22nd field of its `stat`, whose second, the name in
/// parentheses, may hold anything.
fn started(host: &Host, pid: u32) -> Option<u64> {
    let stat = host.read(format!("proc/{pid}/stat"))?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
