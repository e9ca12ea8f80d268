//! The tour, held against the sources and against what must have happened.

use std::path::Path;

use clap::ValueEnum;
use quire_hw::Reuse;

use super::recorder::Effect;
use super::scene::{Evidence, Place, record};
use super::story::{Story, tell};
use crate::isa::Isa;
use crate::size::Size;

fn evidence(isa: Isa, size: u64) -> Evidence {
    record(isa, Size(size)).unwrap()
}

fn story(isa: Isa, size: u64) -> (Evidence, Story) {
    let evidence = evidence(isa, size);
    let story = tell(&evidence, (Size(size), Size(size)));
    (evidence, story)
}

fn plain(story: &Story) -> String {
    anstream::adapter::strip_str(&story.print()).to_string()
}

#[test]
fn every_file_that_is_named_exists_and_every_room_is_passed() {
    let (_, story) = story(Isa::X86_64, 64 << 10);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files: Vec<&str> = story.chapters.iter().flat_map(|c| c.files).copied().collect();
    for file in &files {
        assert!(root.join(file).is_file(), "{file}");
    }
    for room in ["spaces", "fault", "space", "table", "phys", "folio"] {
        let folder = format!("crates/mm/src/{room}/");
        assert!(files.iter().any(|file| file.starts_with(&folder)), "{room}");
    }
    assert!(files.iter().any(|file| file.starts_with("crates/machine/")));
}

#[test]
fn the_story_fits_a_screen_or_two_and_its_lines_a_terminal() {
    for isa in Isa::value_variants() {
        let (_, story) = story(*isa, isa.nearest(Size(64 << 10)).bytes());
        let text = plain(&story);
        assert!((50..=85).contains(&text.lines().count()), "{isa:?}: {}", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(!text.contains('\x1b'));
        assert!(story.print().contains("\x1b[1m"), "titles are bold on terminals");
    }
}

#[test]
fn a2_the_recorded_extents_are_the_whole_folio_with_the_fault_last() {
    let evidence = evidence(Isa::X86_64, 64 << 10);
    let mut cleared: Vec<u64> = Vec::new();
    let mut last = 0..0;
    for seen in &evidence.effects {
        if let Effect::Clear { run, pages, reuse } = &seen.effect {
            assert_eq!((run.count, *reuse), (16, Reuse::Soon));
            cleared.extend(pages.clone());
            last = pages.clone();
        }
    }
    assert!(last.contains(&evidence.page.offset_from(evidence.pages.start)));
    cleared.sort_unstable();
    assert_eq!(cleared, (0..16).collect::<Vec<_>>());
}

#[test]
fn e4_every_size_that_is_not_given_has_its_reason() {
    let (evidence, story) = story(Isa::X86_64, 64 << 10);
    let text = plain(&story);
    assert!(text.contains("64K  yes"));
    assert!(text.contains("256K  no: a page in that block is mapped already"));
    assert!(text.contains("1M  no: the block around the page would reach beyond the area"));
    assert!(text.contains("anon_fault_fallback 256K occupied +1"));
    assert_eq!((evidence.order.get(), evidence.entries), (4, 16));
}

#[test]
fn e2_the_walk_goes_down_from_the_root_to_the_place_that_is_written() {
    for isa in Isa::value_variants() {
        let size = isa.nearest(Size(64 << 10)).bytes();
        let evidence = evidence(*isa, size);
        let levels: Vec<u8> = evidence
            .effects
            .iter()
            .take_while(|seen| !matches!(seen.effect, Effect::Clear { .. }))
            .filter_map(|seen| match seen.place {
                Place::Table { level, .. } => Some(level),
                _ => None,
            })
            .collect();
        assert!(levels.is_sorted_by(|a, b| a >= b) && levels.ends_with(&[0]), "{levels:?}");
        assert_eq!(u64::from(levels[0]) + 1, evidence.missed.words_walked, "as the MMU did");
        let fills: Vec<_> = evidence
            .effects
            .iter()
            .filter_map(|seen| match seen.effect {
                Effect::Fill { count, .. } => Some((count as u64, seen.place)),
                _ => None,
            })
            .collect();
        let [(count, Place::Table { level: 0, .. })] = fills[..] else { panic!("{fills:?}") };
        assert_eq!(count, evidence.pages.count(), "one run");
    }
}

#[test]
fn sizes_from_a_base_page_to_many_blocks_have_a_story() {
    for (isa, size, entries) in [
        (Isa::X86_64, 4 << 10, 1),
        (Isa::X86_64, 2 << 20, 1),
        (Isa::X86_64La57, 16 << 20, 8),
        (Isa::Arm16k, 16 << 10, 1),
        (Isa::Arm64k, 2 << 20, 32),
        (Isa::Sv39, 64 << 10, 16),
    ] {
        let (evidence, story) = story(isa, size);
        assert_eq!((evidence.entries, evidence.value), (entries, 42), "{isa:?} {}", Size(size));
        assert_eq!(story.chapters.len(), 10);
        assert!(plain(&story).contains(&format!("a folio of {}", Size(size))));
    }
}

#[test]
fn a_size_the_format_lacks_is_said_to_be_another() {
    let evidence = evidence(Isa::Arm64k, 64 << 10);
    let text = plain(&tell(&evidence, (Size(4096), Size(64 << 10))));
    assert!(text.contains("(arm64-64k has no folios of 4K, so it is 64K.)"), "{text}");
}
