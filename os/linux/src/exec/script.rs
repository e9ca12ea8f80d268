//! The first line of a script: `#!interpreter argument`.

/// How many bytes of a file decide whether it is a script: a longer first line is cut off.
/// The last of them is never looked at, as Linux keeps a zero there.
pub const SCRIPT_BYTES: usize = 256;

/// The interpreter of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The path of the interpreter, not empty.
    pub interpreter: &'a [u8],
    /// Its first argument: the rest of the line, with blanks inside, without those around it.
    pub argument: Option<&'a [u8]>,
}

/// Looks for `#!` in the first bytes of a file; only [`SCRIPT_BYTES`] of them count.
///
/// `None` when it is no script: it begins otherwise, names no interpreter, or the interpreter's
/// name may be cut off. The script's own path becomes the interpreter's last argument.
pub fn script(first: &[u8]) -> Option<Script<'_>> {
    let is_whole = first.len() < SCRIPT_BYTES;
    let first = &first[..first.len().min(SCRIPT_BYTES - 1)];
    let text = first.strip_prefix(b"#!")?;
    let end = text.iter().position(|&byte| byte == b'\n');
    let line = trim_start(&text[..end.unwrap_or(text.len())]);
    let name_end = line.iter().position(|&byte| is_blank(byte) || byte == 0);
    if name_end.is_none() && end.is_none() && !is_whole {
        return None;
    }
    let (interpreter, rest) = line.split_at(name_end.unwrap_or(line.len()));
    if interpreter.is_empty() {
        return None;
    }
    // A zero byte ends the line, as all of this is C strings to programs.
    let rest = rest.split(|&byte| byte == 0).next().unwrap_or(rest);
    let argument = trim_end(trim_start(rest));
    Some(Script { interpreter, argument: (!argument.is_empty()).then_some(argument) })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim_start(line: &[u8]) -> &[u8] {
    &line[line.iter().take_while(|&&byte| is_blank(byte)).count()..]
}

fn trim_end(line: &[u8]) -> &[u8] {
    &line[..line.len() - line.iter().rev().take_while(|&&byte| is_blank(byte)).count()]
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn parts(first: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        script(first).map(|script| (script.interpreter, script.argument))
    }

    #[test]
    fn the_rest_of_the_line_is_one_argument() {
        assert_eq!(parts(b"#!/bin/sh\necho"), Some((&b"/bin/sh"[..], None)));
        let two = Some((&b"/usr/bin/env"[..], Some(&b"-S a  b"[..])));
        assert_eq!(parts(b"#! \t/usr/bin/env\t -S a  b \t\nrest"), two);
        assert_eq!(parts(b"#!/bin/sh -e"), Some((&b"/bin/sh"[..], Some(&b"-e"[..]))));
        assert_eq!(parts(b"#!/bin/sh  \n"), Some((&b"/bin/sh"[..], None)));
    }

    #[test]
    fn a_file_without_an_interpreter_is_no_script() {
        for first in [&b""[..], b"#", b"# !/bin/sh\n", b"#!", b"#!\n/bin/sh", b"#! \t \n", b"#!\0x"]
        {
            assert_eq!(script(first), None, "{first:?}");
        }
    }

    #[test]
    fn a_zero_byte_ends_the_line() {
        assert_eq!(parts(b"#!/bin/sh\0 -e\n"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(parts(b"#!/bin/sh -e\0f\n"), Some((&b"/bin/sh"[..], Some(&b"-e"[..]))));
    }

    #[test]
    fn a_name_that_may_be_cut_off_is_refused_and_an_argument_is_cut_off() {
        let long: Vec<u8> = b"#!/".iter().copied().chain([b'a'; 400]).collect();
        assert_eq!(script(&long), None);
        assert!(script(&long[..SCRIPT_BYTES - 1]).is_some(), "the file ends here, so it is whole");
        assert_eq!(script(&long[..SCRIPT_BYTES]), None);
        let mut argued = long.clone();
        argued[10] = b' ';
        let argument = script(&argued).and_then(|script| script.argument);
        assert_eq!(argument.map(<[u8]>::len), Some(SCRIPT_BYTES - 1 - 11));
    }
}
