//! The initial stack of a program.
//!
//! ```text
//!   top   ┌──────────────────────────────┐
//!         │ 8 zero bytes                 │
//!         │ the program's path           │ ◄── AT_EXECFN
//!         │ strings of the environment   │ ◄── envp[..]
//!         │ strings of the arguments     │ ◄── argv[..]
//!         │ the platform's name          │ ◄── AT_PLATFORM
//!         │ 16 random bytes              │ ◄── AT_RANDOM
//!         │ padding                      │
//!         │ auxiliary vector, AT_NULL    │
//!         │ envp[0], .., NULL            │
//!         │ argv[0], .., NULL            │
//!   sp ──►│ argc                         │ aligned to 16 bytes
//!         └──────────────────────────────┘
//! ```

use alloc::vec::Vec;
use core::ops::Range;

use linux_raw_sys::auxvec;

use crate::{Errno, Result};

/// The most bytes of one string, its zero included (`MAX_ARG_STRLEN`).
pub const STRING_BYTES_MAX: usize = 32 << 12;
/// Strings and pointers may take this much of any stack, however small (`ARG_MAX`).
const LIMIT_BYTES_MIN: u64 = 128 << 10;
/// Strings and pointers may take no more, however large the stack: three quarters of the usual 8
/// MiB.
const LIMIT_BYTES_MAX: u64 = 6 << 20;
/// Bytes of a pointer, and of a number beside it.
const WORD: u64 = 8;
/// Zero bytes at the very top.
const TOP_BYTES: u64 = 8;
/// How often the clock that `times` counts by ticks in a second.
const CLOCK_TICKS: u64 = 100;
/// Bytes of a program header.
const PROGRAM_HEADER_BYTES: u64 = 56;
/// Pairs of the auxiliary vector, `AT_NULL` included.
const AUX_PAIRS: usize = 21;

/// The kernel's entries in the auxiliary vector.
#[derive(Clone, Debug)]
pub struct Aux<'a> {
    /// Where its program headers are; 0 when they are not loaded.
    pub headers: u64,
    /// How many they are.
    pub header_count: u64,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// The distance that its dynamic loader was moved; 0 when it has none.
    pub base: u64,
    /// Its first instruction.
    pub entry: u64,
    /// The real and the effective user.
    pub uid: (u32, u32),
    /// The real and the effective group.
    pub gid: (u32, u32),
    /// The machine's name.
    pub platform: &'a str,
    /// The CPU's features, as this ISA's bits.
    pub hwcap: u64,
    /// More of it.
    pub hwcap2: u64,
    /// Random bytes, for the program's own use.
    pub random: [u8; 16],
    /// Whether it has more rights than the process that started it.
    pub is_secure: bool,
    /// The smallest stack on which a signal can be handled, in bytes.
    pub signal_stack_bytes: u64,
    /// Where its vDSO is.
    pub vdso: u64,
}

/// The bytes of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where the bytes belong, and the stack pointer to begin with; a multiple of 16.
    pub sp: u64,
    /// The bytes from `sp` to the top.
    pub bytes: Vec<u8>,
    /// Where the strings of the arguments are, half-open, for `/proc/self/cmdline`.
    pub args: Range<u64>,
    /// Where those of the environment are, half-open.
    pub envs: Range<u64>,
}

/// The first stack of a program: it ends at `top` (a multiple of 16) and has `room` bytes.
///
/// Strings come without their zero. A program always gets an argument, if only an empty one: many
/// programs crash, or worse, without one.
///
/// # Errors
/// [`Errno::E2BIG`] when strings and pointers are more than a quarter of `room` (or 128 KiB, when
/// that is more; never more than 6 MiB), when one string is too long, or when it all does not fit.
/// [`Errno::EINVAL`] when `top` is not aligned or a string has a zero in it. [`Errno::ENOMEM`].
pub fn build<S: AsRef<[u8]>>(
    top: u64,
    room: u64,
    args: &[S],
    envs: &[S],
    path: &[u8],
    aux: &Aux<'_>,
) -> Result<Image> {
    if !top.is_multiple_of(16) {
        return Err(Errno::EINVAL);
    }
    let sizes = Sizes::of(args, envs, path, aux)?;
    let limit = (room / 4).clamp(LIMIT_BYTES_MIN, LIMIT_BYTES_MAX);
    let sp = top.checked_sub(sizes.total()).ok_or(Errno::E2BIG)? & !15;
    if sizes.limited() > limit || top - sp > room {
        return Err(Errno::E2BIG);
    }
    let args_start = top - TOP_BYTES - sizes.path - sizes.envs - sizes.args;
    let envs_start = args_start + sizes.args;
    let path_start = envs_start + sizes.envs;
    let random = args_start - sizes.platform - 16;

    let mut out = Writer::with_capacity((top - sp) as usize)?;
    out.word(sizes.arg_count);
    out.pointers(args_start, args);
    if args.is_empty() {
        out.word(args_start);
    }
    out.word(0);
    out.pointers(envs_start, envs);
    out.word(0);
    let [platform, execfn] = [random + 16, path_start];
    for (tag, value) in vector(aux, random, platform, execfn) {
        out.word(u64::from(tag));
        out.word(value);
    }
    out.0.resize((random - sp) as usize, 0);
    out.0.extend_from_slice(&aux.random);
    out.string(aux.platform.as_bytes());
    args.iter().for_each(|arg| out.string(arg.as_ref()));
    if args.is_empty() {
        out.string(b"");
    }
    envs.iter().for_each(|env| out.string(env.as_ref()));
    out.string(path);
    out.0.resize((top - sp) as usize, 0);
    Ok(Image { sp, bytes: out.0, args: args_start..envs_start, envs: envs_start..path_start })
}

