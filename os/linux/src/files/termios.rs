//! The settings of a terminal, and the bytes in which programs see them.

use linux_raw_sys::general as raw;

use crate::{Errno, Result};

/// Bytes of `struct termios`, as TCGETS has it.
pub(super) const BYTES: usize = size_of::<raw::termios>();

/// Bytes of `struct termios2`, as TCGETS2 has it.
pub(super) const BYTES2: usize = size_of::<raw::termios2>();

/// The reported speed, in bits per second. Nothing depends on it.
const SPEED: u32 = 38400;

/// The settings of a terminal, with Linux's bits and indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// How input is changed.
    pub input: u32,
    /// How output is changed.
    pub output: u32,
    /// The line; nothing depends on it.
    pub control: u32,
    /// Echo, signals, lines.
    pub local: u32,
    /// The line discipline; nothing depends on it.
    pub line: u8,
    /// Characters with a meaning, by `VINTR` and so on.
    pub chars: [u8; raw::NCCS as usize],
}

impl Termios {
    /// How a terminal begins: lines, echo, signals.
    pub const fn new() -> Self {
        let mut chars = [0; raw::NCCS as usize];
        chars[raw::VINTR as usize] = 3;
        chars[raw::VQUIT as usize] = 28;
        chars[raw::VERASE as usize] = 127;
        chars[raw::VKILL as usize] = 21;
        chars[raw::VEOF as usize] = 4;
        chars[raw::VMIN as usize] = 1;
        chars[raw::VSTART as usize] = 17;
        chars[raw::VSTOP as usize] = 19;
        chars[raw::VSUSP as usize] = 26;
        chars[raw::VREPRINT as usize] = 18;
        chars[raw::VDISCARD as usize] = 15;
        chars[raw::VWERASE as usize] = 23;
        chars[raw::VLNEXT as usize] = 22;
        Self {
            input: raw::ICRNL | raw::IXON | raw::IUTF8,
            output: raw::OPOST | raw::ONLCR,
            control: raw::B38400 | raw::CS8 | raw::CREAD,
            local: raw::ISIG
                | raw::ICANON
                | raw::ECHO
                | raw::ECHOE
                | raw::ECHOK
                | raw::ECHOCTL
                | raw::ECHOKE
                | raw::IEXTEN,
            line: 0,
            chars,
        }
    }

    /// `struct termios2`, of which `struct termios` is the first 36 bytes.
    pub fn encode(&self) -> [u8; BYTES2] {
        let mut bytes = [0; BYTES2];
        let words = [self.input, self.output, self.control, self.local];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16] = self.line;
        bytes[17..17 + self.chars.len()].copy_from_slice(&self.chars);
        bytes[36..40].copy_from_slice(&SPEED.to_ne_bytes());
        bytes[40..44].copy_from_slice(&SPEED.to_ne_bytes());
        bytes
    }

    /// Reads a `struct termios` or `struct termios2`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when there are fewer than 36 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.get(..BYTES).ok_or(Errno::EINVAL)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let mut chars = [0; raw::NCCS as usize];
        chars.copy_from_slice(&bytes[17..36]);
        Ok(Self {
            input: word(0),
            output: word(4),
            control: word(8),
            local: word(12),
            line: bytes[16],
            chars,
        })
    }
}

impl Default for Termios {
    fn default() -> Self {
        Self::new()
    }
}
