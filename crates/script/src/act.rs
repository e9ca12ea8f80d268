//! The calls that change a process's areas: what a step asks for, how it is carried out on a real
//! space, which answer is right, and what the model has afterwards.
//!
//! ```text
//!   Step ─► Action::of ─┬─► Action::carry_out ─► the library's answer ─┐
//!                       └─► Process::expect   ─► the right answer ─────┴─► equal? Process::apply
//! ```
//!
//! Each system that runs scripts adds what it alone has: the simulator its faults and its devices,
//! the kernel its swap device.

use quire::arch::Arch;
use quire::hw::Hardware;
use quire::space::{Advice, AreaFlags, At, Space, Watch, WatchFor, Watcher};
use quire::{Error, Mm, Move, Shield, Stop};
use quire_units::{PageSpan, Prot, Vpn};

use crate::naive::{Lost, Page, Process, Shielded};
use crate::step::Step;
use crate::verb::Verb;

pub(crate) const LOCKS: AreaFlags = AreaFlags::LOCKED.union(AreaFlags::LOCK_ON_FAULT);

/// Flags to set and to clear: mostly such as may be, and some that must be refused.
const FLAGS: [(AreaFlags, AreaFlags); 11] = [
    (AreaFlags::DONTFORK, AreaFlags::empty()),
    (AreaFlags::empty(), AreaFlags::DONTFORK),
    (AreaFlags::WIPEONFORK, AreaFlags::empty()),
    (AreaFlags::empty(), AreaFlags::WIPEONFORK),
    (AreaFlags::SEQUENTIAL, AreaFlags::RANDOM),
    (AreaFlags::RANDOM, AreaFlags::SEQUENTIAL),
    (AreaFlags::empty(), AreaFlags::ADVICE),
    (AreaFlags::DONTDUMP, AreaFlags::empty()),
    (AreaFlags::LOCKED, AreaFlags::empty()),
    (AreaFlags::empty(), AreaFlags::SHARED),
    (AreaFlags::RANDOM, AreaFlags::RANDOM),
];

/// Pages of a window: the first, and their number.
pub type Part = (usize, usize);

/// The pages in which each process of a script has its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first page.
    pub base: Vpn,
    /// The number of pages.
    pub pages: u32,
}

impl Window {
    /// Page `at` of it.
    #[must_use]
    pub fn vpn(self, at: usize) -> Vpn {
        self.base.add(at as u64)
    }

    /// Some pages of it.
    #[must_use]
    pub fn span(self, (at, count): Part) -> PageSpan {
        PageSpan::new(self.vpn(at), self.vpn(at + count))
    }

    /// The place of a page, if it lies in the window.
    #[must_use]
    pub fn at(self, page: Vpn) -> Option<usize> {
        let at = page.get().checked_sub(self.base.get())?;
        (at < u64::from(self.pages)).then_some(at as usize)
    }

    /// The part that two arguments of a step name: cut off at the end, at least one page.
    #[must_use]
    pub fn part(self, page: u32, count: u32) -> Part {
        let at = page % self.pages;
        (at as usize, count.clamp(1, self.pages - at) as usize)
    }
}

/// One of these calls.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `unmap`.
    Unmap,
    /// `protect`.
    Protect(Prot),
    /// `advise`.
    Advise(Advice),
    /// `set_flags`: those to set and those to clear.
    Flags(AreaFlags, AreaFlags),
    /// `lock`, which also brings the pages in.
    Lock,
    /// `unlock`.
    Unlock,
    /// `discard`.
    Discard,
    /// `guard`.
    Guard,
    /// `unguard`.
    Unguard,
    /// `free_lazily`.
    Free,
    /// `track`.
    Track,
    /// `watch`, for writes to protected pages, which end the protection; or no longer.
    Watch(bool),
    /// `write_protect` of all pages, or its end.
    Shield(bool),
    /// `remap` to another place; the area may stay behind.
    Move(Part, bool),
    /// `remap` in place, to another number of pages.
    Resize(usize),
}

