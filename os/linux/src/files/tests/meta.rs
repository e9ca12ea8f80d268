//! Metadata of files.

use std::mem::offset_of;

use linux_raw_sys::general::{stat, statfs, statx};

use super::*;

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(wide)
}

#[test]
fn stat_encodes_the_metadata_in_the_bytes_of_this_isa() {
    let world = World::new();
    world.write_file("/f", &"x".repeat(5000));
    let bytes = world.run(|calls| calls.newfstatat(raw::AT_FDCWD, b"/f", 0)).unwrap();
    assert_eq!(number::<4>(&bytes, offset_of!(stat, st_mode)), u64::from(raw::S_IFREG | 0o644));
    assert_eq!(number::<8>(&bytes, offset_of!(stat, st_size)), 5000);
    assert_eq!(number::<8>(&bytes, offset_of!(stat, st_blocks)), 16);
    assert_eq!(number::<8>(&bytes, offset_of!(stat, st_mtime)), 1000);
    assert_eq!(number::<8>(&bytes, offset_of!(stat, st_mtime_nsec)), 5);
    assert_eq!(number::<4>(&bytes, offset_of!(stat, st_nlink)), 1);
    let fd = world.open("/f", 0).unwrap();
    assert_eq!(world.run(|calls| calls.fstat(fd)).unwrap(), bytes);
    let empty = raw::AT_EMPTY_PATH;
    assert_eq!(world.run(|calls| calls.newfstatat(fd as i32, b"", empty)).unwrap(), bytes);
    assert_eq!(world.run(|calls| calls.newfstatat(fd as i32, b"", 0)), Err(Errno::ENOENT));
    assert_eq!(world.run(|calls| calls.newfstatat(fd as i32, b"", 1)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.fstat(99)), Err(Errno::EBADF));
    let bytes = world.run(|calls| calls.statx(raw::AT_FDCWD, b"/dev/null", 0, 0xfff)).unwrap();
    assert_eq!(number::<4>(&bytes, offset_of!(statx, stx_rdev_major)), 1);
    assert_eq!(number::<4>(&bytes, offset_of!(statx, stx_rdev_minor)), 3);
    assert_eq!(number::<2>(&bytes, offset_of!(statx, stx_mode)), u64::from(raw::S_IFCHR | 0o666));
    assert_eq!(number::<8>(&bytes, offset_of!(statx, stx_mtime)), 1000);
    let bytes = world.run(|calls| calls.statfs(b"/")).unwrap();
    assert_eq!(number::<8>(&bytes, offset_of!(statfs, f_type)), u64::from(raw::TMPFS_MAGIC));
    assert_eq!(number::<8>(&bytes, offset_of!(statfs, f_namelen)), 255);
}

#[test]
fn links_are_followed_or_told_themselves() {
    let world = World::new();
    world.symlink("/dev/null", "/s").unwrap();
    let mode = |flags| {
        let bytes = world.run(|calls| calls.newfstatat(raw::AT_FDCWD, b"/s", flags)).unwrap();
        number::<4>(&bytes, offset_of!(stat, st_mode)) as u32 & raw::S_IFMT
    };
    assert_eq!((mode(0), mode(raw::AT_SYMLINK_NOFOLLOW)), (raw::S_IFCHR, raw::S_IFLNK));
    assert_eq!(world.about("/s").unwrap().length, 9);
}

#[test]
fn device_numbers_survive_being_joined() {
    for numbers in [(1, 3), (5, 1), (0, 0), (4095, 255), (8, 0x0f_ffff), (0x1234, 0x56789)] {
        assert_eq!(split(joined(numbers)), numbers);
    }
    assert_eq!(joined((1, 3)), 0x103);
}

#[test]
fn modes_owners_and_times_are_stored() {
    let world = World::new();
    world.write_file("/f", "");
    let at = raw::AT_FDCWD;
    world.run(|calls| calls.fchmodat(at, b"/f", 0o104711, 0)).unwrap();
    world.run(|calls| calls.fchownat(at, b"/f", 5, u32::MAX, 0)).unwrap();
    let then = Time { seconds: 3, nanos: 4 };
    let times = [SetTime::Keep, SetTime::At(then)];
    world.run(|calls| calls.utimensat(at, Some(b"/f"), times, 0)).unwrap();
    let meta = world.about("/f").unwrap().meta;
    assert_eq!((meta.mode, meta.uid, meta.gid), (0o4711, 5, 0));
    assert_eq!((meta.accessed, meta.modified, meta.changed), (NOW, then, NOW));
    let fd = world.open("/f", 0).unwrap();
    world.run(|calls| calls.utimensat(fd as i32, None, [SetTime::Now; 2], 0)).unwrap();
    world.run(|calls| calls.fchmod(fd, 0)).unwrap();
    let meta = world.about("/f").unwrap().meta;
    assert_eq!((meta.mode, meta.modified), (0, NOW));
    world.symlink("f", "/s").unwrap();
    let nofollow = raw::AT_SYMLINK_NOFOLLOW;
    let changed = world.run(|calls| calls.fchmodat(at, b"/s", 0, nofollow));
    assert_eq!(changed, Err(Errno::EOPNOTSUPP));
    assert_eq!(SetTime::of(1, 1_000_000_000), Err(Errno::EINVAL));
    assert_eq!(SetTime::of(1, i64::from(raw::UTIME_NOW)), Ok(SetTime::Now));
    assert_eq!(SetTime::of(1, i64::from(raw::UTIME_OMIT)), Ok(SetTime::Keep));
}

