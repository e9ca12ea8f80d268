//! Sequences of calls on a few address spaces, for property tests.
//!
//! Pages are named by coarse and fine steps from the start of a small window, so that calls meet
//! at the boundaries of tables and folios far more often than chance would have it.

use proptest::prelude::*;
use quire::fault::{Defrag, Enabled, SizePolicy};
use quire::space::{Advice, AreaFlags, OptOut};
use quire_units::{Access, PageSpan, Prot, Vpn};

/// How many coarse steps a window has.
pub const STEPS: u64 = 24;

/// The window in which everything happens.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its first page.
    pub base: Vpn,
    /// How many pages a coarse step has.
    pub step_pages: u64,
}

impl Field {
    /// All of it.
    pub fn span(&self) -> PageSpan {
        PageSpan::new(self.base, self.base.add(STEPS * self.step_pages))
    }
}

/// A number of pages, or the distance of a page from the start of the window.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// Coarse steps.
    pub steps: u64,
    /// Pages besides.
    pub pages: u64,
}

impl Pages {
    /// How many pages that are.
    pub fn count(self, field: &Field) -> u64 {
        self.steps * field.step_pages + self.pages
    }

    /// The page so far from the start of the window.
    pub fn page(self, field: &Field) -> Vpn {
        field.base.add(self.count(field))
    }
}

/// A page and a length.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// From where.
    pub from: Pages,
    /// How long.
    pub len: Pages,
}

impl Stretch {
    /// The span it names.
    pub fn span(self, field: &Field) -> PageSpan {
        let start = self.from.page(field);
        PageSpan::new(start, start.add(self.len.count(field)))
    }
}

/// How a new area's place is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Anywhere.
    Anywhere,
    /// As a hint.
    Hint,
    /// Exactly there, instead of what is there.
    Fixed,
    /// Exactly there, if it is free.
    NoReplace,
}

/// Where an area that is resized may go.
#[derive(Clone, Copy, Debug)]
pub enum Going {
    /// Nowhere.
    Never,
    /// Anywhere.
    Anywhere,
    /// There.
    To(Pages),
    /// Only its pages go, to a place that is asked for so.
    Keep(Place, Pages),
}

/// One call, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Op {
    /// `map`.
    Map {
        /// Which pages, if it may say.
        stretch: Stretch,
        /// Whether it may.
        place: Place,
        /// The rights.
        prot: Prot,
        /// The rights it may ever have, besides.
        most: Prot,
        /// Its flags.
        flags: AreaFlags,
    },
    /// `unmap`.
    Unmap(Stretch),
    /// `protect`.
    Protect(Stretch, Prot),
    /// `advise`.
    Advise(Stretch, Advice),
    /// `set_flags`: which, and from which others they are taken.
    Flags(Stretch, AreaFlags, AreaFlags),
    /// `collapse`, to folios of this order; taken modulo what makes sense.
    Collapse(Stretch, u8),
    /// `clear_young`.
    Age(Stretch),
    /// `discard`.
    Discard(Stretch),
    /// `lock`.
    Lock(Stretch),
    /// `unlock`.
    Unlock(Stretch),
    /// `populate`.
    Populate(Stretch),
    /// `remap`.
    Remap {
        /// Which pages.
        stretch: Stretch,
        /// How many there are to be.
        len: Pages,
        /// Where.
        going: Going,
    },
    /// A program's access to each of some pages, which lie apart.
    Touch {
        /// Which pages.
        stretch: Stretch,
        /// How far apart; at most a few of them are touched.
        apart: u64,
        /// How.
        access: Access,
    },
    /// The policy of a folio size: the order, taken modulo the orders that there are.
    Size(u8, SizePolicy),
    /// The top-level policy.
    Enabled(Enabled),
    /// How hard to try.
    Defrag(Defrag),
    /// The process's own choice.
    OptOut(OptOut),
    /// `fork`; the stretch is only looked at, before and after.
    Fork(Stretch),
    /// `pin` of the first page.
    Pin(Stretch, Access),
    /// `unpin` of one of the pins, taken modulo how many there are.
    Unpin(usize),
    /// A device writes to the memory that one of the pins holds.
    Device(usize),
    /// How large a copy may be at most.
    CopyMost(u8),
    /// `destroy`, and, unless there are more spaces than at first, a new one in its place.
    Renew,
}

