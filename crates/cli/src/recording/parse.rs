//! Reading a recording, which may be damaged.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use super::{Kind, Recording, Segment, Source, Touch};

/// What is wrong with a text that should be a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    /// The line, counted from 1.
    line: usize,
    what: What,
}

/// What is wrong in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    /// The first line is another one.
    NoRecording,
    /// The first line names another version.
    Version(String),
    /// It ends before this line.
    Missing(&'static str),
    /// A line does not read so.
    Form(&'static str),
    /// No page has so many bytes.
    Page(u64),
    /// Address and offset of a segment differ in their place within a page.
    Skew,
    /// A file, or a segment, is longer than can be.
    Beyond,
    /// There is no such file.
    File(usize),
    /// The file has no such page.
    Touch(u64),
    /// The page was touched before.
    Again(u64),
    /// There are more or fewer touches than it says.
    Count(usize, usize),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line;
        match &self.what {
            What::NoRecording => f.write_str("it is no recording: `quire recording 1` comes first"),
            What::Version(found) => {
                write!(f, "it is of version {found}, and this program reads version 1")
            }
            What::Missing(name) => write!(f, "it ends in line {line}, where {name} should be"),
            What::Form(form) => write!(f, "line {line} should read `{form}`"),
            What::Page(bytes) => {
                write!(f, "line {line}: pages have a power of two from 4096 bytes on, not {bytes}")
            }
            What::Skew => {
                write!(f, "line {line}: offset and address differ in their place within a page")
            }
            What::Beyond => write!(f, "line {line} reaches beyond the end of its file"),
            What::File(file) => write!(f, "line {line}: there is no file {file}"),
            What::Touch(page) => write!(f, "line {line}: the file has no page {page}"),
            What::Count(found, said) => {
                write!(f, "it has {found} lines of touches and says that there are {said}")
            }
            What::Again(page) => write!(f, "line {line}: page {page} was touched before"),
        }
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

    /// Likewise, where such a line must be. `form` is how it reads.
    fn must(&mut self, word: &str, form: &'static str) -> Result<&'t str, Damage> {
        if let Some(rest) = self.with(word) {
            return Ok(rest);
        }
        let what = match self.lines.peek() {
            Some(_) => What::Form(form),
            None => What::Missing(form),
        };
        Err(Damage { line: self.number + 1, what })
    }

    /// That the line at hand is wrong.
    fn bad(&self, what: What) -> Damage {
        Damage { line: self.number, what }
    }

    fn form(&self, form: &'static str) -> Damage {
        self.bad(What::Form(form))
    }
}

const PROGRAM: &str = "program NAME";
const PAGE: &str = "page BYTES";
const FILE: &str = "file BYTES NAME";
const SEGMENT: &str = "segment RIGHTS OFFSET BYTES ADDRESS";
const TOUCHES: &str = "touches LINES";
const TOUCH: &str = "KIND FILE PAGE [COUNT]";

/// No file is so long.
const LONGEST: u64 = 1 << 50;

impl FromStr for Recording {
    type Err = Damage;

    fn from_str(text: &str) -> Result<Recording, Damage> {
        let mut lines = Lines { lines: text.lines().peekable(), number: 0 };
        let Some(version) = lines.with("quire recording") else {
            return Err(Damage { line: 1, what: What::NoRecording });
        };
        if version != "1" {
            return Err(lines.bad(What::Version(version.to_owned())));
        }
        let program = lines.must("program", PROGRAM)?.to_owned();
        let note = lines.with("note").unwrap_or_default().to_owned();
        let page = lines.must("page", PAGE)?.parse().map_err(|_| lines.form(PAGE))?;
        if !u64::is_power_of_two(page) || !(4096..=1 << 20).contains(&page) {
            return Err(lines.bad(What::Page(page)));
        }
        let mut files = Vec::new();
        while let Some(rest) = lines.with("file") {
            files.push(file(rest, &mut lines, page)?);
        }
        let said = lines.must("touches", TOUCHES)?;
        let said = said.parse().map_err(|_| lines.form(TOUCHES))?;
        let mut all = Recording { program, note, page, files, touches: Vec::new() };
        all.touches = touches(&all, &mut lines)?;
        match all.touches.len() {
            found if found == said => Ok(all),
            found => Err(lines.bad(What::Count(found, said))),
        }
    }
}

/// A file, and its segments in the lines that follow.
fn file(rest: &str, lines: &mut Lines<'_>, page: u64) -> Result<Source, Damage> {
    let (bytes, name) = rest.split_once(' ').ok_or_else(|| lines.form(FILE))?;
    let bytes: u64 = bytes.parse().map_err(|_| lines.form(FILE))?;
    if bytes > LONGEST {
        return Err(lines.bad(What::Beyond));
    }
    let mut segments = Vec::new();
    while let Some(rest) = lines.with("segment") {
        let segment = segment(rest).ok_or_else(|| lines.form(SEGMENT))?;
        let end = segment.offset.checked_add(segment.bytes);
        if end.is_none_or(|end| end > bytes) || segment.address > LONGEST {
            return Err(lines.bad(What::Beyond));
        }
        if segment.offset % page != segment.address % page {
            return Err(lines.bad(What::Skew));
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
        let file = of.files.get(touch.file).ok_or_else(|| lines.bad(What::File(touch.file)))?;
        let end = touch.first.saturating_add(touch.count);
        if end > file.pages(of.page) {
            return Err(lines.bad(What::Touch(touch.first.max(end - 1))));
        }
        let mut pages = touch.first..end;
        if let Some(again) = pages.find(|page| !seen.insert((touch.file, *page))) {
            return Err(lines.bad(What::Again(again)));
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
