//! Sizes as people write them: `4K`, `64K`, `2M`, `1G`, `32MiB`.
//!
//! The grammar is `digits [unit]` with `unit` one of `B`, `K`, `M`, `G`, `T`; a trailing `iB` may
//! follow all but `B`, and case does not matter. Units are powers of 1024: memory comes in them.
//! Decimal units (`KB`) are refused rather than guessed at.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes that reads and prints as people write sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub(crate) struct Size(pub(crate) u64);

/// Unit letters and the power of two each stands for, the largest first.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl Size {
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length of memory.
    pub(crate) const fn len(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Size {
    /// Prints with the largest unit that divides the size, so that no size is rounded:
    /// `2M`, but `2049K` and `4095`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((letter, shift)) => f.pad(&format!("{}{letter}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

/// A text that is no size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BadSize {
    /// It does not begin with a digit.
    NoNumber,
    /// The text after the digits is no unit.
    Unit(String),
    /// It does not fit 64 bits.
    TooLarge,
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSize::NoNumber => {
                f.write_str("a size is a number and a unit, such as 64K, 2M or 1G")
            }
            BadSize::Unit(unit) => write!(f, "{unit:?} is no unit; use K, M or G"),
            BadSize::TooLarge => f.write_str("it does not fit 64 bits"),
        }
    }
}

impl std::error::Error for BadSize {}

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Size, BadSize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(BadSize::NoNumber);
        }
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| BadSize::TooLarge)?;
        let shift = shift_of(unit).ok_or_else(|| BadSize::Unit(unit.to_owned()))?;
        number.checked_mul(1 << shift).map(Size).ok_or(BadSize::TooLarge)
    }
}

/// The power of two that `unit` stands for.
fn shift_of(unit: &str) -> Option<u32> {
    let upper = unit.to_ascii_uppercase();
    if upper.is_empty() || upper == "B" {
        return Some(0);
    }
    let letter = upper.strip_suffix("IB").unwrap_or(&upper);
    UNITS.iter().find(|(c, _)| letter.len() == 1 && letter.starts_with(*c)).map(|(_, s)| *s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4K", 4096),
            ("64k", 65536),
            ("2M", 2 << 20),
            ("32MiB", 32 << 20),
            ("1G", 1 << 30),
            ("1gib", 1 << 30),
            ("7B", 7),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn a_word_that_is_no_size_is_refused_with_its_reason() {
        assert_eq!("".parse::<Size>(), Err(BadSize::NoNumber));
        assert_eq!("-4K".parse::<Size>(), Err(BadSize::NoNumber));
        assert_eq!("K".parse::<Size>(), Err(BadSize::NoNumber));
        for unit in ["KB", "X", "iB", " K", "KK", "K4", "é"] {
            assert_eq!(format!("4{unit}").parse::<Size>(), Err(BadSize::Unit(unit.to_owned())));
        }
        assert_eq!("17179869184G".parse::<Size>(), Err(BadSize::TooLarge));
        assert_eq!("18446744073709551616".parse::<Size>(), Err(BadSize::TooLarge));
    }

    proptest! {
        #[test]
        fn every_size_reads_back_from_its_print(number in any::<u64>(), shift in 0u32..50) {
            let size = Size(number << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn any_text_reads_or_is_refused_without_panic(text in ".*") {
            let _ = text.parse::<Size>();
        }
    }
}