impl Op {
    /// The pages that it is about.
    pub fn stretch(&self) -> Option<Stretch> {
        match *self {
            Op::Map { stretch, .. } | Op::Remap { stretch, .. } | Op::Touch { stretch, .. } => {
                Some(stretch)
            }
            Op::Unmap(stretch) | Op::Protect(stretch, _) | Op::Advise(stretch, _) => Some(stretch),
            Op::Discard(stretch) | Op::Lock(stretch) | Op::Unlock(stretch) => Some(stretch),
            Op::Flags(stretch, ..) | Op::Collapse(stretch, _) => Some(stretch),
            Op::Age(stretch) => Some(stretch),
            Op::Populate(stretch) | Op::Fork(stretch) | Op::Pin(stretch, _) => Some(stretch),
            _ => None,
        }
    }
}

/// A call on one of the spaces.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which space, taken modulo how many there are.
    pub space: usize,
    /// The call.
    pub op: Op,
    /// Which allocation of the call fails, counted from 1; 0 for none.
    pub fails: u64,
}

fn pages(steps: u64) -> impl Strategy<Value = Pages> {
    let fine = prop_oneof![3 => Just(0u64), 3 => 0..20u64, 1 => 0..70u64];
    (0..steps, fine).prop_map(|(steps, pages)| Pages { steps, pages })
}

fn stretch() -> impl Strategy<Value = Stretch> {
    let len = prop_oneof![
        3 => pages(1),
        3 => pages(6),
        1 => pages(STEPS),
        4 => (1..10u64).prop_map(|pages| Pages { steps: 0, pages }),
    ];
    (pages(STEPS - 1), len).prop_map(|(from, len)| Stretch { from, len })
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![
        6 => Just(Prot::RW),
        2 => Just(Prot::READ),
        2 => (0..8u8).prop_map(Prot::from_bits_truncate),
    ]
}

