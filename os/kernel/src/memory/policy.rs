//! Policies for parts of a space, as `mbind` sets them. There is one node: they are only kept, and
//! shown.
//!
//! A policy belongs to pages until other pages take their place: new mappings have none.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use quire::units::{PageSpan, Vpn};
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

/// The most parts that are told apart.
const MOST: usize = 4096;

/// The policies of a space: spans that do not overlap.
#[derive(Default)]
pub(crate) struct Policies {
    all: SpinMutex<Vec<(PageSpan, u32)>>,
    /// There was one.
    is_used: AtomicBool,
}

impl Policies {
    /// The policy of a page; `None` is that of the process.
    pub(crate) fn of(&self, page: Vpn) -> Option<u32> {
        if !self.is_used.load(Ordering::Relaxed) {
            return None;
        }
        let all = self.all.lock();
        all.iter().find(|(span, _)| span.contains(page)).map(|(_, policy)| *policy)
    }

    /// Gives pages a policy, or none of their own.
    ///
    /// # Errors
    /// `ENOMEM`, also when there are too many parts.
    pub(crate) fn set(&self, pages: PageSpan, policy: Option<u32>) -> Result<()> {
        if policy.is_none() && !self.is_used.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut all = self.all.lock();
        let mut kept = Vec::new();
        kept.try_reserve_exact(2 * all.len() + 1).map_err(|_| Errno::ENOMEM)?;
        for &(span, old) in all.iter() {
            let before = PageSpan::new(span.start, span.end.min(pages.start).max(span.start));
            let after = PageSpan::new(span.start.max(pages.end).min(span.end), span.end);
            kept.extend(
                [before, after].into_iter().filter(|it| !it.is_empty()).map(|it| (it, old)),
            );
        }
        kept.extend(policy.map(|policy| (pages, policy)));
        if kept.len() > MOST {
            return Err(Errno::ENOMEM);
        }
        let old = core::mem::replace(&mut *all, kept);
        self.is_used.store(true, Ordering::Relaxed);
        drop(all);
        drop(old);
        Ok(())
    }

    /// Those of a parent.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn inherit(&self, parent: &Self) -> Result<()> {
        if parent.is_used.load(Ordering::Relaxed) {
            let mut copy = Vec::new();
            let all = parent.all.lock();
            copy.try_reserve_exact(all.len()).map_err(|_| Errno::ENOMEM)?;
            copy.extend_from_slice(&all);
            drop(all);
            *self.all.lock() = copy;
            self.is_used.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
