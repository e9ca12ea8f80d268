//! Judging the tags under which CPUs hold translations: rule 8, and rule 1 where tags change.

use quire_units::{Asid, CpuId, Pfn, Vpn};

use super::ledger::{Key, Ledger};
use super::{Rule, Why};

impl Ledger {
    /// Whether the CPU may use the translation now. It may use all that it holds unless tags of
    /// spaces change; then only those under its present tag.
    pub(super) fn is_in_use(&self, key: &Key) -> bool {
        let used = self.installed[usize::from(key.cpu)].map(|(_, asid)| asid.0);
        !self.config.retags || used == Some(key.asid)
    }

    /// `cpu` begins to use `asid`, which had another root before if `is_other`.
    pub(crate) fn begins(&mut self, cpu: CpuId, asid: Asid, is_other: bool) {
        if !is_other && !self.config.retags {
            return;
        }
        let own = self.keys(cpu, asid.0, asid.0);
        for key in own {
            let Some(holding) = self.held.get(&key).copied() else { continue };
            if is_other && !holding.global {
                let (place, words) = (Some(key.place()), (holding.word, holding.word));
                let (rule, why) = (Rule::SharedTag, Why::Retagged);
                return self.report(rule, why, cpu, Some(cpu), place, words);
            }
            // An operation that is under way may yet flush.
            let over = |number| self.operations.iter().all(|other| other.number != number);
            if let Some(stale) = holding.stale.filter(|stale| over(stale.number)) {
                return self.report_stale(key, holding.word, stale);
            }
        }
    }

    /// `cpu` has dropped all that it had cached.
    pub(crate) fn flushed_all(&mut self, cpu: CpuId) {
        for key in self.keys(cpu, 0, u16::MAX) {
            self.drop_key(&key);
        }
    }

    /// The keys of all that `cpu` holds under tags `from` to `to`, both included.
    fn keys(&self, cpu: CpuId, from: u16, to: u16) -> Vec<Key> {
        let cpu = cpu.index() as u16;
        let (page, table) = (Vpn::new(0), Pfn::new(0));
        let first = Key { cpu, asid: from, level: 0, page, table, index: 0 };
        let (page, table) = (Vpn::new(u64::MAX), Pfn::new(u64::MAX));
        let last = Key { cpu, asid: to, level: u8::MAX, page, table, index: u16::MAX };
        self.held.range(first..=last).map(|(key, _)| *key).collect()
    }
}
