//! Processes: spaces with the kernel's half, programs that run in them, and their faults.

use crate::*;

/// Where areas go: programs may have all pages below `Format::USER_PAGES`, but for the first.
const WINDOW: PageSpan = PageSpan::new(Vpn::new(0x1000), Vpn::new(Format::USER_PAGES));

/// Free frames below which a fault first makes room: reclaim itself needs some.
const LEAST: u64 = 64;

/// All processes by number: reclaim has to visit every space.
pub struct Processes([RwLock<Option<Space>>; 2]);

pub static PROCESSES: Processes = Processes([const { RwLock::new(None) }; 2]);

impl AllSpaces<Format> for Processes {
    fn visit(&self, see: &mut dyn FnMut(&Space)) {
        self.0.iter().filter_map(|slot| slot.read().as_ref().map(&mut *see)).for_each(drop);
    }
}

impl Processes {
    /// Begins process `number`: without areas, or as a fork of `parent`.
    pub fn begin(&self, number: usize, parent: Option<usize>) -> Result<(), Error> {
        // Each space has a tag of its own as long as it lives.
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let asid = Asid(NEXT.fetch_add(1, Ordering::Relaxed));
        let root = root()?;
        let place = &mut *self.0[number].write();
        match parent {
            None => mm().space_in(place, root, asid, WINDOW).map(drop),
            Some(parent) => {
                self.with(parent, |parent| mm().fork_in(place, parent, root, asid).map(drop))
            }
        }
    }

    /// Ends process `number`, which runs nowhere.
    pub fn end(&self, number: usize) {
        // Held until the space is gone: reclaim visits all of its pages, or none.
        mm().destroy_in(&mut self.0[number].write());
    }

    /// Calls `act` with the space of process `number`.
    pub fn with<T>(&self, number: usize, act: impl FnOnce(&Space) -> T) -> T {
        act(self.0[number].read().as_ref().expect("the process has begun"))
    }

    /// Runs the program at `pc` in process `number`, on this CPU, until it calls the kernel;
    /// returns its a0 then.
    ///
    /// # Errors
    /// The reason why an access of it cannot be allowed: a real kernel would send a signal.
    pub fn run(&self, number: usize, pc: u64, args: [u64; 3]) -> Result<u64, Error> {
        self.with(number, |space| {
            space.enter(boot::cpu());
            mmu::set_root(space.root(), space.asid());
            let result = until_call(space, trap::context(pc, args));
            // No CPU is in the space, or may have its translations, after `leave`: so first away
            // from its root, then without its translations.
            mmu::set_root(KERNEL.wait().root(), Asid(0));
            mmu::flush(space.asid());
            space.leave(boot::cpu());
            result
        })
    }
}

fn until_call(space: &Space, mut context: trap::Context) -> Result<u64, Error> {
    loop {
        trap::enter(&mut context);
        let access = match scause::read().code() {
            8 => return Ok(context[trap::A0]),
            12 => Access::Execute,
            13 => Access::Read,
            15 => Access::Write,
            cause => panic!("a program stopped: cause {cause}"),
        };
        fault(space, Vpn::new(stval::read() as u64 >> PAGE_SHIFT), access)?;
    }
}

/// Resolves a fault of a program. The library waits for no device and frees no memory by itself: it
/// says what it lacks, and this loop brings it.
fn fault(space: &Space, page: Vpn, access: Access) -> Result<(), Error> {
    if page >= Vpn::new(Format::USER_PAGES) {
        return Err(Error::NoArea(page));
    }
    loop {
        if !mm().phys().has_free(LEAST) {
            make_room();
        }
        match mm().fault(space, page, access) {
            Ok(_) => return Ok(()),
            Err(Stop::Need(Need::Read(reads))) => disk::read(reads)?,
            // Another CPU reads it.
            Err(Stop::Need(_)) => spin_loop(),
            Err(Stop::Refuse(Error::NoMemory(_))) if make_room() > 0 => {}
            Err(Stop::Refuse(error)) => return Err(error),
        }
    }
}

/// Frees some memory; returns how many pages.
fn make_room() -> u64 {
    let reclaimed = mm().reclaim().reclaim(LEAST, &PROCESSES);
    // Pages that leave for a swap device are free when they are written.
    disk::write_back(disk::SWAP);
    reclaimed.pages()
}

/// A root table for a space: the kernel's half, and zeroes for programs.
fn root() -> Result<FrameRun, Error> {
    let run = mm().phys().alloc(Order::ZERO).ok_or(Error::NoMemory(Order::ZERO))?;
    KERNEL.wait().copy_to(mm().hardware().ram.words(&run));
    Ok(run.dirtied())
}
