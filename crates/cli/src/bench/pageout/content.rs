//! The content of the memory, word by word: written before it goes out, compared when it is back.

use anyhow::{Result, ensure};
use quire::check;
use quire_arch::Arch;
use quire_units::{Pfn, PhysAddr, Vpn};

use super::scene::Scene;

/// Word `index` of `page` in the cycle that has this `stamp`: no two words are alike.
fn word(stamp: u64, page: Vpn, index: u64) -> u64 {
    let place = page.get() << 16 | index;
    (place ^ stamp << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<A: Arch> Scene<'_, '_, '_, '_, A> {
    /// Writes every word of the memory.
    pub(super) fn fill(&self, stamp: u64) -> Result<()> {
        let ram = self.machine.ram();
        for (page, frame) in self.frames()? {
            for (index, addr) in Self::words(frame) {
                ram.write_word(addr, word(stamp, page, index));
            }
        }
        Ok(())
    }

    /// Compares every word of the memory.
    pub(super) fn look(&self, stamp: u64) -> Result<()> {
        let ram = self.machine.ram();
        for (page, frame) in self.frames()? {
            for (index, addr) in Self::words(frame) {
                let (got, wanted) = (ram.read_word(addr), word(stamp, page, index));
                ensure!(got == Some(wanted), "word {index} of page {page} came back as {got:x?}");
            }
        }
        Ok(())
    }

    /// The frame of every page, as the page tables say.
    pub(super) fn frames(&self) -> Result<Vec<(Vpn, Pfn)>> {
        let mut frames = Vec::new();
        check::leaves(self.mm, &self.space, |leaf| {
            let pages = 0..leaf.pages.count();
            frames.extend(pages.map(|at| (leaf.pages.start.add(at), leaf.frame.add(at))));
        })?;
        let pages = self.span.count();
        ensure!(frames.len() as u64 == pages, "{} of {pages} pages are mapped", frames.len());
        Ok(frames)
    }

    /// The words of a frame: their places in it, and where they are.
    pub(super) fn words(frame: Pfn) -> impl Iterator<Item = (u64, PhysAddr)> {
        let base = frame.addr(A::PAGE_SHIFT).get();
        (0..1 << (A::PAGE_SHIFT - 3)).map(move |index| (index, PhysAddr::new(base + 8 * index)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::BACKINGS;
    use super::super::cycle::{Device, Way};
    use super::super::scene::{ram, with_scene};
    use super::*;
    use crate::isa::Isa;
    use quire_arch::X86_64;

    const BYTES: u64 = 16 << 20;

    /// Runs a cycle over a device, and may change one byte afterwards.
    fn meanwhile<A: Arch>(
        scene: &Scene<'_, '_, '_, '_, A>,
        device: Device,
        spoil: bool,
    ) -> Result<String> {
        scene.fill(3)?;
        scene.out(Way::Runs)?;
        scene.write(device)?;
        scene.wipe_free();
        scene.back(device)?;
        if spoil {
            let (_, frame) = scene.frames()?[77];
            let (_, last) = Scene::<A>::words(frame).last().unwrap();
            let byte = PhysAddr::new(last.get() + 7);
            let was = scene.machine.ram().read_byte(byte).unwrap();
            scene.machine.ram().write_byte(byte, !was);
        }
        Ok(scene.look(3).map_or_else(|said| said.to_string(), |()| "as it was".to_owned()))
    }

    fn said(device: Device, spoil: bool) -> String {
        let mut ram = ram(BYTES).unwrap();
        let place = (Isa::X86_64, BACKINGS[1], BYTES);
        let work = |scene: &Scene<'_, '_, '_, '_, X86_64>| meanwhile(scene, device, spoil);
        with_scene(&mut ram, place, work).unwrap()
    }

    #[test]
    fn d7_memory_that_the_device_kept_comes_back() {
        assert_eq!(said(Device::Copies, false), "as it was");
    }

    #[test]
    fn d7_a_device_that_keeps_nothing_is_noticed() {
        assert!(said(Device::Idle, false).starts_with("word 0 of page"));
    }

    #[test]
    fn d7_one_wrong_byte_is_noticed() {
        let said = said(Device::Copies, true);
        assert!(said.starts_with("word 511 of page") && said.contains("came back as"), "{said}");
    }
}
