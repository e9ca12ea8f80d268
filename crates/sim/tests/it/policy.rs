//! Which folio sizes are wanted: the grammar, the masks beside a loop over sizes, and that each
//! cause of a smaller folio is counted where it should be (rows E4 and E5).

use std::str::FromStr;

use proptest::prelude::*;
use quire::Resolved;
use quire::fault::{Cause, Defrag, Enabled, Policy, SizePolicy};
use quire::inject::{Fragment, fragment};
use quire::limits::{ORDER_MAX, ORDERS};
use quire::space::{Advice, At, OptOut, Request, Space};
use quire_arch::{Arch, X86_64};
use quire_machine::Config;
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, Vpn};

const SHIFT: u32 = X86_64::PAGE_SHIFT;

fn order(log2: u8) -> Order {
    Order::new(log2)
}

/// All words in order with the active one in brackets; exactly one word, perhaps with a newline.
fn grammar<T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + FromStr>(
    all: &[T],
    words: &[&str],
) {
    assert_eq!(all.len(), words.len());
    for (choice, word) in all.iter().zip(words) {
        let printed =
            words.iter().map(|w| if w == word { format!("[{w}]") } else { w.to_string() });
        assert_eq!(choice.to_string(), printed.collect::<Vec<_>>().join(" "));
        assert_eq!(word.parse::<T>().ok(), Some(*choice));
        assert_eq!(format!("{word}\n").parse::<T>().ok(), Some(*choice));
        for wrong in [
            format!("{word}\n\n"),
            format!(" {word}"),
            format!("{word} "),
            format!("[{word}]"),
            word.to_uppercase(),
            word[1..].to_string(),
        ] {
            assert!(wrong.parse::<T>().is_err(), "{wrong:?}");
        }
    }
    for wrong in ["", "\n", "yes", "always never", "[always]"] {
        assert!(wrong.parse::<T>().is_err(), "{wrong:?}");
    }
}

#[test]
fn e4_choices_are_printed_and_read_as_linux_does() {
    grammar(Enabled::ALL, &["always", "madvise", "never"]);
    grammar(SizePolicy::ALL, &["always", "inherit", "madvise", "never"]);
    grammar(Defrag::ALL, &["always", "defer", "defer+madvise", "madvise", "never"]);
    assert_eq!("no".parse::<Enabled>().unwrap_err().to_string(), "not one of this setting's words");
}

#[test]
fn e4_the_default_is_linuxs() {
    let policy = Policy::new(order(9));
    assert_eq!(policy.enabled(), Enabled::Madvise);
    assert_eq!(policy.defrag(), Defrag::Madvise);
    for at in 0..40 {
        let expected = if at == 9 { SizePolicy::Inherit } else { SizePolicy::Never };
        assert_eq!(policy.size(order(at)), expected);
    }
    assert_eq!(policy.candidates(Advice::None, OptOut::No).bits(), 0);
    assert_eq!(policy.candidates(Advice::Huge, OptOut::No).bits(), 1 << 9);
}

#[test]
fn e4_sizes_without_a_choice_are_refused() {
    let policy = Policy::new(order(9));
    for at in [0, ORDERS as u8, 31, 32, 63] {
        assert_eq!(policy.set_size(order(at), SizePolicy::Always), Err(order(at)));
        assert_eq!(policy.size(order(at)), SizePolicy::Never);
    }
    assert_eq!(policy.set_size(ORDER_MAX, SizePolicy::Always), Ok(()));
    assert_eq!(policy.candidates(Advice::None, OptOut::No).bits(), 1 << ORDER_MAX.get());
}

/// The rule in words: is a folio of a size with this choice wanted?
fn wanted(enabled: Enabled, size: SizePolicy, advice: Advice, process: OptOut) -> bool {
    if advice == Advice::NoHuge || process == OptOut::All {
        return false;
    }
    let advised = advice == Advice::Huge;
    if process == OptOut::ExceptAdvised && !advised {
        return false;
    }
    let by = |always: bool, madvise: bool| always || (madvise && advised);
    match size {
        SizePolicy::Always => true,
        SizePolicy::Madvise => advised,
        SizePolicy::Never => false,
        SizePolicy::Inherit => by(enabled == Enabled::Always, enabled == Enabled::Madvise),
    }
}

