//! Pages for the kernel's own use, which are not the library's.

use ax_alloc::{UsageKind, global_allocator};
use ax_memory_addr::{PhysAddr, VirtAddr};
use ax_runtime::hal::mem::{phys_to_virt, virt_to_phys};
use quire_starry::PAGE;

use crate::{StarryError, StarryResult};

/// Pages for the kernel's own use.
pub(crate) fn alloc_frame(zeroed: bool, size: usize) -> StarryResult<PhysAddr> {
    let pages = global_allocator().alloc_pages(size / PAGE, size, UsageKind::VirtMem);
    let start = VirtAddr::from(pages.map_err(|_| StarryError::NoMemory)?);
    if zeroed {
        // SAFETY: the pages were just taken.
        unsafe { core::ptr::write_bytes(start.as_mut_ptr(), 0, size) };
    }
    Ok(virt_to_phys(start))
}

/// Gives such pages back.
pub(crate) fn dealloc_frame(frame: PhysAddr, size: usize) {
    let start = phys_to_virt(frame).as_usize();
    global_allocator().dealloc_pages(start, size / PAGE, UsageKind::VirtMem);
}
