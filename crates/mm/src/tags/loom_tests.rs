//! Every order of the steps of two CPUs that enter spaces while tags run out: `RUSTFLAGS="--cfg
//! loom" cargo test -p quire-mm --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use quire_units::{Asid, CpuId};

use super::{Asids, Tag};

/// The CPUs, and the tags: 0 is the kernel's, two are kept, and one is left.
const CPUS: usize = 2;
const COUNT: u32 = CPUS as u32 + 2;

/// The tags of a model, leaked: its threads need data that lives for ever.
struct Model {
    asids: Asids<CPUS>,
    tags: Vec<Tag>,
}

impl Model {
    fn leaked(spaces: usize) -> &'static Self {
        let asids = Asids::new();
        assert!(asids.start(COUNT, CPUS));
        let tags = (0..spaces).map(|_| Tag::new(Asid(0))).collect();
        Box::leak(Box::new(Self { asids, tags }))
    }
}

/// A CPU whose TLB forgets nothing by itself: for each tag, the space whose translations it may
/// hold. Another's beside them would be a mistake.
struct Cpu {
    id: CpuId,
    tlb: [Option<usize>; COUNT as usize],
    /// Tag and space of its root register.
    root: Option<(Asid, usize)>,
}

impl Cpu {
    fn new(number: usize) -> Self {
        Self { id: CpuId::new(number), tlb: [None; COUNT as usize], root: None }
    }

    fn enter(&mut self, model: &Model, space: usize) {
        let entered = model.asids.enter(&model.tags[space], self.id);
        if entered.must_flush {
            self.tlb = [None; COUNT as usize];
        }
        // Until the root register is written, the CPU may walk the tables of the space that it
        // leaves, though it runs no program there.
        if let Some((asid, left)) = self.root {
            self.fill(asid, left);
        }
        self.fill(entered.asid, space);
        self.root = Some((entered.asid, space));
        assert_eq!(model.tags[space].asid(), entered.asid, "it stays while the CPU is in it");
    }

    fn fill(&mut self, asid: Asid, space: usize) {
        let held = &mut self.tlb[usize::from(asid.0)];
        assert!(asid.0 != 0 && held.is_none_or(|other| other == space), "two spaces, one tag");
        *held = Some(space);
    }
}

/// Both CPUs enter spaces, more than there are tags, each in its own order. The tags are nearly
/// used up when they begin.
fn by_turns(first: [usize; 2], second: [usize; 2]) {
    loom::model(move || {
        let model = Model::leaked(4);
        let mut cpus = [Cpu::new(0), Cpu::new(1)];
        cpus[0].enter(model, 0);
        cpus[1].enter(model, 1);
        cpus[0].enter(model, 2);
        let [mut one, mut other] = cpus;
        let beside = thread::spawn(move || {
            second.into_iter().for_each(|space| other.enter(model, space));
            other
        });
        first.into_iter().for_each(|space| one.enter(model, space));
        let other = beside.join().expect("it does not panic");
        // No CPU's tag was taken away while the CPU was in the space.
        for cpu in [one, other] {
            let (asid, space) = cpu.root.expect("it has entered some");
            assert_eq!(model.tags[space].asid(), asid, "its tag changed while a CPU was in it");
        }
    });
}

#[test]
fn loom_i15_no_tag_is_of_two_spaces_where_one_cpu_rolls_over() {
    by_turns([3, 0], [0, 1]);
}

#[test]
fn loom_i15_no_tag_is_of_two_spaces_where_both_roll_over() {
    by_turns([3, 1], [0, 2]);
}

#[test]
fn loom_i15_no_tag_is_of_two_spaces_where_both_enter_one() {
    by_turns([0, 3], [0, 2]);
}

/// A CPU enters a space under a new tag while another changes its tables and flushes. In the end
/// the first CPU holds nothing of the old table under the tag that it uses.
#[test]
fn loom_i15_a_flush_and_an_entry_under_a_new_tag_do_not_miss_each_other() {
    loom::model(|| {
        let model = Model::leaked(4);
        let entry: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(1)));
        // The CPU's translations by tag, which a flush from elsewhere reaches.
        let tlb: &Mutex<[u64; COUNT as usize]> = Box::leak(Box::new(Mutex::new([0; 4])));
        let (own, beside) = (CpuId::new(0), CpuId::new(1));
        for space in 0..3 {
            // The one after the last is a rollover: space 0, in which no CPU is, loses its tag.
            let _ = model.asids.enter(&model.tags[space], if space == 1 { beside } else { own });
        }
        let flusher = thread::spawn(move || {
            entry.store(2, Ordering::Release);
            fence(Ordering::SeqCst);
            let asid = model.tags[0].asid();
            tlb.lock().expect("no panic")[usize::from(asid.0)] = 0;
        });
        let _ = model.asids.enter(&model.tags[3], own);
        let entered = model.asids.enter(&model.tags[0], own);
        // As an insertion into the set of CPUs orders it, which loom does not see.
        fence(Ordering::SeqCst);
        {
            let mut tlb = tlb.lock().expect("no panic");
            tlb[usize::from(entered.asid.0)] = entry.load(Ordering::Acquire);
        }
        flusher.join().expect("it does not panic");
        let tlb = tlb.lock().expect("no panic");
        assert_ne!(tlb[usize::from(entered.asid.0)], 1, "the old table is still in use");
    });
}
