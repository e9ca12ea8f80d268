//! A whole recording of all memory: its text, and the bytes behind it.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result};

use super::code::Reader;
use super::event::Event;
use crate::recording::Recording;
use crate::refused::Refused;

/// A recording of all memory of a process tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tape {
    /// The name of the program's file.
    pub(crate) program: String,
    /// Its work in one line; may be empty.
    pub(crate) note: String,
    /// Bytes of a page.
    pub(crate) page: u64,
    /// Faults that the kernel counted, without large folios; 0 where that is not known.
    pub(crate) counted: u64,
    /// The most resident bytes of one process, as the kernel counted; 0 where that is not known.
    pub(crate) peak: u64,
    /// How many processes there were.
    pub(crate) processes: u64,
    /// Sentences about what the recording could not see.
    pub(crate) limits: Vec<String>,
    /// Names of files, without folders.
    pub(crate) files: Vec<String>,
    /// The events.
    pub(crate) body: Vec<u8>,
}

impl Tape {
    /// The events, from the first on.
    pub(crate) fn events(&self) -> Reader<'_> {
        Reader::new(&self.body)
    }

    /// Whether it has samples of later uses, and not only first touches.
    pub(crate) fn has_uses(&self) -> bool {
        self.events().any(|event| event == Event::Mark)
    }

    /// How many touches it has.
    pub(crate) fn touches(&self) -> u64 {
        self.events().filter(|event| matches!(event, Event::Touch { .. })).count() as u64
    }

    /// The recording as it is kept.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Only marks need a reader of version 3.
        let version = if self.has_uses() { 3 } else { 2 };
        let mut head = format!("quire recording {version}\nprogram {}\n", self.program);
        if !self.note.is_empty() {
            let _ = writeln!(head, "note {}", self.note);
        }
        let _ = writeln!(
            head,
            "page {}\ncounted {} {} {}",
            self.page, self.counted, self.peak, self.processes
        );
        for limit in &self.limits {
            let _ = writeln!(head, "limit {limit}");
        }
        for file in &self.files {
            let _ = writeln!(head, "file {}", file.replace('\n', "?"));
        }
        let _ = writeln!(head, "body {}", self.body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Reads a recording; of a damaged one, says how it is wrong.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Tape, String> {
        let mut tape = Tape::default();
        let mut rest = bytes;
        let mut number = 0;
        loop {
            number += 1;
            let end = rest.iter().position(|byte| *byte == b'\n');
            let end = end.ok_or_else(|| format!("it ends in line {number}, before its body"))?;
            let line = std::str::from_utf8(&rest[..end]);
            let line = line.map_err(|_| format!("line {number} is no text"))?;
            rest = &rest[end + 1..];
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            if word == "body" {
                return tape.with_body(value, rest);
            }
            tape.line(word, value, number)?;
        }
    }

    fn line(&mut self, word: &str, value: &str, number: usize) -> Result<(), String> {
        let bad = || format!("line {number} is damaged: {word} {value}");
        match word {
            "quire" if number == 1 => {}
            "program" => self.program = value.to_owned(),
            "note" => self.note = value.to_owned(),
            "page" => {
                let page: u64 = value.parse().map_err(|_| bad())?;
                if !page.is_power_of_two() || !(4096..=1 << 20).contains(&page) {
                    return Err(bad());
                }
                self.page = page;
            }
            "counted" => {
                let numbers: Result<Vec<u64>, _> = value.split(' ').map(str::parse).collect();
                let [faults, peak, processes] = numbers.map_err(|_| bad())?[..] else {
                    return Err(bad());
                };
                (self.counted, self.peak, self.processes) = (faults, peak, processes);
            }
            "limit" => self.limits.push(value.to_owned()),
            "file" => self.files.push(value.to_owned()),
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn with_body(mut self, said: &str, rest: &[u8]) -> Result<Tape, String> {
        if self.page == 0 {
            return Err("it does not say how large its pages are".to_owned());
        }
        if said.parse() != Ok(rest.len()) {
            return Err(format!("its body has {} bytes and not {said}", rest.len()));
        }
        let mut reader = Reader::new(rest);
        for event in reader.by_ref() {
            if let Event::Map(super::Area { backing: super::Backing::File { file, .. }, .. }) =
                event
                && file as usize >= self.files.len()
            {
                return Err(format!("there is no file {file}"));
            }
        }
        if reader.at != rest.len() {
            return Err(format!("byte {} of its body is damaged", reader.at));
        }
        self.body = rest.to_vec();
        Ok(self)
    }
}

/// Writes a recording to a file, and tells so.
pub(crate) fn save(tape: &Tape, path: &Path) -> Result<()> {
    let bytes = tape.to_bytes();
    fs::write(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!(
        "quire: {} touches of {} processes are recorded in {}, {} bytes.",
        tape.touches(),
        tape.processes,
        path.display(),
        bytes.len()
    );
    Ok(())
}

/// Reads a recording of either version from a file.
pub(crate) fn load(path: &Path) -> Result<Tape> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Refused(format!("there is no recording {}", path.display())).into());
        }
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    let damaged = |why: String| Refused(format!("{} is damaged: {why}", path.display()));
    let head = bytes.strip_prefix(b"quire recording ").unwrap_or_default();
    if [&b"2\n"[..], b"3\n"].iter().any(|version| head.starts_with(version)) {
        return Ok(Tape::of_bytes(&bytes).map_err(damaged)?);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is no text".to_owned()))?;
    let old: Recording = text.parse().map_err(|damage| damaged(format!("{damage}")))?;
    Ok(Tape::of_old(&old))
}
