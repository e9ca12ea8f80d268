//! The files that address spaces show, so that the files stay as long as a space may touch them;
//! and all address spaces, for truncation.
//!
//! Shared anonymous memory is a file in memory that has no name. Like any other it lives as long as
//! a space may show it: the one it was made in, and those that were forked from that.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::AllSpaces;
use quire::cache::FilePages;
use quire::space::{Area, AreaFlags, Backing, FileId, Request, Space};
use quire::units::{Order, PageSpan, Prot};
use quire_linux::files::Pages;
use quire_linux::{Errno, Result};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::files::MemoryFile;
use super::space::ALL;
use super::{Memory, PAGE, errno, mm};
use crate::isa::Format;

/// A reference to the file: an open description, or an object of the kernel's own.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// One file that a space may show.
#[derive(Clone)]
struct Shown {
    id: u32,
    keeper: Keeper,
    /// An area showed it at the last look.
    is_seen: bool,
}

/// The files that a space may show. It is dropped after the space.
///
/// Locked while areas come to show a file, and while they are copied for a child: so each space
/// that shows a file refers to it.
#[derive(Default)]
pub(super) struct Objects {
    all: SpinMutex<Vec<Shown>>,
}

impl Objects {
    /// A copy for a child, and the lock under which the child is to be made: until the child is
    /// listed, a search for all spaces that show a file waits for it.
    pub(super) fn inherit(&self) -> (impl Drop + use<'_>, Result<Self>) {
        let own: SpinMutexGuard<'_, Vec<Shown>> = self.all.lock();
        let mut all = Vec::new();
        let room = all.try_reserve_exact(own.len()).map_err(|_| Errno::ENOMEM);
        if room.is_ok() {
            all.extend(own.iter().cloned());
        }
        (own, room.map(|()| Self { all: SpinMutex::new(all) }))
    }

    /// Whether a file is among them.
    fn has(&self, id: u32) -> bool {
        self.all.lock().iter().any(|shown| shown.id == id)
    }
}

/// The file that an area shows.
fn file_of(area: &Area) -> Option<u32> {
    match area.backing {
        Backing::File { id, .. } => Some(id.0),
        Backing::Anon | Backing::Frames { .. } => None,
    }
}

impl Memory {
    /// Maps `request`, which shows the file `id`, and keeps it.
    ///
    /// # Errors
    /// The errors of mapping.
    pub(crate) fn show(&self, id: u32, keeper: Keeper, request: &Request) -> Result<PageSpan> {
        let mut all = self.shared.all.lock();
        all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let placed = mm().map(self.space(), request).map_err(errno)?;
        match all.iter_mut().find(|shown| shown.id == id) {
            Some(shown) => {
                shown.is_seen = true;
                // Not with the lock: it may be the last of an open file.
                drop(all);
                drop(keeper);
            }
            None => all.push(Shown { id, keeper, is_seen: true }),
        }
        Ok(placed)
    }

    /// Maps memory that is shared with children.
    ///
    /// # Errors
    /// The errors of mapping; `ENOMEM` also when there are too many such memories.
    pub(crate) fn map_shared(&self, request: &Request) -> Result<PageSpan> {
        let file = MemoryFile::shared(request.pages);
        let id = file.object().map_err(|_| Errno::ENOMEM)?;
        let backing = Backing::File { id: FileId(id), page: 0 };
        self.show(id, file, &Request { backing, ..*request })
    }

    /// Whether areas in `span` show files.
    pub(crate) fn shows_files(&self, span: PageSpan) -> bool {
        let has_none = self.shared.all.lock().is_empty();
        !has_none && mm().spaces().areas(self.space(), span).any(|area| file_of(&area).is_some())
    }

    /// Drops files that no area shows any more. A caller that may have removed areas calls this.
    #[inline]
    pub(crate) fn sweep_shared(&self) {
        if self.space().take_hidden() {
            self.sweep();
        }
    }

    #[cold]
    fn sweep(&self) {
        {
            let mut all = self.shared.all.lock();
            all.iter_mut().for_each(|shown| shown.is_seen = false);
            for id in mm().spaces().areas(self.space(), ALL).filter_map(|area| file_of(&area)) {
                all.iter_mut().filter(|shown| shown.id == id).for_each(|it| it.is_seen = true);
            }
        }
        loop {
            let mut all = self.shared.all.lock();
            let Some(at) = all.iter().position(|shown| !shown.is_seen) else { return };
            let gone = all.swap_remove(at);
            // The last to let go closes it: not with the lock.
            drop(all);
            drop(gone);
        }
    }

    /// The reference to the file `id` for this space.
    pub(crate) fn keeper(&self, id: u32) -> Option<Keeper> {
        let all = self.shared.all.lock();
        all.iter().find(|shown| shown.id == id).map(|shown| shown.keeper.clone())
    }
}

/// Memory of `bytes` bytes to be shown by any space, perhaps in reserved folios: the number of its
/// pages, and what keeps them.
///
/// # Errors
/// `ENOMEM`, also when there are too many such memories.
pub(crate) fn new_segment(bytes: u64, whole: Option<Order>) -> Result<(u32, Keeper)> {
    let pages = bytes.div_ceil(PAGE);
    let file = match whole {
        Some(order) => MemoryFile::reserved(pages.next_multiple_of(order.pages()), order),
        None => MemoryFile::shared(pages),
    };
    let id = file.object().map_err(|_| Errno::ENOMEM)?;
    if whole.is_some() {
        let all = FilePages::new(0, pages);
        mm().files().promise(FileId(id), all).map_err(|_| Errno::ENOMEM)?;
    }
    Ok((id, file))
}