/// The pairs of the auxiliary vector.
fn vector(aux: &Aux<'_>, random: u64, platform: u64, path: u64) -> [(u32, u64); AUX_PAIRS] {
    [
        (auxvec::AT_SYSINFO_EHDR, aux.vdso),
        (auxvec::AT_HWCAP, aux.hwcap),
        (auxvec::AT_PAGESZ, aux.page_bytes),
        (auxvec::AT_CLKTCK, CLOCK_TICKS),
        (auxvec::AT_PHDR, aux.headers),
        (auxvec::AT_PHENT, PROGRAM_HEADER_BYTES),
        (auxvec::AT_PHNUM, aux.header_count),
        (auxvec::AT_BASE, aux.base),
        (auxvec::AT_FLAGS, 0),
        (auxvec::AT_ENTRY, aux.entry),
        (auxvec::AT_UID, u64::from(aux.uid.0)),
        (auxvec::AT_EUID, u64::from(aux.uid.1)),
        (auxvec::AT_GID, u64::from(aux.gid.0)),
        (auxvec::AT_EGID, u64::from(aux.gid.1)),
        (auxvec::AT_SECURE, u64::from(aux.is_secure)),
        (auxvec::AT_RANDOM, random),
        (auxvec::AT_HWCAP2, aux.hwcap2),
        (auxvec::AT_EXECFN, path),
        (auxvec::AT_PLATFORM, platform),
        (auxvec::AT_MINSIGSTKSZ, aux.signal_stack_bytes),
        (auxvec::AT_NULL, 0),
    ]
}

/// How many bytes each part needs, with its zeros.
struct Sizes {
    args: u64,
    envs: u64,
    path: u64,
    platform: u64,
    arg_count: u64,
    env_count: u64,
}

impl Sizes {
    fn of<S: AsRef<[u8]>>(args: &[S], envs: &[S], path: &[u8], aux: &Aux<'_>) -> Result<Self> {
        Ok(Self {
            args: strings_bytes(args)?.max(1),
            envs: strings_bytes(envs)?,
            path: string_bytes(path)?,
            platform: string_bytes(aux.platform.as_bytes())?,
            arg_count: (args.len() as u64).max(1),
            env_count: envs.len() as u64,
        })
    }

    /// The bytes that count against the limit: strings, and a pointer for each.
    fn limited(&self) -> u64 {
        self.args + self.envs + self.path + WORD * (self.arg_count + self.env_count)
    }

    fn total(&self) -> u64 {
        let words = 3 + 2 * AUX_PAIRS as u64;
        self.limited() + TOP_BYTES + self.platform + 16 + WORD * words
    }
}

/// Each string is limited and in memory, so that sums of them do not overflow.
fn strings_bytes<S: AsRef<[u8]>>(strings: &[S]) -> Result<u64> {
    strings.iter().try_fold(0, |sum, string| Ok(sum + string_bytes(string.as_ref())?))
}

fn string_bytes(string: &[u8]) -> Result<u64> {
    if string.contains(&0) {
        return Err(Errno::EINVAL);
    }
    if string.len() >= STRING_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    Ok(string.len() as u64 + 1)
}

/// Appends, within what was reserved at first.
struct Writer(Vec<u8>);

impl Writer {
    fn with_capacity(bytes: usize) -> Result<Self> {
        let mut out = Vec::new();
        out.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
        Ok(Self(out))
    }

    fn word(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn string(&mut self, string: &[u8]) {
        self.0.extend_from_slice(string);
        self.0.push(0);
    }

    /// Where each of `strings` is, when the first is at `start`.
    fn pointers<S: AsRef<[u8]>>(&mut self, start: u64, strings: &[S]) {
        let mut at = start;
        for string in strings {
            self.word(at);
            at += string.as_ref().len() as u64 + 1;
        }
    }
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
