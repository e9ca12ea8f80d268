//! The recordings that come with the command, and others from files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::recording::Recording;
use crate::refused::Refused;

/// Recordings of Debian 12's and rustup's programs on x86-64: name and text.
const OWN: [(&str, &str); 5] = [
    ("python3", include_str!("../../../recordings/python3.recording")),
    ("perl", include_str!("../../../recordings/perl.recording")),
    ("cc1", include_str!("../../../recordings/cc1.recording")),
    ("ld.lld", include_str!("../../../recordings/ld.lld.recording")),
    ("rustc", include_str!("../../../recordings/rustc.recording")),
];

/// The recordings at `paths`, or all own ones; each with its name.
pub(super) fn recordings(paths: &[PathBuf]) -> Result<Vec<(String, Recording)>> {
    if paths.is_empty() {
        return OWN.iter().map(|(name, text)| read(name, text)).collect();
    }
    let from = |path: &PathBuf| {
        let shown = path.display().to_string();
        let text = fs::read(path).with_context(|| format!("{shown} cannot be read"))?;
        let (_, recording) = read(&shown, &String::from_utf8_lossy(&text))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Ok((stem.unwrap_or(shown), recording))
    };
    paths.iter().map(from).collect()
}

fn read(name: &str, text: &str) -> Result<(String, Recording)> {
    let recording = text.parse().map_err(|damage| Refused(format!("{name}: {damage}")))?;
    Ok((name.to_owned(), recording))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_every_own_recording_reads_and_touches_text() {
        for (name, recording) in recordings(&[]).unwrap() {
            assert!(recording.text_pages() > 100, "{name}");
            assert!(!recording.note.is_empty() && recording.files.len() > 3, "{name}");
            // Nothing in them is about the machine they were made on.
            assert!(recording.files.iter().all(|file| !file.name.contains('/')), "{name}");
            assert!(!recording.note.contains('/'), "{name}");
        }
    }

    #[test]
    fn b6_a_file_that_is_no_recording_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad.recording");
        fs::write(&path, b"\xff\x00").unwrap();
        let error = recordings(std::slice::from_ref(&path)).unwrap_err();
        assert!(error.is::<Refused>() && error.to_string().contains("bad.recording: it is no"));
        fs::remove_file(&path).unwrap();
        assert!(recordings(&[path]).unwrap_err().to_string().contains("cannot be read"));
    }
}
