//! The world of a script: the machine, its memory, the number of processes, the size of their
//! windows, and how often everything is checked.

use std::fmt;
use std::str::FromStr;

use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Sv39, Sv48, Sv57, X86_64, X86_64La57};
use quire_hw::{MemoryTypes, Transitions};
use quire_machine::{Config, Isa, TlbGeometry};
use quire_script::{Bounds, Dice};

/// Frames of the device.
const REGISTERS: u64 = 64;
/// Frames of RAM beside the library's.
const KEPT: u64 = 32;

/// A page-table format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// x86-64, four levels.
    X86_64,
    /// x86-64, five levels.
    X86_64La57,
    /// arm64, 4 KiB pages.
    Arm4k,
    /// arm64, 16 KiB pages.
    Arm16k,
    /// arm64, 64 KiB pages.
    Arm64k,
    /// riscv64, three levels.
    Sv39,
    /// riscv64, four levels.
    Sv48,
    /// riscv64, five levels.
    Sv57,
}

/// Work that is the same for every format.
pub(super) trait Job {
    /// Its result.
    type Out;

    /// Does it for `A`; `config` is the machine that has it.
    fn run<A: Arch>(self, config: Config) -> Self::Out;
}

impl Format {
    /// All there are.
    pub const ALL: &'static [Format] = &[
        Format::X86_64,
        Format::X86_64La57,
        Format::Arm4k,
        Format::Arm16k,
        Format::Arm64k,
        Format::Sv39,
        Format::Sv48,
        Format::Sv57,
    ];

    /// Its name in scripts and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::X86_64 => "x86_64",
            Format::X86_64La57 => "x86_64_la57",
            Format::Arm4k => "arm64_4k",
            Format::Arm16k => "arm64_16k",
            Format::Arm64k => "arm64_64k",
            Format::Sv39 => "riscv64_sv39",
            Format::Sv48 => "riscv64_sv48",
            Format::Sv57 => "riscv64_sv57",
        }
    }

    /// Does `job` for this format.
    pub(super) fn with<J: Job>(self, job: J) -> J::Out {
        match self {
            Format::X86_64 => job.run::<X86_64>(Config::x86_64()),
            Format::X86_64La57 => job.run::<X86_64La57>(Config::x86_64_la57()),
            Format::Arm4k => job.run::<Arm4k>(Config::arm64_4k()),
            Format::Arm16k => job.run::<Arm16k>(Config::arm64_16k()),
            Format::Arm64k => job.run::<Arm64k>(Config::arm64_64k()),
            Format::Sv39 => job.run::<Sv39>(Config::riscv64_sv39()),
            Format::Sv48 => job.run::<Sv48>(Config::riscv64_sv48()),
            Format::Sv57 => job.run::<Sv57>(Config::riscv64_sv57()),
        }
    }

    /// Whether hardware always notes accesses and stores.
    pub(super) fn always_notes(self) -> bool {
        matches!(self, Format::X86_64 | Format::X86_64La57)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Format::ALL.iter().find(|format| format.name() == text);
        found.copied().ok_or_else(|| format!("there is no format {text:?}"))
    }
}

/// Makes [`Setup`] of its numbers, with their names and bounds.
macro_rules! setup {
    ($($(#[$doc:meta])* $field:ident in $least:literal ..= $most:literal;)*) => {
        /// The world of a script.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Setup {
            /// The page-table format.
            pub format: Format,
            $($(#[$doc])* pub $field: u32,)*
        }

        impl fmt::Display for Setup {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "setup format={}", self.format.name())?;
                $(write!(f, concat!(" ", stringify!($field), "={}"), self.$field)?;)*
                Ok(())
            }
        }

        impl Setup {
            fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
                match name {
                    "format" => self.format = value.parse()?,
                    $(stringify!($field) => {
                        let value: Option<u32> = value.parse().ok();
                        let value = value.filter(|value| ($least..=$most).contains(value));
                        self.$field = value.ok_or(concat!(
                            stringify!($field), " is a number from ", $least, " to ", $most
                        ))?;
                    })*
                    _ => return Err(format!("a setup has no {name:?}")),
                }
                Ok(())
            }
        }
    };
}

setup! {
    /// CPUs.
    cpus in 1..=8;
    /// Processes.
    processes in 1..=8;
    /// Frames of RAM.
    frames in 256..=65536;
    /// Pages of each process's window.
    window in 16..=8192;
    /// Pages that files have at first.
    pages in 1..=4096;
    /// Slots of the swap device at first; 0 for none.
    slots in 0..=65536;
    /// Orders of folios that are always wanted at first, as bits.
    sizes in 0..=0x3fffe;
    /// Everything is checked after this many steps.
    every in 1..=1000000;
    /// Hardware notes neither accesses nor stores (1), or no stores (2); always 0 on x86-64.
    soft in 0..=2;
    /// Live entries may change their size (arm64).
    resizes in 0..=1;
    /// Contiguous blocks are cached entry by entry.
    apart in 0..=1;
    /// A cached denial stays until it is flushed; on x86-64 in exact worlds only. In others on
    /// riscv64, cached absence does, too.
    stubborn in 0..=1;
    /// The CPU has no contiguous blocks: an entry that says so is malformed.
    plain in 0..=1;
    /// The world is exact: see [`whole`](super).
    exact in 0..=1;
    /// RAM is known to be zero at first.
    zeroed in 0..=1;
    /// Slots of a second swap device at first; 0 for none.
    more in 0..=65536;
    /// Frames of a zone that is scarce; 0 for none.
    low in 0..=128;
    /// Entries cannot say memory types: the platform gives them, and knows no combining memory.
    untyped in 0..=1;
    /// Folios that a pool keeps at first; 0 for no pool.
    pool in 0..=64;
    /// Their order.
    whole in 4..=10;
    /// Swap devices that are compressed memory: 1 for the first, 2 for the second, or both.
    packed in 0..=3;
}

