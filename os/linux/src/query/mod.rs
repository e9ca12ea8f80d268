//! Queries about memory by `ioctl` on files of `/proc`: an area ([`AreaQuery`], on `maps`), and
//! which pages are in which state ([`PageScan`], on `pagemap`).
//!
//! Pure formats and rules: which area is meant, which pages match and how they become regions. The
//! kernel passes the areas and the pages in one after the other.

mod areas;
mod pages;

pub use areas::AreaQuery;
pub use pages::{Category, PageScan, Region, Regions};

use crate::files::Source;
use crate::{Errno, Result};

/// Takes exactly as many bytes as `into` has.
pub(crate) fn take(input: &mut dyn Source, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        match input.take(&mut into[done..])? {
            0 => return Err(Errno::EFAULT),
            count => done += count,
        }
    }
    Ok(())
}
