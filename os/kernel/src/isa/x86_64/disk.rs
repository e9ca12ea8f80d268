//! Where the disks are: the first virtio block devices on PCI bus 0.
//!
//! They are looked for before the kernel's final tables are made, so that these show their
//! registers, and each interrupts by a message of its own (MSI-X): so the kernel needs no wiring of
//! interrupt lines, and reads nothing to end an interrupt. Sources: PCI Local Bus 3.0, §3.2.2.3.2
//! (configuration by ports) and §6.8.2 (MSI-X); virtio 1.2, §4.1; SDM volume 3A, §11.11.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spin::mutex::SpinMutex;
use virtio_drivers::Hal;
use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{
    BarInfo, Command, ConfigurationAccess, DeviceFunction, PCI_CAP_ID_VNDR, PciRoot,
};
use virtio_drivers::transport::pci::{PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, virtio_device_type};
use x86_64::instructions::port::Port;

use super::{DIRECT, apic, local};
use crate::isa::DISKS_MAX;

/// How the kernel talks to the disk.
pub type DiskPort = PciTransport;

/// The identity of the MSI-X capability.
const MSIX: u8 = 0x11;
/// In the word that begins it: the device uses its messages.
const MSIX_ON: u32 = 1 << 31;
/// Where messages to local APICs go; the APIC's number stands at bit 12.
const MESSAGE: u32 = 0xfee0_0000;

/// Fields of virtio's common configuration, as offsets in bytes (§4.1.4.3).
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_VECTOR: u64 = 0x1a;

/// Base registers of a device, as many as can be.
const BARS: usize = 6;

static FOUND: SpinMutex<[Option<Found>; DISKS_MAX]> = SpinMutex::new([None; DISKS_MAX]);

/// The spans of their registers, for [`devices`](super::devices): address and length in bytes.
static SPANS: [(AtomicU64, AtomicU64); BARS * DISKS_MAX] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; BARS * DISKS_MAX];

/// A disk has interrupted since the last look.
static NEWS: AtomicBool = AtomicBool::new(false);

/// The device, and the addresses that make it interrupt.
#[derive(Clone, Copy)]
struct Found {
    at: DeviceFunction,
    /// Where the capability stands in its configuration.
    msix: u8,
    /// Physical addresses: its table of messages, virtio's common configuration.
    messages: u64,
    common: u64,
}

/// Configuration by ports. Used with [`FOUND`] locked, or while one CPU runs.
struct Ports;

impl Ports {
    fn select(at: DeviceFunction, register: u8) {
        let address = 1 << 31
            | u32::from(at.bus) << 16
            | u32::from(at.device) << 11
            | u32::from(at.function) << 8
            | u32::from(register & !3);
        // SAFETY: the address port of PCI's configuration; it touches no memory.
        unsafe { Port::new(0xcf8).write(address) };
    }
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, at: DeviceFunction, register: u8) -> u32 {
        Self::select(at, register);
        // SAFETY: the data port; reading configuration has no effect.
        unsafe { Port::new(0xcfc).read() }
    }

    fn write_word(&mut self, at: DeviceFunction, register: u8, data: u32) {
        Self::select(at, register);
        // SAFETY: the data port. Callers write base registers, to learn their sizes, and restore
        // them; let the device use memory; and let it send messages.
        unsafe { Port::new(0xcfc).write(data) };
    }

    /// # Safety
    /// As the trait demands; there is nothing to share but the ports.
    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Looks for disks. On the boot CPU, before the final tables are made.
pub(super) fn find() {
    let mut root = PciRoot::new(Ports);
    let disks = root.enumerate_bus(0);
    let disks = disks.filter(|(_, info)| virtio_device_type(info) == Some(DeviceType::Block));
    let mut all = FOUND.lock();
    let mut count = 0;
    for (at, _) in disks.take(DISKS_MAX) {
        let Some(found) = look(&mut root, at, count) else { continue };
        root.set_command(at, Command::MEMORY_SPACE | Command::BUS_MASTER);
        all[count] = Some(found);
        count += 1;
    }
}