impl Setup {
    /// The world of a seed; of this format, if one is given.
    #[must_use]
    pub fn draw(seed: u64, format: Option<Format>) -> Self {
        let dice = &mut Dice::new(seed);
        let drawn = dice.pick(Format::ALL);
        let format = format.unwrap_or(drawn);
        let large = matches!(format, Format::Arm16k | Format::Arm64k);
        let frames = dice.pick(if large { &[600, 900, 1500] } else { &[600, 1200, 2048, 4096] });
        let sizes = [0, 1 << 4, 1 << 2 | 1 << 4, 1 << 9, 0x1e, 1 << 4 | 1 << 5 | 1 << 7];
        let flag = |dice: &mut Dice| dice.roll(2) as u32;
        Self {
            format,
            cpus: dice.pick(&[1, 2, 2, 3, 4]),
            processes: dice.pick(&[1, 2, 3, 4, 6]),
            frames,
            window: dice.pick(&[64, 128, 256, 700, 1024]),
            pages: dice.pick(&[3, 40, 150, 600]),
            slots: dice.pick(&[0, 50, 700, 3000]),
            sizes: dice.pick(&sizes),
            every: dice.pick(&[128, 256, 512, 1024, 2048]),
            soft: dice.roll(3) as u32,
            resizes: flag(dice),
            apart: flag(dice),
            stubborn: flag(dice),
            plain: flag(dice),
            exact: 0,
            zeroed: 0,
            more: dice.pick(&[0, 0, 40, 600]),
            low: dice.pick(&[0, 24, 128]),
            untyped: flag(dice),
            pool: 0,
            whole: 4,
            packed: 0,
        }
        .with_pool(dice)
    }

    /// The same with what was added later: all other numbers of a seed stay.
    fn with_pool(self, dice: &mut Dice) -> Self {
        let whole = dice.pick(&[4, 4, 5, 9]);
        let most = if whole == 9 { self.frames / 1024 } else { 32 };
        let pool = dice.pick(&[0, 1, 3, 8, 20]).min(most);
        let packed = dice.pick(&[0, 0, 0, 1, 2, 3]);
        Self { pool: if self.frames < 1200 { 0 } else { pool }, whole, packed, ..self }
    }

    /// A small world for `format`, with two of everything.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            cpus: 2,
            processes: 2,
            frames: 2048,
            window: 512,
            pages: 128,
            slots: 700,
            sizes: 0,
            every: 256,
            soft: 0,
            resizes: 0,
            apart: 0,
            stubborn: 0,
            plain: 0,
            exact: 0,
            zeroed: 0,
            more: 0,
            low: 0,
            untyped: 0,
            pool: 0,
            whole: 4,
            packed: 0,
        }
    }

    /// The bounds of its scripts.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let Self { cpus, processes, window, pages, .. } = *self;
        Bounds { cpus, processes, window, pages }
    }

    /// Frames of a device, which an exact world does not have.
    pub(super) fn registers(&self) -> u64 {
        if self.exact == 1 { 0 } else { REGISTERS }
    }

    /// Frames of RAM that the library does not get, and areas may show.
    pub(super) fn kept(&self) -> u64 {
        if self.exact == 1 { 0 } else { KEPT }
    }

    /// The machine, made of the one that has the format.
    pub(super) fn config(&self, base: Config) -> Config {
        let always = self.format.always_notes();
        let transitions =
            if self.resizes == 0 { Transitions::Base } else { Transitions::BbmLevel2 };
        Config {
            cpus: self.cpus as usize,
            sets_accessed: self.soft != 1 || always,
            sets_dirty: self.soft == 0 || always,
            transitions,
            contiguous: self.plain == 0,
            memory_types: match self.untyped {
                0 => MemoryTypes::ENTRIES,
                _ => MemoryTypes::PLATFORM,
            },
            device_frames: self.registers(),
            joins_contiguous: self.apart == 0,
            rewalks_on_denial: self.stubborn == 0 || always && self.exact == 0,
            caches_absence: self.stubborn == 1
                && self.exact == 0
                && matches!(base.isa, Isa::Riscv64(_)),
            // Windows are small, too; and each flush looks at all of it.
            tlb: TlbGeometry { first: 16, sets: 16, ways: 8, walks: 16 },
            ..base
        }
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        if words.next() != Some("setup") {
            return Err("the first line begins with `setup`".to_owned());
        }
        let mut setup = Setup::new(Format::X86_64);
        for word in words {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("{word:?} is no name=value"))?;
            setup.set(name, value)?;
        }
        Ok(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_as_it_was_written() {
        for &format in Format::ALL {
            let setup = Setup { cpus: 3, slots: 0, stubborn: 1, plain: 1, ..Setup::new(format) };
            assert_eq!(setup.to_string().parse(), Ok(setup));
        }
    }

    #[test]
    fn a_line_that_is_no_setup_is_refused() {
        for line in [
            "",
            "set",
            "setup cpus",
            "setup cpus=0",
            "setup cpus=9",
            "setup format=z80",
            "setup moons=1",
            "setup every=x",
        ] {
            assert!(line.parse::<Setup>().is_err(), "{line:?}");
        }
    }
}
