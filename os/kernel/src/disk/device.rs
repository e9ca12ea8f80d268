//! Virtio disks: a bounded number of requests in flight, each for frames that it holds meanwhile.
//!
//! A read takes its frames along, so that they stay out of use while the device writes them, and
//! brings them back with its answer. A write takes frames along as well, or a reference that keeps
//! them. The driver's crate demands the same of its buffers by a contract; here types guarantee it.
//! Requests beyond the bound wait here for their turn.
//!
//! Memory may be short *because* nothing was written yet. So all that a write to swap needs is
//! allocated before: submitting it takes no memory.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering, fence};

use quire::Held;
use quire::cache;
use quire::hw::{FrameRun, Memory, Reuse};
use quire::units::{Order, Pfn};
use quire_linux::files::Source;
use quire_linux::{Errno, Result};
use spin::Once;
use spin::mutex::SpinMutex;
use virtio_drivers::device::blk::{BlkReq, BlkResp, VirtIOBlk};
use virtio_drivers::{BufferDirection, Error, Hal, PhysAddr};

use super::claim::Claims;
use crate::isa::{self, DISKS_MAX, DiskPort};
use crate::memory::{self, PAGE, PAGE_SHIFT, mm};

/// Bytes of a sector, the unit of requests.
pub(crate) const SECTOR: u64 = 512;

/// The most requests that the driver has in flight.
const REQUESTS: usize = 16;

/// The receiver of an answer.
pub(crate) trait Reader: Send + Sync {
    /// A request is over: its name, its frames, and whether they, or the disk, have the bytes now.
    /// No lock of the disk is held.
    fn finished(&self, name: u64, target: Target, result: Result<()>);
}

/// Where the bytes of a request go, or come from.
pub(crate) enum Target {
    /// Into frames of its own, from their beginning on.
    Own(FrameRun),
    /// Into these bytes of frames that several reads fill.
    Part(Part),
    /// From frames of its own to the disk.
    Out(FrameRun),
    /// From frames of a file to the disk.
    Kept(quire::Write),
    /// From frames of a device of compressed memory to the disk behind it.
    Moved(FrameRun),
}

impl Target {
    /// Whether bytes go to the disk.
    fn is_write(&self) -> bool {
        matches!(self, Self::Out(_) | Self::Kept(_) | Self::Moved(_))
    }

    /// Whether it frees memory, so that it must not allocate any.
    fn frees(&self) -> bool {
        matches!(self, Self::Kept(_) | Self::Moved(_))
    }

    /// How many bytes it has room for.
    fn room(&self) -> u64 {
        match self {
            Self::Own(frames) | Self::Out(frames) | Self::Moved(frames) => frames.count() * PAGE,
            Self::Part(part) => part.bytes(),
            Self::Kept(write) => write.frames().count * PAGE,
        }
    }
}

/// A stretch of bytes of frames of a file. No two of the same frames overlap.
pub(crate) struct Part {
    all: Arc<Folio>,
    bytes: Range<u64>,
}

/// The frames of a file that parts are of.
struct Folio {
    read: cache::Read,
    is_spoilt: AtomicBool,
}

impl Part {
    /// All bytes of the frames of `read`.
    pub(crate) fn all(read: cache::Read) -> Self {
        let bytes = 0..read.frames().count() * PAGE;
        Self { all: Arc::new(Folio { read, is_spoilt: AtomicBool::new(false) }), bytes }
    }