#[test]
fn e4_masks_are_what_the_rule_says_for_every_combination() {
    let advices = [Advice::None, Advice::Huge, Advice::NoHuge];
    let processes = [OptOut::No, OptOut::All, OptOut::ExceptAdvised];
    for &enabled in Enabled::ALL {
        // Four sizes, each with one of the four choices.
        for number in 0..256usize {
            let policy = Policy::new(order(9));
            policy.set_enabled(enabled);
            let choices: Vec<_> = [(1, 0), (4, 2), (9, 4), (18, 6)]
                .map(|(at, shift)| (at, SizePolicy::ALL[number >> shift & 3]))
                .to_vec();
            for &(at, choice) in &choices {
                policy.set_size(order(at), choice).unwrap();
                assert_eq!(policy.size(order(at)), choice);
            }
            for (advice, process) in advices.iter().flat_map(|a| processes.map(|p| (*a, p))) {
                let naive = choices
                    .iter()
                    .filter(|(_, choice)| wanted(enabled, *choice, advice, process))
                    .fold(0, |mask, (at, _)| mask | 1 << at);
                assert_eq!(policy.candidates(advice, process).bits(), naive);
            }
        }
    }
}

#[test]
fn e4_defrag_says_how_hard_to_try() {
    let policy = Policy::new(order(9));
    let hard = |choice| {
        policy.set_defrag(choice);
        [Advice::None, Advice::Huge].map(|advice| policy.tries_hard(advice))
    };
    assert_eq!(hard(Defrag::Always), [true, true]);
    assert_eq!(hard(Defrag::Defer), [false, false]);
    assert_eq!(hard(Defrag::DeferMadvise), [false, true]);
    assert_eq!(hard(Defrag::Madvise), [false, true]);
    assert_eq!(hard(Defrag::Never), [false, false]);
}

fn choices(policy: &Policy) -> Vec<SizePolicy> {
    (0..ORDERS as u8).map(|at| policy.size(order(at))).collect()
}

#[test]
fn e4_thp_anon_is_taken_in_linuxs_grammar() {
    let policy = Policy::new(order(9));
    policy.set_sizes("16K,32K-64K:always;2M:inherit;1G:madvise", SHIFT).unwrap();
    let mut wanted = vec![SizePolicy::Never; ORDERS];
    wanted[2..=4].fill(SizePolicy::Always);
    wanted[9] = SizePolicy::Inherit;
    wanted[18] = SizePolicy::Madvise;
    assert_eq!(choices(&policy), wanted);
    // Sizes that are not named become never; the last choice counts.
    policy.set_sizes("8k-1m:madvise;64K:never;128k,64K:always", SHIFT).unwrap();
    let mut wanted = vec![SizePolicy::Never; ORDERS];
    wanted[1..=8].fill(SizePolicy::Madvise);
    wanted[4..=5].fill(SizePolicy::Always);
    assert_eq!(choices(&policy), wanted);
    policy.set_sizes("32K:always", 14).unwrap();
    assert_eq!(policy.size(order(1)), SizePolicy::Always);
    // No large folios, in each way to say it.
    for text in ["", "never", "4K:always", "64K:never"] {
        policy.set_sizes("64K:always", SHIFT).unwrap();
        policy.set_sizes(text, SHIFT).unwrap();
        assert_eq!(choices(&policy), vec![SizePolicy::Never; ORDERS], "{text}");
    }
    policy.set_sizes("4K-8K:always", SHIFT).unwrap();
    assert_eq!(policy.candidates(Advice::None, OptOut::No).bits(), 0b10);
}

