//! Which CPU touched which cache line, between the beginning and the end of an operation.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use quire::lines::{Named, Touch};
use quire_units::Pfn;

/// The bytes of a cache line, of which a CPU has all or nothing.
const LINE: usize = 64;
/// Words of a frame that share a line.
const WORDS: usize = 8;

/// A cache line. The beginnings of some arrays count as aligned, so that the answer does not depend
/// on where the host's allocator puts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Line {
    /// Counted from an address on.
    Memory(usize, usize),
    Words(Pfn, usize),
}

/// A piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Name {
    Field(&'static str),
    /// A field of the slot with this number.
    Slot(usize, &'static str),
    Words(Pfn),
    Elsewhere,
}

/// A named piece of memory.
struct Part {
    end: usize,
    /// The address that counts as the beginning of a line.
    base: usize,
    name: &'static str,
}

/// Objects that the embedder lends as arrays without an alignment of their own.
const PACKED: [&str; 2] = ["cache.file.", "swap."];

/// Memory that the library may touch, by address.
#[derive(Default)]
pub(super) struct Known {
    parts: BTreeMap<usize, Part>,
    /// The first slot's address, the bytes of all, and the ends and names of the fields of each.
    slots: (usize, usize, Vec<(usize, &'static str)>),
}

impl Known {
    /// Adds the parts of an object.
    pub(super) fn add(&mut self, named: &dyn Named) {
        let mut told = Vec::new();
        named.named(&mut |name, at, len| told.push((name, at, len)));
        for &(name, at, len) in told.iter().filter(|(_, _, len)| *len > 0) {
            let packed = PACKED.iter().find(|prefix| name.starts_with(**prefix));
            let same = |prefix| told.iter().filter(move |part| part.0.starts_with(prefix));
            let base = packed.and_then(|prefix| same(*prefix).map(|part| part.1).min());
            self.parts.insert(at, Part { end: at + len, base: base.unwrap_or(0), name });
        }
    }

    /// Adds the slots.
    pub(super) fn slots<T: Named>(&mut self, slots: &[T]) {
        let Some(first) = slots.first() else { return };
        let start = slots.as_ptr() as usize;
        let mut fields = Vec::new();
        first.named(&mut |name, at, len| fields.push((at + len - start, name)));
        fields.sort_unstable();
        self.slots = (start, size_of_val(slots), fields);
    }

    /// The line and the name of what is known at an address.
    fn find(&self, at: usize) -> Option<(Line, Name)> {
        let (start, bytes, fields) = &self.slots;
        if (*start..start + bytes).contains(&at) {
            let (from, size) = (at - start, fields.last().map_or(1, |(end, _)| *end));
            let field = fields.iter().find(|(end, _)| from % size < *end);
            let name = Name::Slot(from / size, field.map_or("slot", |(_, name)| name));
            return Some((Line::Memory(*start, from / LINE), name));
        }
        let (_, part) = self.parts.range(..=at).next_back().filter(|(_, part)| at < part.end)?;
        Some((Line::Memory(part.base, (at - part.base) / LINE), Name::Field(part.name)))
    }
}

/// Lines and pieces of them that were touched, whether they were written, and where in the code.
type Touches<N> = BTreeMap<(Line, N), (bool, Places)>;

/// Lines of code: the file and the number.
pub type Places = BTreeSet<(&'static str, u32)>;

/// One operation on one CPU.
pub(super) struct Did {
    pub(super) cpu: usize,
    /// Other CPUs that had to drop translations.
    pub(super) interrupts: u64,
    touches: Touches<String>,
}

impl Did {
    fn written(&self) -> impl Iterator<Item = Line> {
        self.touches.iter().filter(|(_, (writes, _))| *writes).map(|((line, _), _)| *line)
    }
}

#[derive(Default)]
struct Recorder {
    known: Known,
    /// The thread's stack reaches from the recorder's own frame up to here.
    stack: usize,
    /// An operation is recorded.
    on: bool,
    touches: Touches<Name>,
    interrupts: u64,
}

thread_local! {
    static RECORDER: RefCell<Recorder> = RefCell::default();
}

/// Begins to know memory. The caller's callees have their locals below `stack`.
pub(super) fn install(known: Known, stack: usize) {
    quire::lines::watch(|touch| with(|recorder| recorder.touched(&touch)));
    with(|recorder| *recorder = Recorder { known, stack, ..Recorder::default() });
}

fn with<R>(act: impl FnOnce(&mut Recorder) -> R) -> R {
    RECORDER.with_borrow_mut(act)
}

/// Records `operation` as one of `cpu`. Afterwards `name` says what it touched.
pub(super) fn record(cpu: usize, operation: impl FnOnce(), name: impl Fn(Name) -> String) -> Did {
    with(|recorder| recorder.on = true);
    operation();
    let (touches, interrupts) = with(|recorder| {
        recorder.on = false;
        (std::mem::take(&mut recorder.touches), std::mem::take(&mut recorder.interrupts))
    });
    let mut named = Touches::new();
    for ((line, part), (writes, places)) in touches {
        let (wrote, all) = named.entry((line, name(part))).or_default();
        *wrote |= writes;
        all.extend(places);
    }
    Did { cpu, interrupts, touches: named }
}

/// The operation touches `count` words of a frame of the library.
pub(super) fn words(frame: Pfn, index: usize, count: usize, writes: bool) {
    with(|recorder| {
        let last = index + count.max(1) - 1;
        for line in (index / WORDS..=last / WORDS).filter(|_| recorder.on) {
            let touch = (Line::Words(frame, line), Name::Words(frame));
            recorder.touches.entry(touch).or_default().0 |= writes;
        }
    });
}

/// The operation makes `cpus` other CPUs drop translations.
pub(super) fn interrupts(cpus: u64) {
    with(|recorder| recorder.interrupts += if recorder.on { cpus } else { 0 });
}

impl Recorder {
    fn touched(&mut self, touch: &Touch) {
        if !self.on {
            return;
        }
        let here = &raw const *touch as usize;
        let place = (touch.place.file(), touch.place.line());
        let ends = [touch.start, touch.start + touch.bytes.max(1) - 1];
        for at in (ends[0]..ends[1]).step_by(LINE).skip(1).chain(ends) {
            let found = match self.known.find(at) {
                Some(found) => found,
                // A local of the operation, such as a space that is being made.
                None if (here..self.stack).contains(&at) => continue,
                None => (Line::Memory(0, at / LINE), Name::Elsewhere),
            };
            let (wrote, places) = self.touches.entry(found).or_default();
            *wrote |= touch.writes;
            places.insert(place);
        }
    }
}

/// The lines of one field that operations share with other CPUs.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Shared {
    /// Written by the operation, and by other CPUs: lines for each operation.
    pub written: f64,
    /// Only read by the operation, and written by other CPUs: lines for each operation.
    pub read: f64,
    /// The code that touches them.
    pub places: Places,
}

/// Sums up what `all` did: shared lines in all, and by field.
pub(super) fn shared(all: &[Did]) -> (Shared, BTreeMap<String, Shared>) {
    let mut writers: BTreeMap<Line, BTreeSet<usize>> = BTreeMap::new();
    for did in all {
        did.written().for_each(|line| _ = writers.entry(line).or_default().insert(did.cpu));
    }
    let share = 1.0 / all.len().max(1) as f64;
    let (mut total, mut fields) = (Shared::default(), BTreeMap::<String, Shared>::new());
    for did in all {
        let own: BTreeSet<Line> = did.written().collect();
        let mut seen = BTreeSet::new();
        for ((line, part), (writes, places)) in &did.touches {
            let others =
                writers.get(line).is_some_and(|cpus| cpus.iter().any(|cpu| *cpu != did.cpu));
            if !others || (own.contains(line) && !writes) {
                continue;
            }
            let first = seen.insert(*line);
            let field = fields.entry(part.clone()).or_default();
            field.places.extend(places);
            let add = if first { share } else { 0.0 };
            if *writes {
                (field.written, total.written) = (field.written + share, total.written + add);
            } else {
                (field.read, total.read) = (field.read + share, total.read + add);
            }
        }
    }
    (total, fields)
}
