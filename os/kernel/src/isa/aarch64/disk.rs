//! Where the disks are: the first virtio block devices among those of the device tree.
//!
//! Source: virtio 1.2, §4.2 (registers in memory).

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

use virtio_drivers::Hal;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};

use super::{DIRECT, cpu, gic};
use crate::isa::DISKS_MAX;

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
pub(super) struct Place {
    /// Where its registers are, by physical address, and how many bytes they have.
    pub(super) registers: (u64, u64),
    /// Its interrupt, counted among the shared ones.
    pub(super) interrupt: u32,
}

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

/// Those of the devices that are disks. QEMU gives the first one on its command line the highest
/// address (a comment in its `hw/arm/virt.c` says why): that is number 0.
pub(super) fn disks_of(places: impl Iterator<Item = Place>) -> [Option<Place>; DISKS_MAX] {
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
    disks
}

/// Disk `number`, if there is one.
#[expect(clippy::extra_unused_type_parameters, reason = "the other ISA's port needs it")]
pub fn disk<H: Hal>(number: usize) -> Option<DiskPort> {
    let place = (*cpu::machine().disks.get(number)?)?;
    let header = NonNull::new(register(&place, 0).cast::<VirtIOHeader>())?;
    // SAFETY: as the device tree says, and mapped as device memory for as long as the kernel runs.
    // Only `serve` touches it beside the driver: two registers that the driver leaves alone.
    let port = unsafe { MmioTransport::new(header, place.registers.1 as usize) };
    port.inspect_err(|error| log!("the disk: {error}")).ok()
}

/// Lets disk `number` interrupt the CPU that runs this. Its driver has set its queue up before.
pub fn listen_to_disk(number: usize) {
    if let Some(Some(place)) = cpu::machine().disks.get(number) {
        gic::listen(place.interrupt);
    }
}

/// Serves interrupt `interrupt` of the shared ones, if it is a disk's; whether it was.
pub(super) fn serve(interrupt: u32) -> bool {
    let disks = cpu::machine().disks;
    let mut disks = disks.into_iter().flatten();
    let Some(place) = disks.find(|place| place.interrupt == interrupt) else {
        return false;
    };
    let which = read(&place, INTERRUPTS);
    // SAFETY: as in `read`; the device takes its interrupt back, and does nothing else.
    unsafe { register(&place, ACKNOWLEDGE).write_volatile(which) };
    NEWS.store(true, Ordering::Release);
    true
}

/// Whether a disk has interrupted since this was last asked.
#[inline]
pub fn take_disk_news() -> bool {
    NEWS.load(Ordering::Relaxed) && NEWS.swap(false, Ordering::Acquire)
}
