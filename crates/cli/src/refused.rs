//! A request that cannot be served.

use std::fmt;

/// The command line asks for something impossible; the text says what, in one sentence without its
/// full stop.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
