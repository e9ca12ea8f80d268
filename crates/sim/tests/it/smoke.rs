//! The whole manager on every page-table format: map, touch through the MMU, unmap, nothing lost.

use quire::fault::SizePolicy;
use quire::space::Request;
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Sv39, Sv48, Sv57, X86_64, X86_64La57};
use quire_machine::{Config, TrapKind};
use quire_sim::system;
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

fn smoke<A: Arch>(config: Config, ram_bytes: usize) {
    let mut ram = system::ram(ram_bytes).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
        mm.policy().set_size(A::block_order(), SizePolicy::Madvise).unwrap();
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
        let space = mm.space(Asid(1), window).unwrap();
        let cpu = machine.cpu(0);
        cpu.bind();
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let span = mm.map(&space, &Request::anon(100)).unwrap();
        let addr = |page: u64| VirtAddr::new((span.start.get() + page) << A::PAGE_SHIFT);
        for page in 0..100 {
            match cpu.write(addr(page), page + 1) {
                Ok(()) => {}
                Err(trap) => {
                    assert_eq!(trap.kind, TrapKind::NotPresent);
                    let _op = cpu.operation("fault");
                    mm.fault(&space, addr(page).vpn(A::PAGE_SHIFT), Access::Write).unwrap();
                }
            }
            cpu.write(addr(page), page + 1).unwrap();
        }
        for page in 0..100 {
            assert_eq!(cpu.read(addr(page)), Ok(page + 1));
        }
        let middle = PageSpan::new(span.start.add(10), span.start.add(37));
        {
            let _op = cpu.operation("protect");
            mm.protect(&space, middle, Prot::READ).unwrap();
        }
        assert!(cpu.write(addr(10), 0).is_err());
        assert!(cpu.write(addr(9), 10).is_ok());
        assert!(cpu.write(addr(37), 38).is_ok());
        {
            let _op = cpu.operation("unmap");
            mm.unmap(&space, PageSpan::new(span.start.add(5), span.start.add(20))).unwrap();
        }
        for page in 0..100 {
            assert_eq!(cpu.read(addr(page)).is_ok(), !(5..20).contains(&page));
        }
        assert!(mm.resident(&space) >= 85);
        cpu.leave();
        mm.destroy(space);
        machine.verdict().unwrap();
        machine.audit().unwrap();
        assert_eq!(mm.phys().free_frames(), before, "nothing lost");
    })
    .unwrap();
}

#[test]
fn e2_every_format_maps_and_unmaps() {
    smoke::<X86_64>(Config::x86_64(), 64 << 20);
    smoke::<X86_64La57>(Config::x86_64_la57(), 64 << 20);
    smoke::<Arm4k>(Config::arm64_4k(), 64 << 20);
    smoke::<Arm16k>(Config::arm64_16k(), 256 << 20);
    smoke::<Arm64k>(Config::arm64_64k(), 256 << 20);
    smoke::<Sv39>(Config::riscv64_sv39(), 64 << 20);
    smoke::<Sv48>(Config::riscv64_sv48(), 64 << 20);
    smoke::<Sv57>(Config::riscv64_sv57(), 64 << 20);
}
