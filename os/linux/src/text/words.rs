//! Settings: the texts that programs read from them and write to them.

use crate::files::Text;
use crate::{Errno, Result};

/// Prints all `words` in a line, number `active` of them in brackets.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub fn choices(out: &mut Text, words: &[&str], active: usize) -> Result<()> {
    for (at, word) in words.iter().enumerate() {
        let gap = if at == 0 { "" } else { " " };
        match at == active {
            true => out.print(format_args!("{gap}[{word}]"))?,
            false => out.print(format_args!("{gap}{word}"))?,
        }
    }
    out.push(b"\n")
}

/// The word that was written; one newline may follow it.
///
/// # Errors
/// [`Errno::EINVAL`] when it is no text.
pub fn word(bytes: &[u8]) -> Result<&str> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)
}

/// The decimal number that was written; one newline may follow it.
///
/// # Errors
/// [`Errno::EINVAL`] when it is none, [`Errno::ERANGE`] when it needs more than 64 bits.
pub fn number(bytes: &[u8]) -> Result<u64> {
    let digits = word(bytes)?;
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Errno::EINVAL);
    }
    digits.parse().map_err(|_| Errno::ERANGE)
}