/// The addresses of disk `number`; `None` if the firmware has given it no addresses, or it cannot
/// send messages.
fn look(root: &mut PciRoot<Ports>, at: DeviceFunction, number: usize) -> Option<Found> {
    let bars = root.bars(at).ok()?;
    let mut starts = [0; BARS];
    for (index, bar) in bars.iter().enumerate() {
        if let Some(BarInfo::Memory { address, size, .. }) = bar
            && *address != 0
        {
            starts[index] = *address;
            let (start, bytes) = &SPANS[number * BARS + index];
            start.store(*address, Ordering::Relaxed);
            bytes.store(size.next_multiple_of(4096), Ordering::Relaxed);
        }
    }
    let start = |bar: u32| starts.get(bar as usize).copied().filter(|start| *start != 0);
    let (mut msix, mut common) = (None, None);
    for capability in root.capabilities(at) {
        let word = |offset: u8| Ports.read_word(at, capability.offset + offset);
        if capability.id == MSIX {
            msix = start(word(4) & 7).map(|bar| (capability.offset, bar + u64::from(word(4) & !7)));
        }
        let kind = (capability.private_header >> 8) as u8;
        if capability.id == PCI_CAP_ID_VNDR && kind == VIRTIO_PCI_CAP_COMMON_CFG {
            common = common.or(start(word(4) & 0xff).map(|bar| bar + u64::from(word(8))));
        }
    }
    let ((msix, messages), common) = (msix?, common?);
    Some(Found { at, msix, messages, common })
}

/// Physical addresses and lengths of all their registers; no bytes where there are none.
pub(super) fn spans() -> [(u64, u64); BARS * DISKS_MAX] {
    core::array::from_fn(|number| {
        let (start, bytes) = &SPANS[number];
        (start.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    })
}

/// Disk `number`, if there is one. `H` shows the driver its registers.
pub fn disk<H: Hal>(number: usize) -> Option<DiskPort> {
    let found = (*FOUND.lock().get(number)?)?;
    let port = PciTransport::new::<H, _>(&mut PciRoot::new(Ports), found.at);
    port.inspect_err(|error| log!("the disk: {error}")).ok()
}

/// Lets disk `number` interrupt the CPU that runs this. Its driver has set its queue up before.
pub fn listen_to_disk(number: usize) {
    let all = FOUND.lock();
    let Some(&Some(found)) = all.get(number) else { return };
    let target = MESSAGE | local::own_apic() << 12;
    for (index, word) in [target, 0, u32::from(apic::DISK), 0].into_iter().enumerate() {
        let register = (DIRECT + found.messages) as *mut u32;
        // SAFETY: the first entry of the device's table of messages, which is mapped as a device:
        // address, data, and no mask. The message makes a local APIC raise a vector of ours.
        unsafe { register.add(index).write_volatile(word) };
    }
    let header = Ports.read_word(found.at, found.msix);
    Ports.write_word(found.at, found.msix, header | MSIX_ON);
    for (field, value) in [(QUEUE_SELECT, 0), (QUEUE_VECTOR, 0_u16)] {
        let register = (DIRECT + found.common + field) as *mut u16;
        // SAFETY: two registers of virtio's common configuration, mapped as a device: queue 0 is to
        // send message 0. The driver selects its queue each time before it uses one.
        unsafe { register.write_volatile(value) };
    }
}

/// The interrupt: notes that there is news.
pub(super) fn serve() {
    NEWS.store(true, Ordering::Release);
}

/// Whether a disk has interrupted since this was last asked.
#[inline]
pub fn take_disk_news() -> bool {
    NEWS.load(Ordering::Relaxed) && NEWS.swap(false, Ordering::Acquire)
}
