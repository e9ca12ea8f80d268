//! Recordings of version 1 as tapes: one process that maps the files, each behind the other.

use super::code::Writer;
use super::event::{Access, Area, Event, Rights, Span};
use super::head::Tape;
use crate::recording::{Kind, Recording, Source, Touch};

/// Bytes between the beginnings of two files, as Linux's file systems place large ones.
const ALIGN: u64 = 2 << 20;

impl Tape {
    /// The touches of files that `old` has.
    pub(crate) fn of_old(old: &Recording) -> Tape {
        let mut writer = Writer::default();
        writer.push(Event::Space(0));
        let align = ALIGN / old.page;
        let mut base = align;
        let mut areas = Vec::new();
        for (number, file) in old.files.iter().enumerate() {
            let placed = place(file, number as u32, base, old.page);
            let end = placed.iter().map(|area| area.span.end).max().unwrap_or(base);
            base = (end + 1).next_multiple_of(align);
            placed.iter().for_each(|area| writer.push(Event::Map(*area)));
            areas.push(placed);
        }
        writer.push(Event::Begin);
        for touch in &old.touches {
            for at in touch.first..touch.first + touch.count {
                if let Some(page) = page_of(&areas[touch.file], touch, at) {
                    writer.push(Event::Touch { page, access: access(touch.kind) });
                    writer.push(Event::Held(1));
                }
            }
        }
        writer.push(Event::Exit);
        Tape {
            program: old.program.clone(),
            note: old.note.clone(),
            page: old.page,
            processes: 1,
            limits: vec!["It has touches of files only: it is of version 1.".to_owned()],
            files: old.files.iter().map(|file| file.name.clone()).collect(),
            body: writer.finish(),
            ..Tape::default()
        }
    }
}

fn place(file: &Source, number: u32, base: u64, page: u64) -> Vec<Area> {
    let mut areas = Vec::new();
    for segment in &file.segments {
        let first = segment.offset / page;
        let count = (segment.offset + segment.bytes).div_ceil(page) - first;
        let [read, write, fetch] = segment.rights;
        let span = Span::of(base + segment.address / page, count);
        if count > 0 {
            areas.push(Area::file(span, Rights { read, write, fetch }, number, first));
        }
    }
    areas
}

/// Where page `at` of the file was touched: in an area whose rights fit, else in any.
fn page_of(areas: &[Area], touch: &Touch, at: u64) -> Option<u64> {
    let place = |area: &Area| {
        let super::Backing::File { first, .. } = area.backing else { return None };
        let page = at.checked_sub(first)? + area.span.start;
        area.span.has(page).then_some(page)
    };
    let fits = |area: &&Area| area.rights.allow(access(touch.kind));
    areas.iter().filter(fits).find_map(place).or_else(|| areas.iter().find_map(place))
}

fn access(kind: Kind) -> Access {
    match kind {
        Kind::Exec => Access::Fetch,
        Kind::Write => Access::Write,
        Kind::Read | Kind::Unknown => Access::Read,
    }
}
