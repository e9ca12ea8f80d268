//! Where the disks are: the first virtio block devices among those of the device tree.
//!
//! Source: virtio 1.2, §4.2 (registers in memory).

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;
use virtio_drivers::Hal;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};

use crate::isa::{DIRECT, DISKS_MAX};

/// How the kernel talks to the disk.
pub type DiskPort = MmioTransport<'static>;

/// Registers, as offsets in bytes (§4.2.2).
const MAGIC: u64 = 0x00;
const DEVICE: u64 = 0x08;
const INTERRUPTS: u64 = 0x60;
const ACKNOWLEDGE: u64 = 0x64;

/// The value at `MAGIC`; the value at `DEVICE` of a disk.
const VIRTIO: u32 = 0x7472_6976;
const BLOCK: u32 = 2;

/// A virtio device of the device tree.
#[derive(Clone, Copy, Debug)]
pub(in crate::isa) struct Place {
    /// Where its registers are, by physical address, and how many bytes they have.
    pub(in crate::isa) registers: (u64, u64),
    /// Its interrupt, as the interrupt controller counts those of devices.
    pub(in crate::isa) interrupt: u32,
}

/// The disks, by number. Set at boot, before anything can ask.
static DISKS: Once<[Option<Place>; DISKS_MAX]> = Once::new();

/// A disk has interrupted since the last look.
static NEWS: AtomicBool = AtomicBool::new(false);

fn register(place: &Place, offset: u64) -> *mut u32 {
    ptr::with_exposed_provenance_mut((place.registers.0 + offset + DIRECT) as usize)
}

fn read(place: &Place, offset: u64) -> u32 {
    // SAFETY: the device tree says that a virtio device is there; mapped as device memory. None of
    // the registers read here changes by that.
    unsafe { register(place, offset).read_volatile() }
}

/// Notes which of the devices are disks. QEMU gives the first one on its command line the highest
/// address (a comment in its `hw/arm/virt.c` says why): that is number 0.
pub(in crate::isa) fn set_up(places: impl Iterator<Item = Place>) {
    let mut disks = [None; DISKS_MAX];
    let is_disk = |place: &Place| read(place, MAGIC) == VIRTIO && read(place, DEVICE) == BLOCK;
    for place in places.filter(is_disk) {
        let higher = |other: &Option<Place>| other.is_some_and(|o| o.registers > place.registers);
        let at = disks.iter().take_while(|other| higher(other)).count();
        if let Some(rest @ [_, ..]) = disks.get_mut(at..) {
            rest.rotate_right(1);
            rest[0] = Some(place);
        }
    }
    DISKS.call_once(|| disks);
}

fn place(number: usize) -> Option<Place> {
    *DISKS.get()?.get(number)?
}

/// The interrupt of disk `number`, if there is one.
pub(in crate::isa) fn interrupt(number: usize) -> Option<u32> {
    place(number).map(|place| place.interrupt)
}

/// Disk `number`, if there is one.
#[expect(clippy::extra_unused_type_parameters, reason = "the port of x86-64 needs it")]
pub fn disk<H: Hal>(number: usize) -> Option<DiskPort> {
    let place = place(number)?;
    let header = NonNull::new(register(&place, 0).cast::<VirtIOHeader>())?;
    // SAFETY: as the device tree says, and mapped as device memory for as long as the kernel runs.
    // Only `serve` touches it beside the driver: two registers that the driver leaves alone.
    let port = unsafe { MmioTransport::new(header, place.registers.1 as usize) };
    port.inspect_err(|error| log!("the disk: {error}")).ok()
}

/// Serves interrupt `interrupt`, if it is a disk's; whether it was.
pub(in crate::isa) fn serve(interrupt: u32) -> bool {
    let mut disks = DISKS.get().into_iter().flatten().flatten();
    let Some(place) = disks.find(|place| place.interrupt == interrupt) else {
        return false;
    };
    let which = read(place, INTERRUPTS);
    // SAFETY: as in `read`; the device takes its interrupt back, and does nothing else.
    unsafe { register(place, ACKNOWLEDGE).write_volatile(which) };
    NEWS.store(true, Ordering::Release);
    true
}

/// Whether a disk has interrupted since this was last asked.
#[inline]
pub fn take_disk_news() -> bool {
    NEWS.load(Ordering::Relaxed) && NEWS.swap(false, Ordering::Acquire)
}
