//! Descriptors in messages (`SCM_RIGHTS`).
//!
//! A description in a message keeps its socket alive, and that socket's messages. Two rules follow:
//!
//! * **No circles**: they would never be freed. A send is refused if the socket that gets it could
//!   be reached from what it carries. (Linux allows circles, and looks for them now and then.)
//! * **No recursion**: a chain may be long. Dropped rights go to a list, which the first dropper
//!   empties.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use spin::mutex::SpinMutex;

use super::socket::{Socket, of};
use crate::files::Description;
use crate::{Errno, Result};

/// Descriptors that one message carries at most.
pub const RIGHTS_MAX: usize = 253;

/// Sockets that a search for circles looks at, before it gives up.
const SEARCH_MAX: usize = 256;

struct Parcel {
    files: Vec<Arc<Description>>,
    next: Option<Box<Parcel>>,
}

/// The descriptors of a message. They are dropped with no lock held but those of the dropper, which
/// must hold none of a socket.
#[derive(Default)]
pub struct Rights(Option<Box<Parcel>>);

struct Dropped {
    first: Option<Box<Parcel>>,
    is_emptied: bool,
}

static DROPPED: SpinMutex<Dropped> = SpinMutex::new(Dropped { first: None, is_emptied: false });

impl Rights {
    /// These descriptors.
    pub fn new(files: Vec<Arc<Description>>) -> Self {
        Self((!files.is_empty()).then(|| Box::new(Parcel { files, next: None })))
    }

    /// The descriptors.
    pub fn files(&self) -> &[Arc<Description>] {
        self.0.as_ref().map_or(&[], |parcel| &parcel.files)
    }

    /// Others to the same files, for a message that is looked at and stays.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn again(&self) -> Result<Self> {
        let mut files = Vec::new();
        files.try_reserve_exact(self.files().len()).map_err(|_| Errno::ENOMEM)?;
        files.extend(self.files().iter().cloned());
        Ok(Self::new(files))
    }

    /// Whether these may be sent to `target`.
    ///
    /// # Errors
    /// [`Errno::ETOOMANYREFS`] if they lead to it, or to too many sockets; [`Errno::ENOMEM`].
    pub(super) fn check(&self, target: *const super::queue::Queue) -> Result<()> {
        let mut found: Vec<Arc<Socket>> = Vec::new();
        let add = |found: &mut Vec<Arc<Socket>>, socket: Arc<Socket>| {
            if socket.is_at(target) || found.len() >= SEARCH_MAX {
                return Err(Errno::ETOOMANYREFS);
            }
            if !found.iter().any(|known| Arc::ptr_eq(known, &socket)) {
                found.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                found.push(socket);
            }
            Ok(())
        };
        for socket in self.files().iter().filter_map(|file| of(file).ok()) {
            add(&mut found, socket)?;
        }
        let mut at = 0;
        while let Some(socket) = found.get(at).cloned() {
            for held in socket.held()? {
                add(&mut found, held)?;
            }
            at += 1;
        }
        Ok(())
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        let Some(mut parcel) = self.0.take() else { return };
        let mut dropped = DROPPED.lock();
        parcel.next = dropped.first.take();
        dropped.first = Some(parcel);
        if core::mem::replace(&mut dropped.is_emptied, true) {
            return;
        }
        while let Some(mut parcel) = dropped.first.take() {
            dropped.first = parcel.next.take();
            drop(dropped);
            drop(parcel);
            dropped = DROPPED.lock();
        }
        dropped.is_emptied = false;
    }
}