#[test]
fn e4_thp_anon_that_is_wrong_changes_nothing_and_names_the_part() {
    let policy = Policy::new(order(9));
    policy.set_sizes("2M:always", SHIFT).unwrap();
    let before = choices(&policy);
    for (text, part) in [
        ("64K", "64K"),
        ("64K:", "64K:"),
        (":always", ""),
        ("64K:sometimes", "64K:sometimes"),
        ("64K:always;3K:never", "3K"),
        ("4K:never", "4K"),
        ("2K:always", "2K"),
        ("never;64K:always", "never"),
        ("2G:always", "2G"),
        ("64:always", "64"),
        ("64KB:always", "64KB"),
        ("K:always", "K"),
        ("é:always", "é"),
        ("64K-32K:always", "64K-32K"),
        ("64K-:always", "64K-"),
        ("64K,,1M:always", ""),
        ("18446744073709551615G:always", "18446744073709551615G"),
        ("2M:always:never", "2M:always:never"),
    ] {
        assert_eq!(policy.set_sizes(text, SHIFT), Err(part), "{text}");
        assert_eq!(choices(&policy), before, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn e4_any_text_is_taken_or_refused(text in "[0-9KMGkmg,;:a-z-]{0,30}") {
        let policy = Policy::new(order(9));
        let before = choices(&policy);
        if policy.set_sizes(&text, SHIFT).is_err() {
            prop_assert_eq!(choices(&policy), before);
        }
    }

    #[test]
    fn e4_a_text_sets_the_sizes_that_it_names(
        low in 1..ORDERS, high in 1..ORDERS, choice in 0..4usize,
    ) {
        let policy = Policy::new(order(9));
        let (low, high) = (low.min(high), low.max(high));
        let choice = SizePolicy::ALL[choice];
        let kib = |order: usize| 4u64 << order;
        let text = format!("{}K-{}K:{}", kib(low), kib(high), choice.word());
        policy.set_sizes(&text, SHIFT).unwrap();
        for at in 0..ORDERS {
            let named = (low..=high).contains(&at);
            let expected = if named { choice } else { SizePolicy::Never };
            prop_assert_eq!(policy.size(order(at as u8)), expected);
        }
    }
}

/// Runs `test` in a space whose window begins with an aligned block of 2 MiB.
fn in_space(test: impl FnOnce(&HostedMm<'_, '_, X86_64>, &Space<X86_64>, Vpn)) {
    let mut ram = system::ram(16 << 20).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let start = Vpn::new(4096);
        let window = PageSpan::new(start, start.add(4096));
        let space = mm.space(Asid(1), window).unwrap();
        test(mm, &space, start);
        mm.destroy(space);
        machine.verdict().unwrap();
    })
    .unwrap();
}

fn fault(mm: &HostedMm<'_, '_, X86_64>, space: &Space<X86_64>, page: Vpn) -> Order {
    match mm.fault(space, page, Access::Write).unwrap() {
        Resolved::Mapped(new) => new.order,
        other => panic!("{other:?}"),
    }
}

/// The fallbacks that are counted, as (order, cause, how many).
fn fallbacks(mm: &HostedMm<'_, '_, X86_64>) -> Vec<(usize, Cause, u64)> {
    let totals = mm.totals().fallback;
    let all = totals.iter().enumerate().flat_map(|(order, causes)| {
        Cause::ALL.iter().map(move |cause| (order, *cause, causes[*cause as usize]))
    });
    all.filter(|(.., count)| *count > 0).collect()
}

