//! From the kernel's events to touches.
//!
//! For one first touch the kernel reports, in this order and for the same thread:
//!
//! ```text
//!   page_fault_user: … error_code=0x14             the kind of access (bits of x86's error code)
//!   mm_filemap_fault: dev=7:0 ino=d ofs=4096       which page of which file it was about
//!   mm_filemap_add_to_page_cache: dev 7:0 ino d … ofs=4096 order=0     that page comes in
//! ```
//!
//! Without the first two, a system call read the page.

use std::collections::{HashMap, HashSet};

use crate::recording::Kind;

/// Bits of an x86 error code; riscv and the rest have another, or none.
const WRITE: u64 = 1 << 1;
const FETCH: u64 = 1 << 4;

/// A page that came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Came {
    pub(super) kind: Kind,
    pub(super) inode: u64,
    /// Where in the file, in bytes.
    pub(super) offset: u64,
}

/// The pages that came in.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Events {
    /// Each page once, in the order of time.
    pub(super) came: Vec<Came>,
    /// Pages that came in together with others: their own first touch is unknown.
    pub(super) together: u64,
}

/// The fault that a thread is in.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// Of its last fault.
    code: Option<u64>,
    /// Inode and offset that a fault is about.
    about: Option<(u64, u64)>,
}

/// Reads a trace, of which only the files of `device` matter.
pub(super) fn read(trace: &str, device: (u32, u32)) -> Events {
    let device = format!("{}:{}", device.0, device.1);
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    let mut seen = HashSet::new();
    let mut events = Events::default();
    for line in trace.lines() {
        let Some((thread, event, fields)) = split(line) else { continue };
        let thread = threads.entry(thread).or_default();
        match event {
            "page_fault_user" | "page_fault_kernel" => {
                *thread = Thread { code: number(fields, "error_code=0x", 16), about: None };
            }
            "mm_filemap_fault" => thread.about = page(fields, &device),
            "mm_filemap_add_to_page_cache" => {
                let Some(page) = page(fields, &device) else { continue };
                events.together += (1 << number(fields, "order=", 10).unwrap_or(0).min(20)) - 1;
                let kind = match thread.about == Some(page) {
                    true => kind(thread.code),
                    false => Kind::Read,
                };
                let (inode, offset) = page;
                if seen.insert(page) {
                    events.came.push(Came { kind, inode, offset });
                }
            }
            _ => {}
        }
    }
    events
}

/// The kind of the access whose fault had this error code.
fn kind(code: Option<u64>) -> Kind {
    match code {
        None => Kind::Unknown,
        Some(code) if code & FETCH != 0 => Kind::Exec,
        Some(code) if code & WRITE != 0 => Kind::Write,
        Some(_) => Kind::Read,
    }
}

/// Thread, event and fields of a line: `  name-12 [001] d.... 1.5: event: fields`.
fn split(line: &str) -> Option<(u32, &str, &str)> {
    // A thread's name may hold anything but what comes last before the CPU: its number.
    let (head, rest) = line.split_at(line.rfind("] ")?);
    let head = head[..head.rfind('[')?].trim_end();
    // Where processes are told as well, they stand in brackets.
    let head = match head.ends_with(')') {
        true => head.rsplit_once(" (")?.0.trim_end(),
        false => head,
    };
    let thread = head.rsplit_once('-')?.1.parse().ok()?;
    let (_, rest) = rest.split_once(": ")?;
    let (event, fields) = rest.split_once(": ")?;
    Some((thread, event, fields))
}

/// Inode and offset of an event about a page, if its file is of `device`.
fn page(fields: &str, device: &str) -> Option<(u64, u64)> {
    let rest = fields.strip_prefix("dev")?.get(1..)?;
    let rest = rest.strip_prefix(device)?.strip_prefix(" ino")?.get(1..)?;
    let inode = u64::from_str_radix(rest.split(' ').next()?, 16).ok()?;
    Some((inode, number(fields, " ofs=", 10)?))
}

/// The number behind `name`.
fn number(fields: &str, name: &str, radix: u32) -> Option<u64> {
    let rest = &fields[fields.find(name)? + name.len()..];
    let digits = rest.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
    u64::from_str_radix(&rest[..digits], radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
  bash-42  [001] . 9.1: page_fault_user: address=0x7f ip=0x7f error_code=0x14
  bash-42  [001] . 9.2: mm_filemap_fault: dev=7:0 ino=d ofs=8192
  a [b] (c-1-43  [000] . 9.3: page_fault_user: address=0x1 ip=0x7f error_code=0x7
  a [b] (c-1-43  (  42) [000] . 9.4: mm_filemap_fault: dev=7:0 ino=1f ofs=0
  bash-42  [001] . 9.5: mm_filemap_add_to_page_cache: dev 7:0 ino d ofs=8192 order=0
  a [b] (c-1-43  [000] . 9.6: mm_filemap_add_to_page_cache: dev 7:0 ino 1f ofs=0 order=0
  bash-42  [001] . 9.7: mm_filemap_add_to_page_cache: dev 7:0 ino d pfn=0x3 ofs=4096 order=2
  bash-42  [001] . 9.7: mm_filemap_add_to_page_cache: dev 7:1 ino d ofs=0 order=0
  bash-42  [001] . 9.7: mm_filemap_add_to_page_cache: dev 7:0 ino d ofs=8192 order=0
  bash-42  [001] . 9.8: page_fault_kernel: address=0x7f ip=__put_user_4 error_code=0x1
  bash-42  [001] . 9.8: mm_filemap_fault: dev=7:0 ino=d ofs=16384
  bash-42  [001] . 9.9: mm_filemap_add_to_page_cache: dev 7:0 ino d ofs=16384
";

    #[test]
    fn a_page_comes_in_by_the_fault_of_its_thread_or_by_a_call() {
        let came = |kind, inode, offset| Came { kind, inode, offset };
        let events = read(TRACE, (7, 0));
        assert_eq!(
            events.came,
            [
                came(Kind::Exec, 13, 8192),
                came(Kind::Write, 31, 0),
                came(Kind::Read, 13, 4096),
                came(Kind::Read, 13, 16384),
            ]
        );
        assert_eq!(events.together, 3);
        assert_eq!(read(TRACE, (70, 0)), Events::default());
    }

    #[test]
    fn lines_that_are_no_event_are_skipped() {
        for line in ["", "# tracer", "] ", "a-x [0] b: c: d", "a-1 [0] b", "a-1 [0] x: mm_filemap_"]
        {
            assert_eq!(read(line, (7, 0)), Events::default(), "{line}");
        }
        let strange = "a-1 [0] . 1: mm_filemap_add_to_page_cache: dev";
        for rest in ["", " ", " 7:0", " 7:0 ino", " 7:0 ino ", " 7:0 ino d", " 7:0 ino d ofs=x"] {
            assert_eq!(read(&format!("{strange}{rest}"), (7, 0)), Events::default(), "{rest}");
        }
    }

    #[test]
    fn without_error_codes_the_kind_of_a_fault_is_not_known() {
        let trace: String = TRACE
            .lines()
            .filter(|line| !line.contains("page_fault"))
            .fold(String::new(), |text, line| text + line + "\n");
        let kinds: Vec<Kind> = read(&trace, (7, 0)).came.iter().map(|came| came.kind).collect();
        assert_eq!(kinds, [Kind::Unknown, Kind::Unknown, Kind::Read, Kind::Unknown]);
    }
}
