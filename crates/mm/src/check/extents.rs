//! I1: the ranges in which a folio is cleared.

use core::fmt;
use core::ops::Range;

use crate::folio::clear::NEIGHBOURHOOD;

/// Ranges that do not clear a folio correctly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentViolation {
    /// This page is not cleared exactly once.
    Times {
        /// Counted from the folio's first page.
        page: u64,
        /// How often.
        times: usize,
    },
    /// A range reaches beyond the folio, to this page.
    Beyond(u64),
    /// This page near the fault is not in the last range, or one in that range is not near.
    Neighbourhood(u64),
}

impl fmt::Display for ExtentViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times { page, times } => write!(f, "page {page} is cleared {times} times"),
            Self::Beyond(page) => write!(f, "page {page} is cleared and not of the folio"),
            Self::Neighbourhood(page) => {
                write!(f, "page {page} is wrongly placed with respect to the neighbourhood")
            }
        }
    }
}

impl core::error::Error for ExtentViolation {}

/// Whether `ranges`, in this order, clear each page of a folio of `pages` pages once, and the
/// pages up to `NEIGHBOURHOOD` away from page `fault` last, and only those. A fault beyond the
/// folio counts as one on its last page.
///
/// # Errors
/// The first wrong page.
pub fn extents(pages: u64, fault: u64, ranges: &[Range<u64>; 3]) -> Result<(), ExtentViolation> {
    let fault = fault.min(pages.saturating_sub(1));
    for page in 0..pages {
        let times = ranges.iter().filter(|range| range.contains(&page)).count();
        if times != 1 {
            return Err(ExtentViolation::Times { page, times });
        }
        if ranges[2].contains(&page) != (page.abs_diff(fault) <= NEIGHBOURHOOD) {
            return Err(ExtentViolation::Neighbourhood(page));
        }
    }
    match ranges.iter().find(|range| !range.is_empty() && range.end > pages) {
        Some(range) => Err(ExtentViolation::Beyond(range.end - 1)),
        None => Ok(()),
    }
}
