//! The virtio disk: a bounded number of reads in flight, each into frames that it owns meanwhile.
//!
//! A read takes its frames along, so that nobody else can have them while the device writes them,
//! and brings them back with its answer. The driver's crate wants the same of its buffers by a
//! contract; here the types see to it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem;
use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering, fence};

use quire::hw::{FrameRun, Hardware, Reuse};
use quire::units::Order;
use quire_linux::{Errno, Result, Waiters, Wake};
use spin::Once;
use spin::mutex::SpinMutex;
use virtio_drivers::device::blk::{BlkReq, BlkResp, VirtIOBlk};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

use crate::isa::{self, DiskPort};
use crate::memory::{self, PAGE, PAGE_SHIFT, mm};

/// Bytes of a sector, the unit of requests.
pub(crate) const SECTOR: u64 = 512;

/// The most requests that the driver has in flight.
const REQUESTS: usize = 16;

/// Whom an answer is for.
pub(crate) trait Reader: Send + Sync {
    /// A read is over: what it was called when it was submitted, its frames, and whether they have
    /// the bytes now. No lock of the disk is held.
    fn finished(&self, name: u64, frames: FrameRun, result: Result<()>);
}

/// A read to be submitted.
pub(crate) struct Read {
    /// What its reader calls it.
    pub(crate) name: u64,
    /// The first byte on the disk, a multiple of [`SECTOR`].
    pub(crate) at: u64,
    /// How many bytes, a multiple of [`SECTOR`], and no more than the frames have. What the frames
    /// have beyond them becomes zeroes.
    pub(crate) bytes: u64,
    /// Where the bytes go.
    pub(crate) frames: FrameRun,
    /// Who is told.
    pub(crate) reader: Arc<dyn Reader>,
}

/// What the device writes and reads beside the frames; it must stay where it is.
#[derive(Default)]
struct Words {
    request: BlkReq,
    response: BlkResp,
}

struct Flight {
    read: Read,
    words: Box<Words>,
}

struct Queue {
    device: VirtIOBlk<Direct, DiskPort>,
    /// By the driver's token.
    flights: [Option<Flight>; REQUESTS],
}

/// The disk.
pub(crate) struct Disk {
    queue: SpinMutex<Queue>,
    /// Those whose reads it could not take.
    room: Waiters,
    length: u64,
}

static DISK: Once<Disk> = Once::new();

/// The disk, if there is one.
pub(crate) fn disk() -> Option<&'static Disk> {
    DISK.get()
}

/// Finds the disk and sets its queue up; whether there is one.
pub(super) fn init() -> bool {
    let Some(port) = isa::disk::<Direct>() else { return false };
    match VirtIOBlk::new(port) {
        Ok(device) => {
            let length = device.capacity().saturating_mul(SECTOR);
            log!("a disk of {} MiB", length >> 20);
            let queue = Queue { device, flights: [const { None }; REQUESTS] };
            DISK.call_once(|| Disk { queue: SpinMutex::new(queue), room: Waiters::new(), length });
            true
        }
        Err(error) => {
            log!("the disk: {error}");
            false
        }
    }
}

impl Disk {
    /// How many bytes it has.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Asks the device for a read; its reader is told when it is over. `Err` gives it back: too
    /// many are in flight, and `wake` is woken when one of them is over.
    ///
    /// # Panics
    /// When the read is not whole sectors, or has more bytes than frames.
    pub(crate) fn submit(
        &self,
        read: Read,
        wake: &Arc<dyn Wake>,
    ) -> core::result::Result<(), Read> {
        let room = read.frames.count() * PAGE;
        assert!(read.bytes > 0 && read.bytes <= room, "{} bytes into {room}", read.bytes);
        assert!((read.at | read.bytes).is_multiple_of(SECTOR), "a part of a sector");
        clear_tail(&read);
        let mut flight = Flight { read, words: Box::default() };
        let mut queue = self.queue.lock();
        match queue.start(&mut flight) {
            Ok(token) => {
                let slot = queue.flights.get_mut(usize::from(token));
                let before = slot.map(|slot| slot.replace(flight));
                assert!(matches!(before, Some(None)), "the driver gave token {token} twice");
                Ok(())
            }
            Err(_) => {
                // Without memory to note it, someone else's wake must do; and time is not lost.
                let _ = self.room.add(wake);
                Err(flight.read)
            }
        }
    }

    /// Takes one answer.
    fn take(&self) -> Option<(Read, Result<()>)> {
        let mut queue = self.queue.lock();
        // Telling the device which answer is to interrupt comes before the last look: what is
        // answered in between is seen here, or interrupts.
        fence(Ordering::SeqCst);
        let token = queue.device.peek_used()?;
        let slot = queue.flights.get_mut(usize::from(token));
        let Some(mut flight) = slot.and_then(Option::take) else {
            panic!("the disk answers what it was not asked: {token}")
        };
        let result = queue.finish(token, &mut flight);
        Some((flight.read, result.map_err(|_| Errno::EIO)))
    }
}

