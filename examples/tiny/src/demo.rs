//! The demonstrations. Each checks the bytes that the programs found in their memory.

use crate::*;

/// Where the file with the program is shown; its first page holds the program.
const TEXT: Vpn = Vpn::new(0x200);
const FILE_ORDER: Order = Order::new(6);
const SWAP_ORDER: Order = Order::new(10);

fn address(page: Vpn) -> u64 {
    page.addr(PAGE_SHIFT).get()
}

fn halves(pages: PageSpan) -> [PageSpan; 2] {
    let middle = pages.start.add(pages.count() / 2);
    [PageSpan::new(pages.start, middle), PageSpan::new(middle, pages.end)]
}

/// Runs one loop of the program in process `number`.
fn run(number: usize, which: u64, pages: PageSpan, seed: u64) -> Result<u64, Error> {
    PROCESSES.run(number, address(TEXT) + which, [address(pages.start), address(pages.end), seed])
}

/// Asserts that process `number` finds in `pages` what `FILL` with `seed` writes.
fn finds(number: usize, pages: PageSpan, seed: u64) -> Result<(), Error> {
    assert_eq!(run(number, SUM, pages, 0)?, filled(pages, seed), "process {number}, seed {seed}");
    Ok(())
}

fn filled(pages: PageSpan, seed: u64) -> u64 {
    let words = (address(pages.start)..address(pages.end)).step_by(8);
    words.fold(0, |sum, address| sum.wrapping_add(address ^ seed))
}