fn space_fallbacks(space: &Space<X86_64>) -> Vec<(usize, u64)> {
    let counts = space.counters().fallbacks();
    counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn e5_geometry_is_counted_for_each_size_that_the_area_is_too_small_for() {
    in_space(|mm, space, start| {
        for at in [2, 4, 9] {
            mm.policy().set_size(order(at), SizePolicy::Always).unwrap();
        }
        // 16 pages from a multiple of 16 on, but for the first: order 2 fits at page 5, 4 does not.
        mm.map(space, &Request::anon(15).at(At::Fixed(start.add(1)))).unwrap();
        assert_eq!(fault(mm, space, start.add(5)), order(2));
        assert_eq!(fallbacks(mm), [(4, Cause::Geometry, 1), (9, Cause::Geometry, 1)]);
        assert_eq!(space_fallbacks(space), [(4, 1), (9, 1)]);
        assert_eq!(fault(mm, space, start.add(1)), order(0));
        assert_eq!(space_fallbacks(space), [(2, 1), (4, 2), (9, 2)]);
        assert_eq!(mm.totals().alloc[2], 1);
        assert_eq!(mm.totals().alloc[0], 1);
        assert_eq!(space.counters().allocs()[2], 1);
    });
}

#[test]
fn e5_occupied_is_counted_where_something_is_mapped() {
    in_space(|mm, space, start| {
        mm.map(space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        mm.policy().set_enabled(Enabled::Never);
        assert_eq!(fault(mm, space, start.add(20)), order(0));
        assert_eq!(fallbacks(mm), [(9, Cause::Policy, 1)]);
        for at in [2, 4, 9] {
            mm.policy().set_size(order(at), SizePolicy::Always).unwrap();
        }
        assert_eq!(fault(mm, space, start.add(24)), order(2));
        let expected = [(4, Cause::Occupied, 1), (9, Cause::Occupied, 1), (9, Cause::Policy, 1)];
        assert_eq!(fallbacks(mm), expected);
        assert_eq!(space_fallbacks(space), [(4, 1), (9, 1)]);
        assert_eq!(fault(mm, space, start.add(32)), order(4));
        assert_eq!(space_fallbacks(space), [(4, 1), (9, 2)]);
    });
}

#[test]
fn e5_policy_is_counted_for_the_system_and_not_for_the_process() {
    in_space(|mm, space, start| {
        mm.map(space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        assert_eq!(fault(mm, space, start), order(0), "nothing was advised");
        assert_eq!(fallbacks(mm), [(9, Cause::Policy, 1)]);
        assert_eq!(space_fallbacks(space), []);
        // Where no block fits, no policy is to blame for its absence.
        mm.map(space, &Request::anon(1).at(At::Fixed(start.add(1024)))).unwrap();
        assert_eq!(fault(mm, space, start.add(1024)), order(0));
        assert_eq!(fallbacks(mm), [(9, Cause::Policy, 1)]);
    });
}

#[test]
fn e5_memory_is_counted_for_each_size_that_was_tried() {
    in_space(|mm, space, start| {
        for at in [2, 4, 9] {
            mm.policy().set_size(order(at), SizePolicy::Always).unwrap();
        }
        mm.map(space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        let pieces =
            fragment(mm.bare_phys(), Fragment::FreeAtOrder { order: order(3), blocks: 1000 }, 1);
        assert_eq!(fault(mm, space, start.add(77)), order(2));
        assert_eq!(fallbacks(mm), [(4, Cause::Memory, 1), (9, Cause::Memory, 1)]);
        assert_eq!(space_fallbacks(space), [(4, 1), (9, 1)]);
        pieces.release();
    });
}

#[test]
fn e5_a_large_folio_leaves_the_frames_free_that_are_to_be() {
    in_space(|mm, space, start| {
        for at in [2, 9] {
            mm.policy().set_size(order(at), SizePolicy::Always).unwrap();
        }
        mm.map(space, &Request::anon(2048).at(At::Fixed(start))).unwrap();
        // The first fault makes the tables and the areas' nodes.
        assert_eq!(fault(mm, space, start), order(9));
        let free = mm.phys().free_frames();
        mm.policy().set_spare(free - 512);
        assert_eq!(fault(mm, space, start.add(512)), order(9));
        assert_eq!(fallbacks(mm), []);
        assert_eq!(fault(mm, space, start.add(1024)), order(2));
        assert_eq!(fallbacks(mm), [(9, Cause::Memory, 1)]);
        // A small folio and its table.
        mm.policy().set_spare(free - 1024 - 5);
        assert_eq!(fault(mm, space, start.add(1536)), order(9));
    });
}

#[test]
fn e5_a_fault_that_gets_what_it_wants_counts_no_fallback() {
    in_space(|mm, space, start| {
        mm.policy().set_size(order(9), SizePolicy::Always).unwrap();
        mm.map(space, &Request::anon(512).at(At::Fixed(start))).unwrap();
        assert_eq!(fault(mm, space, start.add(3)), order(9));
        assert_eq!(fallbacks(mm), []);
        assert_eq!(mm.totals().alloc[9], 1);
    });
}

#[test]
fn e4_advice_and_opting_out_decide_at_the_fault() {
    in_space(|mm, space, start| {
        mm.map(space, &Request::anon(4 * 512).at(At::Fixed(start))).unwrap();
        let block = |number: u64| {
            let first = start.add(number * 512);
            PageSpan::new(first, first.add(512))
        };
        mm.advise(space, block(1), Advice::Huge).unwrap();
        mm.advise(space, block(3), Advice::NoHuge).unwrap();
        mm.policy().set_enabled(Enabled::Always);
        assert_eq!(fault(mm, space, block(3).start), order(0));
        space.set_opt_out(OptOut::All);
        assert_eq!(fault(mm, space, block(0).start), order(0));
        space.set_opt_out(OptOut::ExceptAdvised);
        assert_eq!(space.opt_out(), OptOut::ExceptAdvised);
        assert_eq!(fault(mm, space, block(2).start), order(0));
        assert_eq!(fault(mm, space, block(1).start), order(9));
        mm.protect(space, block(1), Prot::READ).unwrap();
        assert_eq!(mm.resident(space), 512 + 3);
    });
}
