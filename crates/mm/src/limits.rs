//! Every bound of the library in one place, with the relations between them checked here.

use quire_units::Order;

/// The largest block the allocator keeps: 1 GiB with 4 KiB pages.
pub const ORDER_MAX: Order = Order::new(18);

/// How many orders there are, 0 up to and including [`ORDER_MAX`].
pub const ORDERS: usize = ORDER_MAX.index() + 1;

/// The largest order that the per-CPU caches keep.
pub const CACHED_ORDER_MAX: Order = Order::new(4);

/// The most that populating takes, clears and maps at once: 2 MiB with 4 KiB pages.
pub const POPULATE_ORDER: Order = Order::new(9);

/// The largest folio that a write to a shared page is copied into unless the policy says otherwise:
/// with pages of 4 KiB it saves up to fifteen more exceptions, and wastes 60 KiB at worst.
pub const COPY_MOST_BYTES: u64 = 64 << 10;

/// How many more leaves a write that finds its page to be nobody else's keeps, where pages are
/// written one after the other. Beyond that, a fault would hold its table for long.
pub const KEEP_AHEAD: usize = 16;

/// Of so many folios of a file a block is copied at most that a write makes its space's own: of a
/// page each, where the block is of [`COPY_MOST_BYTES`] and pages are of 4 KiB.
pub const PIECES_MAX: usize = 16;

/// How much of a file is read ahead at most unless the policy says otherwise, as Linux's default
/// for `read_ahead_kb`.
pub const READ_AHEAD_BYTES: u64 = 128 << 10;

/// How much around a fault is mapped of what is cached of a file, as Linux's default for
/// `fault_around_bytes`.
pub const FAULT_AROUND_BYTES: u64 = 64 << 10;

/// How much around a fault is read of what is on a swap device, where that is more than a folio:
/// what went out side by side is wanted side by side.
pub const SWAP_AROUND_BYTES: u64 = 64 << 10;

/// Frames that reading around a fault leaves free.
pub const SWAP_AROUND_SPARE: u64 = 512;

/// The largest folio that an area of a file is read in when it is advised to be huge. With base
/// pages of 16 and 64 KiB a table's block is 32 and 512 MiB, and nobody who asked for huge pages
/// meant to wait for that to be read.
pub const HUGE_FILE_BYTES: u64 = 2 << 20;

/// How often a fault is planned anew because something changed meanwhile, before it gives up.
pub const FAULT_TRIES: usize = 1000;

/// How often paging a program's own pages out looks once more at what a change kept, in one call.
pub const PAGE_OUT_TRIES: u32 = 16;

/// Pages kept free below a stack that grows down, so that it does not run into what lies there.
pub const STACK_GUARD_PAGES: u64 = 256;

/// How far a stack grows unless its space says otherwise, as Linux's default for `RLIMIT_STACK`. It
/// is a bound so that a wild access far below a stack, where something was unmapped, stays a fault.
pub const STACK_BYTES: u64 = 8 << 20;

/// Paging out more pages than that by one flush drops all translations of the space at once, as
/// Linux does on x86-64: they are of many folios in many places.
pub const EVICT_FLUSH_PAGES: u64 = 32;

/// How many groups of spaces there may be at once.
pub const GROUPS_MAX: usize = 64;

/// How many zones of physical memory there may be.
pub const ZONES_MAX: usize = 4;

const _: () = assert!(CACHED_ORDER_MAX.get() < ORDER_MAX.get());
