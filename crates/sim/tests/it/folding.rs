//! Contiguous entries: folded as soon as they can be, unfolded no further than necessary, and no
//! accessed or dirty bit is lost (rows C1 and C2).

use quire::Move;
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::Event::{Break, Fold, Refold, Unfold};
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Attrs, Level, Sv39, Sv48, Sv57, X86_64};
use quire_hw::Transitions;
use quire_machine::{Config, Cpu, Race};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, contiguous, leaves, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, PageSpan, Prot, Vpn};

/// A test on one format.
type Story<A> = for<'m, 'r> fn(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>);

/// Base pages of a contiguous block.
fn block<A: Arch>() -> u64 {
    1 << contiguous::<A>()
}

fn blocks<A: Arch>(from: u64, count: u64) -> PageSpan {
    span::<A>(from * block::<A>(), count * block::<A>())
}

/// Runs a story where folios as large as a contiguous block are wanted.
fn tell<A: Arch>(config: Config, story: Story<A>) {
    stage::<A>(config, 8 * block::<A>() as usize + 512, &[contiguous::<A>()], story);
}

/// The first pages of the blocks whose entries are all folded; none is folded in part.
fn folded<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<Vpn> {
    let all = leaves(mm, space);
    let folded: Vec<_> = all.iter().filter(|leaf| leaf.folded).map(|l| l.pages.start).collect();
    let starts = folded.chunks(block::<A>() as usize).map(|chunk| {
        let whole = PageSpan::block(chunk[0], Order::new(contiguous::<A>()));
        assert_eq!(chunk.first(), Some(&whole.start), "{}", A::NAME);
        assert_eq!(chunk.len() as u64, whole.count(), "{}", A::NAME);
        whole.start
    });
    starts.collect()
}

fn starts<A: Arch>(numbers: &[u64]) -> Vec<Vpn> {
    numbers.iter().map(|number| blocks::<A>(*number, 1).start).collect()
}

/// A space of `count` blocks, all of them resident.
fn resident<A: Arch>(mm: &HostedMm<'_, '_, A>, count: u64) -> Space<A> {
    let space = space_of(mm, count * block::<A>(), AreaFlags::empty());
    mm.populate(&space, blocks::<A>(0, count)).unwrap();
    space
}

/// The story on each format that has contiguous blocks.
macro_rules! on_each_format {
    ($story:ident) => {
        tell::<Arm4k>(Config::arm64_4k(), $story);
        tell::<Arm16k>(Config::arm64_16k(), $story);
        tell::<Arm64k>(Config::arm64_64k(), $story);
        tell::<Sv39>(Config::riscv64_sv39(), $story);
        tell::<Sv48>(Config::riscv64_sv48(), $story);
        tell::<Sv57>(Config::riscv64_sv57(), $story);
    };
}

fn is_written_folded<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, 2 * block::<A>(), AreaFlags::empty());
    space.enter(cpu.number());
    cpu.switch(space.root(), space.asid());
    let meter = Meter::new(mm);
    let middle = blocks::<A>(1, 1).start.add(block::<A>() / 2 + 1);
    mm.fault(&space, middle, quire_units::Access::Write).unwrap();
    assert_eq!(folded(mm, &space), starts::<A>(&[1]), "{}", A::NAME);
    assert_eq!(meter.events([Fold, Refold, Unfold]), [1, 0, 0], "{}", A::NAME);
    // The hardware needs one walk for the whole block.
    let meter = Meter::new(mm);
    for page in 0..block::<A>() {
        cpu.read(blocks::<A>(1, 1).start.add(page).addr(A::PAGE_SHIFT)).unwrap();
    }
    assert_eq!(meter.counts().walks, 1, "{}", A::NAME);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn c1_a_folio_as_large_as_a_block_is_written_folded() {
    on_each_format!(is_written_folded);
}

fn is_cut_at_the_ends<A: Arch>(mm: &HostedMm<'_, '_, A>, _: &Cpu<'_, '_>) {
    let space = resident(mm, 4);
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1, 2, 3]), "{}", A::NAME);
    let meter = Meter::new(mm);
    let half = block::<A>() / 2;
    mm.unmap(&space, span::<A>(half, 3 * block::<A>())).unwrap();
    assert_eq!(meter.events([Fold, Refold, Unfold]), [0, 0, 2], "{}", A::NAME);
    assert_eq!(folded(mm, &space), [], "{}", A::NAME);
    assert_eq!(mm.resident(&space), 2 * half);
    verify(mm, &[&space]);
    mm.destroy(space);
}