/// A call and the pages it is for.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The call.
    pub call: Call,
    /// The pages.
    pub part: Part,
    /// The window that they are in.
    pub window: Window,
}

impl Action {
    /// The call that `step` makes, if it is one of these.
    #[must_use]
    pub fn of(step: &Step, window: Window) -> Option<Self> {
        let args = &step.args;
        let part = window.part(args[0], args[1]);
        let call = match step.verb {
            Verb::Unmap => Call::Unmap,
            Verb::Protect => Call::Protect(rights(args[2])),
            Verb::Advise => {
                Call::Advise([Advice::None, Advice::Huge, Advice::NoHuge][args[2] as usize % 3])
            }
            Verb::Mark => {
                let all = [
                    AreaFlags::DONTFORK,
                    AreaFlags::WIPEONFORK,
                    AreaFlags::SEQUENTIAL,
                    AreaFlags::RANDOM,
                ];
                let (flag, none) = (all[args[2] as usize % all.len()], AreaFlags::empty());
                let is_set = args[3].is_multiple_of(2);
                if is_set { Call::Flags(flag, none) } else { Call::Flags(none, flag) }
            }
            Verb::Regrant => Call::Protect(Prot::from_bits_truncate(args[2] as u8)),
            Verb::Flag => {
                let (set, clear) = FLAGS[args[2] as usize % FLAGS.len()];
                Call::Flags(set, clear)
            }
            Verb::Lock if args[2].is_multiple_of(2) => Call::Lock,
            Verb::Lock => Call::Unlock,
            Verb::Discard => Call::Discard,
            Verb::Guard => Call::Guard,
            Verb::Unguard => Call::Unguard,
            Verb::Free => Call::Free,
            Verb::Track => Call::Track,
            Verb::Watch => Call::Watch(args[2].is_multiple_of(2)),
            Verb::Shield => Call::Shield(!args[2].is_multiple_of(3)),
            Verb::Move => {
                let keep = args[4] % 2 == 1;
                let count = if keep { part.1 as u32 } else { args[2] };
                Call::Move(window.part(args[3], count), keep)
            }
            Verb::Resize => Call::Resize(window.part(part.0 as u32, args[2]).1),
            _ => return None,
        };
        Some(Self { call, part, window })
    }

    /// The name of the call.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.call {
            Call::Unmap => "unmap",
            Call::Protect(_) => "protect",
            Call::Advise(_) => "advise",
            Call::Flags(..) => "set_flags",
            Call::Lock => "lock",
            Call::Unlock => "unlock",
            Call::Discard => "discard",
            Call::Guard => "guard",
            Call::Unguard => "unguard",
            Call::Free => "free",
            Call::Track => "track",
            Call::Watch(_) => "watch",
            Call::Shield(_) => "write_protect",
            Call::Move(..) | Call::Resize(_) => "remap",
        }
    }

    /// Whether the call clears dirty bits on purpose.
    #[must_use]
    pub fn cleans(&self) -> bool {
        matches!(self.call, Call::Free | Call::Track)
    }

    /// Whether a hole in the span is a reason to refuse it before its ends are, or its ends are
    /// none.
    fn looks_at_holes_first(&self) -> bool {
        let first = matches!(self.call, Call::Guard | Call::Unguard | Call::Free);
        first || matches!(self.call, Call::Move(..) | Call::Resize(_))
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The library's answer.
    pub fn carry_out<A: Arch, H: Hardware>(
        &self,
        mm: &Mm<'_, A, H>,
        space: &Space<A>,
    ) -> Result<(), Stop> {
        let span = self.window.span(self.part);
        let done = match self.call {
            Call::Unmap => mm.unmap(space, span),
            Call::Protect(prot) => mm.protect(space, span, prot),
            Call::Advise(advice) => mm.advise(space, span, advice),
            Call::Flags(on, off) => mm.spaces().set_flags(space, span, on, off),
            Call::Lock => return mm.mlock(space, span),
            Call::Unlock => mm.spaces().munlock(space, span),
            Call::Discard => mm.discard(space, span),
            Call::Guard => mm.spaces().guard(space, span),
            Call::Unguard => mm.spaces().unguard(space, span),
            Call::Free => mm.spaces().free_lazily(space, span),
            Call::Track => mm.spaces().track(space, span),
            // The model knows protection of private anonymous memory alone.
            Call::Watch(true)
                if !mm.spaces().areas(space, span).all(|area| area.is_private_anon()) =>
            {
                Err(Error::Invalid)
            }
            Call::Watch(on) => mm.spaces().watch(space, span, if on { watch() } else { None }),
            Call::Shield(on) => {
                let shield = if on { Shield::All } else { Shield::Off };
                mm.spaces().write_protect(space, span, shield)
            }
            Call::Move((to, pages), keep) => {
                let to = self.window.vpn(to);
                let how = if keep { Move::Keep(At::Fixed(to)) } else { Move::To(to) };
                mm.remap(space, span, pages as u64, how).map(drop)
            }
            Call::Resize(pages) => mm.remap(space, span, pages as u64, Move::Never).map(drop),
        };
        Ok(done?)
    }
}

