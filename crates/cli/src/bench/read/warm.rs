//! Reading what is in memory, beside the bare copy.

use anyhow::Result;
use quire::cache::{FileId, FilePages, Readahead};
use quire::{Error, Stop};
use quire_hw::{FrameRun, Memory};
use quire_units::FrameSpan;

use super::scene::Scene;
use crate::stats::timed;

/// The number of parts of the file: the two variants take turns, part by part.
const PARTS: usize = 32;

/// Nanoseconds to copy all of the file into the program's buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair {
    /// Through the cache.
    pub(super) cache: f64,
    /// By the bare copy.
    pub(super) bare: f64,
}

/// A file in memory that is read in chunks of one size.
pub(super) struct Warm {
    file: FileId,
    /// Chunks.
    chunks: Vec<FilePages>,
    /// The pieces of each that lie in one folio.
    table: Vec<FrameSpan>,
    /// Where the pieces of each chunk begin in `table`, and where those of the last end.
    starts: Vec<usize>,
}

impl Warm {
    /// `file`, read in chunks of `chunk` pages.
    pub(super) fn new(scene: &Scene<'_, '_, '_>, file: FileId, chunk: u64) -> Result<Warm> {
        let chunks: Vec<FilePages> = scene.chunks(chunk).collect();
        let table = scene.pieces(file, chunk)?;
        let (mut starts, mut pages) = (vec![0], 0);
        for (at, piece) in table.iter().enumerate() {
            pages += piece.count;
            if pages == chunks[starts.len() - 1].end {
                starts.push(at + 1);
            }
        }
        Ok(Warm { file, chunks, table, starts })
    }

    /// Reads the file once through the cache and copies it once without, by turns. The two are half
    /// of the file apart, so that neither finds the other's data in the CPU's caches.
    pub(super) fn sample(&self, scene: &Scene<'_, '_, '_>, buffer: &FrameRun) -> Result<Pair> {
        let (mut reader, mut pair) = (Readahead::default(), Pair { cache: 0.0, bare: 0.0 });
        let part = |at: usize| {
            let count = self.chunks.len();
            at % PARTS * count / PARTS..(at % PARTS + 1) * count / PARTS
        };
        for at in 0..PARTS {
            let (own, other) = (part(at), part(at + PARTS / 2));
            let mut cache = || timed(|| self.cache(scene, own.clone(), &mut reader, buffer));
            let bare = || timed(|| self.bare(scene, other.clone(), buffer));
            if at % 2 == 0 {
                pair.cache += cache()?;
                pair.bare += bare()?;
            } else {
                pair.bare += bare()?;
                pair.cache += cache()?;
            }
        }
        Ok(pair)
    }

    fn cache(
        &self,
        scene: &Scene<'_, '_, '_>,
        chunks: std::ops::Range<usize>,
        reader: &mut Readahead,
        buffer: &FrameRun,
    ) -> Result<(), Stop> {
        for &wanted in &self.chunks[chunks] {
            let copy = |page, part| copy(scene, buffer, page - wanted.start, part);
            scene.read((self.file, wanted), reader, &mut |_| {}, copy)?;
        }
        Ok(())
    }

    fn bare(
        &self,
        scene: &Scene<'_, '_, '_>,
        chunks: std::ops::Range<usize>,
        buffer: &FrameRun,
    ) -> Result<(), Error> {
        for at in chunks {
            let mut offset = 0;
            for &piece in &self.table[self.starts[at]..self.starts[at + 1]] {
                copy(scene, buffer, offset, piece);
                offset += piece.count;
            }
        }
        Ok(())
    }
}

/// The copy that both variants make of a piece.
#[inline]
fn copy(scene: &Scene<'_, '_, '_>, buffer: &FrameRun, at: u64, piece: FrameSpan) {
    // The machine's memory does not fail here.
    let _ = scene.machine.copy(buffer, at, piece);
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Layout, ram, with_scene};
    use super::*;

    #[test]
    fn b1_the_bare_copy_takes_the_same_pieces_as_reading_through_the_cache() {
        const BYTES: u64 = 16 << 20;
        let mut ram = ram(BYTES).unwrap();
        for layout in Layout::ALL {
            let work = |scene: &Scene<'_, '_, '_>| {
                let file = scene.warm_file(16)?;
                for chunk in [1, 16, 256] {
                    let warm = Warm::new(scene, file, chunk)?;
                    assert_eq!(warm.starts.len(), warm.chunks.len() + 1);
                    let chunks = warm.chunks.iter().zip(warm.starts.windows(2));
                    for (wanted, starts) in chunks {
                        let pieces = &warm.table[starts[0]..starts[1]];
                        let pages: u64 = pieces.iter().map(|piece| piece.count).sum();
                        assert_eq!(pages, wanted.count());
                    }
                    let buffer = scene.buffer()?;
                    let pair = warm.sample(scene, &buffer)?;
                    assert!(pair.cache > 0.0 && pair.bare > 0.0);
                    scene.give_back(buffer);
                }
                Ok(())
            };
            with_scene(&mut ram, (layout, BYTES), work).unwrap();
        }
    }
}
