//! `/sys/kernel/debug/split_huge_pages`: dividing folios on demand, as tests of memory management
//! do.
//!
//! ```text
//!   PID,0xSTART,0xEND[,ORDER]      folios of a process into parts of 2^ORDER pages
//!   PATH,0xFIRST,0xEND[,ORDER]     those of a file, by pages: accepted, and they stay
//!   1                              those of all processes
//! ```

use alloc::vec::Vec;

use quire::table::{Divided, Division};
use quire::units::{Order, PageSpan, Vpn};
use quire_linux::files::Caller;
use quire_linux::text::{number, word};
use quire_linux::{Errno, Result};

use super::maps;
use super::pagemap::pieces;
use crate::isa::{self, Format};
use crate::memory::{Memory, PAGE, errno, mm};
use crate::task::tree::tree;
use crate::task::{find, processes};

/// Handles a write to the file.
///
/// # Errors
/// `EINVAL` for anything else; `ESRCH`, and what paths give.
pub(super) fn split(_: &(), who: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let text = word(bytes)?;
    if text == "1" {
        return split_all();
    }
    let mut parts = text.split(',');
    let (Some(whose), Some(start), Some(end)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Errno::EINVAL);
    };
    let (start, end) = (address(start)?, address(end)?);
    let order = parts.next().map_or(Ok(0), |order| number(order.as_bytes()))?;
    let block = <Format as quire::arch::Arch>::block_order();
    let order = u8::try_from(order).ok().map(Order::new).filter(|order| *order < block);
    let order = order.filter(|_| start < end).ok_or(Errno::EINVAL)?;
    if whose.starts_with('/') {
        let spot = tree().walk(who, tree().root(), whose.as_bytes(), true)?;
        return spot.node.map(drop).ok_or(Errno::ENOENT);
    }
    let pid = number(whose.as_bytes())?;
    let process = find(u32::try_from(pid).map_err(|_| Errno::ESRCH)?).ok_or(Errno::ESRCH)?;
    let memory = process.memory().ok_or(Errno::EINVAL)?;
    let end = end.min(isa::USER_END).div_ceil(PAGE);
    let span = PageSpan::new(Vpn::new((start / PAGE).min(end)), Vpn::new(end));
    split_span(&memory, span, order)
}

fn address(text: &str) -> Result<u64> {
    let digits = text.strip_prefix("0x").ok_or(Errno::EINVAL)?;
    u64::from_str_radix(digits, 16).map_err(|_| Errno::EINVAL)
}

fn split_all() -> Result<()> {
    let mut next = processes(1);
    while let Some(process) = next {
        if let Some(memory) = process.memory() {
            split_span(&memory, maps::all(), Order::ZERO)?;
        }
        next = processes(process.pid + 1);
    }
    Ok(())
}

/// Divides the folios of a span. As on Linux, pages that hold nothing are given back by that.
fn split_span(memory: &Memory, span: PageSpan, order: Order) -> Result<()> {
    let mut large: Vec<PageSpan> = Vec::new();
    let mut full = Ok(());
    pieces(memory, span, &mut |piece| {
        if piece.folio.0 > order.pages() && !piece.is_file {
            full = full.and_then(|()| large.try_reserve(1).map_err(|_| Errno::ENOMEM));
            if full.is_ok() {
                large.push(piece.pages);
            }
        }
    });
    full?;
    for pages in large {
        split_folio(memory, pages, order)?;
        if order == Order::ZERO {
            mm().reclaim().drop_zeroes(memory.space(), pages).map_err(errno)?;
        }
    }
    Ok(())
}

/// Divides the folio that `pages` map, or else takes them out of it.
fn split_folio(memory: &Memory, pages: PageSpan, order: Order) -> Result<()> {
    let divided = mm().spaces().divide(memory.space(), pages.start, Division::Uniform(order));
    if divided.map_err(errno)? != Divided::Shared {
        return Ok(());
    }
    let mut at = pages.start;
    while at < pages.end {
        match mm().spaces().unshare_page(memory.space(), at) {
            // It may be gone by now.
            Ok(()) | Err(quire::Stop::Refuse(quire::Error::NoArea(_))) => {}
            Err(error) => return Err(errno(error)),
        }
        at = at.add(1);
    }
    Ok(())
}