impl Process {
    /// The right answer to an action, if nothing fails.
    ///
    /// # Errors
    /// The error that is due.
    pub fn expect(&self, action: &Action) -> Result<(), Error> {
        let Action { call, part: (at, count), window } = *action;
        let invalid = |is_wrong: bool| is_wrong.then_some(Error::Invalid);
        let hole = |at| Err(Error::NoArea(window.vpn(at)));
        match call {
            // These look at the ends first, and at holes then.
            _ if !action.looks_at_holes_first() && self.cuts_folio(action.part) => {
                Err(Error::Invalid)
            }
            Call::Discard => self.has_no_frames(action),
            Call::Unmap | Call::Track => Ok(()),
            Call::Unguard if self.cuts_folio(action.part) => {
                self.agree(action, |_, _| None).and(Err(Error::Invalid))
            }
            Call::Advise(_) | Call::Lock | Call::Unlock | Call::Unguard => {
                self.agree(action, |_, _| None)
            }
            Call::Protect(prot) => self.agree(action, |page, at| {
                (!page.most.contains(prot)).then_some(Error::Forbidden(at, prot))
            }),
            Call::Flags(on, off) if !AreaFlags::ADVICE.contains(on | off) || on.intersects(off) => {
                Err(Error::Invalid)
            }
            Call::Flags(on, _) => {
                let wipes = on.contains(AreaFlags::WIPEONFORK);
                self.agree(action, |page, _| {
                    let is_shared = page.flags.contains(AreaFlags::SHARED);
                    invalid(wipes && (!page.is_anon() || is_shared))
                })
            }
            Call::Guard => self
                .agree(action, |page, _| invalid(page.is_locked()))
                .and_then(|()| self.has_no_frames(action))
                .and_then(|()| invalid(self.cuts_folio(action.part)).map_or(Ok(()), Err)),
            Call::Free => {
                self.agree(action, |page, _| invalid(!page.is_anon() || page.is_locked()))
            }
            Call::Watch(true) if self.pages[at..at + count].iter().any(is_other) => {
                Err(Error::Invalid)
            }
            Call::Watch(_) => self.agree(action, |_, _| None),
            Call::Shield(_) => self.agree(action, |page, at| {
                (!page.flags.contains(AreaFlags::WATCH_WRITE)).then_some(Error::NoArea(at))
            }),
            Call::Move((to, pages), keep) => match self.area_break(at, count) {
                Some(at) => hole(at),
                None if self.is_fixed(at) && (keep || pages > count) => Err(Error::Invalid),
                None if self.cuts_own((at, count), pages) => Err(Error::Invalid),
                None if !self.pages[at].may_begin_at(window.vpn(to)) => Err(Error::Invalid),
                None if self.cuts_folio((to, pages)) => Err(Error::Invalid),
                None if keep && pages != count => Err(Error::Invalid),
                None if at < to + pages && to < at + count => Err(Error::Invalid),
                None => Ok(()),
            },
            Call::Resize(pages) => match self.area_break(at, count) {
                Some(at) => hole(at),
                None if self.is_fixed(at) && pages > count => Err(Error::Invalid),
                None if self.cuts_own((at, count), pages) => Err(Error::Invalid),
                None if self.pages[at..at + pages].iter().skip(count).any(Page::is_mapped) => {
                    Err(Error::NoRoom((pages - count) as u64))
                }
                None => Ok(()),
            },
        }
    }

