//! The baseline does the work it is timed for: all counts, all words, all frames.

use anyhow::Result;
use quire_arch::{Arch, Attrs};
use quire_units::Prot;

use super::*;
use crate::bench::entries::plan::backings;
use crate::bench::scene::with_fresh;
use crate::isa::{Isa, with_isa};

const REGION: u64 = 64 << 20;

/// Makes `$check` of a scene in every format and backing.
macro_rules! every {
    ($check:ident) => {
        for isa in [Isa::X86_64, Isa::Arm4k, Isa::Arm16k, Isa::Sv48] {
            for backing in backings(isa, &[]).0 {
                let place = (isa, backing, REGION);
                with_isa!(isa, A => with_fresh::<A, _>(place, false, $check)).unwrap();
            }
        }
    };
}

/// References and mapped pages of all folios together.
fn held<A: Arch>(scene: &Scene<'_, '_, '_, A>, words: &Words<A>) -> (u64, u64) {
    let folios = Folios::new(scene.mm.bare_phys().meta());
    let mut heads = Vec::new();
    for word in &words.words {
        let word = word.load(Ordering::Relaxed);
        let Entry::Leaf { frame, .. } = A::decode(word, words.level) else { continue };
        heads.push(folios.of(frame).unwrap().head);
    }
    heads.dedup();
    let counts = |head: &Pfn| folios.counts(folios.of(*head).unwrap());
    let sum = |(refs, mapped), c: quire::folio::Counts| {
        (refs + u64::from(c.refs), mapped + u64::from(c.mapped))
    };
    heads.iter().map(counts).fold((0, 0), sum)
}

fn fork<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<()> {
    let pages = Pages::new(scene, true);
    let parent = Words::of(scene)?;
    let free = scene.mm.phys().free_frames();
    let (entries, mapped) = (parent.len() as u64, scene.span.count());
    assert!(parent.attrs().contains(Attrs::WRITE | Attrs::DIRTY));
    let mut child = parent.unmade();
    for _ in 0..2 {
        pages.fork(&parent, &mut child)?;
        assert_eq!(held(scene, &parent), (entries, mapped));
        for side in [&parent, &child] {
            assert!(side.attrs().contains(Attrs::COW | Attrs::DIRTY | Attrs::READ));
            assert!(!side.attrs().contains(Attrs::WRITE));
        }
        pages.zap(&mut child);
        assert!(child.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!(held(scene, &parent), (0, mapped));
    }
    assert_eq!(scene.mm.phys().free_frames(), free);
    Ok(())
}

#[test]
fn c5_page_at_a_time_fork_counts_each_page_once_and_its_exit_gives_all_back() {
    every!(fork);
}

#[test]
fn c5_a_frame_read_by_mask_is_the_frame_that_decoding_gives() {
    fn look<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<()> {
        let words = Words::of(scene)?;
        let mut flags = Flags::<A, _>::new(words.level, |attrs| attrs | Attrs::COW);
        for word in words.words {
            let word = word.into_inner();
            let Entry::Leaf { frame, attrs } = A::decode(word, words.level) else { continue };
            assert_eq!(flags.look(word), Some(frame));
            let changed = A::leaf(frame, words.level, attrs | Attrs::COW);
            assert_eq!(flags.changed(word), changed);
        }
        assert_eq!(flags.look(0), None);
        Ok(())
    }
    every!(look);
}

#[test]
fn c5_a_word_that_the_hardware_may_change_is_exchanged_and_keeps_what_it_noted() {
    use quire_arch::X86_64;
    let attrs = Attrs::READ | Attrs::WRITE | Attrs::USER;
    let leaf = |attrs| X86_64::leaf(Pfn::new(7), Level::LAST, attrs);
    let mut flags = Flags::<X86_64, _>::new(Level::LAST, |a| a.difference(Attrs::WRITE));
    let old = leaf(attrs);
    assert_eq!(flags.look(old), Some(Pfn::new(7)));
    // The hardware noted a store after the word was looked at.
    let word = AtomicU64::new(leaf(attrs | Attrs::YOUNG | Attrs::DIRTY));
    flags.write(&word, old, flags.changed(old));
    let kept = Attrs::READ | Attrs::USER | Attrs::YOUNG | Attrs::DIRTY;
    assert_eq!(
        X86_64::decode(word.into_inner(), Level::LAST),
        Entry::Leaf { frame: Pfn::new(7), attrs: kept }
    );
}

fn zap<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<()> {
    let mut words = Words::of(scene)?;
    let pages = Pages::new(scene, false);
    pages.hold(&words);
    scene.mm.unmap(&scene.space, scene.span)?;
    let free = scene.mm.phys().free_frames();
    pages.zap(&mut words);
    let freed = scene.mm.phys().free_frames() - free;
    assert_eq!(freed, scene.span.count());
    Ok(())
}

#[test]
fn c5_page_at_a_time_zap_frees_every_frame() {
    every!(zap);
}

fn protect<A: Arch>(scene: &Scene<'_, '_, '_, A>) -> Result<()> {
    let words = Words::of(scene)?;
    let pages = Pages::new(scene, false);
    let before: Vec<u64> = words.words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    pages.protect(&words, Prot::READ);
    assert!(!words.attrs().contains(Attrs::WRITE) && words.attrs().contains(Attrs::READ));
    pages.protect(&words, Prot::READ | Prot::WRITE);
    let after = words.words.iter().map(|w| w.load(Ordering::Relaxed));
    assert!(after.eq(before));
    Ok(())
}

#[test]
fn c5_page_at_a_time_protect_takes_rights_and_gives_the_same_words_back() {
    every!(protect);
}