#[test]
fn root_may_all_but_run_files_without_an_execute_bit() {
    let world = World::new();
    world.write_file("/f", "");
    let may =
        |path: &[u8], rights| world.run(|calls| calls.faccessat2(raw::AT_FDCWD, path, rights, 0));
    assert_eq!((may(b"/f", 0), may(b"/f", 6)), (Ok(()), Ok(())));
    assert_eq!((may(b"/f", 1), may(b"/dev", 1)), (Err(Errno::EACCES), Ok(())));
    assert_eq!((may(b"/n", 0), may(b"/f", 8)), (Err(Errno::ENOENT), Err(Errno::EINVAL)));
    world.run(|calls| calls.fchmodat(raw::AT_FDCWD, b"/f", 0o100, 0)).unwrap();
    assert_eq!(may(b"/f", 1), Ok(()));
}

#[test]
fn files_are_cut_and_made_longer() {
    let world = World::new();
    world.write_file("/f", "0123456789");
    world.run(|calls| calls.truncate(b"/f", 3)).unwrap();
    let fd = world.open("/f", raw::O_RDWR).unwrap();
    world.run(|calls| calls.ftruncate(fd, 5)).unwrap();
    assert_eq!(world.read_file("/f").unwrap(), "012\0\0");
    world.run(|calls| calls.fallocate(fd, 0, 4, 4)).unwrap();
    world.run(|calls| calls.fallocate(fd, raw::FALLOC_FL_KEEP_SIZE, 0, 99)).unwrap();
    assert_eq!(world.about("/f").unwrap().length, 8);
    let punched = world.run(|calls| calls.fallocate(fd, raw::FALLOC_FL_PUNCH_HOLE, 0, 9));
    assert_eq!(punched, Err(Errno::EOPNOTSUPP));
    assert_eq!(world.run(|calls| calls.fallocate(fd, 0, 0, 0)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.truncate(b"/f", -1)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.truncate(b"/dev", 0)), Err(Errno::EISDIR));
    let fd = world.open("/f", 0).unwrap();
    assert_eq!(world.run(|calls| calls.ftruncate(fd, 0)), Err(Errno::EINVAL));
}

#[test]
fn a_program_is_read_from_its_node() {
    let world = World::new();
    world.write_file("/f", "program");
    let node = |path| world.run(|calls| calls.find(raw::AT_FDCWD, path)).unwrap().node.unwrap();
    let mut bytes = [0; 9];
    assert_eq!(node(b"/f").read_at(&world.who(), 3, &mut bytes), Ok(4));
    assert_eq!((&bytes[..4], node(b"/f").length()), (&b"gram"[..], Ok(7)));
    assert_eq!(node(b"/dev").read_at(&world.who(), 0, &mut bytes), Err(Errno::EACCES));
    assert_eq!(node(b"/dev").length(), Err(Errno::EACCES));
    let missing = world.run(|calls| calls.find(raw::AT_FDCWD, b"/none")).err();
    assert_eq!(missing, Some(Errno::ENOENT));
}

#[test]
fn the_umask_is_kept_from_new_files() {
    let world = World::new();
    assert_eq!(world.run(|calls| calls.umask(0o7077)), 0o022);
    world.write_file("/f", "");
    assert_eq!(world.about("/f").unwrap().meta.mode, 0o600);
    let copy = world.here.duplicate();
    world.run(|calls| calls.umask(0));
    let who = world.who();
    let calls = Calls { tree: &world.tree, table: &world.table, here: &copy, who: &who };
    assert_eq!(calls.umask(0), 0o077);
}

#[test]
fn mounts_are_where_they_are() {
    let world = World::new();
    let mount = |path: &[u8], kind: &[u8]| world.run(|calls| calls.mount(path, kind, 0, b""));
    assert_eq!(mount(b"/dev", b"devtmpfs"), Ok(()));
    assert_eq!(mount(b"/dev", b"ext4"), Err(Errno::ENODEV));
    assert_eq!(mount(b"/dev/null", b"tmpfs"), Err(Errno::ENOTDIR));
    assert_eq!(mount(b"/none", b"tmpfs"), Err(Errno::ENOENT));
    assert_eq!(world.run(|calls| calls.umount2(b"/dev")), Ok(()));
    assert_eq!(world.run(|calls| calls.umount2(b"/none")), Err(Errno::ENOENT));
}
