//! The examiner's findings, with their evidence.

use std::fmt;

use quire_units::{CpuId, Pfn, Vpn};

use crate::mmu::Flaw;

/// A rule of the hardware that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// A translation that should have been flushed was left behind when the operation ended, or
    /// grants more than the tables do.
    StaleTranslation,
    /// A live entry went straight to another that the ISA wants broken first.
    BreakBeforeMake,
    /// A broken entry was made again before the old one was flushed.
    FlushBeforeMake,
    /// A malformed entry in a live table, or met by a walk.
    Malformed,
    /// Entries that claim to be one contiguous block do not agree.
    TornBlock,
    /// A page that was dirty may be written and is clean, and its frame never left.
    LostDirty,
    /// A frame left use while a TLB or walk cache can still reach it.
    FreedWhileCached,
    /// A frame left use while a live table still maps it, or is it.
    FreedWhileMapped,
    /// Programs may fetch instructions from a frame as it was before.
    StaleCode,
    /// A CPU uses a tag under which it may hold translations of another space.
    SharedTag,
}

/// The kind of violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The entry is gone.
    Removed,
    /// It leads to other memory or another table.
    Retargeted,
    /// It maps memory where it led to a table, or the other way round, or claims another
    /// contiguous block.
    Resized,
    /// The memory type changed.
    Memory,
    /// It became, or is no longer, global.
    Global,
    /// It grants less.
    RightsLost,
    /// It is clean again, but cached as dirty, so that stores go unnoticed.
    DirtyCleared,
    /// An entry above it changed.
    Above,
    /// The word is malformed.
    Flaw(Flaw),
    /// The frame left use.
    Freed,
    /// This frame was not published since it came into use, or was written last.
    Unpublished(Pfn),
    /// The tag went to another space.
    Retagged,
}

/// One entry of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The table's frame.
    pub table: Pfn,
    /// The entry.
    pub index: usize,
    /// The table's level, the last being 0.
    pub level: u8,
    /// The first page that the entry translates.
    pub page: Vpn,
}

/// A broken rule, with the CPU and the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The kind.
    pub why: Why,
    /// The operation in which it happened, if it had been announced.
    pub operation: Option<&'static str>,
    /// The CPU that ran it.
    pub cpu: CpuId,
    /// The CPU whose TLB or walk cache is the evidence.
    pub holder: Option<CpuId>,
    /// The entry concerned.
    pub place: Option<Place>,
    /// The entry's word as it was, or as it is cached.
    pub old: u64,
    /// The entry's word as it became.
    pub new: u64,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::StaleTranslation => "a stale translation was left behind",
            Rule::BreakBeforeMake => "a live entry was changed without breaking it first",
            Rule::FlushBeforeMake => "a broken entry was made again before it was flushed",
            Rule::Malformed => "a malformed entry",
            Rule::TornBlock => "a contiguous block that is none",
            Rule::LostDirty => "a dirty page became clean",
            Rule::FreedWhileCached => "a frame was freed while a TLB can reach it",
            Rule::FreedWhileMapped => "a frame was freed while a live table holds it",
            Rule::StaleCode => "fetches may see what a frame held before",
            Rule::SharedTag => "two spaces under one tag in a TLB",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Removed => "the entry was removed",
            Why::Retargeted => "the entry was retargeted",
            Why::Resized => "the entry's size changed",
            Why::Memory => "the memory type changed",
            Why::Global => "the global flag changed",
            Why::RightsLost => "rights were taken away",
            Why::DirtyCleared => "the dirty flag was cleared",
            Why::Above => "an entry above it changed",
            Why::Freed => "the frame left use",
            Why::Unpublished(frame) => return write!(f, "{frame} was not published"),
            Why::Retagged => "the tag went to another space",
            Why::Flaw(flaw) => return flaw.fmt(f),
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.why)?;
        if let Some(at) = self.place {
            write!(f, "; entry {} of table {}", at.index, at.table)?;
            write!(f, " (level {}, page {:#x})", at.level, at.page.get())?;
            write!(f, ", word {:#018x} then {:#018x}", self.old, self.new)?;
        }
        write!(f, "; CPU {}", self.cpu.index())?;
        if let Some(name) = self.operation {
            write!(f, " in {name:?}")?;
        }
        match self.holder {
            Some(holder) => write!(f, "; cached by CPU {}", holder.index()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Violation {}