/// How many areas of all spaces show the file `id`.
pub(crate) fn attachments(id: u32) -> u64 {
    let mut count = 0;
    Showing { id, is_shown: true }.each(&mut |memory| {
        let areas = mm().spaces().areas(memory.space(), ALL);
        count += areas.filter(|area| file_of(area) == Some(id)).count() as u64;
    });
    count
}

/// All spaces, in the order in which they were made.
static SPACES: SpinMutex<BTreeMap<u64, Weak<Memory>>> = SpinMutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A number for a new space: higher than those of all others.
pub(super) fn new_number() -> u64 {
    // Relaxed: it only has to differ. A child's number is higher than its parent's without any
    // order.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The same, by the number that the library has for each.
static BY_ROOT: SpinMutex<BTreeMap<(u32, u64), Weak<Memory>>> = SpinMutex::new(BTreeMap::new());

/// Makes a space known.
pub(super) fn register(number: u64, memory: &Arc<Memory>) {
    SPACES.lock().insert(number, Arc::downgrade(memory));
    BY_ROOT.lock().insert((memory.space().number(), number), Arc::downgrade(memory));
}

/// Whether the space with this number has not ended, or is not free yet.
pub(crate) fn is_there(number: u64) -> bool {
    SPACES.lock().contains_key(&number)
}

/// A space has ended, which the library knew as `root`.
pub(super) fn forget(root: Option<u32>, number: u64) {
    SPACES.lock().remove(&number);
    if let Some(root) = root {
        BY_ROOT.lock().remove(&(root, number));
    }
}

/// The first space with this number or a higher one.
fn next_space(from: u64) -> Option<(u64, Arc<Memory>)> {
    let spaces = SPACES.lock();
    spaces.range(from..).find_map(|(&number, memory)| Some((number, memory.upgrade()?)))
}

/// How many spaces a visit of all looks up at a time.
const AT_ONCE: usize = 8;

/// Puts the first spaces with this number or higher ones into `places`, and returns the number to
/// go on at; `None` if there were none. Children of those that are being made have higher numbers.
fn some_spaces(from: u64, places: &mut [Option<Arc<Memory>>]) -> Option<u64> {
    let (spaces, mut next) = (SPACES.lock(), None);
    for (place, (&number, memory)) in places.iter_mut().zip(spaces.range(from..)) {
        (*place, next) = (memory.upgrade(), Some(number + 1));
    }
    next
}

/// The first of the spaces that the library knows as `root` with this number or a higher one, and
/// the number of the next.
fn rooted(root: u32, from: u64) -> Option<(Arc<Memory>, Option<u64>)> {
    let spaces = BY_ROOT.lock();
    let mut these = spaces.range((root, from)..=(root, u64::MAX));
    let found = these.find_map(|(_, memory)| memory.upgrade())?;
    Some((found, these.next().map(|(&(_, number), _)| number)))
}

/// All spaces that there are now.
pub(crate) fn spaces() -> Vec<Arc<Memory>> {
    SPACES.lock().values().filter_map(Weak::upgrade).collect()
}

/// All spaces, each once, and a child that is being made after its parent.
pub(crate) struct Everyone;

impl AllSpaces<Format> for Everyone {
    fn visit(&self, see: &mut dyn FnMut(&Space<Format>)) {
        let mut next = Some(0);
        while let Some(from) = next {
            let mut some = [const { None }; AT_ONCE];
            next = some_spaces(from, &mut some);
            some.into_iter().flatten().for_each(|memory: Arc<Memory>| see(memory.space()));
        }
    }

    fn visit_some(&self, numbers: &[u32], see: &mut dyn FnMut(&Space<Format>)) {
        for &root in numbers {
            let mut next = Some(0);
            while let Some((memory, after)) = next.and_then(|from| rooted(root, from)) {
                see(memory.space());
                next = after;
            }
        }
    }
}

/// The spaces that may show a file.
pub(super) struct Showing {
    pub(super) id: u32,
    /// Whether areas have ever shown it.
    pub(super) is_shown: bool,
}

impl Showing {
    fn each(&self, see: &mut dyn FnMut(&Memory)) {
        let mut next = 0;
        while let Some((number, memory)) = next_space(next).filter(|_| self.is_shown) {
            next = number + 1;
            // A fork holds this lock: once it is free the child is listed, with a higher number.
            if memory.shared.has(self.id) {
                see(&memory);
            }
        }
    }

    /// Whether a shared area can be written, or may become writable.
    pub(super) fn is_writable(&self) -> bool {
        self.any(|area| {
            area.flags.contains(AreaFlags::SHARED) && area.max_prot.contains(Prot::WRITE)
        })
    }

    /// Whether an area has code of it, as a program's or a library's does.
    pub(super) fn is_running(&self) -> bool {
        self.any(|area| !area.flags.contains(AreaFlags::SHARED) && area.prot.contains(Prot::EXEC))
    }

    /// Whether there is such an area that shows it.
    fn any(&self, such: impl Fn(&Area) -> bool) -> bool {
        let is_it = |area: &Area| file_of(area) == Some(self.id) && such(area);
        let mut found = false;
        self.each(&mut |memory| {
            found |= mm().spaces().areas(memory.space(), ALL).any(|area| is_it(&area));
        });
        found
    }
}

impl AllSpaces<Format> for Showing {
    fn visit(&self, see: &mut dyn FnMut(&Space<Format>)) {
        self.each(&mut |memory| see(memory.space()));
    }
}
