//! Reading for the first time: the library's part, whose device takes no time.

use anyhow::Result;
use quire::Stop;
use quire::cache::{Read, Readahead};

use super::scene::Scene;
use crate::stats::timed;

/// Reads a new file in chunks of `chunk` pages, and closes it. The nanoseconds for each page of the
/// file: to read it in (find the missing pages, take folios, put them into the index, hold them),
/// and to close the file, which empties the index.
pub(super) fn sample(scene: &Scene<'_, '_, '_>, chunk: u64) -> Result<Vec<f64>> {
    let file = scene.open()?;
    let read = timed(|| pass(scene, (file, chunk), &mut |_| {}))?;
    let close = timed(|| scene.mm.files().close(file))?;
    let pages = scene.pages as f64;
    Ok(vec![read / pages, close / pages])
}

/// The number of folios of each order that are read, the lowest order first.
pub(super) fn folios(scene: &Scene<'_, '_, '_>, chunk: u64) -> Result<Vec<u64>> {
    let file = scene.open()?;
    let mut folios = Vec::new();
    let mut count = |read: &Read| {
        let order = read.frames().count().ilog2() as usize;
        folios.resize(folios.len().max(order + 1), 0);
        folios[order] += 1;
    };
    pass(scene, (file, chunk), &mut count)?;
    scene.mm.files().close(file)?;
    Ok(folios)
}

fn pass(
    scene: &Scene<'_, '_, '_>,
    (file, chunk): (quire::cache::FileId, u64),
    device: &mut impl FnMut(&Read),
) -> Result<(), Stop> {
    let mut reader = Readahead::default();
    for wanted in scene.chunks(chunk) {
        scene.read((file, wanted), &mut reader, device, |_, _| {})?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Layout, ram, with_scene};
    use super::*;

    #[test]
    fn b1_a_cold_pass_reads_every_page_once_and_closing_gives_all_back() {
        const BYTES: u64 = 16 << 20;
        let mut ram = ram(BYTES).unwrap();
        for layout in Layout::ALL {
            let work = |scene: &Scene<'_, '_, '_>| {
                let free = scene.mm.phys().free_frames();
                let folios = folios(scene, 16)?;
                sample(scene, 1)?;
                assert_eq!(scene.mm.phys().free_frames(), free);
                Ok(folios)
            };
            let folios = with_scene(&mut ram, (layout, BYTES), work).unwrap();
            let pages: u64 = folios.iter().enumerate().map(|(order, count)| count << order).sum();
            assert_eq!(pages, BYTES >> 12);
            assert_eq!(folios.len() > 1, layout == Layout::ReadAhead);
        }
    }
}
