//! The initramfs: a tiny encoder, and the tree made from its archives.

use std::boxed::Box;
use std::format;

use super::*;

/// One entry in newc format.
fn entry(
    name: &str,
    mode: u32,
    inode: u32,
    links: u32,
    numbers: (u32, u32),
    file: &[u8],
) -> Vec<u8> {
    let name_bytes = name.len() as u32 + 1;
    let words = [
        inode,
        mode,
        3,
        4,
        links,
        77,
        file.len() as u32,
        0,
        0,
        numbers.0,
        numbers.1,
        name_bytes,
        0,
    ];
    let mut bytes = b"070701".to_vec();
    words.iter().for_each(|word| bytes.extend(format!("{word:08x}").bytes()));
    bytes.extend(name.bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(file);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn plain(name: &str, mode: u32, file: &[u8]) -> Vec<u8> {
    entry(name, mode, 1, 1, (0, 0), file)
}

fn archive(entries: &[Vec<u8>]) -> &'static [u8] {
    Box::leak(entries.concat().into_boxed_slice())
}

fn trailer() -> Vec<u8> {
    plain("TRAILER!!!", 0, b"")
}

#[test]
fn an_archive_becomes_the_tree() {
    let world = World::new();
    let archive = archive(&[
        plain(".", 0o40700, b""),
        plain("./bin", 0o40711, b""),
        plain("./bin/sh", 0o100755, b"#!shell"),
        plain("empty", 0o100600, b""),
        plain("deep/er/file", 0o100644, b"deep"),
        plain("link", 0o120777, b"bin/sh"),
        plain("pipe", 0o10644, b""),
        entry("null2", 0o20600, 1, 1, (1, 3), b""),
        entry("one", 0o100644, 9, 2, (0, 0), b""),
        entry("two", 0o100644, 9, 2, (0, 0), b"linked"),
        trailer(),
    ]);
    let unpacked = world.tree.unpack(&world.who(), archive);
    assert_eq!(unpacked, Unpacked { entries: 10, refused: 0, is_whole: true });
    assert_eq!(world.read_file("/link").unwrap(), "#!shell");
    assert_eq!(world.read_file("/deep/er/file").unwrap(), "deep");
    assert_eq!(world.read_file("/null2").unwrap(), "");
    assert_eq!(world.read_file("/one").unwrap(), "linked");
    let about = world.about("/bin/sh").unwrap();
    assert_eq!((about.meta.mode, about.meta.uid, about.meta.gid), (0o755, 3, 4));
    assert_eq!((about.meta.modified.seconds, about.held_bytes), (77, 4096));
    assert_eq!(world.about("/").unwrap().meta.mode, 0o700);
    assert_eq!(world.about("/two").unwrap().meta.links, 2);
    world.write_file("/bin/sh", "new");
    assert_eq!(world.read_file("/bin/sh").unwrap(), "new");
    assert!(archive.windows(7).any(|bytes| bytes == b"#!shell"));
}

#[test]
fn entries_before_damage_are_kept() {
    let world = World::new();
    let good = plain("good", 0o100644, b"good");
    let mut bad = plain("bad", 0o100644, b"bad");
    bad[20] = b'!';
    let unpacked = world.tree.unpack(&world.who(), archive(&[good.clone(), bad, trailer()]));
    assert_eq!(unpacked, Unpacked { entries: 1, refused: 0, is_whole: false });
    assert_eq!(world.read_file("/good").unwrap(), "good");
    let whole = archive(&[good, trailer()]);
    for end in 0..whole.len() {
        let world = World::new();
        let unpacked = world.tree.unpack(&world.who(), &whole[..end]);
        assert!(unpacked.entries <= 1 && unpacked.refused == 0, "{end}: {unpacked:?}");
        assert!(!unpacked.is_whole || end >= whole.len() - 4, "{end}: {unpacked:?}");
    }
}

#[test]
fn entries_that_cannot_be_are_refused_and_the_rest_is_kept() {
    let world = World::new();
    let archive = archive(&[
        plain("dev", 0o100644, b"a file where a directory is"),
        plain("disk", 0o60644, b""),
        plain("file", 0o100644, b"1"),
        plain("file/below", 0o100644, b"2"),
        plain("file", 0o100644, b"3"),
        plain(&"n".repeat(300), 0o100644, b"4"),
        trailer(),
    ]);
    let unpacked = world.tree.unpack(&world.who(), archive);
    assert_eq!(unpacked, Unpacked { entries: 2, refused: 4, is_whole: true });
    assert_eq!(world.read_file("/file").unwrap(), "3");
}