    /// Cuts it after `bytes` bytes, or at its end.
    pub(crate) fn split(self, bytes: u64) -> (Self, Self) {
        let middle = self.bytes.start.saturating_add(bytes).min(self.bytes.end);
        let first = Self { all: self.all.clone(), bytes: self.bytes.start..middle };
        (first, Self { bytes: middle..self.bytes.end, ..self })
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Makes all of it zero.
    pub(crate) fn clear(&mut self) {
        let start = mm().hardware().address(self.all.read.frames().start());
        let (at, bytes) = (self.bytes.start as usize, self.bytes() as usize);
        // SAFETY: the direct map shows the frames, which the read has the right to; the bytes lie
        // within them, and no other part has them.
        unsafe { start.add(at).write_bytes(0, bytes) };
    }

    /// Notes that its bytes could not be read.
    pub(crate) fn spoil(&mut self) {
        self.all.is_spoilt.store(true, Ordering::Relaxed);
    }

    /// From the last part: the read, and whether all parts have their bytes. Bytes of the file
    /// beyond `file_end` are zero then.
    pub(crate) fn into_whole(self, file_end: u64) -> Option<(cache::Read, Result<()>)> {
        // A relaxed load is enough within: the count of owners orders all before the last.
        let Folio { read, is_spoilt } = Arc::into_inner(self.all)?;
        let first = read.pages().start * PAGE;
        let bytes = read.frames().count() * PAGE;
        let mut beyond = Self::all(read).split(file_end.saturating_sub(first).min(bytes)).1;
        beyond.clear();
        let Folio { read, .. } = Arc::into_inner(beyond.all)?;
        Some((read, if is_spoilt.into_inner() { Err(Errno::EIO) } else { Ok(()) }))
    }
}

/// A request to be submitted.
pub(crate) struct Read {
    /// The reader's name for it.
    pub(crate) name: u64,
    /// The first byte on the disk, a multiple of [`SECTOR`].
    pub(crate) at: u64,
    /// How many bytes, a multiple of [`SECTOR`], and no more than there is room for. Pages of its
    /// own that are not filled by them as a whole are cleared before.
    pub(crate) bytes: u64,
    /// Where the bytes go, or come from.
    pub(crate) target: Target,
    /// The reader that gets the answer.
    pub(crate) reader: Arc<dyn Reader>,
}

/// The fields that the device writes and reads beside the frames; they must not move.
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
    /// Those that the device has no room for yet, oldest first. There is always room for as many
    /// as `spare` has.
    waiting: VecDeque<Flight>,
    /// Words for writes to swap, as many as there may be.
    #[expect(
        clippy::vec_box,
        reason = "a request's words stay where they are while it is on its way"
    )]
    spare: Vec<Box<Words>>,
}

/// The most writes to swap that are asked of a disk at a time.
pub(super) const WRITES: usize = 64;

/// A disk.
pub(crate) struct Disk {
    queue: SpinMutex<Queue>,
    length: u64,
    is_read_only: bool,
    claims: Claims,
}

static DISKS: [Once<Disk>; DISKS_MAX] = [const { Once::new() }; DISKS_MAX];

/// Disk `number`, if there is one.
pub(crate) fn disk(number: usize) -> Option<&'static Disk> {
    DISKS.get(number)?.get()
}

