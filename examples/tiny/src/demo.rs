//! The demonstrations. Each checks the bytes that the programs found in their memory.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::Error;
use quire::cache::Store;
use quire::check;
use quire::space::{AreaFlags, At, Backing, Request};
use quire::stats::Event;
use quire::units::{Order, PageSpan, Prot, Vpn};
use spin::Mutex;

use crate::process::PROCESSES;
use crate::program::{COUNT, FILL, SUM, words};
use crate::{PAGE_SHIFT, disk, mm, tell};

/// Where the file with the program is shown, and its pages; the first one holds the program.
const TEXT: Vpn = Vpn::new(0x200);
const FILE_PAGES: u64 = 64;

const SWAP_ORDER: Order = Order::new(10);
const WORDS: usize = 1 << (PAGE_SHIFT - 3);

/// Runs one loop of the program in process `number`.
fn run(number: usize, which: u64, pages: PageSpan, seed: u64) -> Result<u64, Error> {
    let [text, start, end] = [TEXT, pages.start, pages.end].map(|page| page.addr(PAGE_SHIFT).get());
    PROCESSES.run(number, text + which, [start, end, seed])
}

/// The sum of the words that `FILL` writes.
fn filled(pages: PageSpan, seed: u64) -> u64 {
    let [start, end] = [pages.start, pages.end].map(|page| page.addr(PAGE_SHIFT).get());
    (start..end).step_by(8).fold(0, |sum, address| sum.wrapping_add(address ^ seed))
}