#[test]
fn c1_unmapping_unfolds_only_the_blocks_at_its_ends() {
    on_each_format!(is_cut_at_the_ends);
}

fn keeps_its_middle<A: Arch>(mm: &HostedMm<'_, '_, A>, _: &Cpu<'_, '_>) {
    let space = resident(mm, 4);
    let meter = Meter::new(mm);
    let quarter = block::<A>() / 4;
    let part = span::<A>(quarter, 4 * block::<A>() - 2 * quarter);
    mm.protect(&space, part, Prot::READ).unwrap();
    assert_eq!(meter.events([Refold, Unfold]), [0, 2], "{}", A::NAME);
    assert_eq!(folded(mm, &space), starts::<A>(&[1, 2]), "{}", A::NAME);
    let writable =
        leaves(mm, &space).iter().filter(|leaf| leaf.attrs.contains(Attrs::WRITE)).count();
    assert_eq!(writable as u64, 2 * quarter, "{}", A::NAME);
    verify(mm, &[&space]);
    mm.destroy(space);
}

#[test]
fn c1_protecting_unfolds_only_the_blocks_at_its_ends() {
    on_each_format!(keeps_its_middle);
}

fn is_folded_again<A: Arch>(mm: &HostedMm<'_, '_, A>, _: &Cpu<'_, '_>) {
    let space = resident(mm, 3);
    let size = block::<A>();
    let protect = |from, to, prot| mm.protect(&space, span::<A>(size + from, to - from), prot);
    let meter = Meter::new(mm);
    // The last page of the block first, then the first, then the gap in the middle.
    protect(size - 1, size, Prot::READ).unwrap();
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 2]), "{}", A::NAME);
    protect(0, 3, Prot::READ).unwrap();
    protect(7, size - 1, Prot::READ).unwrap();
    assert_eq!(meter.events([Refold, Unfold]), [0, 1], "{}", A::NAME);
    protect(3, 7, Prot::READ).unwrap();
    assert_eq!(meter.events([Refold, Unfold]), [1, 1], "{}", A::NAME);
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1, 2]), "{}", A::NAME);
    // It folds again when the part has its old rights.
    protect(4, 6, Prot::RW).unwrap();
    protect(4, 6, Prot::READ).unwrap();
    assert_eq!(meter.events([Refold, Unfold]), [2, 2], "{}", A::NAME);
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1, 2]), "{}", A::NAME);
    verify(mm, &[&space]);
    mm.destroy(space);
}

#[test]
fn c1_a_block_is_folded_again_whichever_part_makes_it_foldable() {
    on_each_format!(is_folded_again);
}

fn is_folded_where_it_arrives<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = resident(mm, 1);
    let size = block::<A>();
    let program = Program::on(cpu, mm, &space);
    for page in 0..size {
        program.write(place::<A>().add(page), 100 + page).unwrap();
    }
    let new = |page: u64| place::<A>().add(4 * size + page);
    for (from, pages) in [(size / 2, size / 2), (0, size / 2)] {
        let _op = cpu.operation("remap");
        mm.remap(&space, span::<A>(from, pages), pages, Move::To(new(from))).unwrap();
    }
    assert_eq!(folded(mm, &space), starts::<A>(&[4]), "{}", A::NAME);
    for page in 0..size {
        assert_eq!(program.read(new(page)), Ok(100 + page));
    }
    // At another alignment it cannot be folded.
    let _op = cpu.operation("remap");
    mm.remap(&space, blocks::<A>(4, 1), size, Move::To(place::<A>().add(2 * size + 1))).unwrap();
    assert_eq!(folded(mm, &space), []);
    drop(_op);
    assert_eq!(program.read(place::<A>().add(2 * size + 1)), Ok(100));
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn c1_a_block_that_is_moved_in_parts_is_folded_where_it_is_whole_again() {
    on_each_format!(is_folded_where_it_arrives);
}

/// Unfolding two blocks in part.
fn unfold_two<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) -> [u64; 2] {
    let space = resident(mm, 3);
    let program = Program::on(cpu, mm, &space);
    program.read(place::<A>()).unwrap();
    let meter = Meter::new(mm);
    let op = cpu.operation("protect");
    mm.protect(&space, span::<A>(1, 3 * block::<A>() - 2), Prot::READ).unwrap();
    let events = meter.events([Unfold, Break]);
    drop(op);
    cpu.leave();
    mm.destroy(space);
    events
}

