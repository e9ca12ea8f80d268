//! Files in memory that have no name, and their seals.

use super::*;

const ALLOW: u32 = raw::MFD_ALLOW_SEALING;

fn make(world: &World, flags: u32) -> u32 {
    world.run(|calls| calls.memfd_create(b"it", flags)).unwrap()
}

fn seal(world: &World, fd: u32, seals: u32) -> Result<u32> {
    world.run(|calls| calls.fcntl(fd, raw::F_ADD_SEALS, u64::from(seals)))
}

fn seals(world: &World, fd: u32) -> Result<u32> {
    world.run(|calls| calls.fcntl(fd, raw::F_GET_SEALS, 0))
}

fn truncate(world: &World, fd: u32, length: i64) -> Result<()> {
    world.run(|calls| calls.ftruncate(fd, length))
}

fn punch(world: &World, fd: u32) -> Result<()> {
    let mode = raw::FALLOC_FL_PUNCH_HOLE | raw::FALLOC_FL_KEEP_SIZE;
    world.run(|calls| calls.fallocate(fd, mode, 0, 4096))
}

#[test]
fn a_memfd_has_no_name_and_can_be_read_and_written() {
    let world = World::new();
    let fd = make(&world, raw::MFD_CLOEXEC);
    assert_eq!(world.run(|calls| calls.fcntl(fd, raw::F_GETFD, 0)), Ok(raw::FD_CLOEXEC));
    assert_eq!(world.write(fd, "bytes"), Ok(5));
    world.run(|calls| calls.lseek(fd, 1, raw::SEEK_SET)).unwrap();
    assert_eq!(world.read(fd, 9).unwrap(), "ytes");
    let open = world.run(|calls| calls.open_file(fd)).unwrap();
    assert_eq!(open.path().unwrap(), b"/memfd:it (deleted)");
    assert_eq!(About::of(open.node()).meta.links, 0);
    assert_eq!(About::of(open.node()).mode, raw::S_IFREG | 0o777);
}

#[test]
fn a_memfd_with_senseless_flags_or_name_is_refused() {
    let world = World::new();
    let made = |name: &[u8], flags| world.run(|calls| calls.memfd_create(name, flags));
    for flags in [0x20, 21 << 26, raw::MFD_EXEC | raw::MFD_NOEXEC_SEAL] {
        assert_eq!(made(b"it", flags), Err(Errno::EINVAL));
    }
    assert_eq!(made(&[b'n'; 250], 0), Err(Errno::EINVAL));
    made(&[b'n'; 249], 0).unwrap();
}

#[test]
fn a_sealed_file_does_not_change() {
    let world = World::new();
    let fd = make(&world, ALLOW);
    assert_eq!(seals(&world, fd), Ok(0));
    world.write(fd, "0123").unwrap();
    seal(&world, fd, raw::F_SEAL_SHRINK).unwrap();
    assert_eq!(truncate(&world, fd, 3), Err(Errno::EPERM));
    truncate(&world, fd, 4).unwrap();
    truncate(&world, fd, 5).unwrap();
    seal(&world, fd, raw::F_SEAL_GROW).unwrap();
    assert_eq!(truncate(&world, fd, 6), Err(Errno::EPERM));
    assert_eq!(world.write(fd, "45"), failed(Errno::EPERM));
    let longer = world.run(|calls| calls.fallocate(fd, 0, 0, 6));
    assert_eq!(longer, Err(Errno::EPERM));
    assert_eq!(world.write(fd, "4"), Ok(1));
    punch(&world, fd).unwrap();
    seal(&world, fd, raw::F_SEAL_WRITE).unwrap();
    assert_eq!(punch(&world, fd), Err(Errno::EPERM));
    let written = world.run(|calls| calls.pwrite64(fd, 0, &mut &b"x"[..]));
    assert_eq!(written, failed(Errno::EPERM));
    seal(&world, fd, raw::F_SEAL_SEAL).unwrap();
    assert_eq!(seal(&world, fd, raw::F_SEAL_GROW), Err(Errno::EPERM));
    let all = raw::F_SEAL_SEAL | raw::F_SEAL_SHRINK | raw::F_SEAL_GROW | raw::F_SEAL_WRITE;
    assert_eq!(seals(&world, fd), Ok(all));
}

#[test]
fn seals_need_a_file_that_allows_them_and_a_writable_descriptor() {
    let world = World::new();
    let fd = make(&world, 0);
    assert_eq!(seals(&world, fd), Ok(raw::F_SEAL_SEAL));
    assert_eq!(seal(&world, fd, raw::F_SEAL_GROW), Err(Errno::EPERM));
    let fd = make(&world, ALLOW);
    assert_eq!(seal(&world, fd, 0x40), Err(Errno::EINVAL));
    let [end, _] = world.run(|calls| calls.pipe2(0)).unwrap();
    assert_eq!(seals(&world, end), Err(Errno::EINVAL));
    world.write_file("/f", "x");
    let only = world.open("/f", raw::O_RDONLY).unwrap();
    assert_eq!(seals(&world, only), Ok(raw::F_SEAL_SEAL));
    assert_eq!(seal(&world, only, raw::F_SEAL_GROW), Err(Errno::EPERM));
}

#[test]
fn a_map_that_may_be_written_and_a_seal_against_writing_exclude_each_other() {
    let world = World::new();
    let (first, second) = (make(&world, ALLOW), make(&world, ALLOW));
    let show = |fd, shared, writes| {
        let open = world.run(|calls| calls.open_file(fd)).unwrap();
        open.node().show(shared, writes, |id, may| Ok((id, may)))
    };
    assert_eq!(show(first, true, true), Ok((Some(7), true)));
    assert_eq!(seal(&world, first, raw::F_SEAL_WRITE), Err(Errno::EBUSY));
    seal(&world, first, raw::F_SEAL_FUTURE_WRITE).unwrap();
    assert_eq!(show(first, true, true), Err(Errno::EPERM));
    seal(&world, second, raw::F_SEAL_WRITE).unwrap();
    assert_eq!(show(second, true, true), Err(Errno::EPERM));
    assert_eq!(show(second, true, false), Ok((Some(7), false)), "it must stay unwritten");
    assert_eq!(show(second, false, true), Ok((Some(7), true)), "private mappings are allowed");
}

#[test]
fn a_file_sealed_against_running_stays_so() {
    let world = World::new();
    let fd = make(&world, raw::MFD_NOEXEC_SEAL);
    assert_eq!(seals(&world, fd), Ok(raw::F_SEAL_EXEC));
    assert_eq!(world.run(|calls| calls.fchmod(fd, 0o777)), Err(Errno::EPERM));
    world.run(|calls| calls.fchmod(fd, 0o600)).unwrap();
    let fd = make(&world, ALLOW);
    seal(&world, fd, raw::F_SEAL_EXEC).unwrap();
    assert_eq!(world.write(fd, "x"), failed(Errno::EPERM), "nor does a program change");
}