    /// The answer of a call that changes each page of a span: a hole, or the error of a page.
    ///
    /// # Errors
    /// The first of them.
    pub fn agree(
        &self,
        action: &Action,
        refuse: impl Fn(&Page, Vpn) -> Option<Error>,
    ) -> Result<(), Error> {
        let (at, count) = action.part;
        for (here, page) in self.pages.iter().enumerate().skip(at).take(count) {
            let vpn = action.window.vpn(here);
            if !page.is_mapped() {
                return Err(Error::NoArea(vpn));
            }
            if let Some(error) = refuse(page, vpn) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The answer of a call that may take no page from an area that shows frames.
    fn has_no_frames(&self, action: &Action) -> Result<(), Error> {
        let (at, count) = action.part;
        let shows = self.pages[at..at + count].iter().any(Page::is_frame);
        if shows { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Whether the area at `at` neither grows nor stays behind.
    fn is_fixed(&self, at: usize) -> bool {
        self.pages[at].is_frame() || self.pages[at].is_whole()
    }

    /// Whether a part of one area, or what stays of it with another number of pages, ends within a
    /// reserved folio of its own.
    fn cuts_own(&self, (at, count): Part, pages: usize) -> bool {
        let cuts = self.cuts_folio((at, count)) || self.cuts_folio((at, pages));
        self.pages[at].is_whole() && cuts
    }

    /// The right answer to a move of pages into a watched area, as far as areas decide.
    ///
    /// # Errors
    /// The error that is due.
    pub fn expect_shift(&self, window: Window, (at, count): Part, to: usize) -> Result<(), Error> {
        let whole =
            |at| self.area_break(at, count).map_or(Ok(()), |at| Err(Error::NoArea(window.vpn(at))));
        whole(at)?;
        whole(to)?;
        let (from, target) = (&self.pages[at], &self.pages[to]);
        let fits = |page: &Page| {
            page.is_anon()
                && !page.flags.contains(AreaFlags::SHARED)
                && page.prot.contains(Prot::WRITE)
        };
        let alike = from.prot == target.prot && from.flags & LOCKS == target.flags & LOCKS;
        let apart = at + count <= to || to + count <= at;
        match fits(from) && fits(target) && alike && apart {
            true if target.flags.intersects(AreaFlags::WATCH) => Ok(()),
            true => Err(Error::NoArea(window.vpn(to))),
            false => Err(Error::Invalid),
        }
    }

    /// Notes that `count` pages have moved into a watched area; `is_there` says which of them were
    /// in memory or on a device.
    pub fn apply_shift(&mut self, (at, count): Part, to: usize, is_there: impl Fn(usize) -> bool) {
        for ahead in 0..count {
            let (from, target) = (self.pages[at + ahead], &mut self.pages[to + ahead]);
            target.flags -= AreaFlags::TRACKED;
            target.shielded = Shielded::No;
            if is_there(at + ahead) {
                let Page { own, unsure, guard, written, lost, .. } = from;
                *target = Page { own, unsure, guard, written, lost, ..*target };
                self.pages[at + ahead] = from.plain();
            }
            // Protection ends with a move, that of a hole as well.
            self.pages[at + ahead].shielded = Shielded::No;
        }
    }

    /// Makes the pages of a part what `page` is at the first of them, and its successors behind.
    pub fn put(&mut self, (at, count): Part, page: Page) {
        for ahead in 0..count {
            self.pages[at + ahead] = page.ahead(ahead as u32);
        }
    }

    /// Changes each page of a part.
    pub fn alter(&mut self, (at, count): Part, change: impl Fn(&mut Page)) {
        self.pages[at..at + count].iter_mut().for_each(change);
    }

    /// Notes that an action succeeded.
    pub fn apply(&mut self, action: &Action) {
        let (at, count) = action.part;
        let all = |process: &mut Self, change: &dyn Fn(&mut Page)| {
            process.alter(action.part, change);
        };
        match action.call {
            Call::Unmap => all(self, &|page| *page = Page::FREE),
            Call::Protect(prot) => all(self, &|page| page.prot = prot),
            Call::Advise(advice) => all(self, &|page| page.flags = advice.put(page.flags)),
            Call::Flags(on, off) => all(self, &|page| page.flags = (page.flags - off) | on),
            Call::Lock => all(self, &|page| {
                page.flags = (page.flags - LOCKS) | AreaFlags::LOCKED;
                page.bare();
            }),
            Call::Watch(on) => all(self, &|page| {
                page.flags = page.flags.with_watch(if on { watch() } else { None });
                page.shielded = if on { page.shielded } else { Shielded::No };
            }),
            Call::Shield(on) => all(self, &|page| {
                page.shielded = match page.lost {
                    Lost::No if on && !page.guard => Shielded::Yes,
                    Lost::Perhaps if on && !page.guard => Shielded::Perhaps,
                    _ => Shielded::No,
                }
            }),
            Call::Unlock => all(self, &|page| page.flags -= LOCKS),
            Call::Discard => all(self, &Page::forget),
            Call::Guard => all(self, &Page::fence),
            Call::Unguard => all(self, &|page| page.guard = false),
            Call::Free => {
                // Memory whose writes are tracked is gone at once. Other memory may hold what it
                // held, or be zero, until it is written again; what was lost is no longer lost.
                let tracked = self.is_tracked(action.part);
                all(self, &|page| match tracked || page.lost == Lost::Yes {
                    true => page.forget(),
                    false => page.loosen(),
                });
            }
            Call::Track => all(self, &|page| {
                page.written = false;
                // A free page has no area that could hold the flag.
                if page.is_mapped() {
                    page.flags |= AreaFlags::TRACKED;
                }
            }),
            Call::Move((to, pages), keep) => {
                let first = self.pages[at];
                for ahead in 0..pages {
                    let page = match ahead < count {
                        true => self.pages[at + ahead],
                        false => first.ahead(ahead as u32),
                    };
                    // At its new place its writes are neither tracked nor watched.
                    let flags = page.flags - AreaFlags::TRACKED - AreaFlags::WATCH;
                    self.pages[to + ahead] = Page { flags, shielded: Shielded::No, ..page };
                }
                all(self, &|page| if keep { page.leave() } else { *page = Page::FREE });
            }
            Call::Resize(pages) => {
                let first = self.pages[at];
                for ahead in count..pages {
                    self.pages[at + ahead] = first.ahead(ahead as u32);
                }
                if pages < count {
                    self.pages[at + pages..at + count].fill(Page::FREE);
                }
            }
        }
    }

    /// Notes that an action that was to succeed failed for want of memory. A call that frees
    /// memory has freed some of it by then; a move is left to the caller.
    pub fn apply_half(&mut self, action: &Action) {
        if let Call::Discard | Call::Free = action.call {
            self.alter(action.part, Page::loosen);
        }
    }

    /// Whether writes to one of these pages are tracked.
    #[must_use]
    pub fn is_tracked(&self, (at, count): Part) -> bool {
        self.pages[at..at + count].iter().any(|page| page.flags.contains(AreaFlags::TRACKED))
    }
}

/// Whether a page is mapped, and not as private anonymous memory.
fn is_other(page: &Page) -> bool {
    page.is_mapped() && (!page.is_anon() || page.flags.contains(AreaFlags::SHARED))
}

/// The one watch of scripts.
fn watch() -> Option<Watch> {
    let events = WatchFor::WRITE | WatchFor::ASYNC;
    Watcher::new(1).map(|watcher| Watch { watcher, events })
}

/// The rights that an argument names.
pub(crate) fn rights(number: u32) -> Prot {
    [Prot::empty(), Prot::READ, Prot::RW, Prot::RX, Prot::all()][number as usize % 5]
}
