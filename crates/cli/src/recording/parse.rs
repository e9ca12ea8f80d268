//! Reading a recording, which may be damaged.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use super::{Kind, Recording, Segment, Source, Touch};

/// The damage of a text that should be a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage(String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}

/// Lines of a text, with the number of the one at hand.
struct Lines<'t> {
    lines: std::iter::Peekable<std::str::Lines<'t>>,
    number: usize,
}

impl<'t> Lines<'t> {
    /// The next line, if it begins with `word`; what follows a space after it.
    fn with(&mut self, word: &str) -> Option<&'t str> {
        let rest = self.lines.peek()?.strip_prefix(word)?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
        self.lines.next();
        self.number += 1;
        Some(rest)
    }

    /// The same, where such a line must be; `form` is how it reads.
    fn must(&mut self, word: &str, form: &str) -> Result<&'t str, Damage> {
        if let Some(rest) = self.with(word) {
            return Ok(rest);
        }
        let line = self.number + 1;
        Err(Damage(match self.lines.peek() {
            Some(_) => format!("line {line} should read `{form}`"),
            None => format!("it ends in line {line}, where {form} should be"),
        }))
    }

    /// Damage in the line at hand.
    fn bad(&self, what: &str) -> Damage {
        Damage(format!("line {}{what}", self.number))
    }

    fn form(&self, form: &str) -> Damage {
        self.bad(&format!(" should read `{form}`"))
    }
}

const PROGRAM: &str = "program NAME";
const PAGE: &str = "page BYTES";
const FILE: &str = "file BYTES NAME";
const SEGMENT: &str = "segment RIGHTS OFFSET BYTES ADDRESS";
const TOUCHES: &str = "touches LINES";
const BEYOND: &str = " reaches beyond the end of its file";
const TOUCH: &str = "KIND FILE PAGE [COUNT]";

/// The longest file.
const LONGEST: u64 = 1 << 50;

impl FromStr for Recording {
    type Err = Damage;

    fn from_str(text: &str) -> Result<Recording, Damage> {
        let mut lines = Lines { lines: text.lines().peekable(), number: 0 };
        let Some(version) = lines.with("quire recording") else {
            let why = "it is no recording: `quire recording 1` comes first";
            return Err(Damage(why.to_owned()));
        };
        if version != "1" {
            let why = format!("it is of version {version}, and this program reads version 1");
            return Err(Damage(why));
        }
        let program = lines.must("program", PROGRAM)?.to_owned();
        let note = lines.with("note").unwrap_or_default().to_owned();
        let page = lines.must("page", PAGE)?.parse().map_err(|_| lines.form(PAGE))?;
        if !u64::is_power_of_two(page) || !(4096..=1 << 20).contains(&page) {
            let why = format!(": pages have a power of two from 4096 bytes on, not {page}");
            return Err(lines.bad(&why));
        }
        let mut files = Vec::new();
        while let Some(rest) = lines.with("file") {
            files.push(file(rest, &mut lines, page)?);
        }
        let said = lines.must("touches", TOUCHES)?;
        let said: usize = said.parse().map_err(|_| lines.form(TOUCHES))?;
        let mut all = Recording { program, note, page, files, touches: Vec::new() };
        all.touches = touches(&all, &mut lines)?;
        match all.touches.len() {
            found if found == said => Ok(all),
            found => Err(Damage(format!(
                "it has {found} lines of touches and says that there are {said}"
            ))),
        }
    }
}

/// A file, and its segments in the lines that follow.
fn file(rest: &str, lines: &mut Lines<'_>, page: u64) -> Result<Source, Damage> {
    let (bytes, name) = rest.split_once(' ').ok_or_else(|| lines.form(FILE))?;
    let bytes: u64 = bytes.parse().map_err(|_| lines.form(FILE))?;
    if bytes > LONGEST {
        return Err(lines.bad(BEYOND));
    }
    let mut segments = Vec::new();
    while let Some(rest) = lines.with("segment") {
        let segment = segment(rest).ok_or_else(|| lines.form(SEGMENT))?;
        let end = segment.offset.checked_add(segment.bytes);
        if end.is_none_or(|end| end > bytes) || segment.address > LONGEST {
            return Err(lines.bad(BEYOND));
        }
        if segment.offset % page != segment.address % page {
            return Err(lines.bad(": offset and address differ in their place within a page"));
        }
        segments.push(segment);
    }
    Ok(Source { name: name.to_owned(), bytes, segments })
}

fn segment(rest: &str) -> Option<Segment> {
    let mut words = rest.split(' ');
    let letters = words.next()?.as_bytes();
    let mut rights = [false; 3];
    for (at, letter) in b"rwx".iter().enumerate() {
        rights[at] = match letters.get(at)? {
            b'-' => false,
            found if found == letter => true,
            _ => return None,
        };
    }
    let mut number = || words.next()?.parse().ok();
    let segment = Segment { rights, offset: number()?, bytes: number()?, address: number()? };
    (letters.len() == 3 && words.next().is_none()).then_some(segment)
}

/// All touches, to the end of the text.
fn touches(of: &Recording, lines: &mut Lines<'_>) -> Result<Vec<Touch>, Damage> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    while let Some(line) = lines.lines.next() {
        lines.number += 1;
        let touch = touch(line).ok_or_else(|| lines.form(TOUCH))?;
        let file = of
            .files
            .get(touch.file)
            .ok_or_else(|| lines.bad(&format!(": there is no file {}", touch.file)))?;
        let end = touch.first.saturating_add(touch.count);
        if end > file.pages(of.page) {
            let page = touch.first.max(end - 1);
            return Err(lines.bad(&format!(": the file has no page {page}")));
        }
        let mut pages = touch.first..end;
        if let Some(again) = pages.find(|page| !seen.insert((touch.file, *page))) {
            return Err(lines.bad(&format!(": page {again} was touched before")));
        }
        all.push(touch);
    }
    Ok(all)
}

fn touch(line: &str) -> Option<Touch> {
    let mut words = line.split(' ');
    let letter = words.next()?;
    let (kind, _) = *Kind::LETTERS.iter().find(|(_, known)| *known == letter)?;
    let (file, first) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let count = words.next().map_or(Ok(1), str::parse).ok()?;
    (count > 0 && words.next().is_none()).then_some(Touch { kind, file, first, count })
}
