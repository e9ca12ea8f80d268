//! Rule 8 of the examiner, and tags that CPUs lack.

use crate::support::{ASID, Space, on, on_each, used};
use quire_machine::{Config, ConfigError, Cpu, Machine, MachineError, Ram, Rule};
use quire_units::{Asid, Prot, Vpn};

const AT: Vpn = Vpn::new(0x1230);

/// The CPU reads a page under `ASID`, and then with another root and the tag `asid`, after
/// `between`; the rule that this breaks.
fn shares(
    space: &Space<'_, '_>,
    cpu: &Cpu<'_, '_>,
    asid: Asid,
    between: impl Fn(),
) -> Option<Rule> {
    space.map(AT, used(space.frame(), Prot::READ));
    cpu.read(space.addr(AT)).unwrap();
    between();
    let other = space.frame();
    cpu.switch(other, asid);
    let _ = cpu.read(space.addr(AT));
    space.machine.verdict().err().map(|violation| violation.rule)
}

#[test]
fn rule_8_a_tag_is_flushed_before_another_root_uses_it() {
    on_each(|space, cpus| {
        assert_eq!(shares(space, &cpus[0], ASID, || {}), Some(Rule::SharedTag));
    });
    on_each(|space, cpus| assert_eq!(shares(space, &cpus[0], Asid(2), || {}), None));
    on_each(|space, cpus| {
        let cpu = &cpus[0];
        assert_eq!(shares(space, cpu, ASID, || cpu.flush_all()), None);
        assert!(cpu.read(space.addr(AT)).is_err(), "nothing is mapped there");
    });
}

#[test]
fn rule_8_tags_that_differ_in_bits_that_the_cpu_lacks_are_one() {
    let few = Config { asid_bits: 2, ..Config::riscv64_sv39() };
    on(few, |space, cpus| {
        assert_eq!(shares(space, &cpus[0], Asid(ASID.0 + 4), || {}), Some(Rule::SharedTag));
    });
    let none = Config { asid_bits: 0, ..Config::riscv64_sv39() };
    on(none, |space, cpus| {
        assert_eq!(shares(space, &cpus[0], Asid(2), || {}), Some(Rule::SharedTag));
    });
    let without_pcid = Config { asid_bits: 0, ..Config::x86_64() };
    on(without_pcid, |space, cpus| assert_eq!(shares(space, &cpus[0], Asid(2), || {}), None));
}

/// A stale translation under a tag that its CPU does not use: it is judged when the CPU uses the
/// tag again.
#[test]
fn rule_1_waits_for_the_tag_where_tags_change() {
    let finds = |retags: bool, flushes: bool| {
        on(Config { retags, ..Config::arm64_4k() }, |space, cpus| {
            let cpu = &cpus[0];
            space.map(AT, used(space.frame(), Prot::READ));
            cpu.read(space.addr(AT)).unwrap();
            cpu.switch(space.frame(), Asid(2));
            {
                let _operation = cpu.operation("unmap");
                space.set(AT, 0, 0);
            }
            let found = |machine: &Machine<'_>| machine.verdict().err().map(|it| it.rule);
            assert_eq!(found(space.machine).is_none(), retags);
            if flushes {
                cpu.flush_all();
            }
            cpu.switch(space.root, ASID);
            let _ = cpu.read(space.addr(AT));
            let expected = (!retags || !flushes).then_some(Rule::StaleTranslation);
            assert_eq!(found(space.machine), expected);
        });
    };
    for retags in [false, true] {
        for flushes in [false, true] {
            finds(retags, flushes);
        }
    }
}

#[test]
fn a_machine_has_tags_of_a_width_that_its_isa_has() {
    for (config, bits) in [
        (Config::x86_64(), 11),
        (Config::arm64_4k(), 0),
        (Config::arm64_4k(), 12),
        (Config::riscv64_sv39(), 17),
    ] {
        let mut ram = Ram::new(1 << 20).unwrap();
        let made = Machine::new(Config { asid_bits: bits, ..config }, &mut ram).map(drop);
        assert_eq!(made, Err(MachineError::Config(ConfigError::AsidBits(bits))));
    }
}
