//! The simplest cache: a map from pages to folios, in one lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use quire_units::FrameSpan;

/// Folios by their first page.
pub(super) struct Naive(Mutex<BTreeMap<u64, Arc<FrameSpan>>>);

impl Naive {
    /// A file that is in `folios`, front to back.
    pub(super) fn new(folios: &[FrameSpan]) -> Naive {
        let mut start = 0;
        let entry = |folio: &FrameSpan| {
            let entry = (start, Arc::new(*folio));
            start += folio.count;
            entry
        };
        Naive(Mutex::new(folios.iter().map(entry).collect()))
    }

    /// The folio that holds `page`, held until it is dropped; `None` beyond the file's end.
    pub(super) fn page(&self, page: u64) -> Option<Arc<FrameSpan>> {
        let folios = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, folio) = folios.range(..=page).next_back()?;
        (page - start < folio.count).then(|| Arc::clone(folio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_units::Pfn;

    #[test]
    fn every_page_is_found_in_its_folio_and_none_beyond_the_end() {
        let folios = [FrameSpan::new(Pfn::new(8), 4), FrameSpan::new(Pfn::new(3), 1)];
        let naive = Naive::new(&folios);
        for (page, folio) in [(0, 0), (3, 0), (4, 1)] {
            assert_eq!(*naive.page(page).unwrap(), folios[folio]);
        }
        assert!(naive.page(5).is_none());
    }
}
