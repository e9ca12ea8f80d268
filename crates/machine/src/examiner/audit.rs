//! The full check, for moments at which no operation runs: rule 5.

use std::collections::HashMap;

use quire_hw::DirectMap;
use quire_units::{Asid, CpuId, Pfn, Prot};

use super::ledger::{Holding, Key, Ledger};
use super::live::LiveTables;
use super::{Place, Rule, Violation, Why};
use crate::config::Config;
use crate::cpu::Core;
use crate::mmu::{Flaw, Isa, Meaning, fresh, survey};
use crate::tlb::Translation;

/// Checks all tables that `cores` can walk, and all that they, or their shadows, have cached.
pub(crate) fn audit(
    config: &Config,
    ram: &DirectMap<'_>,
    cores: &[&Core],
    ledger: Option<&Ledger>,
) -> Result<(), Violation> {
    let isa = config.isa;
    audit_tables(config, ram, cores, ledger)?;
    for (number, core) in cores.iter().enumerate() {
        let cpu = CpuId::new(number);
        let is_in_use = |asid| !config.retags || (core.root.is_some() && core.asid == asid);
        for held in core.tlb.iter().filter(|held| is_in_use(held.asid)) {
            let root = core.spaces.get(&held.asid.0);
            let wrong = root.map_or(Some(Why::Removed), |&root| surplus(isa, ram, root, held));
            wrong.map_or(Ok(()), |why| Err(left_behind(cpu, why)))?;
        }
        for held in core.walks.iter().filter(|held| is_in_use(held.asid)) {
            let leads = core.spaces.get(&held.asid.0).is_some_and(|&root| {
                let way = fresh(isa, ram, root, held.page).tables;
                way.contains(&(held.level - 1, held.table))
            });
            if !leads {
                return Err(left_behind(cpu, Why::Above));
            }
        }
    }
    let Some(ledger) = ledger else { return Ok(()) };
    let mut in_use = ledger.held.iter().filter(|(key, _)| ledger.is_in_use(key));
    in_use.try_for_each(|(key, held)| {
        audit_holding(isa, ram, &cores[key.cpu as usize].spaces, key, held)
    })
}

fn violation(rule: Rule, why: Why, cpu: CpuId) -> Violation {
    Violation { rule, why, operation: None, cpu, holder: None, place: None, old: 0, new: 0 }
}

fn left_behind(cpu: CpuId, why: Why) -> Violation {
    Violation { holder: Some(cpu), ..violation(Rule::StaleTranslation, why, cpu) }
}

/// Every entry of every table in use: none malformed, every contiguous block whole, all code
/// published.
fn audit_tables(
    config: &Config,
    ram: &DirectMap<'_>,
    cores: &[&Core],
    ledger: Option<&Ledger>,
) -> Result<(), Violation> {
    for (number, core) in cores.iter().enumerate() {
        let Some(root) = core.root else { continue };
        let mut live = LiveTables::new(config);
        live.install(ram, root, &mut Vec::new());
        for table in live.iter() {
            let mut whole = None;
            for (place, word, meaning) in live.entries(ram, table) {
                if let Some((rule, flaw)) = flaw(config.isa, ram, place, meaning, &mut whole) {
                    let place = Some(place);
                    let found = violation(rule, Why::Flaw(flaw), CpuId::new(number));
                    return Err(Violation { place, old: word, new: word, ..found });
                }
                let stale = ledger.and_then(|ledger| ledger.unpublished(ram, meaning));
                if let Some(frame) = stale {
                    let why = Why::Unpublished(frame);
                    let found = violation(Rule::StaleCode, why, CpuId::new(number));
                    return Err(Violation { place: Some(place), old: word, new: word, ..found });
                }
            }
        }
    }
    Ok(())
}

/// The flaw of an entry. `whole` remembers the last block found whole, by its first entry.
fn flaw(
    isa: Isa,
    ram: &DirectMap<'_>,
    at: Place,
    meaning: Meaning,
    whole: &mut Option<usize>,
) -> Option<(Rule, Flaw)> {
    match meaning {
        Meaning::Malformed(flaw) => Some((Rule::Malformed, flaw)),
        Meaning::Table(lower) => {
            let inside = ram.span().contains(lower.frame);
            (!inside).then_some((Rule::Malformed, Flaw::OutsideRam))
        }
        Meaning::Leaf(leaf) if leaf.is_contiguous() => {
            let first = at.index & !((1 << (leaf.block.get() - leaf.order.get())) - 1);
            if *whole == Some(first) {
                return None;
            }
            *whole = Some(first);
            let block = survey(isa, ram, (at.table, at.index, at.level), &leaf);
            block.flaw().map(|flaw| (Rule::TornBlock, flaw))
        }
        Meaning::Leaf(_) | Meaning::Absent => None,
    }
}

/// The difference between a cached translation and the tables, if it allows more than they do.
fn surplus(isa: Isa, ram: &DirectMap<'_>, root: Pfn, held: &Translation) -> Option<Why> {
    let pages = held.pages();
    let mut page = pages.start;
    while page < pages.end {
        let Some(leaf) = fresh(isa, ram, root, page).memory else { return Some(Why::Removed) };
        if leaf.frame != held.frame.add(page.offset_from(pages.start)) {
            return Some(Why::Retargeted);
        }
        if !leaf.prot.contains(held.prot) {
            return Some(Why::RightsLost);
        }
        let unnoticed = held.dirty && held.prot.contains(Prot::WRITE);
        if unnoticed && !leaf.dirty && !leaf.joined {
            return Some(Why::DirtyCleared);
        }
        page = page.align_down(leaf.order.pages()).add(leaf.order.pages());
    }
    None
}

fn audit_holding(
    isa: Isa,
    ram: &DirectMap<'_>,
    spaces: &HashMap<u16, Pfn>,
    key: &Key,
    held: &Holding,
) -> Result<(), Violation> {
    let why = match (spaces.get(&key.asid), held.stale) {
        (_, Some(stale)) => Some(stale.why),
        (None, None) => Some(Why::Removed),
        (Some(&root), None) => match isa.decode(held.word, key.level, key.index as usize) {
            Meaning::Table(lower) => {
                let way = fresh(isa, ram, root, key.page).tables;
                (!way.contains(&(key.level - 1, lower.frame))).then_some(Why::Above)
            }
            Meaning::Leaf(leaf) => {
                let translation = Translation {
                    asid: Asid(key.asid),
                    global: held.global,
                    page: key.page,
                    order: leaf.order,
                    frame: leaf.frame,
                    prot: held.prot,
                    dirty: held.dirty,
                };
                surplus(isa, ram, root, &translation)
            }
            Meaning::Absent | Meaning::Malformed(_) => None,
        },
    };
    let Some(why) = why else { return Ok(()) };
    let mut found = left_behind(key.holder(), why);
    found.place = Some(key.place());
    found.old = held.word;
    found.new = ram.load(key.table, key.index as usize);
    if let Some(stale) = held.stale {
        (found.operation, found.cpu) = (stale.operation, stale.cpu);
    }
    Err(found)
}
