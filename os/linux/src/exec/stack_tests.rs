//! The first stack, read as a program reads it.

use std::collections::HashMap;
use std::vec;

use super::*;

const TOP: u64 = 0x7fff_ffff_f000;
const ROOM: u64 = 8 << 20;

fn aux() -> Aux<'static> {
    Aux {
        headers: 0x40_0040,
        header_count: 7,
        page_bytes: 4096,
        base: 0,
        entry: 0x40_1000,
        uid: (1, 2),
        gid: (3, 4),
        platform: "x86_64",
        hwcap: 5,
        hwcap2: 6,
        random: [9; 16],
        is_secure: false,
        signal_stack_bytes: 2048,
        vdso: 0x7fff_ffff_e000,
    }
}

fn word(image: &Image, address: u64) -> u64 {
    let at = (address - image.sp) as usize;
    u64::from_le_bytes(image.bytes[at..at + 8].try_into().unwrap())
}

fn string(image: &Image, address: u64) -> &[u8] {
    let rest = &image.bytes[(address - image.sp) as usize..];
    rest.split(|&byte| byte == 0).next().unwrap()
}

/// The strings of the list of pointers at `*at`, which is then after its NULL.
fn strings<'a>(image: &'a Image, at: &mut u64) -> Vec<&'a [u8]> {
    let mut found = vec![];
    loop {
        let pointer = word(image, *at);
        *at += 8;
        if pointer == 0 {
            return found;
        }
        found.push(string(image, pointer));
    }
}

#[test]
fn a_program_finds_arguments_environment_and_auxiliary_vector() {
    for count in 0..4 {
        let args: Vec<&[u8]> = [&b"prog"[..], b"", b"two words"].into_iter().take(count).collect();
        let envs: [&[u8]; 2] = [b"A=b", b"PATH=/bin"];
        let image = build(TOP, ROOM, &args, &envs, b"/bin/prog", &aux()).unwrap();
        assert!(image.sp.is_multiple_of(16));
        assert_eq!(image.sp + image.bytes.len() as u64, TOP);
        let mut at = image.sp + 8;
        let expected = if count == 0 { vec![&b""[..]] } else { args.clone() };
        assert_eq!(word(&image, image.sp), expected.len() as u64);
        assert_eq!(strings(&image, &mut at), expected);
        assert_eq!(strings(&image, &mut at), envs);

        let mut pairs = HashMap::new();
        while word(&image, at) != 0 {
            assert_eq!(pairs.insert(word(&image, at), word(&image, at + 8)), None);
            at += 16;
        }
        // The numbers are those of <linux/auxvec.h>.
        for (tag, value) in [
            (3, 0x40_0040),
            (4, 56),
            (5, 7),
            (6, 4096),
            (7, 0),
            (8, 0),
            (9, 0x40_1000),
            (11, 1),
            (12, 2),
            (13, 3),
            (14, 4),
            (16, 5),
            (17, 100),
            (23, 0),
            (26, 6),
            (33, 0x7fff_ffff_e000),
            (51, 2048),
        ] {
            assert_eq!(pairs.remove(&tag), Some(value), "tag {tag}");
        }
        assert_eq!(string(&image, pairs.remove(&15).unwrap()), b"x86_64");
        assert_eq!(string(&image, pairs.remove(&31).unwrap()), b"/bin/prog");
        let random = (pairs.remove(&25).unwrap() - image.sp) as usize;
        assert_eq!(image.bytes[random..random + 16], [9; 16]);
        assert!(pairs.is_empty());
    }
}

#[test]
fn strings_lie_together_in_order() {
    let image = build(TOP, ROOM, &["a", "b"], &["C=d"], b"/p", &aux()).unwrap();
    let bytes = |span: Range<u64>| {
        &image.bytes[(span.start - image.sp) as usize..(span.end - image.sp) as usize]
    };
    assert_eq!(bytes(image.args.clone()), b"a\0b\0");
    assert_eq!(bytes(image.envs.clone()), b"C=d\0");
    assert_eq!(image.bytes[image.bytes.len() - 11..], *b"/p\0\0\0\0\0\0\0\0\0");
}

#[test]
fn strings_and_pointers_take_at_most_a_quarter_of_the_stack() {
    let room = 1 << 20;
    // The path "/" has 2 bytes, each argument 8 more for its pointer.
    let each = vec![b'a'; 4096 - 8 - 1];
    let mut args = vec![each; 63];
    args.push(vec![b'a'; 4096 - 8 - 1 - 2]);
    let none: &[Vec<u8>] = &[];
    assert!(build(TOP, room, &args, none, b"/", &aux()).is_ok());
    assert_eq!(build(TOP, room, &args, none, b"/x", &aux()), Err(Errno::E2BIG));
}

#[test]
fn a_string_is_limited_by_itself() {
    let none: &[Vec<u8>] = &[];
    let longest = [vec![b'a'; STRING_BYTES_MAX - 1]];
    assert!(build(TOP, ROOM, &longest, none, b"/", &aux()).is_ok());
    let longer = [vec![b'a'; STRING_BYTES_MAX]];
    assert_eq!(build(TOP, ROOM, &longer, none, b"/", &aux()), Err(Errno::E2BIG));
    assert_eq!(build(TOP, ROOM, none, &longer, b"/", &aux()), Err(Errno::E2BIG));
}

#[test]
fn strings_beyond_the_stack_or_the_address_space_are_refused() {
    let args = [vec![b'a'; 5000]];
    assert_eq!(build(TOP, 4096, &args, &[], b"/", &aux()), Err(Errno::E2BIG));
    assert_eq!(build(4096, ROOM, &args, &[], b"/", &aux()), Err(Errno::E2BIG));
    assert_eq!(build(TOP + 8, ROOM, &args, &[], b"/", &aux()), Err(Errno::EINVAL));
    assert_eq!(build(TOP, ROOM, &["a\0b"], &[], b"/", &aux()), Err(Errno::EINVAL));
}
