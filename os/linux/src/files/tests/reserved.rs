//! Files whose pages are in reserved folios.

use super::*;

const SIZE: i64 = 2 << 20;

fn mount(world: &World, options: &[u8]) -> Result<()> {
    world.run(|calls| calls.mount(b"/huge", b"hugetlbfs", 0, options))
}

fn make(world: &World, path: &[u8]) -> u32 {
    let flags = raw::O_RDWR | raw::O_CREAT;
    world.run(|calls| calls.openat(raw::AT_FDCWD, path, flags, 0o600).ok()).unwrap()
}

#[test]
fn a9_a_file_of_reserved_folios_has_whole_ones_and_is_written_through_areas_alone() {
    let world = World::new();
    let flags = raw::MFD_HUGETLB | 21 << 26;
    let fd = world.run(|calls| calls.memfd_create(b"it", flags)).unwrap();
    assert_eq!(world.write(fd, "bytes"), Err(Errno::EINVAL.into()));
    for (length, done) in [(SIZE, Ok(())), (SIZE + 4096, Err(Errno::EINVAL)), (0, Ok(()))] {
        assert_eq!(world.run(|calls| calls.ftruncate(fd, length)), done);
    }
    world.run(|calls| calls.fallocate(fd, 0, 0, 5)).unwrap();
    let open = world.run(|calls| calls.open_file(fd)).unwrap();
    assert_eq!((About::of(open.node()).length, About::of(open.node()).block), (2 << 20, 2 << 20));
    let unknown = world.run(|calls| calls.memfd_create(b"it", raw::MFD_HUGETLB | 24 << 26));
    assert_eq!(unknown, Err(Errno::ENODEV));
    let small = world.run(|calls| calls.memfd_create(b"it", 21 << 26));
    assert_eq!(small, Err(Errno::EINVAL), "a size of folios that are not reserved");
}

#[test]
fn a9_files_below_a_hugetlbfs_are_of_its_folios_until_it_ends() {
    let world = World::new();
    world.run(|calls| calls.mkdirat(raw::AT_FDCWD, b"/huge", 0o755)).unwrap();
    for wrong in [&b"pagesize="[..], b"pagesize=2T", b"pagesize=3M", b"pagesize=xM"] {
        assert_eq!(mount(&world, wrong), Err(Errno::EINVAL));
    }
    assert_eq!(mount(&world, b"pagesize=1G"), Err(Errno::ENODEV));
    mount(&world, b"uid=0,pagesize=2M").unwrap();
    world.run(|calls| calls.mkdirat(raw::AT_FDCWD, b"/huge/deep", 0o755)).unwrap();
    let fd = make(&world, b"/huge/deep/file");
    assert_eq!(world.write(fd, "bytes"), Err(Errno::EINVAL.into()));
    let fs = world.run(|calls| calls.statfs(b"/huge")).unwrap();
    let of_file = world.run(|calls| calls.fstatfs(fd)).unwrap();
    assert_eq!(fs, of_file);
    let magic = u64::from_ne_bytes(fs[..8].try_into().unwrap());
    assert_eq!(magic, u64::from(raw::HUGETLBFS_MAGIC));
    world.run(|calls| calls.umount2(b"/huge")).unwrap();
    assert!(world.run(|calls| calls.statfs(b"/huge/deep")).is_err());
    let fd = make(&world, b"/huge/file");
    assert_eq!(world.write(fd, "bytes"), Ok(5));
}
