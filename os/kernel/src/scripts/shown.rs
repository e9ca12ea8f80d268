//! Areas that show frames, walked by this machine's MMU: a ring that the kernel shares with
//! programs, and the registers of its clock.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use quire::check;
use quire::hw::{Memory as _, Reuse};
use quire::space::{Request, Space};
use quire::units::Order;

use crate::isa::{self, Format};
use crate::memory::{self, Memory, PAGE, mm, user};

/// The ring's size, as an order: a contiguous block, where there are some.
const ORDER: Order = Order::new(4);

/// A program's word, and the kernel's.
const STORED: [u64; 2] = [0x7069_6e67, 0x706f_6e67];

/// Shows a ring and the clock to a program and its child, and takes the ring back.
pub(super) fn check() {
    let run = mm().phys().alloc(ORDER).unwrap_or_else(|| panic!("no memory for a ring"));
    let first = run.start();
    // Programs see the ring as it is lent: its owner clears it.
    mm().hardware().clear(&run, 0..run.count(), Reuse::Soon);
    let ring = mm().spaces().lend(run).unwrap_or_else(|run| panic!("{run:?} cannot be lent"));
    let parent = Memory::new().unwrap_or_else(|error| panic!("no process: {error}"));
    let pages = mm().spaces().map_frames(parent.space(), &Request::anon(ORDER.pages()), &ring);
    let pages = pages.unwrap_or_else(|error| panic!("the ring: {error}"));
    let clock = isa::clock_page().map(|registers| {
        let mapped = mm().spaces().map_frames(parent.space(), &Request::anon(1), registers);
        mapped.unwrap_or_else(|error| panic!("the clock: {error}")).start.get() * PAGE
    });
    memory::switch(Some(&parent));
    for page in 0..ORDER.pages() {
        let words = mm().hardware().all_words(first.add(page));
        let at = pages.start.add(page).get() * PAGE;
        let stored = user::write(at, &(STORED[0] + page));
        assert!(stored.is_ok(), "page {page} of the ring cannot be stored to");
        assert_eq!(words[0].load(Ordering::Acquire), STORED[0] + page, "the kernel's view");
        words[1].store(STORED[1] + page, Ordering::Release);
    }
    let child = parent.fork().unwrap_or_else(|error| panic!("no child: {error}"));
    for memory in [&parent, &child] {
        memory::switch(Some(memory));
        for page in 0..ORDER.pages() {
            let at = pages.start.add(page).get() * PAGE;
            let seen = (user::read::<u64>(at).ok(), user::read::<u64>(at + 8).ok());
            assert_eq!(seen, (Some(STORED[0] + page), Some(STORED[1] + page)), "page {page}");
        }
        if let Some(clock) = clock {
            // A device may refuse the size in which copies read (Goldfish's clock does): the copy
            // fails then, and nothing else. `devcheck` reads it as a program.
            let _ = user::read::<u32>(clock);
        }
    }
    walk();
    memory::switch(None);
    let Err(ring) = mm().spaces().take_back(ring) else { panic!("two programs map the ring") };
    drop((parent, child));
    let run = mm().spaces().take_back(ring).unwrap_or_else(|_| panic!("no program maps the ring"));
    mm().phys().free(run);
    log!(
        "check=scripts: programs see a ring{}",
        if clock.is_some() { ", and a clock" } else { "" }
    );
}

/// Runs all walkers.
fn walk() {
    let all = memory::spaces();
    let spaces: Vec<&Space<Format>> = all.iter().map(|memory| memory.space()).collect();
    if let Err(violation) = check::system(mm(), &spaces) {
        panic!("{violation}");
    }
}
