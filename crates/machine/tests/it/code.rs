//! Rule 9: instruction fetches must see what was written to a frame.

use crate::support::{Space, Want, leaf_word, on, used};
use quire_hw::Hardware;
use quire_machine::{Config, Cpu, Isa, Rule};
use quire_units::{FrameSpan, Order, Prot, Vpn};

const AT: Vpn = Vpn::new(0x1230);

/// Runs a scene on a machine of each ISA whose fetches are coherent, or are not.
fn broken(coherent_code: bool, scene: fn(&Space<'_, '_>, &Cpu<'_, '_>)) -> Vec<Option<Rule>> {
    let run = |isa| {
        let found = std::cell::Cell::new(None);
        on(Config { coherent_code, ..Config::new(isa) }, |space, cpus| {
            scene(space, &cpus[0]);
            let audit = space.machine.audit().map_err(|violation| violation.rule);
            found.set(audit.err());
        });
        found.get()
    };
    Isa::ALL.into_iter().map(run).collect()
}

fn holds(scene: fn(&Space<'_, '_>, &Cpu<'_, '_>)) {
    assert!(broken(false, scene).iter().all(Option::is_none));
}

/// The scene breaks the rule where fetches are not coherent, and nowhere else.
fn breaks(scene: fn(&Space<'_, '_>, &Cpu<'_, '_>)) {
    assert!(broken(false, scene).iter().all(|rule| *rule == Some(Rule::StaleCode)));
    assert!(broken(true, scene).iter().all(Option::is_none));
}

/// Stores a leaf without a word to the instruction caches.
fn show(space: &Space<'_, '_>, want: Want) {
    space.set(AT, want.level, leaf_word(space.isa, want));
}

#[test]
fn rule_9_a_frame_that_came_into_use_is_published_before_it_is_shown() {
    breaks(|space, _| show(space, used(space.frame(), Prot::RX)));
    holds(|space, cpu| {
        let want = used(space.frame(), Prot::RX);
        space.machine.publish_code(FrameSpan::new(want.frame, 1));
        show(space, want);
        cpu.fetch(space.addr(AT)).unwrap();
    });
    holds(|space, _| show(space, used(space.frame(), Prot::RW)));
}

#[test]
fn rule_9_each_frame_of_a_large_leaf_counts() {
    let large = |space: &Space<'_, '_>, less: u64| {
        let order = space.machine.geometry().order(1);
        let want = Want { level: 1, ..used(space.block(order.get()), Prot::RX) };
        space.machine.publish_code(FrameSpan::new(want.frame, order.pages() - less));
        space.set(AT.align_down(order.pages()), 1, leaf_word(space.isa, want));
    };
    // Blocks of 32 MiB and more do not fit this machine's memory.
    let scene = |less: u64| {
        let found = std::cell::Cell::new(None);
        on(Config::arm64_4k(), |space, _| {
            large(space, less);
            found.set(space.machine.verdict().err().map(|violation| violation.rule));
        });
        found.get()
    };
    assert_eq!([scene(0), scene(1)], [None, Some(Rule::StaleCode)]);
}

#[test]
fn rule_9_an_entry_that_becomes_executable_is_judged_as_a_new_one() {
    breaks(|space, cpu| {
        let want = used(space.frame(), Prot::READ);
        let _op = cpu.operation("protect");
        show(space, want);
        show(space, Want { prot: Prot::RX, ..want });
        space.flush(AT, 1);
    });
}

#[test]
fn rule_9_a_write_of_the_embedder_is_published_again_before_the_next_fetch() {
    breaks(|space, cpu| {
        let want = used(space.frame(), Prot::RX);
        space.map(AT, want);
        space.machine.rewritten(FrameSpan::new(want.frame, 1));
        cpu.fetch(space.addr(AT)).unwrap();
    });
    holds(|space, cpu| {
        let want = used(space.frame(), Prot::RX);
        let frames = FrameSpan::new(want.frame, 1);
        space.map(AT, want);
        space.machine.rewritten(frames);
        space.machine.publish_code(frames);
        cpu.fetch(space.addr(AT)).unwrap();
    });
}

#[test]
fn rule_9_a_table_that_becomes_live_is_judged_with_all_its_entries() {
    breaks(|space, cpu| {
        let table = space.frame();
        let word = leaf_word(space.isa, used(space.frame(), Prot::RX));
        space.write(table, 3, word);
        assert_eq!(space.machine.verdict(), Ok(()), "no CPU can walk it yet");
        let _op = cpu.operation("link");
        let order = space.machine.geometry().order(1);
        let link = crate::support::table_word(space.isa, table);
        space.set(AT.align_down(order.pages()), 1, link);
    });
}

#[test]
fn rule_9_a_frame_that_was_freed_counts_as_written() {
    breaks(|space, _| {
        let want = used(space.frame(), Prot::RX);
        let frames = FrameSpan::new(want.frame, Order::ZERO.pages());
        space.machine.publish_code(frames);
        space.machine.freed(frames);
        show(space, want);
    });
}
