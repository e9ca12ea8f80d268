//! The facts that a folio's slot records about it, besides its holds.

use bitflags::bitflags;

use crate::phys::State;

bitflags! {
    /// The facts recorded about a folio.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FolioFlags: u32 {
        /// It has an identity: it is in its file's index.
        const CACHED = 1 << 0;
        /// All its bytes are those of the file. The index records whether the store has them, too.
        const UPTODATE = 1 << 1;
        /// It is being written to the file's store.
        const WRITING = 1 << 2;
        /// The caller that touches it next requests a read of the pages after it.
        const READAHEAD = 1 << 3;
        /// Its memory failed; its content is lost.
        const POISONED = 1 << 4;
        /// It is on its way to a swap device: its mappings are being replaced by swap entries.
        const LEAVING = 1 << 5;
        /// For how many rounds of aging it was not touched, up to three: the low bit of that
        /// number.
        const IDLE_LOW = 1 << 6;
        /// The high bit of that number.
        const IDLE_HIGH = 1 << 7;
        /// Its content may be dropped as long as no CPU writes it (`MADV_FREE`): its leaves were
        /// made clean, so a dirty leaf shows a write.
        const LAZY = 1 << 8;
        /// Its pages are about to move to another folio, or to several: a caller that looks for it
        /// waits.
        const SECLUDED = 1 << 9;
        /// Instruction fetches see all its bytes: none was written since the last
        /// [`publish_code`](quire_hw::Hardware::publish_code), but by programs.
        const PUBLISHED = 1 << 10;
    }
}

/// The bit of [`FolioFlags`] at which the number of rounds begins.
const IDLE_AT: u32 = 6;
/// The largest number of rounds that is counted.
const IDLE_MOST: u32 = 3;

impl FolioFlags {
    pub(super) fn of(state: State) -> Self {
        Self::from_bits_truncate(state.flags())
    }

    pub(crate) const fn idle(self) -> u32 {
        self.bits() >> IDLE_AT & IDLE_MOST
    }

    /// The same facts after one more round of aging.
    pub(super) fn aged(self, touched: bool) -> Self {
        let idle = if touched { 0 } else { (self.idle() + 1).min(IDLE_MOST) };
        Self::from_bits_truncate(self.bits() & !(IDLE_MOST << IDLE_AT) | idle << IDLE_AT)
    }
}
