//! One cycle: all of the memory goes out, is written, and comes back.

use anyhow::{Context, Result, bail, ensure};
use quire::cache::{FilePages, Read, Reads};
use quire::{Need, PagedOut, Resolved, Scope, Stop, Write};
use quire_arch::Arch;
use quire_hw::Memory;
use quire_units::{Access, Order};

use super::scene::Scene;
use crate::bench::sheet::PAGES;
use crate::stats::timed;

/// The library as it is.
pub(super) const BY_RUNS: &str = "by-runs";

/// The size of one step of paging out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// A block at most.
    Runs,
    /// A page.
    Pages,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::Runs, Way::Pages];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Runs => BY_RUNS,
            Way::Pages => PAGES,
        }
    }
}

/// The work of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    /// Nothing, in no time.
    Idle,
    /// It copies it within memory, and back.
    Copies,
}

impl Device {
    pub(super) const ALL: [Device; 2] = [Device::Idle, Device::Copies];

    pub(super) fn note(self) -> &'static str {
        match self {
            Device::Idle => "idle device",
            Device::Copies => "copying device",
        }
    }
}

impl<A: Arch> Scene<'_, '_, '_, '_, A> {
    /// Runs one cycle; its times, part by part: `page_out`, which is all but writing; `next_write`,
    /// the device and `write_done`; faults, `next_read`, the device and `read_done`.
    pub(super) fn cycle(&self, way: Way, device: Device) -> Result<Vec<f64>> {
        Ok(vec![
            self.timed(|| self.out(way))?,
            self.timed(|| self.write(device))?,
            self.timed(|| self.back(device))?,
        ])
    }

    /// Nanoseconds of CPU time that `work` takes for each page of the memory.
    pub(super) fn timed(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        Ok(timed(work)? / self.span.count() as f64)
    }

    /// Pages all of the memory out.
    pub(super) fn out(&self, way: Way) -> Result<()> {
        self.mm.policy().set_evict_most(match way {
            Way::Runs => A::block_order(),
            Way::Pages => Order::ZERO,
        });
        let spaces = [&self.space];
        let out = self.mm.paging().page_out(&self.space, self.span, Scope::Own, &spaces[..])?;
        let all =
            PagedOut { folios: self.folios(), pages: self.span.count(), ..PagedOut::default() };
        ensure!(out == all, "paging out came to {out:?}, not to {all:?}");
        Ok(())
    }

    /// Writes the folios that went out, which frees their memory.
    pub(super) fn write(&self, device: Device) -> Result<()> {
        self.write_to(&mut |write| {
            if device == Device::Copies {
                let (run, at) = self.stored(write.pages().start);
                let copied = self.machine.copy(run, at, write.frames());
                copied.ok().context("the machine's memory fails")?;
            }
            Ok(())
        })
    }

    /// The same over the device `put`.
    pub(super) fn write_to(&self, put: &mut dyn FnMut(&Write) -> Result<()>) -> Result<()> {
        let spaces = [&self.space];
        let mut left = FilePages::new(0, self.span.count());
        while let Some(write) = self.mm.files().next_write(self.device, &mut left, &spaces[..])? {
            put(&write)?;
            self.mm.files().write_done(write, Ok(()));
        }
        Ok(())
    }

    /// Brings everything back, as a program does that reads its memory from front to back.
    pub(super) fn back(&self, device: Device) -> Result<()> {
        self.back_from(&mut |read| {
            if device == Device::Copies {
                let from = self.stored_frames(read.pages().start, read.frames().count());
                let copied = self.machine.copy(read.frames(), 0, from);
                copied.ok().context("the machine's memory fails")?;
            }
            Ok(())
        })
    }

    /// The same over the device `get`.
    pub(super) fn back_from(&self, get: &mut dyn FnMut(&Read) -> Result<()>) -> Result<()> {
        let mut at = self.span.start;
        while at < self.span.end {
            match self.mm.fault(&self.space, at, Access::Read) {
                Ok(Resolved::Mapped(done)) => at = done.pages.end,
                Ok(other) => bail!("a fault at {at} came to {other:?}"),
                Err(Stop::Need(Need::Read(reads))) => self.carry_out(reads, get)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn carry_out(&self, mut reads: Reads, get: &mut dyn FnMut(&Read) -> Result<()>) -> Result<()> {
        while let Some(read) = self.mm.files().next_read(&mut reads)? {
            get(&read)?;
            self.mm.files().read_done(read, Ok(()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::BACKINGS;
    use super::super::scene::{ram, with_scene};
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn d7_a_cycle_in_which_a_folio_stays_is_no_measurement() {
        let mut ram = ram(16 << 20).unwrap();
        let place = (Isa::Arm4k, BACKINGS[1], 16 << 20);
        let locks = |scene: &Scene<'_, '_, '_, '_, quire_arch::Arm4k>| {
            for way in Way::ALL {
                let times = scene.cycle(way, Device::Idle)?;
                assert!(times.iter().all(|ns| *ns > 0.0));
            }
            let page = quire_units::PageSpan::new(scene.span.start, scene.span.start.add(1));
            scene.mm.mlock(&scene.space, page)?;
            Ok(scene.cycle(Way::Runs, Device::Idle).unwrap_err().to_string())
        };
        let said = with_scene(&mut ram, place, locks).unwrap();
        assert!(said.starts_with("paging out came to") && said.contains("stay: 1"), "{said}");
    }
}
