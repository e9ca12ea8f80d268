//! The law of folding: the meaning of the words of a contiguous block, and the demands of changing
//! them.

use quire_units::Pfn;

use super::{Broken, Law, PAYLOADS, Words, all_attrs, frames, hold, leaf_levels, levels, others};
use crate::{Arch, Attrs, Level, Transition};

/// [`Law::Fold`], over all attributes, all places in a block, and each flag changed alone.
///
/// # Errors
/// The first words that fail.
pub fn folding<A: Arch>() -> Result<(), Broken> {
    plain_words::<A>()?;
    for level in levels::<A>().filter(|&level| A::fold_order(level).is_some()) {
        for attrs in all_attrs().filter(|&attrs| visible(attrs)) {
            for start in blocks::<A>(level) {
                block::<A>(start, level, attrs)?;
                records::<A>(start, level, attrs)?;
            }
            changes::<A>(level, attrs)?;
        }
    }
    Ok(())
}

/// A word that [`Arch::fold`] did not make is not folded.
fn plain_words<A: Arch>() -> Result<(), Broken> {
    let payloads = Words::new(0x666f_6c64).map(|word| word % PAYLOADS).take(1000);
    let markers = payloads.map(A::marker);
    for word in others::<A>().chain(markers) {
        levels::<A>().try_for_each(|level| plain::<A>(word, level))?;
    }
    for level in leaf_levels::<A>() {
        for frame in frames::<A>(level) {
            all_attrs().try_for_each(|attrs| plain::<A>(A::leaf(frame, level, attrs), level))?;
        }
    }
    Ok(())
}

fn plain<A: Arch>(word: u64, level: Level) -> Result<(), Broken> {
    hold::<A>(Law::Fold, level, word, word, !A::is_folded(word, level))
}

/// A block's words are folded, are an arithmetic sequence, and give back the plain ones.
fn block<A: Arch>(start: Pfn, level: Level, attrs: Attrs) -> Result<(), Broken> {
    let count = members::<A>(level);
    let mut expected = A::fold(A::leaf(start, level, attrs), level);
    for place in 0..count {
        let leaf = member::<A>(start, place, level, attrs);
        let folded = A::fold(leaf, level);
        let fine = A::is_folded(folded, level) && folded == expected;
        hold::<A>(Law::Fold, level, folded, expected, fine)?;
        for index in [place, place + count, A::entries(level) - count + place] {
            let back = A::unfold(folded, level, index);
            hold::<A>(Law::Fold, level, leaf, back, back == leaf)?;
        }
        expected = expected.wrapping_add(A::fold_step(level));
    }
    Ok(())
}

/// The records (accessed, dirty, the library's flags) have the same bits in folded and plain words.
fn records<A: Arch>(start: Pfn, level: Level, attrs: Attrs) -> Result<(), Broken> {
    let word = A::leaf(start, level, attrs);
    let notes = [Attrs::YOUNG, Attrs::DIRTY, Attrs::SOFT, Attrs::COW, Attrs::YOUNG | Attrs::DIRTY];
    notes.into_iter().try_for_each(|note| {
        let noted = A::leaf(start, level, attrs ^ note);
        let fine = A::fold(word, level) ^ A::fold(noted, level) == word ^ noted;
        hold::<A>(Law::Fold, level, word, noted, fine)
    })
}

/// Folded words change as plain ones do. Folding and unfolding demand what a change of size does.
fn changes<A: Arch>(level: Level, attrs: Attrs) -> Result<(), Broken> {
    let place = members::<A>(level) - 1;
    let (here, there) = (Pfn::new(0), Pfn::new(A::fold_order(level).unwrap_or_default().pages()));
    let old = member::<A>(here, place, level, attrs);
    let flags = Attrs::all().iter().chain([Attrs::empty()]);
    for flag in flags.filter(|&flag| !(attrs ^ flag).contains(Attrs::MEMORY)) {
        for start in [here, there] {
            let new = member::<A>(start, place, level, attrs ^ flag);
            if visible(attrs ^ flag) {
                regrouped::<A>(old, new, level)?;
            } else {
                alike::<A>((old, new), (A::fold(old, level), new), level)?;
            }
        }
    }
    for other in others::<A>() {
        alike::<A>((old, other), (A::fold(old, level), other), level)?;
        alike::<A>((other, old), (other, A::fold(old, level)), level)?;
    }
    Ok(())
}

/// The demands between two visible leaves of which none, both or one is folded.
fn regrouped<A: Arch>(old: u64, new: u64, level: Level) -> Result<(), Broken> {
    let (from, to) = (A::fold(old, level), A::fold(new, level));
    alike::<A>((old, new), (from, to), level)?;
    for relaxed in [false, true] {
        let least = A::transition(old, new, level, relaxed).max(resized::<A>(relaxed));
        for (a, b) in [(from, new), (old, to)] {
            let demand = A::transition(a, b, level, relaxed);
            hold::<A>(Law::Fold, level, a, b, demand == least)?;
        }
    }
    Ok(())
}

/// Two changes that demand the same.
fn alike<A: Arch>(plain: (u64, u64), folded: (u64, u64), level: Level) -> Result<(), Broken> {
    [false, true].into_iter().try_for_each(|relaxed| {
        let demand = A::transition(plain.0, plain.1, level, relaxed);
        let fine = A::transition(folded.0, folded.1, level, relaxed) == demand;
        hold::<A>(Law::Fold, level, folded.0, folded.1, fine)
    })
}

/// The demand of another block size: the change of a leaf above the last level into a table.
fn resized<A: Arch>(relaxed: bool) -> Transition {
    let above = leaf_levels::<A>().find(|level| !level.is_last());
    above.map_or(Transition::Flush, |level| {
        let leaf = A::leaf(Pfn::new(0), level, Attrs::READ);
        A::transition(leaf, A::table(Pfn::new(1)), level, relaxed)
    })
}

fn visible(attrs: Attrs) -> bool {
    attrs.intersects(Attrs::RIGHTS)
}

/// How many leaves a contiguous block of `level` has.
fn members<A: Arch>(level: Level) -> usize {
    1 << A::LEVELS[level.index()].contiguous
}

/// The plain word at `place` of the contiguous block that begins at `start`.
fn member<A: Arch>(start: Pfn, place: usize, level: Level, attrs: Attrs) -> u64 {
    let offset = (place as u64) << A::order(level).get();
    A::leaf(Pfn::new(start.get() + offset), level, attrs)
}

/// The first frames of contiguous blocks: none of the address bits, all, and patterns.
fn blocks<A: Arch>(level: Level) -> impl Iterator<Item = Pfn> {
    let top = A::FRAMES - 1;
    let pages = A::fold_order(level).unwrap_or_default().pages();
    [0, top, top / 3, top / 3 * 2].into_iter().map(move |frame| Pfn::new(frame).align_down(pages))
}