fn breaks<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    assert_eq!(unfold_two(mm, cpu), [2, 2], "{}", A::NAME);
}

fn breaks_nothing<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    assert_eq!(unfold_two(mm, cpu), [2, 0], "{}", A::NAME);
}

#[test]
fn c2_arm64_breaks_a_block_before_it_is_made_anew_unless_the_cpu_may_do_without() {
    let relaxed = |config| Config { transitions: Transitions::BbmLevel2, ..config };
    tell::<Arm4k>(Config::arm64_4k(), breaks);
    tell::<Arm16k>(Config::arm64_16k(), breaks);
    tell::<Arm64k>(Config::arm64_64k(), breaks);
    tell::<Arm4k>(relaxed(Config::arm64_4k()), breaks_nothing);
    tell::<Arm16k>(relaxed(Config::arm64_16k()), breaks_nothing);
    tell::<Arm64k>(relaxed(Config::arm64_64k()), breaks_nothing);
}

/// A space of two folded blocks that are writable and clean.
fn clean<A: Arch>(mm: &HostedMm<'_, '_, A>) -> Space<A> {
    let window = PageSpan::new(place::<A>(), place::<A>().add(1024));
    let space = mm.space(Asid(1), window).unwrap();
    let request = Request::anon(2 * block::<A>()).at(At::Fixed(place::<A>())).prot(Prot::READ);
    mm.map(&space, &request).unwrap();
    mm.populate(&space, blocks::<A>(0, 2)).unwrap();
    assert!(leaves(mm, &space).iter().all(|leaf| !leaf.attrs.contains(Attrs::DIRTY)));
    mm.protect(&space, blocks::<A>(0, 2), Prot::RW).unwrap();
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1]), "{}", A::NAME);
    space
}

fn keeps_dirty<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = clean(mm);
    let program = Program::on(cpu, mm, &space);
    let dirty = |page: u64| {
        let page = place::<A>().add(page);
        let leaf = leaves(mm, &space).into_iter().find(|leaf| leaf.pages.start == page).unwrap();
        (leaf.folded, leaf.attrs.contains(Attrs::DIRTY))
    };
    // The CPU sets the dirty bit of one entry; by the joined translation it sets no other.
    program.write(place::<A>().add(5), 1).unwrap();
    program.write(place::<A>().add(7), 2).unwrap();
    {
        let _op = cpu.operation("protect");
        mm.protect(&space, span::<A>(9, 1), Prot::READ).unwrap();
    }
    assert_eq!([dirty(5), dirty(7)], [(false, true); 2], "{}: unfolded", A::NAME);
    {
        let _op = cpu.operation("protect");
        mm.protect(&space, blocks::<A>(0, 1), Prot::READ).unwrap();
    }
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1]), "{}", A::NAME);
    let _op = cpu.operation("protect");
    mm.protect(&space, span::<A>(0, 3), Prot::RW).unwrap();
    drop(_op);
    assert_eq!([dirty(5), dirty(7)], [(false, true); 2], "{}: folded and unfolded", A::NAME);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn i5_a_store_noted_in_any_entry_of_a_block_outlives_unfolding_and_folding() {
    on_each_format!(keeps_dirty);
    let apart = |config| Config { joins_contiguous: false, ..config };
    tell::<Arm4k>(apart(Config::arm64_4k()), keeps_dirty);
    tell::<Sv39>(apart(Config::riscv64_sv39()), keeps_dirty);
}

/// CPU 1 stores to a block that is moved, just before each of the stores that move it; leaves may
/// be folded there as well, or lie otherwise.
fn is_told_where_it_goes<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (machine, page) = (mm.hardware(), place::<A>().add(5));
    for (skew, at) in
        [0, 4].into_iter().flat_map(|skew| (0..=block::<A>() as u32).map(move |at| (skew, at)))
    {
        let space = clean(mm);
        Program::on(&machine.cpu(1), mm, &space);
        Program::on(cpu, mm, &space);
        let addr = page.addr(A::PAGE_SHIFT);
        let race = Race { at, cpu: 1, place: (0, 5), addr, store: Some(7) };
        machine.races().arm(vec![race]);
        let ahead = 4 * block::<A>() + skew;
        {
            let _op = cpu.operation("remap");
            let to = Move::To(place::<A>().add(ahead));
            mm.remap(&space, blocks::<A>(0, 1), block::<A>(), to).unwrap();
        }
        let done = machine.races().done();
        machine.races().arm(Vec::new());
        let leaf = leaves(mm, &space).into_iter().find(|leaf| leaf.pages.start == page.add(ahead));
        let is_noted = leaf.is_some_and(|leaf| leaf.attrs.contains(Attrs::DIRTY));
        let was_stored = matches!(done[..], [(_, Some(_))]);
        assert_eq!(is_noted, was_stored, "{}, {skew} pages on, moment {at}", A::NAME);
        assert!(was_stored || at > 0, "{}: the block is there at first", A::NAME);
        cpu.leave();
        machine.cpu(1).leave();
        mm.destroy(space);
    }
}

