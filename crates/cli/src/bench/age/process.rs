//! The programs of a life: how large, how long, in which folios.

use quire::space::{AreaFlags, At, Request, Space};
use quire::{Error, limits};
use quire_arch::X86_64;
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, PageSpan, Vpn};

use crate::bench::scene::window;

/// The start of a program's memory: a multiple of 1G.
const START: u64 = 1 << 18;
/// The middle kind of area: it begins behind the start of a block and ends before its end.
const MIDDLE: Order = Order::new(4);
/// 1G.
pub(super) const GIANT: Order = Order::new(18);

/// The folios that a program wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Base pages.
    Pages,
    /// 64K.
    Middle,
    /// 2M.
    Blocks,
    /// 1G.
    Giant,
}

/// A part of a program's memory, which it touches from front to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) span: PageSpan,
    /// The first page that it has not touched.
    pub(super) next: Vpn,
}

impl Part {
    pub(super) fn touched(&self) -> PageSpan {
        PageSpan::new(self.span.start, self.next)
    }
}

/// A program.
pub(super) struct Process {
    pub(super) space: Space<X86_64>,
    pub(super) kind: Kind,
    pub(super) parts: Vec<Part>,
    /// The step in which it ends.
    pub(super) ends: u64,
    /// It goes on to touch memory.
    pub(super) grows: bool,
}

impl Process {
    /// Starts a program, none of whose memory is touched yet.
    pub(super) fn start(
        mm: &HostedMm<'_, '_, X86_64>,
        asid: Asid,
        kind: Kind,
        ends: u64,
        rng: &mut fastrand::Rng,
    ) -> Result<Process, Error> {
        let space = mm.space(asid, window::<X86_64>())?;
        let flags = if kind == Kind::Pages { AreaFlags::NOHUGE } else { AreaFlags::empty() };
        let mut parts = Vec::new();
        for span in spans(kind, rng) {
            let at = At::FixedNoReplace(span.start);
            mm.map(&space, &Request::anon(span.count()).at(at).flags(flags))?;
            parts.push(Part { span, next: span.start });
        }
        Ok(Process { space, kind, parts, ends, grows: true })
    }

    /// The first part with memory that is not touched.
    pub(super) fn growing(&self) -> Option<usize> {
        self.parts.iter().position(|part| self.grows && part.next < part.span.end)
    }

    /// At most `most` pages that it has touched, from a place that `rng` chooses.
    pub(super) fn some_touched(&self, most: u64, rng: &mut fastrand::Rng) -> Option<PageSpan> {
        let touched = rng.choice(&self.parts)?.touched();
        let pages = touched.count();
        if pages == 0 {
            return None;
        }
        let start = touched.start.add(rng.u64(0..pages));
        Some(PageSpan::new(start, start.add(most).min(touched.end)))
    }
}

/// A number from `least` to `most`; each power of two is as likely as any other.
pub(super) fn spread(least: u64, most: u64, rng: &mut fastrand::Rng) -> u64 {
    let [low, high] = [least, most].map(|of| (of as f64).log2());
    ((low + rng.f64() * (high - low)).exp2().round() as u64).clamp(least, most)
}

/// The areas of a new program.
fn spans(kind: Kind, rng: &mut fastrand::Rng) -> Vec<PageSpan> {
    let block = limits::GROUP_ORDER.pages();
    let span = |start, pages| PageSpan::new(Vpn::new(start), Vpn::new(start + pages));
    match kind {
        Kind::Pages => vec![span(START, spread(16, 2048, rng))],
        Kind::Middle => {
            let each = block - 2 * MIDDLE.pages();
            let mut left = spread(4, 128, rng) << MIDDLE.get();
            let mut found = Vec::new();
            while left > 0 {
                let start = START + found.len() as u64 * block + MIDDLE.pages();
                found.push(span(start, left.min(each)));
                left -= left.min(each);
            }
            found
        }
        Kind::Blocks => vec![span(START, spread(1, 16, rng) * block)],
        Kind::Giant => vec![span(START, GIANT.pages())],
    }
}
