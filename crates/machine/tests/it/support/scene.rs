//! A contiguous block in a live table, on each machine that has such blocks.

use quire_hw::Transitions;
use quire_machine::{Config, Cpu, Isa, Machine, Rule, Why};
use quire_units::{Order, Pfn, Prot, Vpn};

use super::{Space, Want, leaf_word, on, used};

#[track_caller]
pub(crate) fn fires(machine: &Machine<'_>, rule: Rule, why: Why) {
    let violation = machine.verdict().expect_err("a violation");
    assert_eq!((violation.rule, violation.why), (rule, why), "{violation}");
}

#[track_caller]
pub(crate) fn quiet(machine: &Machine<'_>) {
    if let Err(violation) = machine.audit() {
        panic!("{violation}");
    }
}

/// A space with room for a contiguous block, and the block that is to be there.
pub(crate) struct Scene<'s, 'm, 'r> {
    pub(crate) space: &'s Space<'m, 'r>,
    pub(crate) cpu: &'s Cpu<'m, 'r>,
    pub(crate) level: u8,
    /// Its entries.
    pub(crate) count: u64,
    /// Pages of each entry.
    pub(crate) step: u64,
    pub(crate) first: Vpn,
    pub(crate) frame: Pfn,
}

impl<'s, 'm, 'r> Scene<'s, 'm, 'r> {
    pub(crate) fn new(space: &'s Space<'m, 'r>, cpu: &'s Cpu<'m, 'r>, level: u8) -> Option<Self> {
        let (count, step) =
            (space.contiguous_at(level), space.machine.geometry().order(level).pages());
        // Larger blocks begin where RAM does, or before; they are not accessed.
        let frame = match level {
            0 => space.block(count.ilog2() as u8),
            _ => space.machine.frames().start.align_down(count * step),
        };
        let first = Vpn::new(count * step * 3);
        (count > 1).then_some(Self { space, cpu, level, count, step, first, frame })
    }

    pub(crate) fn machine(&self) -> &'m Machine<'r> {
        self.space.machine
    }

    pub(crate) fn is_arm(&self) -> bool {
        matches!(self.space.isa, Isa::Arm64 { .. })
    }

    /// Whether entries change their mark one by one, without a break.
    pub(crate) fn is_stepwise(&self) -> bool {
        !self.is_arm() || self.machine().config().transitions == Transitions::BbmLevel2
    }

    pub(crate) fn page(&self, at: u64) -> Vpn {
        self.first.add(at * self.step)
    }

    /// The word of entry `at` of the block, with the attributes of `like`.
    pub(crate) fn word(&self, at: u64, like: Want) -> u64 {
        let frame = self.frame.add(at * self.step);
        leaf_word(self.space.isa, Want { frame, level: self.level, ..like })
    }

    pub(crate) fn set(&self, at: u64, word: u64) {
        self.space.set(self.page(at), self.level, word);
    }

    pub(crate) fn write(&self, entries: std::ops::Range<u64>, like: Want) {
        entries.for_each(|at| self.set(at, self.word(at, like)));
    }

    pub(crate) fn zero(&self, entries: std::ops::Range<u64>) {
        entries.for_each(|at| self.set(at, 0));
    }

    pub(crate) fn flush(&self, entries: std::ops::Range<u64>) {
        let count = entries.end - entries.start;
        let stride = Order::new(self.step.ilog2() as u8);
        self.space.flush_by(self.page(entries.start), count * self.step, stride, false);
    }

    pub(crate) fn all(&self) -> std::ops::Range<u64> {
        0..self.count
    }

    pub(crate) fn op(&self, change: impl FnOnce()) {
        let _op = self.cpu.operation("change");
        change();
    }

    /// From one whole state to another, as the ISA wants it.
    pub(crate) fn remake(&self, like: Want) {
        self.op(|| {
            self.zero(self.all());
            self.flush(self.all());
            self.write(self.all(), like);
            self.flush(self.all());
        });
    }

    pub(crate) fn load(&self, at: u64) {
        self.cpu.read(self.space.addr(self.page(at))).unwrap();
    }

    pub(crate) fn store(&self, at: u64) {
        self.cpu.write(self.space.addr(self.page(at)), at).unwrap();
    }
}

/// A page of a block, used and written.
pub(crate) fn joined(prot: Prot) -> Want {
    Want { contiguous: true, ..used(Pfn::new(0), prot) }
}

/// The same, clean.
pub(crate) fn clean(prot: Prot) -> Want {
    Want { dirty: false, ..joined(prot) }
}

/// No page of a block.
pub(crate) fn parted(like: Want) -> Want {
    Want { contiguous: false, ..like }
}

pub(crate) fn configs() -> Vec<Config> {
    let level_2 = Config { transitions: Transitions::BbmLevel2, ..Config::arm64_4k() };
    let all = [
        Config::arm64_4k(),
        Config::arm64_16k(),
        Config::arm64_64k(),
        level_2,
        Config::riscv64_sv39(),
    ];
    all.iter()
        .flat_map(|config| {
            [true, false].map(|joins_contiguous| Config { joins_contiguous, ..*config })
        })
        .collect()
}

/// Runs `test` with a whole block of base pages that may be written, on each machine that has
/// such blocks.
pub(crate) fn on_blocks(test: impl Fn(&Scene<'_, '_, '_>)) {
    for config in configs() {
        on(config, |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).expect("it has blocks");
            scene.op(|| scene.write(scene.all(), joined(Prot::RW)));
            test(&scene);
        });
    }
}

impl Scene<'_, '_, '_> {
    /// No page is dirty, and that is no mistake.
    pub(crate) fn remake_clean(&self) {
        let _op = self.cpu.operation("clean").cleans();
        self.write(self.all(), clean(Prot::RW));
        self.flush(self.all());
    }

    /// Takes all of it away, and with it what was dirty.
    pub(crate) fn clean_all(&self) {
        let _op = self.cpu.operation("clean").cleans();
        self.zero(self.all());
        self.flush(self.all());
        self.write(self.all(), parted(clean(Prot::RW)));
    }

    /// Entry `at` of the block after this one, which maps other memory.
    pub(crate) fn word_of_next(&self, at: u64) -> u64 {
        let frame = self.frame.add(self.count * 4).add(at);
        leaf_word(self.space.isa, Want { frame, ..joined(Prot::RW) })
    }
}