#[test]
fn i5_a_store_to_a_block_that_is_being_moved_is_noted_where_it_goes() {
    let two = |config| Config { cpus: 2, ..config };
    let apart = |config| Config { joins_contiguous: false, ..two(config) };
    tell::<Arm4k>(two(Config::arm64_4k()), is_told_where_it_goes);
    tell::<Arm4k>(apart(Config::arm64_4k()), is_told_where_it_goes);
    tell::<Sv39>(two(Config::riscv64_sv39()), is_told_where_it_goes);
    tell::<Sv39>(apart(Config::riscv64_sv39()), is_told_where_it_goes);
}

/// A block changes its form or its rights, and CPU 1 stores to two of its pages just before two
/// stores of that change, one after the other. The second store may go by a translation of the
/// whole block that the first has made dirty: the CPU sets no bit for it then.
fn is_told_while_it_changes<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let (machine, last) = (mm.hardware(), block::<A>() - 1);
    let page = |at: u64| place::<A>().add(at);
    let mut stored = 0;
    for (first, second) in [(last, 1), (1, last), (last / 2, 0)] {
        for (at, change) in
            (0..3 * block::<A>() as u32).flat_map(|at| (0..3).map(move |to| (at, to)))
        {
            let space = clean(mm);
            Program::on(&machine.cpu(1), mm, &space);
            Program::on(cpu, mm, &space);
            let race = |at, to: u64| {
                let addr = page(to).addr(A::PAGE_SHIFT);
                Race { at, cpu: 1, place: (0, to as u32), addr, store: Some(7) }
            };
            machine.races().arm(vec![race(at, first), race(at + 1, second)]);
            let op = cpu.operation("change");
            match change {
                0 => mm.protect(&space, span::<A>(9, 1), Prot::READ).unwrap(),
                1 => mm.protect(&space, blocks::<A>(0, 1), Prot::READ).unwrap(),
                _ => mm.discard(&space, span::<A>(9, 1)).unwrap(),
            }
            drop(op);
            for (race, word) in machine.races().done() {
                let to = u64::from(race.place.1);
                // A bit in any word of a folded block is one of all its pages.
                let is_noted = leaves(mm, &space).into_iter().any(|leaf| {
                    let is_its = leaf.pages.start == page(to);
                    let is_beside = leaf.folded && blocks::<A>(0, 1).contains(leaf.pages.start);
                    (is_its || is_beside) && leaf.attrs.contains(Attrs::DIRTY)
                });
                let place = format!("{}: change {change}, moment {at}, page {to}", A::NAME);
                assert!(is_noted || word.is_none(), "{place}");
                stored += u32::from(word.is_some());
            }
            machine.races().arm(Vec::new());
            cpu.leave();
            machine.cpu(1).leave();
            mm.destroy(space);
        }
    }
    assert!(stored > 100, "{}: {stored}", A::NAME);
}

#[test]
fn i5_a_store_beside_a_change_of_its_block_is_noted_for_its_page() {
    let two = |config| Config { cpus: 2, ..config };
    let relaxed = |config| Config { transitions: Transitions::BbmLevel2, ..two(config) };
    tell::<Arm4k>(two(Config::arm64_4k()), is_told_while_it_changes);
    tell::<Arm4k>(relaxed(Config::arm64_4k()), is_told_while_it_changes);
    tell::<Sv39>(two(Config::riscv64_sv39()), is_told_while_it_changes);
}

