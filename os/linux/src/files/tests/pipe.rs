//! Pipes beside a queue of bytes, and their waiters.

use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;

use super::*;

proptest! {
    #[test]
    fn a_pipe_is_a_queue_of_bytes(steps in proptest::collection::vec(
        (any::<bool>(), prop_oneof![1..5000usize, 4090..4100usize, 20_000..90_000usize]), 1..60,
    )) {
        let world = World::new();
        let who = world.who();
        let pipe = Arc::new(Pipe::new());
        let _end = pipe.end(true, true);
        let mut model = VecDeque::new();
        let mut next = 0u8;
        for (writes, count) in steps {
            if writes {
                let bytes: Vec<u8> = (0..count).map(|at| next.wrapping_add(at as u8)).collect();
                let room = CAPACITY - model.len();
                let expected = match count {
                    _ if count <= ATOMIC && count > room => failed(Errno::EAGAIN),
                    _ if room == 0 => failed(Errno::EAGAIN),
                    _ => Ok(count.min(room)),
                };
                let wrote = pipe.write(&who, true, &mut &bytes[..]);
                prop_assert_eq!(wrote, expected);
                model.extend(&bytes[..wrote.unwrap_or(0)]);
                next = next.wrapping_add(31);
            } else {
                let mut bytes = Vec::new();
                let read = pipe.read(&who, true, count, &mut bytes);
                if model.is_empty() {
                    prop_assert_eq!(read, failed(Errno::EAGAIN));
                } else {
                    prop_assert_eq!(read, Ok(count.min(model.len())));
                    let expected: Vec<u8> = model.drain(..bytes.len()).collect();
                    prop_assert_eq!(bytes, expected);
                }
            }
            prop_assert_eq!(pipe.available(), model.len());
        }
    }
}

#[test]
fn an_empty_pipe_blocks_its_reader_until_something_is_written() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    assert_eq!(world.read(read, 5), Err(Halt::Blocked));
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 0);
    assert_eq!(world.write(write, "hello world"), Ok(11));
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 1);
    assert_eq!(world.read(read, 5).unwrap(), "hello");
    assert_eq!(world.read(write, 5), failed(Errno::EBADF));
    assert_eq!(world.write(read, "x"), failed(Errno::EBADF));
}

#[test]
fn a_nonblocking_pipe_says_eagain() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(raw::O_NONBLOCK)).unwrap();
    assert_eq!(world.read(read, 5), failed(Errno::EAGAIN));
    assert_eq!(world.write(write, &"x".repeat(CAPACITY + 5)), Ok(CAPACITY));
    assert_eq!(world.write(write, "x"), failed(Errno::EAGAIN));
    assert_eq!(world.run(|calls| calls.must_go_on(write)), Ok(false));
    assert_eq!(world.run(|calls| calls.pipe2(1)), Err(Errno::EINVAL));
}

#[test]
fn a_small_write_goes_in_at_once_or_not_at_all() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    assert_eq!(world.write(write, &"x".repeat(CAPACITY - 100)), Ok(CAPACITY - 100));
    assert_eq!(world.write(write, &"y".repeat(101)), Err(Halt::Blocked));
    assert_eq!(world.write(write, &"y".repeat(ATOMIC + 1)), Ok(100));
    assert_eq!(world.run(|calls| calls.must_go_on(write)), Ok(true));
    let text = world.read(read, CAPACITY).unwrap();
    assert_eq!((text.matches('x').count(), text.matches('y').count()), (CAPACITY - 100, 100));
}

#[test]
fn ends_that_close_are_seen_on_the_other_side() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    world.write(write, "last").unwrap();
    let copy = world.run(|calls| calls.dup(write)).unwrap();
    world.run(|calls| calls.close(write)).unwrap();
    assert_eq!(world.read(read, 9).unwrap(), "last");
    assert_eq!(world.read(read, 9), Err(Halt::Blocked));
    world.run(|calls| calls.close(copy)).unwrap();
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 1);
    assert_eq!(world.read(read, 9).unwrap(), "");
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    world.run(|calls| calls.close(read)).unwrap();
    assert_eq!(world.write(write, "x"), failed(Errno::EPIPE));
}

