//! A process or thread in one line: `stat`, `statm`.

use core::ops::Range;

use crate::Result;
use crate::files::Text;

/// How large a program's memory is. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// All of its areas.
    pub total: u64,
    /// Resident private memory.
    pub anon: u64,
    /// Resident shared memory.
    pub shared: u64,
    /// The areas of its code.
    pub code: u64,
    /// Private areas that it may write, without its stack.
    pub data: u64,
    /// Its stack.
    pub stack: u64,
    /// Areas that stay in memory (`mlock`).
    pub locked: u64,
    /// Memory on swap devices.
    pub swap: u64,
    /// Reserved folios that its areas map, which count nowhere else.
    pub reserved: u64,
}

impl Sizes {
    /// All resident memory.
    pub const fn resident(&self) -> u64 {
        self.anon + self.shared
    }

    /// Prints `statm`; `page` is the size of a base page in bytes.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print(&self, out: &mut Text, page: u64) -> Result<()> {
        out.print(format_args!(
            "{} {} {} {} 0 {} 0\n",
            self.total / page,
            self.resident() / page,
            self.shared / page,
            self.code / page,
            (self.data + self.stack) / page,
        ))
    }
}

/// The fields of `stat` for a process or thread. Times are in ticks of 10 ms.
#[derive(Clone, Debug)]
pub struct Stat<'a> {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: &'a [u8],
    /// Its state: `R` runs, `S` waits, `T` is stopped, `Z` has ended.
    pub state: char,
    /// The pid of its parent; 0 when it has none.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// How long it ran.
    pub ran: u64,
    /// How long its children ran that were waited for.
    pub children_ran: u64,
    /// Faults that needed no device, and its children's.
    pub faults: (u64, u64),
    /// How many threads its process has.
    pub threads: usize,
    /// When it began, after boot.
    pub began: u64,
    /// How large its memory is, in bytes.
    pub total: u64,
    /// The resident part of that, in pages.
    pub resident_pages: u64,
    /// The top of its stack; 0 when that is not known.
    pub stack: u64,
    /// Pending, blocked, ignored and caught signals: of each, the first 31.
    pub signals: [u64; 4],
    /// The CPU that it runs on, or ran.
    pub cpu: usize,
    /// Where its heap begins.
    pub heap: u64,
    /// Where the strings of its arguments are.
    pub args: Range<u64>,
    /// Where the strings of its environment are.
    pub envs: Range<u64>,
    /// The status that `wait4` reports; 0 while it lives.
    pub status: u32,
}

impl Stat<'_> {
    /// Prints its line of 52 fields.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print(&self, out: &mut Text) -> Result<()> {
        self.identity(out)?;
        self.times(out)?;
        let [pending, blocked, ignored, caught] = self.signals.map(|set| set & 0x7fff_ffff);
        // 25 to 28: no limit of residence; the addresses of code are left out.
        out.print(format_args!(" {} 1 1 {} 0 0", u64::MAX, self.stack))?;
        out.print(format_args!(" {pending} {blocked} {ignored} {caught}"))?;
        // 35 to 44: waits nowhere, no swap, SIGCHLD at its end, CPU, no real-time class, no guests.
        out.print(format_args!(" 0 0 0 17 {} 0 0 0 0 0", self.cpu))?;
        let (args, envs) = (&self.args, &self.envs);
        out.print(format_args!(
            " 0 0 {} {} {} {} {} {}\n",
            self.heap, args.start, args.end, envs.start, envs.end, self.status
        ))
    }

    /// Fields 1 to 13.
    fn identity(&self, out: &mut Text) -> Result<()> {
        out.print(format_args!("{} (", self.id))?;
        out.push(self.name)?;
        // No terminal, no group in front of it, no flags.
        out.print(format_args!(
            ") {} {} {} {} 0 -1 0 {} {} 0 0",
            self.state, self.parent, self.group, self.session, self.faults.0, self.faults.1
        ))
    }

    /// Fields 14 to 24.
    fn times(&self, out: &mut Text) -> Result<()> {
        out.print(format_args!(
            " {} 0 {} 0 20 0 {} 0 {} {} {}",
            self.ran, self.children_ran, self.threads, self.began, self.total, self.resident_pages
        ))
    }
}