fn sum_of(words: &[AtomicU64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
}

fn map(number: usize, request: Request) -> Result<PageSpan, Error> {
    PROCESSES.with(number, |space| mm().map(space, &request))
}

fn count(event: Event) -> u64 {
    mm().totals().event(event)
}

fn halves(pages: PageSpan) -> [PageSpan; 2] {
    let middle = pages.start.add(pages.count() / 2);
    [PageSpan::new(pages.start, middle), PageSpan::new(middle, pages.end)]
}

/// All of it, on the boot CPU.
pub fn show() -> Result<(), Error> {
    let free = mm().phys().free_frames();
    set_up()?;
    PROCESSES.begin(0, None)?;
    file()?;
    let area = folios()?;
    fork(area)?;
    swap()?;
    two_cpus()?;
    PROCESSES.with(0, |space| check::system(mm(), &[space])).expect("every claim holds");
    PROCESSES.end(0);
    mm().files().close(disk::FILE)?;
    mm().paging().swap_off(disk::SWAP)?;
    assert_eq!(mm().phys().free_frames() + FILE_PAGES + SWAP_ORDER.pages(), free);
    tell!("end: all memory is free again");
    Ok(())
}

/// Frames become disks; a file and a swap device become known to the library.
fn set_up() -> Result<(), Error> {
    let orders = [Order::fitting(FILE_PAGES).unwrap_or_default(), SWAP_ORDER];
    let disks = orders.map(|order| mm().phys().alloc(order).expect("memory for the disks"));
    let program = words().iter().copied();
    let rest = (0..).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for (word, value) in mm().hardware().ram.words(&disks[0]).iter().zip(program.chain(rest)) {
        word.store(value, Ordering::Relaxed);
    }
    disk::set_up(disks);
    assert_eq!(mm().files().open(Store::ReadWrite, FILE_PAGES, Order::ZERO)?, disk::FILE);
    assert_eq!(mm().paging().swap_on(SWAP_ORDER.pages())?, disk::SWAP);
    mm().policy().set_sizes("64K:always", PAGE_SHIFT).expect("a size of the format");
    Ok(())
}

/// A file is shown, read by faults, written through another area, and written back.
fn file() -> Result<(), Error> {
    let backing = Backing::File { id: disk::FILE, page: 0 };
    let request = Request::anon(FILE_PAGES).backing(backing);
    map(0, request.at(At::Fixed(TEXT)).prot(Prot::READ | Prot::EXEC))?;
    let on_disk = mm().hardware().ram.words(disk::of(disk::FILE));
    let text = PageSpan::new(TEXT, TEXT.add(FILE_PAGES));
    assert_eq!(run(0, SUM, text, 0)?, sum_of(on_disk));
    let shared = map(0, request.flags(AreaFlags::SHARED))?;
    let tail = halves(shared)[1];
    run(0, FILL, tail, 1)?;
    disk::write_back(disk::FILE);
    let on_disk = &on_disk[WORDS * FILE_PAGES as usize / 2..];
    assert_eq!(sum_of(on_disk), filled(tail, 1));
    let read = count(Event::FilePagesRead);
    tell!("file: the program came from the disk; {read} pages read, {} written", tail.count());
    Ok(())
}

/// Anonymous memory comes in folios of 64 KiB: one contiguous block each, where the CPU has them.
fn folios() -> Result<PageSpan, Error> {
    let area = map(0, Request::anon(64))?;
    let (faults, folds) = (count(Event::Fault), count(Event::Fold));
    run(0, FILL, area, 2)?;
    assert_eq!(run(0, SUM, area, 0)?, filled(area, 2));
    let (faults, folds) = (count(Event::Fault) - faults, count(Event::Fold) - folds);
    assert_eq!(faults, 4, "one for each folio");
    assert_eq!(folds, if mm().hardware().contiguous { 4 } else { 0 });
    tell!("folios: 64 pages in {faults} faults, {folds} contiguous blocks");
    Ok(area)
}

/// A child has its parent's contents, and a write of either is not seen by the other.
fn fork(area: PageSpan) -> Result<(), Error> {
    let [low, high] = halves(area);
    PROCESSES.begin(1, Some(0))?;
    assert_eq!(run(1, SUM, area, 0)?, filled(area, 2));
    run(1, FILL, low, 3)?;
    run(0, FILL, high, 4)?;
    assert_eq!(run(0, SUM, low, 0)?, filled(low, 2));
    assert_eq!(run(1, SUM, low, 0)?, filled(low, 3));
    assert_eq!(run(0, SUM, high, 0)?, filled(high, 4));
    assert_eq!(run(1, SUM, high, 0)?, filled(high, 2));
    let copied = count(Event::CowCopy);
    PROCESSES.end(1);
    run(0, FILL, area, 5)?;
    assert_eq!(count(Event::CowCopy), copied, "the child is gone: nothing is shared");
    tell!("fork: parent and child wrote {copied} pages of their own");
    Ok(())
}

/// A program needs more memory than there is: faults page out the oldest, and bring pages back.
fn swap() -> Result<(), Error> {
    let area = map(0, Request::anon(SWAP_ORDER.pages()))?;
    let mut taken = [const { None }; 16];
    for (slot, order) in taken.iter_mut().zip((8..=15).rev().flat_map(|order| [order; 2])) {
        let order = Order::new(order);
        if mm().phys().has_free(order.pages() + area.count() / 2) {
            *slot = mm().phys().alloc(order);
        }
    }
    run(0, FILL, area, 6)?;
    let away = PROCESSES.with(0, |space| mm().paging().swapped(space));
    assert!(away > 0, "the program fits into memory");
    assert_eq!(run(0, SUM, area, 0)?, filled(area, 6));
    taken.into_iter().flatten().for_each(|run| mm().phys().free(run));
    let back = count(Event::PagesSwappedIn);
    assert!(back >= away);
    tell!("swap: {away} of {} pages were away, {back} came back", area.count());
    PROCESSES.with(0, |space| mm().unmap(space, area))
}

type Job = (u64, PageSpan, u64);

/// The other CPU's job, and its result.
static JOB: Mutex<Option<Job>> = Mutex::new(None);
static RESULT: Mutex<Option<Result<u64, Error>>> = Mutex::new(None);

/// The second CPU's part of the demonstration with two CPUs.
pub fn work() -> ! {
    loop {
        let job = JOB.lock().take();
        if let Some((which, pages, seed)) = job {
            let result = run(0, which, pages, seed);
            *RESULT.lock() = Some(result);
        }
        spin_loop();
    }
}

fn result() -> Result<u64, Error> {
    loop {
        if let Some(result) = RESULT.lock().take() {
            return result;
        }
        spin_loop();
    }
}

/// Two CPUs in one space: both fault at once, and a right that one takes away ends on the other.
fn two_cpus() -> Result<(), Error> {
    let area = map(0, Request::anon(256))?;
    let [low, high] = halves(area);
    *JOB.lock() = Some((FILL, high, 7));
    run(0, FILL, low, 7)?;
    result()?;
    assert_eq!(run(0, SUM, area, 0)?, filled(area, 7));

    let page = PageSpan::new(area.start, area.start.add(1));
    let before = run(0, SUM, page, 0)?;
    *JOB.lock() = Some((COUNT, page, 0));
    while run(0, SUM, page, 0)? == before {}
    PROCESSES.with(0, |space| mm().protect(space, page, Prot::READ))?;
    let after = run(0, SUM, page, 0)?;
    assert!(matches!(result(), Err(Error::Denied(..))), "the other CPU may still write");
    assert_eq!(run(0, SUM, page, 0)?, after, "it wrote after `protect` returned");
    tell!("two CPUs: both filled one area; neither wrote after `protect` returned");
    PROCESSES.with(0, |space| mm().unmap(space, area))
}
