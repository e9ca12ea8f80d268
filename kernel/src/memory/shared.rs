//! Memory that spaces share: a file of the library's that has no store, for each mapping that was
//! made so. It lives as long as a space may show it: the one it was made in, and those that were
//! forked from that.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire::cache::{FileId, Store};
use quire::space::{Backing, Request};
use quire::units::{Order, PageSpan};
use quire_linux::Errno;
use spin::mutex::SpinMutex;

use super::space::ALL;
use super::{Memory, errno, mm};

/// One piece of shared memory.
struct Object {
    id: FileId,
}

impl Drop for Object {
    fn drop(&mut self) {
        // Its last space is gone, or shows it no more.
        let closed = mm().close_file(self.id);
        debug_assert!(closed.is_ok(), "nobody else closes it");
    }
}

/// What a space may show. It is dropped after the space.
///
/// Locked while areas come to show an object, and while they are copied for a child: so whoever
/// shows one has it.
#[derive(Default)]
pub(super) struct Objects {
    all: SpinMutex<Vec<Arc<Object>>>,
}

impl Objects {
    /// Does `fork`, and gives the child what its areas may show.
    ///
    /// # Errors
    /// `ENOMEM`; those of `fork`.
    pub(super) fn inherit<T>(
        &self,
        fork: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<(T, Self), Errno> {
        let own = self.all.lock();
        let mut all = Vec::new();
        all.try_reserve_exact(own.len()).map_err(|_| Errno::ENOMEM)?;
        all.extend(own.iter().cloned());
        Ok((fork()?, Self { all: SpinMutex::new(all) }))
    }
}

impl Memory {
    /// Maps memory that those may share who are forked from here.
    ///
    /// # Errors
    /// What mapping gives; `ENOMEM` also when there are too many such memories.
    pub(crate) fn map_shared(&self, request: &Request) -> Result<PageSpan, Errno> {
        self.sweep_shared();
        let mut all = self.shared.all.lock();
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let opened = mm().open_file(Store::Memory, request.pages, Order::ZERO);
        let object = Arc::new(Object { id: opened.map_err(|_| Errno::ENOMEM)? });
        let backing = Backing::Object { id: object.id.0, page: 0 };
        let placed = mm().map(self.space(), &Request { backing, ..*request }).map_err(errno)?;
        all.push(object);
        Ok(placed)
    }

    /// Lets go of what no area shows any more.
    pub(crate) fn sweep_shared(&self) {
        let is_shown = |object: &Arc<Object>| {
            let shows =
                |backing| matches!(backing, Backing::Object { id, .. } if id == object.id.0);
            mm().areas(self.space(), ALL).any(|area| shows(area.backing))
        };
        loop {
            let mut all = self.shared.all.lock();
            let Some(at) = all.iter().position(|object| !is_shown(object)) else { return };
            let gone = all.swap_remove(at);
            // The last to let go closes it: not with the lock.
            drop(all);
            drop(gone);
        }
    }
}