#[test]
fn readiness_tells_bytes_room_and_closed_ends() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    let ready = |fd| readiness(&world.table.get(fd).unwrap());
    assert_eq!(ready(read), PollEvents::empty());
    assert_eq!(ready(write), PollEvents::OUT | PollEvents::WRNORM);
    wait_on(&world.table.get(read).unwrap(), &world.wake).unwrap();
    world.write(write, &"x".repeat(CAPACITY)).unwrap();
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 1);
    assert_eq!(ready(read), PollEvents::IN | PollEvents::RDNORM);
    assert_eq!(ready(write), PollEvents::empty());
    let keep = world.table.get(write).unwrap();
    world.run(|calls| calls.close(read)).unwrap();
    assert_eq!(readiness(&keep), PollEvents::ERR);
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    world.run(|calls| calls.close(write)).unwrap();
    assert_eq!(ready(read), PollEvents::HUP);
}

#[test]
fn faults_lose_nothing_that_is_in_the_pipe() {
    let world = World::new();
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    world.write(write, "hello").unwrap();
    let mut none = Short { bytes: vec![], room: 0 };
    assert_eq!(world.run(|calls| calls.read(read, 5, &mut none)), failed(Errno::EFAULT));
    assert_eq!(world.read(read, 9).unwrap(), "hello");
    let mut broken = Broken { bytes: b"", claimed: 5 };
    assert_eq!(world.run(|calls| calls.write(write, &mut broken)), failed(Errno::EFAULT));
    assert_eq!(world.read(read, 9), Err(Halt::Blocked));
}

#[test]
fn named_pipes_wait_for_their_other_side() {
    let world = World::new();
    let mode = raw::S_IFIFO | 0o600;
    world.run(|calls| calls.mknodat(raw::AT_FDCWD, b"/p", mode, 0)).unwrap();
    let other = |flags| {
        let who = Caller { tid: 12, ..world.who() };
        let (tree, table, here) = (&world.tree, &world.table, &world.here);
        Calls { tree, table, here, who: &who }.openat(raw::AT_FDCWD, b"/p", flags, 0)
    };
    let nonblocking = world.open("/p", raw::O_WRONLY | raw::O_NONBLOCK);
    assert_eq!(nonblocking, failed(Errno::ENXIO));
    assert_eq!(world.open("/p", raw::O_RDONLY), Err(Halt::Blocked));
    assert_eq!(world.open("/p", raw::O_RDONLY), Err(Halt::Blocked));
    let write = other(raw::O_WRONLY).unwrap();
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 1);
    // The writer may be gone again when the reader looks.
    world.write(write, "x").unwrap();
    let read = world.open("/p", raw::O_RDONLY).unwrap();
    assert_eq!(world.read(read, 5).unwrap(), "x");
    world.run(|calls| calls.close(write)).unwrap();
    assert_eq!(world.read(read, 5).unwrap(), "");
    world.run(|calls| calls.close(read)).unwrap();
    assert_eq!(world.open("/p", raw::O_WRONLY), Err(Halt::Blocked));
    let both = other(raw::O_RDWR).unwrap();
    world.open("/p", raw::O_WRONLY).unwrap();
    world.run(|calls| calls.close(both)).unwrap();
}

#[test]
fn bytes_written_to_a_reader_that_still_opens_are_kept_for_it() {
    let world = World::new();
    let mode = raw::S_IFIFO | 0o600;
    world.run(|calls| calls.mknodat(raw::AT_FDCWD, b"/p", mode, 0)).unwrap();
    assert_eq!(world.open("/p", raw::O_RDONLY), Err(Halt::Blocked));
    let other = Caller { tid: 12, ..world.who() };
    let (tree, table, here) = (&world.tree, &world.table, &world.here);
    let calls = Calls { tree, table, here, who: &other };
    let write = calls.openat(raw::AT_FDCWD, b"/p", raw::O_WRONLY, 0).unwrap();
    world.write(write, "kept").unwrap();
    calls.close(write).unwrap();
    let read = world.open("/p", raw::O_RDONLY).unwrap();
    assert_eq!(world.read(read, 9).unwrap(), "kept");
    world.run(|calls| calls.close(read)).unwrap();
    assert_eq!(world.open("/p", raw::O_RDONLY), Err(Halt::Blocked));
    world.run(|calls| calls.forget_openat(raw::AT_FDCWD, b"/p"));
    assert_eq!(calls.openat(raw::AT_FDCWD, b"/p", raw::O_WRONLY, 0), Err(Halt::Blocked));
}

#[test]
fn an_opener_that_gives_up_is_not_waited_for() {
    let world = World::new();
    let pipe = Arc::new(Pipe::new());
    let who = world.who();
    assert_eq!(pipe.open(&who, false, true, false).err(), Some(Halt::Blocked));
    pipe.forget(who.tid);
    let other = Caller { tid: 12, ..who };
    assert_eq!(pipe.open(&other, false, false, true).err(), Some(Halt::Blocked));
}
