//! Memory use of areas, as `smaps` and `smaps_rollup` print it.

use crate::Result;
use crate::files::Text;

/// The memory use of an area, or of several together, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Resident.
    pub rss: u64,
    /// Resident, each page divided by its map count.
    pub pss: u64,
    /// The dirty part of `pss`.
    pub pss_dirty: u64,
    /// The private part of `pss`.
    pub pss_anon: u64,
    /// The part of `pss` in files.
    pub pss_file: u64,
    /// The part of `pss` in shared memory.
    pub pss_shmem: u64,
    /// Other spaces map it, too, and it is clean.
    pub shared_clean: u64,
    /// Other spaces map it, too, and it is dirty.
    pub shared_dirty: u64,
    /// No other space maps it, and it is clean.
    pub private_clean: u64,
    /// No other space maps it, and it is dirty.
    pub private_dirty: u64,
    /// Touched since that was last cleared.
    pub referenced: u64,
    /// Of no file.
    pub anonymous: u64,
    /// To be dropped when memory is short (`MADV_FREE`).
    pub lazy_free: u64,
    /// Private memory that is mapped by leaves of the block size.
    pub anon_huge: u64,
    /// Shared memory that is mapped by such leaves.
    pub shmem_huge: u64,
    /// Files of a disk that are mapped by such leaves.
    pub file_huge: u64,
    /// The locked part of `pss` (`mlock`).
    pub locked: u64,
    /// On swap devices.
    pub swap: u64,
    /// In reserved folios that other spaces map, too; they count nowhere else.
    pub shared_reserved: u64,
    /// In reserved folios that no other space maps.
    pub private_reserved: u64,
}

impl Held {
    /// Both together.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        Self {
            rss: self.rss + other.rss,
            pss: self.pss + other.pss,
            pss_dirty: self.pss_dirty + other.pss_dirty,
            pss_anon: self.pss_anon + other.pss_anon,
            pss_file: self.pss_file + other.pss_file,
            pss_shmem: self.pss_shmem + other.pss_shmem,
            shared_clean: self.shared_clean + other.shared_clean,
            shared_dirty: self.shared_dirty + other.shared_dirty,
            private_clean: self.private_clean + other.private_clean,
            private_dirty: self.private_dirty + other.private_dirty,
            referenced: self.referenced + other.referenced,
            anonymous: self.anonymous + other.anonymous,
            lazy_free: self.lazy_free + other.lazy_free,
            anon_huge: self.anon_huge + other.anon_huge,
            shmem_huge: self.shmem_huge + other.shmem_huge,
            file_huge: self.file_huge + other.file_huge,
            locked: self.locked + other.locked,
            swap: self.swap + other.swap,
            shared_reserved: self.shared_reserved + other.shared_reserved,
            private_reserved: self.private_reserved + other.private_reserved,
        }
    }

    /// Prints the lines after the first of an area in `smaps`. `bytes` is its length, `page` that
    /// of a base page; `eligible`: it may get large folios; `flags` are its words of `VmFlags`.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print<'w>(
        &self,
        out: &mut Text,
        bytes: u64,
        page: u64,
        eligible: bool,
        flags: impl Iterator<Item = &'w str>,
    ) -> Result<()> {
        line(out, "Size:", bytes)?;
        line(out, "KernelPageSize:", page)?;
        line(out, "MMUPageSize:", page)?;
        self.lines(out, false)?;
        out.print(format_args!("{:<16}{:8}\n", "THPeligible:", u8::from(eligible)))?;
        out.push(b"VmFlags: ")?;
        for word in flags {
            out.print(format_args!("{word} "))?;
        }
        out.push(b"\n")
    }

    /// Prints the lines after the first of `smaps_rollup`.
    ///
    /// # Errors
    /// [`ENOMEM`](crate::Errno::ENOMEM).
    pub fn print_rollup(&self, out: &mut Text) -> Result<()> {
        self.lines(out, true)
    }

    fn lines(&self, out: &mut Text, rollup: bool) -> Result<()> {
        line(out, "Rss:", self.rss)?;
        line(out, "Pss:", self.pss)?;
        line(out, "Pss_Dirty:", self.pss_dirty)?;
        if rollup {
            line(out, "Pss_Anon:", self.pss_anon)?;
            line(out, "Pss_File:", self.pss_file)?;
            line(out, "Pss_Shmem:", self.pss_shmem)?;
        }
        line(out, "Shared_Clean:", self.shared_clean)?;
        line(out, "Shared_Dirty:", self.shared_dirty)?;
        line(out, "Private_Clean:", self.private_clean)?;
        line(out, "Private_Dirty:", self.private_dirty)?;
        line(out, "Referenced:", self.referenced)?;
        line(out, "Anonymous:", self.anonymous)?;
        line(out, "KSM:", 0)?;
        line(out, "LazyFree:", self.lazy_free)?;
        line(out, "AnonHugePages:", self.anon_huge)?;
        line(out, "ShmemPmdMapped:", self.shmem_huge)?;
        line(out, "FilePmdMapped:", self.file_huge)?;
        line(out, "Shared_Hugetlb:", self.shared_reserved)?;
        line(out, "Private_Hugetlb:", self.private_reserved)?;
        line(out, "Swap:", self.swap)?;
        // Sharers of a slot are not counted by owner: each counts it as a whole.
        line(out, "SwapPss:", self.swap)?;
        line(out, "Locked:", self.locked)
    }
}

/// One line, in units of 1024 bytes.
fn line(out: &mut Text, name: &str, bytes: u64) -> Result<()> {
    out.print(format_args!("{name:<16}{:8} kB\n", bytes >> 10))
}
