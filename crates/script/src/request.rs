//! The requests of steps that map something: memory, files, frames, reserved folios.

use quire::cache::FileId;
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Backing, OptOut, Request};
use quire_units::{Prot, Vpn};

use crate::act::{LOCKS, Part, Window, rights};
use crate::naive::{Page, Source};
use crate::step::Step;

/// The file that a step shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Its number in the script.
    pub file: u8,
    /// Its number in the library.
    pub id: FileId,
    /// Whether it can be written.
    pub writable: bool,
}

/// The request of a step that maps zeroed memory, or a file; and the first page of it.
#[must_use]
pub fn request(step: &Step, window: Window, shown: Option<Shown>) -> (Request, Page) {
    let args = &step.args;
    let (at, count) = window.part(args[0], args[1]);
    let here = window.vpn(at);
    let anon = Request { prot: rights(args[2]), ..Request::anon(count as u64) };
    let Some(Shown { file, id, writable }) = shown else {
        let place = [At::Fixed(here), At::FixedNoReplace(here), At::Anywhere][args[4] as usize % 3];
        let request = Request { flags: area_flags(args[3]), ..anon }.at(place);
        return (request, page_of(&request, Source::Anon));
    };
    let (first, shared) = (args[4] % 4096, args[5].is_multiple_of(2));
    let most = if shared && !writable { Prot::RX } else { Prot::all() };
    let request = Request {
        prot: anon.prot & most,
        max_prot: most,
        flags: if shared { AreaFlags::SHARED } else { AreaFlags::empty() },
        backing: Backing::File { id, page: u64::from(first) },
        ..anon.at(At::Fixed(here))
    };
    (request, page_of(&request, Source::File { file, page: first, shared }))
}

/// The file of reserved folios that a step shows.
#[derive(Clone, Copy, Debug)]
pub struct ShownWhole {
    /// Its number in the script.
    pub file: u8,
    /// Its number in the library.
    pub id: FileId,
    /// The order of its folios.
    pub order: u8,
    /// Its first page that is shown.
    pub first: u32,
}

/// The request of a step that shows reserved folios in a part of a window, and the first page of
/// it.
#[must_use]
pub fn reserved_request(
    step: &Step,
    window: Window,
    (at, count): Part,
    shown: ShownWhole,
) -> (Request, Page) {
    let ShownWhole { file, id, order, first } = shown;
    let shared = step.args[4].is_multiple_of(2);
    let request = Request {
        prot: rights(step.args[2]),
        flags: if shared { AreaFlags::SHARED } else { AreaFlags::empty() },
        backing: Backing::File { id, page: first.into() },
        ..Request::anon(count as u64)
    };
    let request = request.at(At::Fixed(window.vpn(at)));
    let page = page_of(&request, Source::Whole { file, page: first, order, shared });
    (request, page)
}

/// The request of a step that shows frames, whose words are those of `file` from `first` on; and
/// the first page of it. `is_code` says whether they may be executed.
#[must_use]
pub fn frames_request(
    step: &Step,
    here: Vpn,
    count: usize,
    (file, first): (u8, u32),
    is_code: bool,
) -> (Request, Page) {
    let args = &step.args;
    let place = [At::Fixed(here), At::FixedNoReplace(here), At::Anywhere][args[5] as usize % 3];
    let request = Request { prot: rights(args[2]), ..Request::anon(count as u64) }.at(place);
    let most = if is_code { Prot::all() } else { Prot::RW };
    let source = Source::Frame { file, page: first };
    let page = Page { most, flags: AreaFlags::SHARED, ..page_of(&request, source) };
    (request, page)
}

fn page_of(request: &Request, source: Source) -> Page {
    let Request { prot, flags, .. } = *request;
    let most = if source == Source::Anon { Prot::all() } else { request.max_prot };
    Page { source, prot, most, flags, ..Page::FREE }
}

/// The request of a step that maps zeroed memory in an exact world, and the first page of it.
#[must_use]
pub fn exact_request(step: &Step, window: Window) -> (Request, Page) {
    let args = &step.args;
    let (at, count) = window.part(args[0], args[1]);
    let prot = Prot::from_bits_truncate(args[2] as u8);
    let request = Request {
        pages: if args[1] == 0 { 0 } else { count as u64 },
        prot,
        max_prot: if args[5].is_multiple_of(4) { prot } else { Prot::all() },
        flags: exact_flags(args[3]),
        ..Request::anon(0)
    };
    let request = request.at(wish(args[4], window.vpn(at)));
    let page = Page { most: request.max_prot, ..page_of(&request, Source::Anon) };
    (request, page)
}

/// The place, at `page` if it matters, that an argument asks for.
#[must_use]
pub fn wish(number: u32, page: Vpn) -> At {
    [At::Fixed(page), At::FixedNoReplace(page), At::Hint(page), At::Anywhere][number as usize % 4]
}

fn area_flags(number: u32) -> AreaFlags {
    let all = [
        AreaFlags::empty(),
        AreaFlags::empty(),
        AreaFlags::HUGE,
        AreaFlags::NOHUGE,
        AreaFlags::LOCKED,
        AreaFlags::DONTFORK,
    ];
    all[number as usize % all.len()]
}

/// Flags that decide about folios, growth, locks and children.
fn exact_flags(number: u32) -> AreaFlags {
    let all = [
        AreaFlags::empty(),
        AreaFlags::empty(),
        AreaFlags::empty(),
        AreaFlags::empty(),
        AreaFlags::HUGE,
        AreaFlags::HUGE,
        AreaFlags::NOHUGE,
        AreaFlags::GROWS_DOWN,
        AreaFlags::GROWS_DOWN,
        AreaFlags::GROWS_DOWN | AreaFlags::HUGE,
        AreaFlags::GROWS_DOWN | AreaFlags::LOCKED,
        AreaFlags::LOCKED,
        LOCKS,
        AreaFlags::LOCK_ON_FAULT,
        AreaFlags::DONTFORK,
        AreaFlags::WIPEONFORK,
        AreaFlags::SHARED,
        AreaFlags::SHARED,
    ];
    all[number as usize % all.len()]
}

/// The choice about folios of a size that an argument names.
#[must_use]
pub fn size_policy(number: u32) -> SizePolicy {
    let all = [SizePolicy::Never, SizePolicy::Always, SizePolicy::Madvise, SizePolicy::Inherit];
    all[number as usize % all.len()]
}

/// The choice of a process that an argument names.
#[must_use]
pub fn opt_out(number: u32) -> OptOut {
    [OptOut::No, OptOut::All, OptOut::ExceptAdvised][number as usize % 3]
}