/// Tells readers of all that the disk has answered.
pub(crate) fn reap() {
    let Some(disk) = disk() else { return };
    while let Some((read, result)) = disk.take() {
        read.reader.finished(read.name, read.frames, result);
        disk.room.wake();
    }
}

impl Queue {
    /// Gives a read to the device.
    fn start(&mut self, flight: &mut Flight) -> core::result::Result<u16, Error> {
        let (sector, words) = ((flight.read.at / SECTOR) as usize, &mut *flight.words);
        // SAFETY: the frames are the flight's, and it is kept, without being touched, until the
        // device has answered: on success the caller puts it among `flights`, whence only `take`
        // gets it. The words are in a box of their own and stay where they are.
        unsafe {
            let buffer = &mut *bytes_of(&flight.read);
            self.device.read_blocks_nb(sector, &mut words.request, buffer, &mut words.response)
        }
    }

    /// Ends a read that the device has answered.
    fn finish(&mut self, token: u16, flight: &mut Flight) -> core::result::Result<(), Error> {
        let words = &mut *flight.words;
        // SAFETY: these are the buffers that `start` had, as the flight was found by its token.
        unsafe {
            let buffer = &mut *bytes_of(&flight.read);
            self.device.complete_read_blocks(token, &words.request, buffer, &mut words.response)
        }
    }
}

/// Where a read's bytes go. Whoever makes a reference of it argues why nobody else has one.
fn bytes_of(read: &Read) -> *mut [u8] {
    let start = mm().hardware().address(read.frames.start());
    ptr::slice_from_raw_parts_mut(start, read.bytes as usize)
}

/// Clears what a read will not fill: the pages that it does not fill as a whole.
fn clear_tail(read: &Read) {
    let (whole, all) = (read.bytes / PAGE, read.frames.count());
    if whole < all {
        mm().hardware().clear(&read.frames, whole..all, Reuse::Soon);
    }
}

/// Copies bytes of frames that nobody writes meanwhile, as the borrow shows, from byte `at` on.
///
/// # Panics
/// When the frames have fewer.
pub(super) fn copy(frames: &FrameRun, at: u64, into: &mut [u8]) {
    let room = frames.count() * PAGE;
    assert!(at + into.len() as u64 <= room, "{} bytes at {at} of {room}", into.len());
    let start = mm().hardware().address(frames.start());
    // SAFETY: the direct map shows the frames; they are ours to read, being borrowed, and the
    // bytes lie within them. `into` is other memory: it can be borrowed at the same time.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(start.add(at as usize), into.len()) };
}

/// The machine, as the driver sees it: devices see physical addresses, all of them.
pub(crate) struct Direct;

impl Direct {
    fn physical(buffer: NonNull<u8>) -> PhysAddr {
        let address = buffer.addr().get() as u64;
        let end = isa::DIRECT + (1 << 46);
        assert!((isa::DIRECT..end).contains(&address), "{address:#x} is not in the direct map");
        address - isa::DIRECT
    }
}

// SAFETY: frames of the library belong to nobody else until they are given back, and these never
// are; the direct map shows RAM and the disk's registers, page for page, and stays.
unsafe impl Hal for Direct {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let order = Order::fitting((pages as u64).next_power_of_two());
        let run = order.and_then(|order| mm().phys().alloc(isa::cpu(), order));
        // Address 0 is the driver's word for failure.
        let Some(run) = run else { return (0, NonNull::dangling()) };
        mm().hardware().clear(&run, 0..run.count(), Reuse::Soon);
        let frame = run.start();
        // They are the device's for ever.
        mem::forget(run);
        match NonNull::new(mm().hardware().address(frame)) {
            Some(address) => (frame.get() << PAGE_SHIFT, address),
            None => (0, NonNull::dangling()),
        }
    }

    /// # Safety
    /// As the trait demands. The frames are lost: the one disk has its queue for ever.
    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    /// # Safety
    /// As the trait demands: these are registers of the disk, which are mapped as a device.
    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        let shown = ptr::with_exposed_provenance_mut((isa::DIRECT + address) as usize);
        NonNull::new(shown).unwrap_or(NonNull::dangling())
    }

    /// # Safety
    /// As the trait demands; nothing is done to the buffer.
    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        Self::physical(buffer.cast())
    }

    /// # Safety
    /// As the trait demands; nothing is done to the buffer.
    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// Whether the driver may allocate what a request needs.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(super) fn admit() -> Result<()> {
    memory::admit()
}
