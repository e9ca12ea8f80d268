//! Descriptors.

use super::*;

fn world() -> World {
    let world = World::new();
    world.write_file("/f", "0123456789");
    world
}

#[test]
fn the_lowest_free_number_is_given() {
    let world = world();
    let open = || world.open("/f", raw::O_RDONLY);
    assert_eq!((open(), open(), open()), (Ok(0), Ok(1), Ok(2)));
    world.run(|calls| calls.close(1)).unwrap();
    world.run(|calls| calls.close(0)).unwrap();
    assert_eq!((open(), open(), open()), (Ok(0), Ok(1), Ok(3)));
    assert_eq!(world.run(|calls| calls.close(9)), Err(Errno::EBADF));
    assert_eq!(world.run(|calls| calls.fcntl(0, raw::F_DUPFD, 2)), Ok(4));
    assert_eq!(world.run(|calls| calls.fcntl(0, raw::F_DUPFD, 10)), Ok(10));
    assert_eq!(open(), Ok(5));
    assert_eq!(world.table.next(6), Some(10));
    assert_eq!(world.table.next(11), None);
}

#[test]
fn no_more_than_the_limit_are_open_and_a_failed_pipe_leaves_none() {
    let world = world();
    world.table.set_limit(2).unwrap();
    assert_eq!(world.open("/f", 0), Ok(0));
    assert_eq!(world.run(|calls| calls.pipe2(0)), Err(Errno::EMFILE));
    assert_eq!(world.open("/f", 0), Ok(1));
    let flags = raw::O_CREAT | raw::O_WRONLY;
    assert_eq!(world.open("/new", flags), failed(Errno::EMFILE));
    assert_eq!(world.about("/new").err(), Some(Errno::ENOENT));
    assert_eq!(world.run(|calls| calls.dup(0)), Err(Errno::EMFILE));
    assert_eq!(world.run(|calls| calls.dup2(0, 2)), Err(Errno::EBADF));
    assert_eq!(world.run(|calls| calls.fcntl(0, raw::F_DUPFD, 2)), Err(Errno::EINVAL));
    assert_eq!(world.table.set_limit(LIMIT_MAX + 1), Err(Errno::EPERM));
}

#[test]
fn copies_share_the_offset_and_the_flags() {
    let world = world();
    let fd = world.open("/f", raw::O_RDWR).unwrap();
    assert_eq!(world.run(|calls| calls.dup2(fd, 7)), Ok(7));
    assert_eq!(world.run(|calls| calls.dup2(fd, fd)), Ok(fd));
    assert_eq!(world.run(|calls| calls.dup2(99, 99)), Err(Errno::EBADF));
    assert_eq!(world.run(|calls| calls.dup3(fd, fd, 0)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.dup3(fd, 8, 1)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.dup3(fd, 8, raw::O_CLOEXEC)), Ok(8));
    let forked = world.table.duplicate().unwrap();
    assert_eq!(world.read(7, 3).unwrap(), "012");
    assert_eq!(world.read(8, 3).unwrap(), "345");
    assert_eq!(forked.get(fd).unwrap().offset(), 6);
    let set = raw::O_APPEND | raw::O_NONBLOCK | raw::O_WRONLY | raw::O_CREAT;
    world.run(|calls| calls.fcntl(fd, raw::F_SETFL, u64::from(set))).unwrap();
    let flags = world.run(|calls| calls.fcntl(8, raw::F_GETFL, 0)).unwrap();
    assert_eq!(flags, raw::O_RDWR | raw::O_APPEND | raw::O_NONBLOCK);
}

#[test]
fn a_new_program_gets_no_private_descriptors() {
    let world = world();
    assert_eq!(world.open("/f", raw::O_CLOEXEC), Ok(0));
    assert_eq!(world.open("/f", 0), Ok(1));
    assert_eq!(world.run(|calls| calls.fcntl(0, raw::F_DUPFD_CLOEXEC, 0)), Ok(2));
    assert_eq!(world.run(|calls| calls.dup(0)), Ok(3));
    assert_eq!(world.run(|calls| calls.fcntl(2, raw::F_GETFD, 0)), Ok(1));
    world.run(|calls| calls.fcntl(2, raw::F_SETFD, 0)).unwrap();
    assert_eq!(world.run(|calls| calls.fcntl(2, raw::F_GETFD, 0)), Ok(0));
    world.table.close_private();
    assert_eq!(world.table.next(0), Some(1));
    assert_eq!(world.run(|calls| calls.fcntl(0, raw::F_GETFD, 0)), Err(Errno::EBADF));
}

#[test]
fn ranges_are_closed_or_marked() {
    let world = world();
    (0..6).for_each(|number| assert_eq!(world.open("/f", 0), Ok(number)));
    assert_eq!(world.run(|calls| calls.close_range(3, 2, 0)), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.close_range(3, 4, 1)), Err(Errno::EINVAL));
    world.run(|calls| calls.close_range(3, 4, 0)).unwrap();
    assert_eq!(world.table.next(3), Some(5));
    world.run(|calls| calls.close_range(1, u32::MAX, 4)).unwrap();
    world.table.close_private();
    assert_eq!((world.table.next(0), world.table.next(1)), (Some(0), None));
    world.table.close_all();
    assert_eq!(world.table.next(0), None);
}

#[test]
fn fcntl_knows_pipes_locks_and_nothing_else() {
    let world = world();
    let fd = world.open("/f", 0).unwrap();
    let [read, _] = world.run(|calls| calls.pipe2(0)).unwrap();
    let fcntl = |fd, command, value| world.run(|calls| calls.fcntl(fd, command, value));
    assert_eq!(fcntl(read, raw::F_GETPIPE_SZ, 0), Ok(65536));
    assert_eq!(fcntl(read, raw::F_SETPIPE_SZ, 4096), Ok(65536));
    assert_eq!(fcntl(read, raw::F_SETPIPE_SZ, 1 << 20), Err(Errno::EPERM));
    assert_eq!(fcntl(fd, raw::F_GETPIPE_SZ, 0), Err(Errno::EBADF));
    assert_eq!(fcntl(fd, raw::F_SETLK, 0), Ok(0));
    assert_eq!(fcntl(fd, 9999, 0), Err(Errno::EINVAL));
    assert_eq!(world.run(|calls| calls.flock(fd)), Ok(()));
    assert_eq!(world.run(|calls| calls.flock(99)), Err(Errno::EBADF));
}
