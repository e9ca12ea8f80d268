//! Devices in memory, which answer at once: `/dev/ram0` and `/dev/zram0`.
//!
//! They answer at once, so they have no queue and no cache. The boot words `ram0=SIZE` and
//! `zram0=SIZE` make them, or `zram0=SIZE,unit=SIZE`, where a size is in bytes, or in `K`, `M` or
//! `G`. They take memory as they are written; with `,behind=DISK,most=SIZE` compressed memory takes
//! at most that size, and cold units go to that disk, such as `vda`.

use alloc::sync::Arc;
use core::ops::Range;

use quire::cache;
use quire::hw::{FrameRun, Memory};
use quire::units::{FrameSpan, Order};
use quire_linux::files::{Block, Number};
use quire_linux::{Errno, Result};
use spin::Once;

use super::behind::{Away, Behind, Leaving};
use super::block;
use super::claim::Claims;
use super::packed::Packed;
use super::ram::Ram;
use crate::isa;
use crate::memory::{PAGE, mm};

/// A device that answers at once. Its pages are numbered from 0.
pub(super) trait Instant: Block {
    /// Its exclusive owner.
    fn claims(&self) -> &Claims;

    /// Stores the bytes of `frames` as the pages from `page` on. If they change meanwhile, the
    /// stored bytes are undefined, which is harmless.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], [`Errno::EIO`]; of these pages none may be there then.
    fn store(&self, page: u64, frames: FrameSpan) -> Result<()>;

    /// Fills the frames of `read` with the pages from `page` on; which of them it could not, since
    /// they are on the disk [behind](Self::behind).
    ///
    /// # Errors
    /// [`Errno::EIO`] when it does not have them any more.
    fn load(&self, page: u64, read: &mut cache::Read) -> Result<Away>;

    /// The disk behind it.
    fn behind(&self) -> Option<&Behind> {
        None
    }

    /// The number of its pools.
    fn pools(&self) -> usize {
        0
    }

    /// The unit that should leave pool `number` for the disk behind it, if the pool holds more than
    /// it may and none is leaving yet; the caller reports the outcome to [`left`](Self::left).
    /// `next` as for [`sweep`](Self::sweep).
    fn leave(
        &self,
        number: usize,
        next: &dyn Fn(Range<u64>) -> Option<Range<u64>>,
    ) -> Option<Leaving> {
        let _ = (number, next);
        None
    }

    /// The unit that left pool `number` last, from these frames, is on the disk, or is not.
    fn left(&self, number: usize, frames: FrameRun, is_there: bool) {
        let _ = (number, is_there);
        mm().phys().free(frames);
    }

    /// Pages with memory that [`sweep`](Self::sweep) could free; none where that does nothing.
    fn held(&self) -> u64 {
        0
    }

    /// Forgets all pages that are free, but page 0: `next` gives the first run of them in some
    /// pages.
    fn sweep(&self, next: &dyn Fn(Range<u64>) -> Option<Range<u64>>) {
        let _ = next;
    }
}

/// Bytes that are compressed as one, unless the boot word says otherwise: the size that suits
/// folios best.
const UNIT: u64 = 64 << 10;

/// The devices there are, by their names in `/dev`.
static DEVICES: [(&str, Once<Arc<dyn Instant>>); 2] =
    [("ram0", Once::new()), ("zram0", Once::new())];

/// Makes the devices that the kernel's command line asks for.
pub(super) fn init(line: &str) {
    let words = line.split_ascii_whitespace().take_while(|word| *word != "--");
    for (name, size) in words.filter_map(|word| word.split_once('=')) {
        let Some((name, device)) = DEVICES.iter().find(|(known, _)| *known == name) else {
            continue;
        };
        match make(name, size) {
            Ok(made) => {
                let (size, copy) = (made.length() >> 20, copy_ns());
                log!("{name}: {size} MiB; a page is copied in {copy} ns");
                device.call_once(|| made);
            }
            Err(error) => log!("{name}={size}: {error}"),
        }
    }
}

/// How long it takes to copy a page, in nanoseconds, if there is memory to find out: for benches
/// that measure devices by the instructions that an emulator counts, which are not those of a CPU.
fn copy_ns() -> u64 {
    const SAMPLE: Order = Order::new(4);
    let (Ok(from), Ok(to)) = (frames(SAMPLE), frames(SAMPLE)) else { return 0 };
    let span = FrameSpan::new(from.start(), SAMPLE.pages());
    let start = isa::now();
    let copied = mm().hardware().copy(&to, 0, span);
    let took = isa::now() - start;
    [from, to].into_iter().for_each(|run| mm().phys().free(run));
    copied.map_or(0, |()| took / SAMPLE.pages())
}

fn make(name: &str, word: &str) -> Result<Arc<dyn Instant>> {
    let mut options = word.split(',');
    let length = options.next().and_then(bytes).ok_or(Errno::EINVAL)?;
    if name != "zram0" {
        return Ok(Arc::new(Ram::new(length)?));
    }
    let (mut unit, mut disk, mut most) = (UNIT, None, u64::MAX);
    for option in options {
        match option.split_once('=').ok_or(Errno::EINVAL)? {
            ("unit", size) => unit = bytes(size).ok_or(Errno::EINVAL)?,
            ("behind", name) => disk = Some(name),
            ("most", size) => most = bytes(size).ok_or(Errno::EINVAL)?,
            _ => return Err(Errno::EINVAL),
        }
    }
    let behind = match disk {
        Some(name) => {
            let disk = block::disk_of(name).ok_or(Errno::ENODEV)?;
            Some(Behind::new(disk, length, most / PAGE)?)
        }
        None => None,
    };
    Ok(Arc::new(Packed::new(length, unit, behind)?))
}

/// Reads a size in bytes, in whole pages; `None` when it is none.
fn bytes(size: &str) -> Option<u64> {
    let (digits, shift) = match size.as_bytes().last()? {
        b'K' | b'k' => (&size[..size.len() - 1], 10),
        b'M' | b'm' => (&size[..size.len() - 1], 20),
        b'G' | b'g' => (&size[..size.len() - 1], 30),
        _ => (size, 0),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes >= PAGE).then_some(bytes - bytes % PAGE)
}

/// All of them, by their names in `/dev`.
pub(super) fn nodes() -> impl Iterator<Item = (&'static str, Arc<dyn Block>)> {
    let there = DEVICES.iter().filter_map(|(name, device)| Some((*name, device.get()?)));
    there.map(|(name, device)| (name, device.clone() as Arc<dyn Block>))
}

/// The counters of the disk behind one of them, if there is one.
pub(crate) fn counts() -> Option<[(&'static str, u64); 4]> {
    let mut there = DEVICES.iter().filter_map(|(_, device)| device.get());
    there.find_map(|device| device.behind().map(Behind::counts))
}

/// The one that has these numbers.
pub(super) fn of_number(number: Number) -> Option<&'static Arc<dyn Instant>> {
    let mut there = DEVICES.iter().filter_map(|(_, device)| device.get());
    there.find(|device| device.number() == number)
}

/// Frames for a device, without reclaim.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(super) fn frames(order: Order) -> Result<FrameRun> {
    mm().phys().alloc(order).ok_or(Errno::ENOMEM)
}
