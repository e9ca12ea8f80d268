//! Every bound of the library in one place, with the relations between them checked here.

use quire_units::Order;

/// The largest block the allocator keeps: 1 GiB with 4 KiB pages.
pub const ORDER_MAX: Order = Order::new(18);

/// The size of the blocks that hold frames of one mobility: 2 MiB with 4 KiB pages. An unmovable
/// frame spoils a block of that size, so a larger one would spoil more, and a smaller one would not
/// keep folios of 2 MiB possible.
pub const GROUP_ORDER: Order = Order::new(9);

/// How many orders there are, 0 up to and including [`ORDER_MAX`].
pub const ORDERS: usize = ORDER_MAX.index() + 1;

/// The largest order that the per-CPU caches keep.
pub const CACHED_ORDER_MAX: Order = Order::new(4);

/// The most that populating allocates, clears and maps at once: 2 MiB with 4 KiB pages.
pub const POPULATE_ORDER: Order = Order::new(9);

/// The largest folio that a write to a shared page is copied into unless the policy says otherwise:
/// with pages of 4 KiB it saves up to fifteen more exceptions, and wastes 60 KiB at worst.
pub const COPY_MOST_BYTES: u64 = 64 << 10;

/// How long a copy may take for pages around the one that is written: about ten faults.
pub const COPY_NS: u64 = 10_000;

/// As many more leaves a write keeps at first if its page is no longer shared, where a program
/// writes pages in order; the more it has written so, the more it keeps, up to [`KEEP_MOST`].
pub const KEEP_AHEAD: Order = Order::new(4);

/// The most leaves that a write keeps besides its own: with more, a fault would hold its table for
/// long.
pub const KEEP_MOST: Order = Order::new(8);

/// The most folios that leave by one flush. They are on the stack: with reclaim's own calls, 4 KiB.
pub const LEAVE_MOST: usize = 10;

/// The most source folios per copy of a block of file pages: one for each page, with a block of
/// [`COPY_MOST_BYTES`] and pages of 4 KiB.
pub const PIECES_MAX: usize = 16;

/// The most readahead of a file unless the policy says otherwise, as Linux's default for
/// `read_ahead_kb`.
pub const READ_AHEAD_BYTES: u64 = 128 << 10;

/// The bytes of a file's cached pages that are mapped around a fault, as Linux's default for
/// `fault_around_bytes`.
pub const FAULT_AROUND_BYTES: u64 = 64 << 10;

/// The most folios side by side that are written, read, mapped or forgotten as one: as many as are
/// read around a fault from a swap device.
pub const ROW_MOST: usize = 16;

/// The most shared reserved folios behind the one that faulted that are mapped with it.
pub const SHOW_BEHIND: u64 = 16;

/// The bytes that are read around a fault from a swap device, where that is more than a folio:
/// pages that left side by side are wanted side by side.
pub const SWAP_AROUND_BYTES: u64 = 64 << 10;

/// Frames that reading around a fault leaves free.
pub const SWAP_AROUND_SPARE: u64 = 512;

/// The largest folio that a file is read in for an area advised to be huge. With base pages of
/// 64 KiB a table's block is 512 MiB: no program wants to wait for a read of that size.
pub const HUGE_FILE_BYTES: u64 = 2 << 20;

/// How often a fault is planned anew because a change interfered, before it gives up.
pub const FAULT_TRIES: usize = 1000;

/// How often paging out a program's own pages visits once more those that a change kept, in one
/// call.
pub const PAGE_OUT_TRIES: u32 = 16;

/// Pages kept free below a stack that grows down, so that it does not run into the area below.
pub const STACK_GUARD_PAGES: u64 = 256;

/// The maximum size of a stack unless its space says otherwise, as Linux's default for
/// `RLIMIT_STACK`. It keeps a wild access far below a stack a fault.
pub const STACK_BYTES: u64 = 8 << 20;

/// Paging out more pages than that by one flush drops all translations of the space at once, as
/// Linux does on x86-64.
pub const EVICT_FLUSH_PAGES: u64 = 32;

/// How many pools of reserved folios there may be, each of another size.
pub const POOLS_MAX: usize = if cfg!(feature = "files") { 4 } else { 0 };

/// How many zones of physical memory there may be.
pub const ZONES_MAX: usize = 4;

const _: () = assert!(CACHED_ORDER_MAX.get() < ORDER_MAX.get());
const _: () =
    assert!(CACHED_ORDER_MAX.get() < GROUP_ORDER.get() && GROUP_ORDER.get() <= ORDER_MAX.get());