fn sum_of(words: &[AtomicU64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
}

fn map(request: Request) -> Result<PageSpan, Error> {
    PROCESSES.with(0, |space| mm().map(space, &request))
}

fn count(event: Event) -> u64 {
    mm().totals().event(event)
}

/// All of it, on the boot CPU.
pub fn show() -> Result<(), Error> {
    let free = mm().phys().free_frames();
    let orders = [FILE_ORDER, SWAP_ORDER];
    DISKS.call_once(|| orders.map(|order| mm().phys().alloc(order).expect("memory for disks")));
    assert_eq!(mm().files().open(Store::ReadWrite, FILE_ORDER.pages(), Order::ZERO)?, disk::FILE);
    assert_eq!(mm().paging().swap_on(SWAP_ORDER.pages())?, disk::SWAP);
    mm().policy().set_sizes("64K:always", PAGE_SHIFT).expect("a size of the format");
    PROCESSES.begin(0, None)?;
    file()?;
    fork(folios()?)?;
    swap()?;
    two_cpus()?;
    PROCESSES.with(0, |space| check::system(mm(), &[space])).expect("every claim holds");
    PROCESSES.end(0);
    mm().files().close(disk::FILE)?;
    mm().paging().swap_off(disk::SWAP)?;
    assert_eq!(mm().phys().free_frames() + FILE_ORDER.pages() + SWAP_ORDER.pages(), free);
    tell!("end: all memory is free again");
    Ok(())
}

/// A file is shown, read by faults, written through another area, and written back.
fn file() -> Result<(), Error> {
    let on_disk = mm().hardware().ram.words(disk::of(disk::FILE));
    for (at, word) in on_disk.iter().enumerate() {
        word.store(PROGRAM.get(at).copied().unwrap_or(at as u64), Ordering::Relaxed);
    }
    let request = Request::anon(FILE_ORDER.pages());
    let request = request.backing(Backing::File { id: disk::FILE, page: 0 });
    let text = map(request.at(At::Fixed(TEXT)).prot(Prot::READ | Prot::EXEC))?;
    assert_eq!(run(0, SUM, text, 0)?, sum_of(on_disk));
    let tail = halves(map(request.flags(AreaFlags::SHARED))?)[1];
    run(0, FILL, tail, 1)?;
    disk::write_back(disk::FILE);
    assert_eq!(sum_of(&on_disk[on_disk.len() / 2..]), filled(tail, 1));
    let read = count(Event::FilePagesRead);
    tell!("file: the program came from the disk; {read} pages read, {} written", tail.count());
    Ok(())
}

/// Anonymous memory comes in folios of 64 KiB: one contiguous block each, where the CPU has them.
fn folios() -> Result<PageSpan, Error> {
    let area = map(Request::anon(64))?;
    let events = || [Event::Fault, Event::Fold].map(count);
    let before = events();
    run(0, FILL, area, 2)?;
    finds(0, area, 2)?;
    let [faults, folds] = array::from_fn(|at| events()[at] - before[at]);
    assert_eq!(faults, 4, "one for each folio");
    assert_eq!(folds, if mm().hardware().contiguous { 4 } else { 0 });
    tell!("folios: 64 pages in {faults} faults, {folds} contiguous blocks");
    Ok(area)
}

/// A child has its parent's contents, and a write of either is not seen by the other.
fn fork(area: PageSpan) -> Result<(), Error> {
    let [low, high] = halves(area);
    PROCESSES.begin(1, Some(0))?;
    finds(1, area, 2)?;
    run(1, FILL, low, 3)?;
    run(0, FILL, high, 4)?;
    [(0, low, 2), (1, low, 3), (0, high, 4), (1, high, 2)]
        .into_iter()
        .try_for_each(|(number, half, seed)| finds(number, half, seed))?;
    let copied = count(Event::CowCopy);
    PROCESSES.end(1);
    run(0, FILL, area, 5)?;
    assert_eq!(count(Event::CowCopy), copied, "the child is gone: nothing is shared");
    tell!("fork: parent and child wrote {copied} pages of their own");
    Ok(())
}

/// A program needs more memory than there is: faults page out the oldest, and bring pages back.
fn swap() -> Result<(), Error> {
    let area = map(Request::anon(SWAP_ORDER.pages()))?;
    let taken: [_; 16] = array::from_fn(|at| {
        let order = Order::new(15 - at as u8 / 2);
        let is_room = mm().phys().has_free(order.pages() + area.count() / 2);
        is_room.then(|| mm().phys().alloc(order)).flatten()
    });
    run(0, FILL, area, 6)?;
    let away = PROCESSES.with(0, |space| mm().paging().swapped(space));
    assert!(away > 0, "the program fits into memory");
    finds(0, area, 6)?;
    taken.into_iter().flatten().for_each(|run| mm().phys().free(run));
    let back = count(Event::PagesSwappedIn);
    assert!(back >= away);
    tell!("swap: {away} of {} pages were away, {back} came back", area.count());
    Ok(())
}

/// The second CPU's pages, and the end of its work.
static SHARED: Once<PageSpan> = Once::new();
static REFUSED: Once<Error> = Once::new();

/// The second CPU's part: it fills these pages again and again, until it may not.
pub fn work() -> ! {
    let fill = |seed| run(0, FILL, *SHARED.wait(), seed).err();
    REFUSED.call_once(|| (7..).find_map(fill).expect("a right that ends"));
    loop {
        spin_loop();
    }
}

/// Two CPUs in one space: both fault at once, and a right that one takes away ends on the other.
fn two_cpus() -> Result<(), Error> {
    let area = map(Request::anon(256))?;
    let [low, high] = halves(area);
    SHARED.call_once(|| high);
    run(0, FILL, low, 7)?;
    finds(0, low, 7)?;
    while run(0, SUM, high, 0)? == 0 {}
    PROCESSES.with(0, |space| mm().protect(space, high, Prot::READ))?;
    let after = run(0, SUM, high, 0)?;
    assert!(matches!(REFUSED.wait(), Error::Denied(..)), "the other CPU may still write");
    assert_eq!(run(0, SUM, high, 0)?, after, "it wrote after `protect` returned");
    tell!("two CPUs: both filled one area; neither wrote after `protect` returned");
    PROCESSES.with(0, |space| mm().unmap(space, area))
}