fn ends<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = clean(mm);
    let program = Program::on(cpu, mm, &space);
    for page in [5, 6, 0, block::<A>() - 1, 5] {
        program.write(place::<A>().add(page), page).unwrap();
        program.read(place::<A>().add(page ^ 1)).unwrap();
    }
    assert_eq!(folded(mm, &space), starts::<A>(&[0, 1]), "{}", A::NAME);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn c2_a_store_beside_a_dirty_page_faults_once_where_the_cpu_sets_no_flags() {
    for joins_contiguous in [true, false] {
        for rewalks_on_denial in [true, false] {
            let bare = |config| Config {
                sets_accessed: false,
                sets_dirty: false,
                joins_contiguous,
                rewalks_on_denial,
                ..config
            };
            tell::<Arm4k>(bare(Config::arm64_4k()), ends);
            tell::<Arm16k>(bare(Config::arm64_16k()), ends);
            tell::<Arm64k>(bare(Config::arm64_64k()), ends);
            tell::<Sv39>(bare(Config::riscv64_sv39()), ends);
        }
    }
}

/// A folio of 32 MiB, mapped by sixteen blocks of 2 MiB that are one translation.
#[test]
fn c1_blocks_of_2_mib_are_folded_unfolded_and_shared() {
    stage::<Arm4k>(Config::arm64_4k(), 20480, &[13], |mm, cpu| {
        let space = space_of(mm, 8192, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        program.write(place::<Arm4k>().add(4000), 1).unwrap();
        let at_2_mib = |space: &Space<Arm4k>| {
            let folded = |leaf: &&quire::check::Leaf| leaf.folded && leaf.level == Level::new(1);
            leaves(mm, space).iter().filter(folded).count()
        };
        assert_eq!(at_2_mib(&space), 16);
        let meter = Meter::new(mm);
        let child = {
            let _op = cpu.operation("fork");
            mm.fork(&space, Asid(2)).unwrap()
        };
        assert_eq!(meter.events([Refold, Unfold, Break]), [0, 0, 0]);
        assert_eq!([at_2_mib(&space), at_2_mib(&child)], [16, 16]);
        verify(mm, &[&space, &child]);
        mm.destroy(child);
        program.write(place::<Arm4k>().add(3), 1).unwrap();
        assert_eq!(at_2_mib(&space), 16, "claimed as it is");
        {
            let _op = cpu.operation("unmap");
            mm.unmap(&space, span::<Arm4k>(5000, 1)).unwrap();
        }
        assert_eq!(at_2_mib(&space), 0);
        assert_eq!(program.read(place::<Arm4k>().add(4000)), Ok(1));
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}

fn is_aligned<A: Arch>(mm: &HostedMm<'_, '_, A>, _: &Cpu<'_, '_>) {
    let space = resident(mm, 4);
    for leaf in leaves(mm, &space) {
        let (page, frame) = (leaf.pages.start.get(), leaf.frame.get());
        assert_eq!(page % block::<A>(), frame % block::<A>(), "{}", A::NAME);
    }
    mm.destroy(space);
}

#[test]
fn c1_frames_are_aligned_as_pages_are_also_where_there_is_no_bit_to_say_so() {
    tell::<X86_64>(Config::x86_64(), is_aligned);
    on_each_format!(is_aligned);
}

/// Defect 1 of an embedder's report: such a CPU faulted for ever.
fn is_never_folded<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = resident(mm, 2);
    let program = Program::on(cpu, mm, &space);
    program.write(place::<A>().add(1), 1).unwrap();
    for prot in [Prot::READ, Prot::RW] {
        let _op = cpu.operation("protect");
        mm.protect(&space, span::<A>(0, 1), prot).unwrap();
    }
    program.read(place::<A>().add(block::<A>() - 1)).unwrap();
    let child = {
        let _op = cpu.operation("fork");
        mm.fork(&space, Asid(2)).unwrap()
    };
    program.write(place::<A>().add(block::<A>() + 1), 2).unwrap();
    let none: Vec<Vpn> = Vec::new();
    assert_eq!([folded(mm, &space), folded(mm, &child)], [none.clone(), none], "{}", A::NAME);
    verify(mm, &[&space, &child]);
    mm.destroy(child);
    cpu.leave();
    mm.destroy(space);
}

#[test]
fn c1_a_cpu_without_contiguous_blocks_gets_none() {
    let without = |config| Config { contiguous: false, ..config };
    tell::<Arm4k>(without(Config::arm64_4k()), is_never_folded);
    tell::<Arm16k>(without(Config::arm64_16k()), is_never_folded);
    tell::<Arm64k>(without(Config::arm64_64k()), is_never_folded);
    tell::<Sv39>(without(Config::riscv64_sv39()), is_never_folded);
    tell::<Sv48>(without(Config::riscv64_sv48()), is_never_folded);
    tell::<Sv57>(without(Config::riscv64_sv57()), is_never_folded);
}
