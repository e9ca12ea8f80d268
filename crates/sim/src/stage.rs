//! Support for tests that tell a story: a system with some folio sizes, spaces in it, and counts of
//! the events since then.

use quire::check::{self, Leaf};
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::{Event, Totals};
use quire_arch::{Arch, Level};
use quire_machine::{Config, Counts, Cpu};
use quire_units::{Asid, Order, PageSpan, Vpn};

use crate::system::{self, HostedMm};

/// Runs `test` on a machine of `config` with `frames` of RAM, where folios of the orders `sizes`
/// are wanted, and sees to it that nothing is lost and no rule was broken.
///
/// # Panics
/// When something is or was.
pub fn stage<A: Arch>(
    config: Config,
    frames: usize,
    sizes: &[u8],
    test: impl for<'m, 'r> FnOnce(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>),
) {
    let mut ram = system::ram(frames << A::PAGE_SHIFT).expect("the host has memory");
    let done = system::with::<A, _>(config, &mut ram, |machine, mm| {
        let free = mm.phys().free_frames();
        mm.policy().set_size(A::block_order(), SizePolicy::Never).expect("blocks have a choice");
        for &order in sizes {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).expect("there is a choice");
        }
        test(mm, &mm.hardware().cpu(0));
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(mm.phys().free_frames(), free, "{}: nothing is lost", A::NAME);
    });
    done.expect("there is such a system");
}

/// Where stories take place: before it two tables of the last level, and after it.
pub fn place<A: Arch>() -> Vpn {
    let boundary = A::block_order().pages() << A::LEVELS[1].index_bits;
    Vpn::new(boundary.min(A::USER_PAGES / 2))
}

/// `pages` pages from page `from` of the [`place`] on.
pub fn span<A: Arch>(from: u64, pages: u64) -> PageSpan {
    let start = place::<A>().add(from);
    PageSpan::new(start, start.add(pages))
}

/// A space with an area of `pages` pages at its [`place`].
///
/// # Panics
/// When there is no memory.
pub fn space_of<A: Arch>(mm: &HostedMm<'_, '_, A>, pages: u64, flags: AreaFlags) -> Space<A> {
    let window = PageSpan::new(place::<A>(), place::<A>().add(A::block_order().pages() * 16));
    let space = mm.space(Asid(1), window).expect("memory for a root");
    let request = Request::anon(pages).at(At::Fixed(place::<A>())).flags(flags);
    mm.map(&space, &request).expect("memory for an area");
    space
}

/// The order of a contiguous block of base pages; 4 where there is none.
pub fn contiguous<A: Arch>() -> u8 {
    A::fold_order(Level::LAST).map_or(4, Order::get)
}

/// All leaves of a space.
///
/// # Panics
/// When its tables are broken.
pub fn leaves<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    check::leaves(mm, space, |leaf| leaves.push(*leaf)).expect("sound tables");
    leaves
}

/// Verifies everything, with `spaces` as all there are, and that only pins hold frames besides.
///
/// # Panics
/// When something is wrong.
pub fn verify<A: Arch>(mm: &HostedMm<'_, '_, A>, spaces: &[&Space<A>]) {
    let totals = check::system(mm, spaces).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(totals.held, 0, "no frame is lost");
    mm.hardware().audit().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Counts what happens from its making on.
pub struct Meter<'a, 'm, 'r, A: Arch> {
    mm: &'a HostedMm<'m, 'r, A>,
    totals: Totals,
    counts: Counts,
}

impl<'a, 'm, 'r, A: Arch> Meter<'a, 'm, 'r, A> {
    /// Begins to count.
    pub fn new(mm: &'a HostedMm<'m, 'r, A>) -> Self {
        Self { mm, totals: mm.totals(), counts: mm.hardware().counts() }
    }

    /// How often `event` happened.
    pub fn event(&self, event: Event) -> u64 {
        self.mm.totals().event(event) - self.totals.event(event)
    }

    /// How often each of `events` happened.
    pub fn events<const N: usize>(&self, events: [Event; N]) -> [u64; N] {
        events.map(|event| self.event(event))
    }

    /// The counts of the machine.
    pub fn counts(&self) -> Counts {
        self.mm.hardware().counts() - self.counts
    }

    /// How many words of tables were written.
    pub fn stores(&self) -> u64 {
        let counts = self.counts();
        counts.words_filled + counts.exchanges
    }
}
