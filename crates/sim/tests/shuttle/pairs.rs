//! Each call that takes memory back beside each call that changes a space, while a third CPU has
//! the translations of all pages in its TLB.
//!
//! ```text
//!   CPU 2   reads and writes all pages ─ ready ─────────────────── uses them again
//!   CPU 1                                  └─► changes the space ── done ─┘        └─► looks
//!   CPU 0                                  └─► takes memory back
//! ```
//!
//! When the change has returned, CPU 2 sees it, and nothing else: a TLB that was not flushed would
//! show it the memory, or the right, of before. [`the_table_of_pairs_is_current`] writes the table
//! of all pairs, with the reason where there is no scenario.

use std::sync::Arc;

use quire::cache::{FileId, FilePages};
use quire::space::{At, Request, Space};
use quire::table::Division;
use quire::{Error, Move, Need, ScanCursor, ScanLimits, Scope, Stop};
use quire_arch::{Arch, X86_64};
use quire_machine::Config;
use quire_units::{Access, Order, PageSpan, Prot, Vpn};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;

use crate::explore_some;
use crate::files::{collapse, with_file};
use crate::scene::{FOLIO, Scene};

type Runner<'t, 'm, 'r> = crate::scene::Runner<'t, 'm, 'r, X86_64>;
type Child = Option<Arc<Space<X86_64>>>;

/// How many orders of each scheduler each pair is played in, in a run of all tests.
const SCHEDULES: usize = 24;

/// How often a state is looked for that another CPU may interrupt for a moment.
const TRIES: usize = 2000;

/// The kinds of memory that a call works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Anon,
    File,
    Both,
}

impl On {
    fn has(self, kind: On) -> bool {
        self == On::Both || self == kind
    }
}

/// The memory of a scenario: an area, and its file.
#[derive(Clone, Copy)]
struct Place {
    start: Vpn,
    pages: u64,
    kind: On,
    file: FileId,
}

impl Place {
    fn span(self) -> PageSpan {
        PageSpan::new(self.start, self.start.add(self.pages))
    }

    fn all(self) -> impl Iterator<Item = (u64, Vpn)> {
        (0..self.pages).map(move |at| (at, self.start.add(at)))
    }

    /// The word of a page at first. Half of an anonymous area is zero.
    fn first(self, at: u64) -> u64 {
        if self.kind == On::Anon && at >= FOLIO { 0 } else { 10 + at }
    }
}

