//! A bound of memory: pages that leave for a swap device, and come back.
//!
//! All spaces are in one group of the library, whose limit is the bound. A fault beyond it is
//! refused; then the library's own reclaim pages out, and the fault is tried again. The device
//! keeps nothing: no program reads what it wrote.

use anyhow::Result;
use quire::cache::{FileId, FilePages, Reads};
use quire::space::{GroupId, Space};
use quire::{Error, Stop};
use quire_arch::Arch;
use quire_sim::system::HostedMm;

use super::live::too_little;
use crate::advise::memory::Limit;

/// The group and the device.
pub(super) struct Pressure {
    group: GroupId,
    /// `None` without room on it.
    device: Option<(FileId, u64)>,
}

impl Pressure {
    pub(super) fn new<A: Arch>(mm: &HostedMm<'_, '_, A>, limit: Limit) -> Result<Pressure> {
        let group = mm.groups().create(None)?;
        mm.groups().set_limit(group, limit.pages)?;
        let slots = limit.slots;
        let device = (slots > 0).then(|| mm.paging().swap_on(slots)).transpose()?;
        Ok(Pressure { group, device: device.map(|device| (device, slots)) })
    }

    /// The memory of a space counts from now on; that of its children will, too.
    pub(super) fn join<A: Arch>(&self, mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Result<()> {
        Ok(mm.groups().join(space, Some(self.group))?)
    }

    /// Pages out until there is room again; whether that was enough. If not, the programs get more
    /// than they may.
    pub(super) fn relieve<A: Arch>(
        &self,
        mm: &HostedMm<'_, '_, A>,
        spaces: &[&Space<A>],
    ) -> Result<bool> {
        let relieved = mm.reclaim().relieve(self.group, spaces);
        if let Some((device, slots)) = self.device {
            let mut left = FilePages::new(0, slots);
            while let Some(write) = written(mm.files().next_write(device, &mut left, spaces))? {
                mm.files().write_done(write, Ok(()));
            }
        }
        match relieved {
            Ok(_) => Ok(true),
            Err(Error::OverLimit(_)) => {
                mm.groups().lend(self.group, MORE);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Pages by which the limit is raised where nothing can leave.
const MORE: u64 = 512;

fn written<T>(next: Result<T, Stop>) -> Result<T> {
    // A device that answers at once is never waited for.
    next.map_err(|stop| anyhow::anyhow!("a swap device does not write: {stop:?}"))
}

/// Brings pages back from the device.
pub(super) fn read<A: Arch>(mm: &HostedMm<'_, '_, A>, mut reads: Reads) -> Result<()> {
    loop {
        match mm.files().next_read(&mut reads) {
            Ok(Some(read)) => mm.files().read_done(read, Ok(())),
            Ok(None) => return Ok(()),
            Err(Error::NoMemory(_)) => return Err(too_little()),
            Err(error) => return Err(error.into()),
        }
    }
}