fn flags() -> impl Strategy<Value = AreaFlags> {
    let some = AreaFlags::HUGE.bits()
        | AreaFlags::GROWS_DOWN.bits()
        | AreaFlags::LOCKED.bits()
        | AreaFlags::LOCK_ON_FAULT.bits();
    prop_oneof![
        6 => Just(AreaFlags::empty()),
        3 => Just(AreaFlags::HUGE),
        1 => Just(AreaFlags::NOHUGE),
        2 => Just(AreaFlags::GROWS_DOWN),
        1 => any::<u32>().prop_map(move |bits| AreaFlags::from_bits_truncate(bits & some)),
    ]
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn policy() -> impl Strategy<Value = Op> {
    let size = (0..20u8, one_of(SizePolicy::ALL));
    prop_oneof![
        4 => (0..20u8).prop_map(|order| Op::Size(order, SizePolicy::Always)),
        2 => size.prop_map(|(order, choice)| Op::Size(order, choice)),
        1 => one_of(Enabled::ALL).prop_map(Op::Enabled),
        1 => one_of(Defrag::ALL).prop_map(Op::Defrag),
        1 => one_of(&[OptOut::No, OptOut::No, OptOut::All, OptOut::ExceptAdvised])
            .prop_map(Op::OptOut),
    ]
}

fn map(
    stretch: impl Strategy<Value = Stretch>,
    flags: impl Strategy<Value = AreaFlags>,
) -> impl Strategy<Value = Op> {
    let places = &[Place::Fixed, Place::Fixed, Place::NoReplace, Place::Hint, Place::Anywhere];
    let most = prop_oneof![4 => Just(Prot::all()), 1 => Just(Prot::empty())];
    (stretch, one_of(places), prot(), most, flags).prop_map(
        |(stretch, place, prot, most, flags)| Op::Map { stretch, place, prot, most, flags },
    )
}

fn remap(stretch: impl Strategy<Value = Stretch>) -> impl Strategy<Value = Op> {
    let to = pages(STEPS - 1).prop_map(Going::To);
    let places = &[Place::Fixed, Place::Fixed, Place::NoReplace, Place::Hint, Place::Anywhere];
    let keep = (one_of(places), pages(STEPS - 1)).prop_map(|(place, to)| Going::Keep(place, to));
    let going =
        prop_oneof![1 => Just(Going::Never), 2 => Just(Going::Anywhere), 3 => to, 3 => keep];
    // A move that leaves its area behind keeps its length, or is refused.
    let same = prop_oneof![Just(false), Just(true), Just(true), Just(true)];
    (stretch, prop_oneof![pages(2), pages(8)], going, same).prop_map(
        |(stretch, len, going, same)| {
            let len = if same && matches!(going, Going::Keep(..)) { stretch.len } else { len };
            Op::Remap { stretch, len, going }
        },
    )
}

fn touch(stretch: impl Strategy<Value = Stretch>) -> impl Strategy<Value = Op> {
    let access = &[Access::Write, Access::Write, Access::Read, Access::Execute];
    (stretch, prop_oneof![Just(1u64), 1..20u64, 16..300u64], one_of(access))
        .prop_map(|(stretch, apart, access)| Op::Touch { stretch, apart, access })
}

/// Changes of flags: mostly such as there are, and some that must be refused.
fn advised(stretch: impl Strategy<Value = Stretch>) -> impl Strategy<Value = Op> {
    const PAIRS: &[(AreaFlags, AreaFlags)] = &[
        (AreaFlags::DONTFORK, AreaFlags::empty()),
        (AreaFlags::empty(), AreaFlags::DONTFORK),
        (AreaFlags::WIPEONFORK, AreaFlags::empty()),
        (AreaFlags::empty(), AreaFlags::WIPEONFORK),
        (AreaFlags::SEQUENTIAL, AreaFlags::RANDOM),
        (AreaFlags::RANDOM, AreaFlags::SEQUENTIAL),
        (AreaFlags::empty(), AreaFlags::ADVICE),
        (AreaFlags::DONTDUMP, AreaFlags::empty()),
        (AreaFlags::LOCKED, AreaFlags::empty()),
        (AreaFlags::empty(), AreaFlags::SHARED),
        (AreaFlags::RANDOM, AreaFlags::RANDOM),
    ];
    (stretch, one_of(PAIRS)).prop_map(|(stretch, (set, clear))| Op::Flags(stretch, set, clear))
}

fn op() -> impl Strategy<Value = Op> {
    let advice = &[Advice::None, Advice::Huge, Advice::NoHuge];
    prop_oneof![
        8 => map(stretch(), flags()),
        6 => stretch().prop_map(Op::Unmap),
        6 => (stretch(), prot()).prop_map(|(stretch, prot)| Op::Protect(stretch, prot)),
        3 => (stretch(), one_of(advice)).prop_map(|(stretch, advice)| Op::Advise(stretch, advice)),
        3 => advised(stretch()),
        2 => stretch().prop_map(Op::Age),
        3 => (stretch(), 0..10u8).prop_map(|(stretch, order)| Op::Collapse(stretch, order)),
        3 => stretch().prop_map(Op::Discard),
        2 => stretch().prop_map(Op::Lock),
        1 => stretch().prop_map(Op::Unlock),
        3 => stretch().prop_map(Op::Populate),
        4 => remap(stretch()),
        12 => touch(stretch()),
        3 => policy(),
        1 => Just(Op::Renew),
    ]
}

/// At most `length` calls on `spaces` spaces; the policy is set up first.
pub fn script(spaces: usize, length: usize) -> impl Strategy<Value = Vec<Step>> {
    let fails = prop_oneof![8 => Just(0u64), 1 => 1..6u64];
    let step = (0..spaces, op(), fails).prop_map(|(space, op, fails)| Step { space, op, fails });
    let setup = (0..spaces, policy()).prop_map(|(space, op)| Step { space, op, fails: 0 });
    let setup = prop::collection::vec(setup, 0..5);
    let steps = prop::collection::vec(step, 1..length);
    (setup, steps).prop_map(|(setup, steps)| setup.into_iter().chain(steps).collect())
}

/// Flags of areas that decide what a child inherits.
fn inherited() -> impl Strategy<Value = AreaFlags> {
    prop_oneof![
        8 => Just(AreaFlags::empty()),
        2 => flags(),
        2 => Just(AreaFlags::SHARED),
        1 => Just(AreaFlags::DONTFORK),
        1 => Just(AreaFlags::WIPEONFORK),
        1 => Just(AreaFlags::LOCKED),
    ]
}

/// A choice for one of the sizes around that of a contiguous block.
fn size_near(order: u8) -> impl Strategy<Value = Op> {
    let near = order.saturating_sub(2).max(1)..=order + 1;
    let choice = one_of(&[SizePolicy::Always, SizePolicy::Always, SizePolicy::Never]);
    // Sizes are counted from order 1 on.
    let order = prop_oneof![3 => Just(order), 4 => near];
    (order, choice).prop_map(|(order, choice)| Op::Size(order - 1, choice))
}

/// A stretch of no more than a few blocks in the middle, so that calls meet again and again.
fn near() -> impl Strategy<Value = Stretch> {
    let fine = prop_oneof![2 => Just(0u64), 1 => 0..6u64];
    let from = (STEPS / 2 - 4..STEPS / 2 + 4, fine);
    let len =
        prop_oneof![3 => pages(5), 4 => (1..8u64).prop_map(|pages| Pages { steps: 0, pages })];
    (from.prop_map(|(steps, pages)| Pages { steps, pages }), len)
        .prop_map(|(from, len)| Stretch { from, len })
}

fn anywhere() -> impl Strategy<Value = Stretch> {
    prop_oneof![1 => stretch(), 2 => near()]
}

/// Mostly what shares memory, and what tells by it.
fn fork_op(order: u8) -> impl Strategy<Value = Op> {
    let right = one_of(&[Prot::RW, Prot::RW, Prot::READ, Prot::RX]);
    let access = one_of(&[Access::Write, Access::Write, Access::Read]);
    prop_oneof![
        5 => map(anywhere(), inherited()),
        4 => anywhere().prop_map(Op::Unmap),
        8 => (anywhere(), right).prop_map(|(stretch, prot)| Op::Protect(stretch, prot)),
        3 => anywhere().prop_map(Op::Discard),
        2 => advised(anywhere()),
        3 => anywhere().prop_map(Op::Age),
        4 => (anywhere(), 0..order + 2).prop_map(|(stretch, order)| Op::Collapse(stretch, order)),
        1 => anywhere().prop_map(Op::Lock),
        4 => anywhere().prop_map(Op::Populate),
        4 => remap(anywhere()),
        14 => touch(anywhere()),
        9 => anywhere().prop_map(Op::Fork),
        3 => (anywhere(), access).prop_map(|(stretch, access)| Op::Pin(stretch, access)),
        2 => (0..8usize).prop_map(Op::Unpin),
        2 => (0..8usize).prop_map(Op::Device),
        3 => size_near(order),
        1 => (0..order + 3).prop_map(Op::CopyMost),
        4 => Just(Op::Renew),
    ]
}

/// The first content of a space.
#[derive(Clone, Copy, Debug)]
enum Filled {
    /// An area.
    Empty,
    /// And all its memory, which counts as written.
    Dirty,
    /// All its memory, clean.
    Clean,
}

fn filled() -> impl Strategy<Value = Filled> {
    prop_oneof![1 => Just(Filled::Empty), 2 => Just(Filled::Dirty), 2 => Just(Filled::Clean)]
}

impl Filled {
    fn ops(self, stretch: Stretch) -> Vec<Op> {
        let prot = if matches!(self, Filled::Clean) { Prot::READ } else { Prot::RW };
        let (most, flags) = (Prot::all(), AreaFlags::empty());
        let map = Op::Map { stretch, place: Place::Fixed, prot, most, flags };
        match self {
            Filled::Empty => vec![map],
            Filled::Dirty => vec![map, Op::Populate(stretch)],
            // A page is mapped dirty where the area may be written.
            Filled::Clean => {
                vec![map, Op::Populate(stretch), Op::Protect(stretch, Prot::RW)]
            }
        }
    }
}

/// At most `length` calls, many of which share memory between spaces; there are `spaces` at first,
/// mostly full of memory. `order` is that of a contiguous block.
pub fn forks(spaces: usize, length: usize, order: u8) -> impl Strategy<Value = Vec<Step>> {
    let plain = |space, op| Step { space, op, fails: 0 };
    let setup = prop::collection::vec(size_near(order), 1..4);
    let setup = setup.prop_map(move |ops| ops.into_iter().map(move |op| plain(0, op)));
    let full = (filled(), 0..8u64).prop_map(move |(filled, skew)| {
        let from = Pages { steps: 0, pages: skew };
        let stretch = Stretch { from, len: Pages { steps: STEPS - 2, pages: 0 } };
        let ops = filled.ops(stretch);
        let of = |space| ops.iter().map(move |op| plain(space, op.clone()));
        (0..spaces).flat_map(of).collect::<Vec<_>>()
    });
    let fails = prop_oneof![10 => Just(0u64), 1 => 1..6u64];
    let step =
        (0..8usize, fork_op(order), fails).prop_map(|(space, op, fails)| Step { space, op, fails });
    let steps = prop::collection::vec(step, 1..length);
    (setup, full, steps).prop_map(|(setup, full, steps)| setup.chain(full).chain(steps).collect())
}
