//! What is done when memory is short: pages of files are given up, and anonymous ones swapped out.
//!
//! ```text
//!   a fault was served, little is free ──► ease: begin to page out, go on
//!   there is no memory for something ───► relieve: page out, wait for the disk, try again
//! ```
//!
//! Whose pages: those of the process that has most, in the order of their addresses; those of the
//! next process when nothing of it can leave. What is in use is not known here: the pages that are
//! needed come back.

use quire::engine::{Spaces, Whose};
use quire::space::Space;
use quire::units::{PageSpan, Vpn};
use spin::mutex::SpinMutex;

use super::process::{find, processes};
use crate::disk::{self, swap};
use crate::isa::{self, Format};
use crate::memory::{self, Memory, PAGE, mm};

/// Pages that leave at a time: 1 MiB.
const BATCH: u64 = 256;

/// Frames below which paging out begins: 8 MiB.
const LOW: u64 = 2048;

/// Frames below which who faults waits for it: 2 MiB.
const LEAST: u64 = 512;

/// The most pages that are looked through in one step where nothing was found: 64 MiB.
const STRIDE_MAX: u64 = 64 * BATCH;

/// The end of what a program may map.
const END: Vpn = Vpn::new(isa::USER_END / PAGE);

/// Where paging out goes on.
struct Hand {
    pid: u32,
    at: Vpn,
    /// Pages of this process that left since it was chosen.
    out: u64,
    /// All were looked at and nothing left: until then nobody is looked at again.
    rests_until: u64,
}

/// How long that is, in nanoseconds: to look at all memory takes time.
const REST_NS: u64 = 100_000_000;

/// Free slots below which devices count as full.
const FULL: u64 = 16;

static HAND: SpinMutex<Hand> =
    SpinMutex::new(Hand { pid: 0, at: Vpn::new(0), out: 1, rests_until: 0 });

/// Says that this is how memory is had when there is none.
pub(crate) fn init() {
    memory::set_shrink(|| disk::shrink() || relieve());
}

/// After a fault: pages out if little memory is free.
#[inline]
pub(crate) fn ease() {
    if swap::is_on() && !mm().phys().has_free(LOW) {
        ease_slowly();
    }
}

#[cold]
fn ease_slowly() {
    if disk::shrink() {
        return;
    }
    if !mm().phys().has_free(LEAST) {
        relieve();
    } else if swap::is_quiet()
        && let Some(mut hand) = HAND.try_lock()
    {
        hand.page_out();
        drop(hand);
        swap::begin_writing();
    }
}

/// Pages out, and waits until some memory is free or all is written; whether anything left, or was
/// on its way. The caller holds no lock that is taken when a disk answers.
fn relieve() -> bool {
    if !swap::is_on() {
        return false;
    }
    let before = mm().phys().free_frames();
    let was_quiet = swap::is_quiet();
    // Whoever has it is at it: his pages will do.
    let left = match HAND.try_lock() {
        Some(mut hand) => hand.page_out(),
        None => 1,
    };
    swap::begin_writing();
    while !swap::is_quiet() && mm().phys().free_frames() < before + BATCH / 4 {
        disk::reap();
        core::hint::spin_loop();
    }
    left > 0 || !was_quiet
}

/// All processes' spaces.
struct Everyone;

impl Spaces<Format> for Everyone {
    fn visit(&self, see: &mut dyn FnMut(&Space<Format>)) {
        each(|_, memory| see(memory.space()));
    }
}

fn each(mut act: impl FnMut(u32, &Memory)) {
    let mut next = processes(1);
    while let Some(process) = next {
        if let Some(memory) = process.memory() {
            act(process.pid, &memory);
        }
        next = processes(process.pid + 1);
    }
}

/// The process that has most memory.
fn largest() -> u32 {
    let mut found = (0, 1);
    each(|pid, memory| found = found.max((mm().resident(memory.space()), pid)));
    found.1
}

impl Hand {
    /// Pages out as many pages as leave at a time; how many did.
    fn page_out(&mut self) -> u64 {
        let (slots, used) = swap::slots();
        if used + FULL > slots || isa::now() < self.rests_until {
            return 0;
        }
        let (mut done, mut barren, mut most) = (0, 0, 0);
        each(|_, _| most += 1);
        // Each once, and the one that was begun in its middle a second time.
        while done < BATCH && barren <= most + 1 {
            if let Some(memory) = find(self.pid).and_then(|process| process.memory()) {
                let left = self.sweep(&memory, BATCH - done);
                self.out += left;
                done += left;
            } else {
                self.at = END;
            }
            if self.at >= END {
                barren += u64::from(self.out == 0);
                self.pid = match self.out {
                    0 => processes(self.pid + 1).or_else(|| processes(1)).map_or(1, |p| p.pid),
                    _ => largest(),
                };
                (self.at, self.out) = (Vpn::new(0), 0);
            }
        }
        if done == 0 {
            self.rests_until = isa::now() + REST_NS;
        }
        done
    }

    /// Pages out up to about `wanted` pages of a space; how many left.
    fn sweep(&mut self, memory: &Memory, wanted: u64) -> u64 {
        let mut done = 0;
        for area in mm().areas(memory.space(), PageSpan::new(self.at, END)) {
            self.at = self.at.max(area.span.start);
            let mut stride = BATCH;
            while self.at < area.span.end {
                let piece = PageSpan::new(self.at, self.at.add(stride).min(area.span.end));
                self.at = piece.end;
                match mm().page_out(memory.space(), piece, Whose::All, &Everyone) {
                    Ok(out) if out.folios + out.stay == 0 => {
                        stride = (2 * stride).min(STRIDE_MAX);
                    }
                    Ok(out) => {
                        stride = BATCH;
                        done += out.pages;
                    }
                    // There is no device any more.
                    Err(_) => break,
                }
                if done >= wanted {
                    return done;
                }
            }
        }
        self.at = END;
        done
    }
}