/// A call that takes memory back.
struct Takes {
    name: &'static str,
    on: On,
    act: fn(&Runner<'_, '_, '_>, Place),
}

/// A call that changes a space.
struct Changes {
    name: &'static str,
    on: On,
    /// The call, on CPU 1.
    act: fn(&Runner<'_, '_, '_>, Place) -> Child,
    /// The view of CPU 2 from then on.
    seen: fn(&Runner<'_, '_, '_>, Place),
    /// The view of CPU 1 after that.
    then: fn(&Runner<'_, '_, '_>, Place, Child),
}

fn pages_out(runner: &Runner<'_, '_, '_>, place: Place, whose: Scope) {
    let Scene { mm, known, space, swap, .. } = runner.scene;
    runner.cleaning("page out", || {
        mm.paging().page_out(space, place.span(), whose, known).expect("sound pages")
    });
    runner.write_back(*swap);
}

fn reclaims(runner: &Runner<'_, '_, '_>, _: Place) {
    let Scene { mm, known, swap, .. } = runner.scene;
    runner.cleaning("reclaim", || mm.reclaim().reclaim(u64::MAX, known));
    runner.write_back(*swap);
}

fn scans(runner: &Runner<'_, '_, '_>, _: Place) {
    let Scene { mm, known, .. } = runner.scene;
    let any = ScanLimits { none: 511, swapped: 511, shared: 511, hard: true };
    mm.policy().set_sizes("32K:always", X86_64::PAGE_SHIFT).expect("there is such a size");
    let scan = || mm.reclaim().scan(&mut ScanCursor::default(), u64::MAX, &any, known);
    if let Some(reads) = runner.operation("scan", scan).reads {
        runner.carry(reads);
    }
}

const TAKES: [Takes; 11] = [
    Takes {
        name: "page out its own",
        on: On::Anon,
        act: |runner, place| pages_out(runner, place, Scope::Own),
    },
    Takes {
        name: "page out of all spaces",
        on: On::Anon,
        act: |runner, place| pages_out(runner, place, Scope::All),
    },
    Takes { name: "reclaim", on: On::Both, act: reclaims },
    Takes {
        name: "reclaim, divide folios",
        on: On::Anon,
        act: |runner, place| {
            runner.scene.mm.policy().set_zeroes_most(Some(0));
            reclaims(runner, place);
        },
    },
    Takes { name: "write back", on: On::File, act: |runner, place| runner.write_back(place.file) },
    Takes {
        name: "drop clean pages",
        on: On::File,
        act: |runner, place| {
            let files = runner.scene.mm.files();
            let all = FilePages::new(0, place.pages);
            runner.operation("drop", || files.drop_clean(place.file, all).expect("it is in use"));
        },
    },
    Takes {
        name: "collapse",
        on: On::Anon,
        act: |runner, place| {
            let (mm, order) = (runner.scene.mm, Order::new(place.pages.ilog2() as u8));
            let act = || mm.reclaim().collapse(&runner.scene.space, place.span(), order);
            runner.operation("collapse", act).expect("there is memory");
        },
    },
    Takes {
        name: "collapse a file",
        on: On::File,
        act: |runner, place| collapse(runner, place.start),
    },
    Takes { name: "scan", on: On::Anon, act: scans },
    Takes {
        name: "drop zeroes",
        on: On::Anon,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            let drop = || mm.reclaim().drop_zeroes(space, place.span());
            // An area that is being changed may be none at this moment.
            let _ = runner.cleaning("drop zeroes", drop);
        },
    },
    Takes {
        name: "divide a folio",
        on: On::Anon,
        act: |runner, place| {
            let Scene { mm, space, .. } = runner.scene;
            let how = Division::Uniform(Order::ZERO);
            let divide = || mm.spaces().divide(space, place.start.add(1), how);
            runner.operation("divide", divide).expect("no leaf is large");
        },
    },
];

/// Nothing is mapped there any more.
fn is_gone(runner: &Runner<'_, '_, '_>, place: Place) {
    for (_, page) in place.all() {
        let found = runner.try_read(&runner.scene.space, page);
        assert_eq!(found, Err(Error::NoArea(page)), "it is unmapped");
    }
}

/// All is as it was at first.
fn is_as_before(runner: &Runner<'_, '_, '_>, place: Place) {
    for (at, page) in place.all() {
        assert_eq!(runner.read(&runner.scene.space, page), place.first(at), "page {at}");
    }
}

fn is_zero(runner: &Runner<'_, '_, '_>, place: Place) {
    for (at, page) in place.all() {
        assert_eq!(runner.read(&runner.scene.space, page), 0, "page {at} is new");
    }
}

fn is_discarded(runner: &Runner<'_, '_, '_>, place: Place) {
    match place.kind {
        On::File => is_as_before(runner, place),
        _ => is_zero(runner, place),
    }
}

fn is_read_only(runner: &Runner<'_, '_, '_>, place: Place) {
    for (_, page) in place.all() {
        let done = runner.try_write(&runner.scene.space, page, 77);
        assert_eq!(done, Err(Error::Denied(page, Access::Write, Prot::READ)));
    }
    is_as_before(runner, place);
}

/// Writes other numbers.
fn writes(runner: &Runner<'_, '_, '_>, place: Place, more: u64) {
    for (at, page) in place.all() {
        runner.write(&runner.scene.space, page, more + at);
    }
}

fn holds(runner: &Runner<'_, '_, '_>, place: Place, more: u64) {
    for (at, page) in place.all() {
        let is = runner.read(&runner.scene.space, page);
        assert_eq!(is, more + at, "page {at}");
    }
}

fn moved_to(place: Place) -> Place {
    Place { start: place.start.add(64), ..place }
}

/// Repeats a call until its pages are there.
fn done<T>(
    runner: &Runner<'_, '_, '_>,
    name: &'static str,
    call: impl Fn() -> Result<T, Stop>,
) -> T {
    loop {
        match runner.operation(name, &call) {
            Ok(done) => return done,
            Err(Stop::Need(Need::Read(reads))) => runner.carry(reads),
            Err(Stop::Need(_)) => thread::yield_now(),
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

/// A device gets the first page and writes it.
fn pins(runner: &Runner<'_, '_, '_>, place: Place) -> Child {
    let Scene { mm, space, .. } = runner.scene;
    let pinned = done(runner, "pin", || mm.pin(space, place.start, Access::Write));
    let machine = mm.hardware().machine();
    machine.ram().write_word(pinned.frame().addr(X86_64::PAGE_SHIFT), 40);
    mm.unpin(pinned);
    None
}

fn has_device_word(runner: &Runner<'_, '_, '_>, place: Place) {
    let word = runner.read(&runner.scene.space, place.start);
    assert_eq!(word, 40, "the device wrote it");
}

/// Pages that are locked stay in memory.
fn stays(runner: &Runner<'_, '_, '_>, place: Place, _: Child) {
    let Scene { mm, space, .. } = runner.scene;
    reclaims(runner, place);
    let is_there = || {
        let mut mapped = 0;
        mm.spaces().runs(space, place.span(), &mut |seen| {
            let is_leaf = matches!(seen.what, quire::table::Sight::Leaf { .. });
            mapped += if is_leaf { seen.pages.count() } else { 0 };
        });
        mapped == place.pages
    };
    // A collapse under way takes the pages out for a moment, while faults wait.
    for _ in 0..TRIES {
        if is_there() {
            break;
        }
        thread::yield_now();
    }
    assert!(is_there(), "it is locked");
    mm.spaces().munlock(space, place.span()).expect("it is mapped");
}

fn is_noted_as_written(runner: &Runner<'_, '_, '_>, place: Place, _: Child) {
    let Scene { mm, space, .. } = runner.scene;
    let area = mm.spaces().areas(space, place.span()).next().expect("it is mapped");
    let mut written = 0;
    mm.spaces().runs(space, place.span(), &mut |seen| {
        written += if quire::is_written(&area, seen) { seen.pages.count() } else { 0 };
    });
    assert_eq!(written, place.pages, "all were written since");
}

fn nothing_more(_: &Runner<'_, '_, '_>, _: Place, _: Child) {}

/// The child has the pages as they were at the fork; of a file it has those of its parent.
fn child_has_its_own(runner: &Runner<'_, '_, '_>, place: Place, child: Child) {
    let child = child.expect("it was forked");
    runner.enter(&child);
    for (at, page) in place.all() {
        let due = if place.kind == On::File { 30 + at } else { place.first(at) };
        assert_eq!(runner.read(&child, page), due, "page {at} of the child");
    }
    runner.enter(&runner.scene.space);
    runner.scene.known.end(child);
}

/// A call of a space that must succeed.
macro_rules! changes {
    ($name:literal, $on:expr, |$mm:ident, $space:ident, $place:ident| $call:expr, $seen:expr) => {
        changes!($name, $on, |$mm, $space, $place| $call, $seen, nothing_more)
    };
    ($name:literal, $on:expr, |$mm:ident, $space:ident, $place:ident| $call:expr, $seen:expr,
     $then:expr) => {
        Changes {
            name: $name,
            on: $on,
            act: |runner, $place| {
                let Scene { mm: $mm, space: $space, .. } = runner.scene;
                runner.cleaning($name, || $call).expect($name);
                None
            },
            seen: $seen,
            then: $then,
        }
    };
}

fn changes() -> [Changes; 14] {
    [
        changes!("unmap", On::Both, |mm, space, place| mm.unmap(space, place.span()), is_gone),
        changes!(
            "protect",
            On::Both,
            |mm, space, place| mm.protect(space, place.span(), Prot::READ),
            is_read_only
        ),
        changes!(
            "discard",
            On::Both,
            |mm, space, place| mm.discard(space, place.span()),
            is_discarded
        ),
        changes!(
            "map over it",
            On::Both,
            |mm, space, place| {
                mm.map(space, &Request::anon(place.pages).at(At::Fixed(place.start)))
            },
            is_zero
        ),
        changes!(
            "move",
            On::Both,
            |mm, space, place| {
                mm.remap(space, place.span(), place.pages, Move::To(moved_to(place).start))
            },
            |runner, place| {
                is_gone(runner, place);
                is_as_before(runner, moved_to(place));
            }
        ),
        changes!(
            "guard",
            On::Anon,
            |mm, space, place| mm.spaces().guard(space, place.span()),
            |runner, place| {
                for (_, page) in place.all() {
                    let found = runner.try_read(&runner.scene.space, page);
                    assert_eq!(found, Err(Error::Guarded(page)));
                }
            }
        ),
        changes!(
            "free lazily",
            On::Anon,
            |mm, space, place| mm.spaces().free_lazily(space, place.span()),
            |runner, place| writes(runner, place, 60),
            |runner, place, _| {
                reclaims(runner, place);
                holds(runner, place, 60);
            }
        ),
        changes!(
            "track",
            On::Anon,
            |mm, space, place| mm.spaces().track(space, place.span()),
            |runner, place| writes(runner, place, 50),
            is_noted_as_written
        ),
        changes!(
            "age",
            On::Both,
            |mm, space, place| Ok::<_, Error>(mm.spaces().clear_young(space, place.span())),
            is_as_before
        ),
        Changes {
            name: "fork",
            on: On::Both,
            act: |runner, _| Some(runner.fork(2)),
            seen: |runner, place| writes(runner, place, 30),
            then: child_has_its_own,
        },
        Changes {
            name: "write",
            on: On::Both,
            act: |runner, place| {
                writes(runner, place, 20);
                None
            },
            seen: |runner, place| holds(runner, place, 20),
            then: nothing_more,
        },
        Changes {
            name: "populate",
            on: On::Both,
            act: |runner, place| {
                let Scene { mm, space, .. } = runner.scene;
                done(runner, "populate", || mm.populate(space, place.span()));
                None
            },
            seen: is_as_before,
            then: nothing_more,
        },
        Changes {
            name: "lock in memory",
            on: On::Both,
            act: |runner, place| {
                let Scene { mm, space, .. } = runner.scene;
                done(runner, "lock", || mm.mlock(space, place.span()));
                None
            },
            seen: is_as_before,
            then: stays,
        },
        Changes {
            name: "pin for a device",
            on: On::Both,
            act: pins,
            seen: has_device_word,
            then: nothing_more,
        },
    ]
}

/// The kinds of memory of which a pair has a scenario.
fn kinds(takes: &Takes, changes: &Changes) -> impl Iterator<Item = On> + use<> {
    let (one, other) = (takes.on, changes.on);
    // Its check reclaims a second time, beside the first: see `LEFT_OUT`.
    let twice = takes.name.starts_with("reclaim") && changes.name == "free lazily";
    let met = move |&kind: &On| !twice && one.has(kind) && other.has(kind);
    [On::Anon, On::File].into_iter().filter(met)
}

/// CPU 2: warms its TLB, and looks when the change has returned.
fn looks(
    runner: &Runner<'_, '_, '_>,
    place: Place,
    (ready, told, over): (&[Sender<()>; 2], &Receiver<()>, &Sender<()>),
    seen: fn(&Runner<'_, '_, '_>, Place),
) {
    for (at, page) in place.all() {
        runner.write(&runner.scene.space, page, place.first(at));
    }
    is_as_before(runner, place);
    ready.iter().for_each(|ready| ready.send(()).expect("both wait"));
    told.recv().expect("the change returns");
    seen(runner, place);
    over.send(()).expect("the other waits");
}

fn plays(scene: &Scene<'_, '_, '_, X86_64>, place: Place, takes: &Takes, changes: &Changes) {
    let ([taker, begins], [taker_ready, ready]) = {
        let ((one, first), (other, second)) = (channel(), channel());
        ([one, other], [first, second])
    };
    let (done, told) = channel();
    let (seen, over) = channel();
    thread::scope(|scope| {
        let is_seen = changes.seen;
        scope.spawn(move || {
            scene.on(2, |runner| looks(runner, place, (&[taker, begins], &told, &seen), is_seen));
        });
        let (act, then) = (changes.act, changes.then);
        scope.spawn(move || {
            scene.on(1, |runner| {
                ready.recv().expect("the other is warm");
                let child = act(runner, place);
                done.send(()).expect("the other waits");
                over.recv().expect("the other looks");
                then(runner, place, child);
            });
        });
        let take = takes.act;
        scene.on(0, |runner| {
            taker_ready.recv().expect("the other is warm");
            take(runner, place);
        });
    });
}

/// The pair that is played: the models take no arguments.
fn scenario(at: usize) {
    let (takes, changes) = (&TAKES[at / changes().len()], &changes()[at % changes().len()]);
    for kind in kinds(takes, changes) {
        with_file::<X86_64>(Config::x86_64(), |scene, file, start| {
            let (anon, pages) = (scene.span(), scene.mm.files().get(file).map_or(0, |f| f.pages()));
            let place = match kind {
                On::File => Place { start, pages, kind, file },
                _ => Place { start: anon.start, pages: anon.count(), kind, file },
            };
            plays(scene, place, takes, changes);
        });
    }
}

/// Plays all pairs of one call that takes memory back.
fn pairs_of(name: &str) {
    let many = changes().len();
    let row = TAKES.iter().position(|takes| takes.name == name).expect("there is such a call");
    for at in row * many..(row + 1) * many {
        if kinds(&TAKES[row], &changes()[at % many]).next().is_some() {
            println!("{name} beside {}", changes()[at % many].name);
            explore_some(SCHEDULES, move || scenario(at));
        }
    }
}

#[test]
fn i6_each_change_beside_a_page_out_of_the_same_space_is_seen_by_a_warm_tlb() {
    pairs_of("page out its own");
}

#[test]
fn i6_each_change_beside_a_page_out_of_all_spaces_is_seen_by_a_warm_tlb() {
    pairs_of("page out of all spaces");
}

#[test]
fn i6_each_change_beside_reclaim_is_seen_by_a_warm_tlb() {
    pairs_of("reclaim");
    pairs_of("reclaim, divide folios");
}

#[test]
fn i6_each_change_beside_writeback_is_seen_by_a_warm_tlb() {
    pairs_of("write back");
    pairs_of("drop clean pages");
}

#[test]
fn i6_each_change_beside_a_collapse_is_seen_by_a_warm_tlb() {
    pairs_of("collapse");
    pairs_of("collapse a file");
}

#[test]
fn i6_each_change_beside_a_scan_is_seen_by_a_warm_tlb() {
    pairs_of("scan");
}

#[test]
fn i6_each_change_beside_dropped_zeroes_and_divided_folios_is_seen_by_a_warm_tlb() {
    pairs_of("drop zeroes");
    pairs_of("divide a folio");
}

/// Calls that have no row or column, and why.
const LEFT_OUT: [(&str, &str); 6] = [
    (
        "free lazily beside reclaim",
        "an open finding: two CPUs that reclaim at once can lose a page that was freed lazily and \
         written again",
    ),
    ("relieve a group", "pages out as `reclaim` does, of fewer spaces"),
    ("truncate, punch a hole", "take memory from a file for ever: `files.rs` has their scenarios"),
    ("memory that fails", "loses content, so that no word is due; `failed.rs` has its stories"),
    ("end a space", "no CPU runs in it any more; `leaving.rs` has its scenarios"),
    ("advise, seal", "change areas and no page table"),
];

fn table() -> String {
    use std::fmt::Write;

    let mut text = String::from(PREFACE);
    let columns = TAKES.map(|takes| takes.name);
    let _ = writeln!(text, "| | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for changes in changes() {
        let _ = write!(text, "| {} |", changes.name);
        for takes in &TAKES {
            let both: Vec<_> = kinds(takes, &changes).collect();
            let cell = match both[..] {
                [] => "–",
                [On::File] => "file",
                [_] => "anon",
                _ => "both",
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text.push_str(
        "\n–: one of the two is for anonymous memory only, the other for files only, so they never \
         meet on a page.\n\nNot in the table:\n\n",
    );
    for (call, why) in LEFT_OUT {
        let _ = writeln!(text, "* *{call}*: {why}.");
    }
    text
}

const PREFACE: &str = "\
# Pairs of calls that meet

`crates/sim/tests/shuttle/pairs.rs` plays each call that takes memory back (columns) beside each call that
changes a space (rows), in many orders of their steps, while a third CPU has the translations of all pages in
its TLB. When the change returns, that CPU sees it, and nothing else. The cells name the memory that the two
meet on. `QUIRE_BLESS=1` in the environment of that test writes this file.

";

#[test]
fn the_table_of_pairs_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pairs.md");
    let table = table();
    if std::env::var_os("QUIRE_BLESS").is_some() {
        std::fs::write(path, &table).expect("the documents are there");
    }
    let is = std::fs::read_to_string(path).expect("the documents are there");
    assert_eq!(is, table, "run this test with QUIRE_BLESS=1");
}
