//! Faults that begin with the record of the last one, beside a model that has none.

use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::X86_64;
use quire_machine::{Config, Machine, Ram};
use quire_units::{Access, Asid, PageSpan, Prot, Vpn};

use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{At, Request};
use crate::stats::Counters;
use crate::{Error, Mm, Parts, Stop, check};

/// A page in the middle of a table's last pages, so that areas lie in two tables.
const START: Vpn = Vpn::new(4096 + 480);
const PAGES: u64 = 64;
const WINDOW: PageSpan = PageSpan::new(Vpn::new(4096), Vpn::new(8192));

#[derive(Clone, Copy, Debug)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    Discard(u64, u64),
    Fault(u64, Access),
}

fn step() -> impl Strategy<Value = Step> {
    let span = (0..PAGES, 1..12_u64).prop_map(|(at, count)| (at, count.min(PAGES - at)));
    let prot = prop::sample::select(std::vec![Prot::READ, Prot::READ | Prot::WRITE, Prot::empty()]);
    let access = prop::sample::select(&[Access::Read, Access::Write][..]);
    let fault = (0..PAGES, access).prop_map(|(at, access)| Step::Fault(at, access));
    prop_oneof![
        1 => span.clone().prop_map(|(at, count)| Step::Map(at, count)),
        1 => span.clone().prop_map(|(at, count)| Step::Unmap(at, count)),
        1 => (span.clone(), prot).prop_map(|((at, count), prot)| Step::Protect(at, count, prot)),
        1 => span.prop_map(|(at, count)| Step::Discard(at, count)),
        8 => fault,
    ]
}

fn pages(at: u64, count: u64) -> PageSpan {
    PageSpan::new(START.add(at), START.add(at + count))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The answer to each fault is that of the rights as they are, whatever the last fault found.
    #[test]
    fn e3_a_fault_near_the_last_one_sees_each_change(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut ram = Ram::new(4 << 20).expect("the host has 4 MiB");
        let (machine, run) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
        let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
        let mut caches = [CpuCache::new()];
        let counters = [Counters::new()];
        let mut zones = [Zone::new(run.span())];
        let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
        let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
        mm.add(run).expect("the zone is RAM");
        let space = mm.space(Asid(1), WINDOW).expect("there is memory");
        let mut model = [None; PAGES as usize];
        for step in steps {
            match step {
                Step::Map(at, count) => {
                    let request = Request::anon(count).at(At::Fixed(START.add(at)));
                    mm.map(&space, &request).expect("there is room");
                    model[at as usize..(at + count) as usize].fill(Some(request.prot));
                }
                Step::Unmap(at, count) => {
                    mm.unmap(&space, pages(at, count)).expect("memory");
                    model[at as usize..(at + count) as usize].fill(None);
                }
                Step::Protect(at, count, prot) => {
                    let part = &mut model[at as usize..(at + count) as usize];
                    if part.iter().all(Option::is_some) {
                        mm.protect(&space, pages(at, count), prot).expect("memory");
                        part.fill(Some(prot));
                    }
                }
                Step::Discard(at, count) => {
                    if model[at as usize..(at + count) as usize].iter().all(Option::is_some) {
                        mm.discard(&space, pages(at, count)).expect("memory");
                    }
                }
                Step::Fault(at, access) => {
                    let page = START.add(at);
                    let expected = match model[at as usize] {
                        None => Err(Stop::Refuse(Error::NoArea(page))),
                        Some(prot) if !prot.allows(access) => {
                            Err(Stop::Refuse(Error::Denied(page, access, prot)))
                        }
                        Some(_) => Ok(()),
                    };
                    prop_assert_eq!(mm.fault(&space, page, access).map(|_| ()), expected);
                }
            }
        }
        prop_assert!(check::system(&mm, &[&space]).is_ok());
        mm.destroy(space);
        prop_assert_eq!(machine.verdict(), Ok(()));
    }
}
