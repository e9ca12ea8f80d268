//! Texts that programs write to settings and to files of groups, and structures that they pass to
//! calls.

use std::array::from_fn;

use quire::cache::FilePolicy;
use quire::fault::Policy;
use quire_arch::{Arch, X86_64};
use quire_linux::Errno;
use quire_linux::files::{Termios, joined, split};
use quire_linux::groups::{Control, amount, limit, pid};
use quire_linux::signal::frame::{aarch64, x86_64};
use quire_linux::signal::{
    ACTION_BYTES, ALT_STACK_BYTES, Action, AltStack, INFO_BYTES, Info, Set, Signal, code,
};
use quire_units::Order;

/// Text for the files of a group, and for lists of folio sizes.
///
/// # Panics
/// When a text is misread, or a refused text changes a setting.
pub fn settings(bytes: &[u8]) {
    amounts(bytes);
    let words = || bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let known = words().all(|word| matches!(word, b"+memory" | b"-memory"));
    let wanted = words().next_back().map(|word| word[0] == b'+');
    let right = if known { Ok(Control { memory: wanted }) } else { Err(Errno::EINVAL) };
    assert_eq!(Control::of(bytes), right);
    if let Ok(pid) = pid(bytes) {
        let digits = String::from_utf8_lossy(bytes);
        assert_eq!(digits.trim().parse(), Ok(pid));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    sizes(text);
}

/// A number with a unit has the value that it has in a wider type.
fn amounts(bytes: &[u8]) {
    let got = limit(bytes);
    if bytes.trim_ascii() == b"max" {
        return assert_eq!(got, Ok(None));
    }
    assert_eq!(got, amount(bytes).map(Some));
    let Ok(value) = amount(bytes) else { return };
    let text = String::from_utf8_lossy(bytes).trim().to_ascii_lowercase();
    let (text, radix) = match text.strip_prefix("0x") {
        Some(rest) => (rest.to_owned(), 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let letter = text.chars().last().filter(|last| !last.is_digit(radix));
    let power = letter.and_then(|letter| "kmgtpe".find(letter)).map_or(0, |at| at as u32 + 1);
    let digits = text.trim_end_matches(|last: char| !last.is_digit(radix));
    let wide = u128::from_str_radix(digits, radix).unwrap_or(u128::MAX);
    let wide = wide.saturating_mul(1 << (10 * power));
    assert_eq!(u128::from(value), wide.min(u64::MAX.into()), "{text:?}");
}

/// Lists of sizes: a refusal names a part of the text, and changes nothing.
fn sizes(text: &str) {
    let policy = Policy::new(X86_64::block_order());
    let choices = || from_fn::<_, 32, _>(|order| policy.size(Order::new(order as u8)));
    let before = choices();
    if let Err(part) = policy.set_sizes(text, X86_64::PAGE_SHIFT) {
        assert!(text.contains(part) && choices() == before, "{text:?}");
    }
    let files = FilePolicy::new::<X86_64>();
    let before = files.preference();
    if let Err(part) = files.set_tiers(text, X86_64::PAGE_SHIFT) {
        assert!(text.contains(part) && files.preference() == before, "{text:?}");
    }
}

/// Settings as users write them.
pub fn texts() -> Vec<Vec<u8>> {
    let texts = [
        "+memory -memory\n",
        "max\n",
        " 0x1fK ",
        "0777m",
        "18446744073709551615E",
        "4194305",
        "16K,32K-64K:always;2M:inherit;1G:never",
        "64K,2M",
        "none",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// The first bytes, and zeroes behind them.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// Structures that programs pass to calls: each is returned as it was read, and gives a program no
/// right of the kernel's.
///
/// # Panics
/// When one is not.
pub fn structures(bytes: &[u8]) {
    let action = Action::decode(&first::<ACTION_BYTES>(bytes));
    assert_eq!(Action::decode(&action.encode()), action);
    assert_eq!(action.mask.0 & Set::UNSTOPPABLE.0, 0, "{action:x?}");
    let stack = AltStack::decode(&first::<ALT_STACK_BYTES>(bytes));
    assert_eq!(AltStack::decode(&stack.encode()), stack);
    let sp = u64::from_le_bytes(first(bytes.get(ALT_STACK_BYTES..).unwrap_or_default()));
    assert!(!stack.is_in_use(sp) || stack.is_some() && stack.holds(sp));
    let _ = stack.told(sp).encode();
    infos(bytes);
    let device = u64::from_le_bytes(first(bytes));
    let (major, minor) = split(device);
    assert_eq!(split(joined((major, minor))), (major, minor), "{device:#x}");
    if let Ok(termios) = Termios::decode(bytes) {
        assert_eq!(Termios::decode(&termios.encode()), Ok(termios));
    }
    frames(bytes);
}

fn infos(bytes: &[u8]) {
    let whole = first::<INFO_BYTES>(bytes);
    let Ok(signal) = Signal::new(u64::from(whole[0])) else { return };
    for is_own in [true, false] {
        let Ok(info) = Info::decode(signal, &whole, is_own) else { continue };
        assert!(is_own || info.code < 0 && info.code != code::THREAD, "{info:x?}");
        assert_eq!(Info::decode(signal, &info.encode(), is_own), Ok(info));
    }
}

/// Frames of signal handlers: returning through one never gives more rights than a program has.
fn frames(bytes: &[u8]) {
    if let Ok((back, _)) = x86_64::parse(&first(bytes)) {
        assert!(back.registers.rip < 1 << 47);
        assert_eq!(back.blocked.0 & Set::UNSTOPPABLE.0, 0);
        // No right to ports, no nested task, no virtual-8086 mode; and interrupts are enabled.
        assert_eq!(back.registers.rflags & 0x3a_7200, 0x200, "{:x?}", back.registers);
    }
    if let Ok(back) = aarch64::parse(&first(bytes)) {
        assert_eq!(back.registers.pstate & 0x3df, 0, "it runs at EL0, in 64 bits, interrupted");
        assert_eq!(back.blocked.0 & Set::UNSTOPPABLE.0, 0);
    }
    let legacy = first::<{ x86_64::LEGACY_BYTES }>(bytes);
    let mut area = vec![0; 1 << 10];
    let saved = x86_64::saved_bytes(&legacy, area.len());
    let saved = bytes.get(..saved).unwrap_or(bytes);
    if x86_64::restore_vectors(saved, 7, &mut area).is_ok() {
        let present = u64::from_le_bytes(first(&area[x86_64::LEGACY_BYTES..]));
        assert_eq!(present & !7, 0, "only what XCR0 has");
        let rest = &area[x86_64::LEGACY_BYTES + 8..x86_64::LEGACY_BYTES + 64];
        assert!(rest.iter().all(|byte| *byte == 0), "any other header faults");
    }
}
