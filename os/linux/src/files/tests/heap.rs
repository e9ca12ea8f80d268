//! Pages of files on the host's heap: a model of the kernel's.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec;

use super::*;

const PAGE: u64 = PIECE as u64;

/// Pages by number, and where the file ends.
#[derive(Default)]
pub(super) struct Heap {
    state: Mutex<State>,
    /// An area shows it, and may write it.
    pub(super) is_shown: AtomicBool,
    /// The bytes of its reserved folios.
    block: Option<u64>,
}

#[derive(Default)]
struct State {
    pages: BTreeMap<u64, Vec<u8>>,
    end: u64,
    /// How many pages there may be; none given: any number.
    most: Option<usize>,
}

impl Heap {
    /// A place with room for at most `most` pages.
    pub(super) fn with_room(most: usize) -> Arc<Self> {
        let heap = Self::default();
        heap.state.lock().unwrap().most = Some(most);
        Arc::new(heap)
    }
}

impl State {
    fn page(&mut self, page: u64) -> Result<&mut Vec<u8>> {
        assert!(page < self.end.div_ceil(PAGE), "page {page} lies behind the end");
        let is_full = self.most.is_some_and(|most| self.pages.len() >= most);
        if is_full && !self.pages.contains_key(&page) {
            return Err(Errno::ENOSPC);
        }
        Ok(self.pages.entry(page).or_insert_with(|| vec![0; PIECE]))
    }
}

/// Whole pages in `bytes`.
fn pages(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE..bytes.end.div_ceil(PAGE)
}

impl Pages for Heap {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let state = self.state.lock().unwrap();
        for (at, byte) in (offset..).zip(into) {
            *byte = state.pages.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE) as usize]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let within = (offset % PAGE) as usize;
        assert!(within + bytes.len() <= PIECE, "bytes of two pages");
        let mut state = self.state.lock().unwrap();
        state.page(offset / PAGE)?[within..within + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn set_end(&self, end: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.end = end;
        drop(state.pages.split_off(&end.div_ceil(PAGE)));
        Ok(())
    }

    fn clear(&self, bytes: Range<u64>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        for number in pages(&bytes) {
            let start = bytes.start.max(number * PAGE) - number * PAGE;
            let end = bytes.end.min((number + 1) * PAGE) - number * PAGE;
            if end - start == PAGE {
                state.pages.remove(&number);
            } else if let Some(page) = state.pages.get_mut(&number) {
                page[start as usize..end as usize].fill(0);
            }
        }
        Ok(())
    }

    fn reserve(&self, bytes: Range<u64>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        pages(&bytes).try_for_each(|page| state.page(page).map(drop))
    }

    fn next(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        let state = self.state.lock().unwrap();
        let (page, _) = state.pages.range(pages(&bytes)).next()?;
        Some(page * PAGE..(page + 1) * PAGE)
    }

    fn held_bytes(&self) -> u64 {
        self.state.lock().unwrap().pages.len() as u64 * PAGE
    }

    fn object(&self) -> Result<u32> {
        self.is_shown.store(true, Ordering::Relaxed);
        Ok(7)
    }

    fn is_shown(&self) -> bool {
        self.is_shown.load(Ordering::Relaxed)
    }

    fn is_running(&self) -> bool {
        false
    }

    fn is_writable_somewhere(&self) -> bool {
        self.is_shown()
    }

    fn block_bytes(&self) -> u64 {
        self.block.unwrap_or(PAGE)
    }
}

/// Where files of the small world have their bytes.
pub(super) fn make(reserved: Option<Reserved>) -> Result<Arc<dyn Pages>> {
    let block = match reserved {
        None => None,
        Some(Reserved(0 | 21)) => Some(1 << 21),
        Some(_) => return Err(Errno::ENODEV),
    };
    Ok(Arc::new(Heap { block, ..Heap::default() }))
}