/// Finds a disk and sets its queue up; whether there is one.
pub(super) fn init(number: usize) -> bool {
    let Some(port) = isa::disk::<Direct>(number) else { return false };
    match VirtIOBlk::new(port) {
        Ok(device) => {
            let length = device.capacity().saturating_mul(SECTOR);
            let is_read_only = device.readonly();
            log!("a disk of {} MiB", length >> 20);
            let waiting = VecDeque::with_capacity(WRITES);
            let spare = (0..WRITES).map(|_| Box::default()).collect();
            let flights = [const { None }; REQUESTS];
            let queue = SpinMutex::new(Queue { device, flights, waiting, spare });
            let claims = Claims::default();
            DISKS[number].call_once(|| Disk { queue, length, is_read_only, claims });
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

    /// Whether it cannot be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Its exclusive owner.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Submits a request to the device; its reader gets the answer.
    ///
    /// # Errors
    /// Gives it back when there is no memory to keep it until the device has room; for writes to
    /// swap, when there are as many as there may be.
    ///
    /// # Panics
    /// When it is not whole sectors, or has more bytes than there is room for.
    pub(crate) fn submit(&self, read: Read) -> core::result::Result<(), Read> {
        let room = read.target.room();
        assert!(read.bytes > 0 && read.bytes <= room, "{} bytes into {room}", read.bytes);
        assert!((read.at | read.bytes).is_multiple_of(SECTOR), "a part of a sector");
        clear_tail(&read);
        let frees = read.target.frees();
        if !frees && !memory::has_reserve() {
            return Err(read);
        }
        let mut queue = self.queue.lock();
        let words = match frees {
            true => queue.spare.pop(),
            false => queue.waiting.try_reserve(WRITES + 1).is_ok().then(Box::default),
        };
        let Some(words) = words else { return Err(read) };
        queue.waiting.push_back(Flight { read, words });
        queue.start_waiting();
        Ok(())
    }

    /// Takes one answer.
    fn take(&self) -> Option<(Read, Result<()>)> {
        let mut queue = self.queue.lock();
        // Interrupts are turned on before the last look: an answer in between is seen here, or
        // interrupts.
        fence(Ordering::SeqCst);
        let Some(token) = queue.device.peek_used() else { return queue.give_up() };
        let slot = queue.flights.get_mut(usize::from(token));
        let Some(mut flight) = slot.and_then(Option::take) else {
            panic!("the disk answers without a request: {token}")
        };
        let result = queue.finish(token, &mut flight);
        let read = queue.land(flight);
        queue.start_waiting();
        Some((read, result.map_err(|_| Errno::EIO)))
    }
}

/// Passes all answers of the disks to their readers.
pub(crate) fn reap() {
    for disk in DISKS.iter().filter_map(Once::get) {
        while let Some((read, result)) = disk.take() {
            read.reader.finished(read.name, read.target, result);
        }
    }
}

impl Queue {
    /// Gives waiting reads to the device, as far as it has room.
    fn start_waiting(&mut self) {
        while let Some(mut flight) = self.waiting.pop_front() {
            let Ok(token) = self.start(&mut flight) else {
                // There is room in the list: it was just taken from there.
                self.waiting.push_front(flight);
                return;
            };
            let slot = self.flights.get_mut(usize::from(token));
            let before = slot.map(|slot| slot.replace(flight));
            assert!(matches!(before, Some(None)), "the driver gave token {token} twice");
        }
    }

    /// The request of a flight that is over; its words are kept for the next write to swap.
    fn land(&mut self, flight: Flight) -> Read {
        if flight.read.target.frees() {
            // There is room: they were taken from there.
            self.spare.push(flight.words);
        }
        flight.read
    }

    /// A request that the device does not take although it has nothing to do.
    fn give_up(&mut self) -> Option<(Read, Result<()>)> {
        if self.flights.iter().any(Option::is_some) {
            return None;
        }
        let flight = self.waiting.pop_front()?;
        Some((self.land(flight), Err(Errno::EIO)))
    }

    /// Gives a request to the device.
    fn start(&mut self, flight: &mut Flight) -> core::result::Result<u16, Error> {
        let (sector, words) = ((flight.read.at / SECTOR) as usize, &mut *flight.words);
        let (request, response) = (&mut words.request, &mut words.response);
        // SAFETY: the frames are the flight's, or it has a hold on them, and it is kept, without
        // being touched, until the device has answered: on success the caller puts it among
        // `flights`, whence only `take` gets it. The words are in a box of their own and stay where
        // they are. A program may write what is held meanwhile: the device reads one or the other,
        // and nothing here reads it at all.
        unsafe {
            match flight.read.target.is_write() {
                true => {
                    let buffer = &*bytes_of(&flight.read);
                    self.device.write_blocks_nb(sector, request, buffer, response)
                }
                false => {
                    let buffer = &mut *bytes_of(&flight.read);
                    self.device.read_blocks_nb(sector, request, buffer, response)
                }
            }
        }
    }

    /// Ends a request that the device has answered.
    fn finish(&mut self, token: u16, flight: &mut Flight) -> core::result::Result<(), Error> {
        let Words { request, response } = &mut *flight.words;
        // SAFETY: these are the buffers that `start` had, as the flight was found by its token.
        unsafe {
            match flight.read.target.is_write() {
                true => {
                    let buffer = &*bytes_of(&flight.read);
                    self.device.complete_write_blocks(token, request, buffer, response)
                }
                false => {
                    let buffer = &mut *bytes_of(&flight.read);
                    self.device.complete_read_blocks(token, request, buffer, response)
                }
            }
        }
    }
}

/// Where a request's bytes go, or come from. Code that makes a reference of it argues why there is
/// no other.
fn bytes_of(read: &Read) -> *mut [u8] {
    let (frame, at) = match &read.target {
        Target::Own(frames) | Target::Out(frames) | Target::Moved(frames) => (frames.start(), 0),
        Target::Part(part) => (part.all.read.frames().start(), part.bytes.start),
        Target::Kept(write) => (write.frames().start, 0),
    };
    let start = mm().hardware().address(frame).wrapping_add(at as usize);
    ptr::slice_from_raw_parts_mut(start, read.bytes as usize)
}

/// Clears the pages of its own that a read will not fill as a whole.
fn clear_tail(read: &Read) {
    let Target::Own(frames) = &read.target else { return };
    let (whole, all) = (read.bytes / PAGE, frames.count());
    if whole < all {
        mm().hardware().clear(frames, whole..all, Reuse::Soon);
    }
}

/// Copies bytes of frames from byte `at` on. The borrow shows that nothing writes them meanwhile.
///
/// # Panics
/// When the frames have fewer.
pub(super) fn copy(frames: &FrameRun, at: u64, into: &mut [u8]) {
    let room = frames.count() * PAGE;
    assert!(at + into.len() as u64 <= room, "{} bytes at {at} of {room}", into.len());
    // SAFETY: the frames are ours to read, being borrowed, and the bytes lie within them.
    unsafe { copy_from(frames.start(), at, into) };
}

/// The same of pages of a file that can only be read: nothing ever writes them.
///
/// # Panics
/// When there are fewer.
pub(super) fn copy_held(held: &Held, at: u64, into: &mut [u8]) {
    let frames = held.frames();
    let room = frames.count * PAGE;
    assert!(at + into.len() as u64 <= room, "{} bytes at {at} of {room}", into.len());
    // SAFETY: pages that are held stay the file's, filled, and unwritten: areas that show it have
    // no right to, and files of disks are opened by `files` alone. The bytes lie within.
    unsafe { copy_from(frames.start, at, into) };
}

/// Fills bytes of these frames, which have no other owner, from byte `at` on, with the source's
/// bytes.
///
/// # Errors
/// The source's; some may have been filled.
///
/// # Panics
/// When the frames have fewer.
pub(super) fn fill(
    frames: &mut FrameRun,
    at: u64,
    bytes: usize,
    source: &mut dyn Source,
) -> Result<usize> {
    let room = frames.count() * PAGE;
    assert!(at + bytes as u64 <= room, "{bytes} bytes at {at} of {room}");
    let start = mm().hardware().address(frames.start());
    // SAFETY: the frames are ours alone, being borrowed so; the direct map shows them, and the
    // bytes lie within them. Any bytes are good ones.
    let into = unsafe { core::slice::from_raw_parts_mut(start.add(at as usize), bytes) };
    source.take(into)
}

/// The bytes of frames. The borrow shows that nothing writes them meanwhile.
pub(super) fn bytes(frames: &FrameRun) -> &[u8] {
    let (start, room) = (mm().hardware().address(frames.start()), frames.count() * PAGE);
    // SAFETY: the direct map shows the frames, which are ours to read for as long as they are
    // borrowed. Any bytes are good ones.
    unsafe { core::slice::from_raw_parts(start, room as usize) }
}

/// The bytes of frames that have no other owner.
pub(super) fn bytes_mut(frames: &mut FrameRun) -> &mut [u8] {
    let (start, room) = (mm().hardware().address(frames.start()), frames.count() * PAGE);
    // SAFETY: as in `bytes`, and they are ours alone, being borrowed so.
    unsafe { core::slice::from_raw_parts_mut(start, room as usize) }
}

/// The bytes of frames that are to be read.
pub(super) fn bytes_of_read(read: &mut cache::Read) -> &mut [u8] {
    let frames = read.frames();
    let (start, room) = (mm().hardware().address(frames.start()), frames.count() * PAGE);
    // SAFETY: as in `bytes`; the read is the right to its frames, and is borrowed for ourselves.
    unsafe { core::slice::from_raw_parts_mut(start, room as usize) }
}

/// Copies from `at` bytes behind the beginning of `frame`.
///
/// # Safety
/// The bytes are in frames of RAM, and nothing writes them meanwhile.
unsafe fn copy_from(frame: Pfn, at: u64, into: &mut [u8]) {
    let start = mm().hardware().address(frame);
    // SAFETY: the direct map shows all RAM; the rest is the caller's promise. `into` is other
    // memory: it can be borrowed at the same time.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(start.add(at as usize), into.len()) };
}

/// The machine, as the driver sees it: devices see physical addresses, all of them.
pub(crate) struct Direct;

impl Direct {
    fn physical(buffer: NonNull<u8>) -> PhysAddr {
        let address = buffer.addr().get() as u64;
        let physical = address.wrapping_sub(isa::DIRECT);
        assert!(physical < 1 << 46, "{address:#x} is not in the direct map");
        physical
    }
}

// SAFETY: frames of the library have one owner until they are given back, and these never are; the
// direct map shows RAM and the disks' registers, page for page, and stays.
unsafe impl Hal for Direct {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let order = Order::fitting((pages as u64).next_power_of_two());
        let run = order.and_then(|order| mm().phys().alloc(order));
        // Address 0 is the driver's word for failure.
        let Some(run) = run else { return (0, NonNull::dangling()) };
        mm().hardware().clear(&run, 0..run.count(), Reuse::Soon);
        // They are the device's for ever: the run goes out of use here and is never freed.
        let frame = run.start();
        match NonNull::new(mm().hardware().address(frame)) {
            Some(address) => (frame.get() << PAGE_SHIFT, address),
            None => (0, NonNull::dangling()),
        }
    }

    /// # Safety
    /// As the trait demands. The frames are lost: a disk has its queue for ever.
    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    /// # Safety
    /// As the trait demands: these are registers of a disk, which are mapped as a device.
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
