//! A process or thread for human readers: `status`.

use super::Sizes;
use crate::Result;
use crate::credentials::{Capabilities, Credentials, Ids};
use crate::files::Text;

/// The fields of `status` for a process or thread.
#[derive(Clone, Debug)]
pub struct Status<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The permissions that its new files do not get.
    pub umask: u32,
    /// Its state: a letter as in `stat`, and a word.
    pub state: (char, &'a str),
    /// Its users, groups and capabilities.
    pub may: &'a Credentials,
    /// Its process.
    pub pid: u32,
    /// Itself: the thread, or the process.
    pub tid: u32,
    /// The pid of its parent; 0 when it has none.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// How many descriptors it may have without a larger table.
    pub descriptors: usize,
    /// Its memory, with the most it had; nothing once it has ended.
    pub memory: Option<(Sizes, Peaks)>,
    /// Whether it may get large folios.
    pub thp: bool,
    /// How many threads its process has.
    pub threads: usize,
    /// How many signals may be pending.
    pub signals_max: usize,
    /// Its signals.
    pub masks: Masks,
    /// How many CPUs there are, all of which it may use; at most 64.
    pub cpus: usize,
    /// Its voluntary and involuntary context switches.
    pub switches: (u64, u64),
}

/// The peaks of a process's memory, and the size of its page tables, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// All areas.
    pub total: u64,
    /// Resident.
    pub resident: u64,
    /// Page tables, now.
    pub tables: u64,
}

/// Sets of signals; bit 0 is signal 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Pending for the thread.
    pub pending: u64,
    /// Pending for its process.
    pub shared_pending: u64,
    /// Blocked.
    pub blocked: u64,
    /// Ignored.
    pub ignored: u64,
    /// With a handler.
    pub caught: u64,
}

impl Status<'_> {
    /// Prints its lines.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print(&self, out: &mut Text) -> Result<()> {
        self.identity(out)?;
        if let Some((sizes, peaks)) = &self.memory {
            memory(out, sizes, peaks)?;
            out.print(format_args!("CoreDumping:\t0\nTHP_enabled:\t{}\n", u8::from(self.thp)))?;
            out.print(format_args!("untag_mask:\t{:#x}\n", u64::MAX))?;
        }
        self.signals(out)?;
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let sets = &self.may.capabilities;
            let set = match name {
                "CapInh" => sets.inheritable,
                "CapPrm" => sets.permitted,
                "CapEff" => sets.effective,
                "CapBnd" => Capabilities::ALL,
                _ => 0,
            };
            out.print(format_args!("{name}:\t{set:016x}\n"))?;
        }
        out.push(b"NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n")?;
        let cpus = u64::MAX >> (64 - self.cpus.clamp(1, 64));
        out.print(format_args!("Cpus_allowed:\t{cpus:x}\nCpus_allowed_list:\t"))?;
        match self.cpus {
            0 | 1 => out.push(b"0\n")?,
            cpus => out.print(format_args!("0-{}\n", cpus - 1))?,
        }
        out.push(b"Mems_allowed:\t1\nMems_allowed_list:\t0\n")?;
        out.print(format_args!("voluntary_ctxt_switches:\t{}\n", self.switches.0))?;
        out.print(format_args!("nonvoluntary_ctxt_switches:\t{}\n", self.switches.1))
    }

    fn identity(&self, out: &mut Text) -> Result<()> {
        out.push(b"Name:\t")?;
        out.push(self.name)?;
        let (letter, word) = self.state;
        out.print(format_args!("\nUmask:\t{:04o}\nState:\t{letter} ({word})\n", self.umask))?;
        out.print(format_args!("Tgid:\t{}\nNgid:\t0\nPid:\t{}\n", self.pid, self.tid))?;
        out.print(format_args!("PPid:\t{}\nTracerPid:\t0\n", self.parent))?;
        for (name, ids) in [("Uid", self.may.users), ("Gid", self.may.groups)] {
            let Ids { real, effective, saved, files } = ids;
            out.print(format_args!("{name}:\t{real}\t{effective}\t{saved}\t{files}\n"))?;
        }
        out.print(format_args!("FDSize:\t{}\nGroups:\t", self.descriptors))?;
        for (at, group) in self.may.others.iter().enumerate() {
            out.print(format_args!("{}{group}", if at == 0 { "" } else { " " }))?;
        }
        out.push(b" \n")?;
        out.print(format_args!("NStgid:\t{}\nNSpid:\t{}\n", self.pid, self.tid))?;
        out.print(format_args!("NSpgid:\t{}\nNSsid:\t{}\nKthread:\t0\n", self.group, self.session))
    }

    fn signals(&self, out: &mut Text) -> Result<()> {
        let masks = &self.masks;
        let pending = masks.pending.count_ones() + masks.shared_pending.count_ones();
        out.print(format_args!("Threads:\t{}\n", self.threads))?;
        out.print(format_args!("SigQ:\t{pending}/{}\n", self.signals_max))?;
        for (name, set) in [
            ("SigPnd", masks.pending),
            ("ShdPnd", masks.shared_pending),
            ("SigBlk", masks.blocked),
            ("SigIgn", masks.ignored),
            ("SigCgt", masks.caught),
        ] {
            out.print(format_args!("{name}:\t{set:016x}\n"))?;
        }
        Ok(())
    }
}

fn memory(out: &mut Text, sizes: &Sizes, peaks: &Peaks) -> Result<()> {
    let lines = [
        ("VmPeak", peaks.total.max(sizes.total)),
        ("VmSize", sizes.total),
        ("VmLck", sizes.locked),
        ("VmPin", 0),
        ("VmHWM", peaks.resident.max(sizes.resident())),
        ("VmRSS", sizes.resident()),
        ("RssAnon", sizes.anon),
        ("RssFile", 0),
        ("RssShmem", sizes.shared),
        ("VmData", sizes.data),
        ("VmStk", sizes.stack),
        ("VmExe", sizes.code),
        ("VmLib", 0),
        ("VmPTE", peaks.tables),
        ("VmSwap", sizes.swap),
        ("HugetlbPages", sizes.reserved),
    ];
    for (name, bytes) in lines {
        out.print(format_args!("{name}:\t{:8} kB\n", bytes >> 10))?;
    }
    Ok(())
}
