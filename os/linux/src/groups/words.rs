//! Parses writes to the files of groups. White space around a word does not count.

use crate::text::number;
use crate::{Errno, Result};

/// A change of the controllers that a group passes on to its children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Control {
    /// Whether memory is to be among them; `None` to leave that as it is.
    pub memory: Option<bool>,
}

impl Control {
    /// `+memory`, `-memory`, several of these, or nothing; the last word counts.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for another word.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let mut wanted = Self::default();
        for word in bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            wanted.memory = match word {
                b"+memory" => Some(true),
                b"-memory" => Some(false),
                _ => return Err(Errno::EINVAL),
            };
        }
        Ok(wanted)
    }
}

/// A limit in bytes, as [`amount`] has it; `None` for `max`.
///
/// # Errors
/// [`Errno::EINVAL`].
pub fn limit(bytes: &[u8]) -> Result<Option<u64>> {
    match bytes.trim_ascii() {
        b"max" => Ok(None),
        _ => amount(bytes).map(Some),
    }
}

/// A number of bytes: decimal, octal after `0`, hexadecimal after `0x`; perhaps with one letter of
/// `KMGTPE`, large or small, for a power of 1024. A larger number than 64 bits hold is the largest.
///
/// # Errors
/// [`Errno::EINVAL`], for no digits as well, which Linux takes for 0.
pub fn amount(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.trim_ascii();
    let (bytes, radix) = match bytes {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        [b'0', rest @ ..] if !rest.is_empty() => (bytes, 8),
        _ => (bytes, 10),
    };
    // `E` is a digit of hexadecimal numbers, for Linux, too.
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    let count = bytes.iter().take_while(|byte| is_digit(byte)).count();
    let (digits, suffix) = bytes.split_at(count);
    if digits.is_empty() {
        return Err(Errno::EINVAL);
    }
    let mut value = 0_u64;
    for digit in digits.iter().filter_map(|byte| char::from(*byte).to_digit(radix)) {
        value = value.saturating_mul(radix.into()).saturating_add(digit.into());
    }
    let power = match suffix {
        [] => 0,
        [letter] => {
            let upper = letter.to_ascii_uppercase();
            let at = b"KMGTPE".iter().position(|known| *known == upper);
            at.ok_or(Errno::EINVAL)? as u32 + 1
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(value.saturating_mul(1 << (10 * power)))
}

/// A number of a process or thread, 0 for the writer itself.
///
/// # Errors
/// [`Errno::EINVAL`], [`Errno::ERANGE`] when it needs more than 64 bits, [`Errno::ESRCH`] when it
/// is more than any can be.
pub fn pid(bytes: &[u8]) -> Result<u32> {
    u32::try_from(number(bytes.trim_ascii())?).map_err(|_| Errno::ESRCH)
}
