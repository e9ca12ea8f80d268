//! Contents of files, and how they are read and written.

use proptest::prelude::*;
use std::vec;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Punch(u64, u64),
    Read(u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..20_000u64;
    let bytes = prop_oneof![1..300usize, 3000..9000usize]
        .prop_flat_map(|length| (1..255u8).prop_map(move |byte| vec![byte; length]));
    let step = prop_oneof![
        (prop_oneof![at.clone(), Just(4096), Just(8192)], bytes)
            .prop_map(|(at, bytes)| Step::Write(at, bytes)),
        at.clone().prop_map(Step::Truncate),
        (at.clone(), 0..9000u64).prop_map(|(at, count)| Step::Punch(at, count)),
        (at, 0..9000usize).prop_map(|(at, count)| Step::Read(at, count)),
    ];
    proptest::collection::vec(step, 1..24)
}

proptest! {
    #[test]
    fn data_is_as_a_vector_of_its_bytes(steps in steps()) {
        let mut model: Vec<u8> = Vec::new();
        let data = Data::new(heap::make(None).unwrap());
        let mut held = Vec::new();
        for step in steps {
            match step {
                Step::Write(at, bytes) => {
                    let end = at as usize + bytes.len();
                    let wrote = write_from(&data, Some(at), u64::MAX, &mut &bytes[..]);
                    prop_assert_eq!(wrote, Ok((bytes.len(), end as u64)));
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&bytes);
                }
                Step::Truncate(length) => {
                    data.truncate(length).unwrap();
                    model.resize(length as usize, 0);
                }
                Step::Punch(at, count) => {
                    data.punch(at..at + count).unwrap();
                    let end = (at + count).min(model.len() as u64) as usize;
                    model[(at as usize).min(end)..end].fill(0);
                }
                Step::Read(at, count) => {
                    held.clear();
                    read_to(&data, at, count, &mut held).unwrap();
                    let start = (at as usize).min(model.len());
                    let end = (at as usize + count).min(model.len());
                    prop_assert_eq!(&held[..], &model[start..end.max(start)]);
                }
            }
            let mut all = vec![0; model.len() + 1];
            prop_assert_eq!(data.len(), model.len() as u64);
            prop_assert_eq!(data.read_at(0, &mut all), Ok(model.len()));
            prop_assert_eq!(&all[..model.len()], &model[..]);
        }
    }
}

#[test]
fn a_fault_in_the_memory_of_a_reader_may_come_to_the_same_file() {
    struct Nosy<'a>(&'a Data, Vec<u8>);
    impl Sink for Nosy<'_> {
        fn put(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.write_at(Some(0), b"new").unwrap();
            self.1.extend_from_slice(bytes);
            Ok(())
        }
    }
    let data = Data::new(heap::make(None).unwrap());
    data.write_at(None, b"old").unwrap();
    let mut nosy = Nosy(&data, Vec::new());
    assert_eq!(read_to(&data, 0, 3, &mut nosy), Ok(3));
    assert_eq!(nosy.1, b"old");
    let mut now = [0; 3];
    assert_eq!(data.read_at(0, &mut now), Ok(3));
    assert_eq!(&now, b"new");
}

#[test]
fn a_file_of_holes_costs_nothing_and_its_holes_can_be_found() {
    let data = Data::new(heap::make(None).unwrap());
    data.truncate(1 << 40).unwrap();
    assert_eq!((data.held_bytes(), data.next_data(0), data.next_hole(5)), (0, None, Some(5)));
    data.write_at(Some(3 * 4096 + 7), b"x").unwrap();
    assert_eq!(data.held_bytes(), 4096);
    assert_eq!((data.next_data(0), data.next_data(13_000)), (Some(12_288), Some(13_000)));
    assert_eq!((data.next_hole(12_300), data.next_hole(1 << 40)), (Some(16_384), None));
    data.truncate(3 * 4096 + 9).unwrap();
    assert_eq!((data.next_hole(12_290), data.next_data(12_297)), (Some(12_297), None));
    data.punch(3 * 4096..4 * 4096).unwrap();
    assert_eq!((data.held_bytes(), data.next_data(0), data.len()), (0, None, 12_297));
}

#[test]
fn no_file_is_longer_than_an_offset_can_tell() {
    let data = Data::new(heap::make(None).unwrap());
    assert_eq!(data.truncate(LENGTH_MAX + 1), Err(Errno::EFBIG));
    assert_eq!(data.reserve(0..LENGTH_MAX + 1, true), Err(Errno::EFBIG));
    assert_eq!(data.write_at(Some(LENGTH_MAX), b"x"), Err(Errno::EFBIG));
    assert_eq!(data.write_at(Some(LENGTH_MAX - 1), b"xy"), Ok((1, LENGTH_MAX)));
    assert_eq!(data.len(), LENGTH_MAX);
}

#[test]
fn a_write_that_finds_no_memory_leaves_the_length_as_it_was() {
    let data = Data::new(heap::Heap::with_room(2));
    assert_eq!(data.write_at(Some(4000), &[1; 9000]), Ok((96 + 4096, 8192)));
    assert_eq!(data.len(), 8192);
    assert_eq!(data.write_at(None, b"x"), Err(Errno::ENOSPC));
    assert_eq!(data.write_at(Some(1 << 30), b"x"), Err(Errno::ENOSPC));
    assert_eq!((data.len(), data.held_bytes()), (8192, 8192));
    assert_eq!(data.reserve(0..12_288, true), Err(Errno::ENOSPC));
    assert_eq!(data.reserve(0..8192, false), Ok(()));
}

#[test]
fn bytes_written_behind_the_end_are_zero_when_the_file_grows() {
    let pages = Arc::new(heap::Heap::default());
    let data = Data::new(pages.clone());
    data.write_at(None, b"abc").unwrap();
    data.show(true, true, |_, _| Ok(())).unwrap();
    pages.write(5, b"behind").unwrap();
    data.truncate(100).unwrap();
    let mut bytes = [1; 100];
    assert_eq!(data.read_at(0, &mut bytes), Ok(100));
    assert_eq!((&bytes[..3], &bytes[3..]), (&b"abc"[..], &[0; 97][..]));
}

#[test]
fn bytes_moved_before_a_fault_count() {
    let world = World::new();
    world.write_file("/f", &"a".repeat(9000));
    let fd = world.open("/f", raw::O_RDWR).unwrap();
    let mut short = Short { bytes: Vec::new(), room: 5000 };
    assert_eq!(world.run(|calls| calls.read(fd, 9000, &mut short)), Ok(4096));
    let mut none = Short { bytes: Vec::new(), room: 0 };
    assert_eq!(world.run(|calls| calls.read(fd, 9, &mut none)), failed(Errno::EFAULT));
    assert_eq!(world.run(|calls| calls.lseek(fd, 0, raw::SEEK_CUR)), Ok(4096));
    let mut broken = Broken { bytes: &[b'b'; 5000], claimed: 6000 };
    assert_eq!(world.run(|calls| calls.write(fd, &mut broken)), Ok(5000));
    let mut broken = Broken { bytes: &[], claimed: 10 };
    assert_eq!(world.run(|calls| calls.write(fd, &mut broken)), failed(Errno::EFAULT));
    let text = world.read_file("/f").unwrap();
    assert_eq!(text.matches('b').count(), 5000);
}

#[test]
fn appended_bytes_go_to_the_end_whatever_the_offset() {
    let world = World::new();
    world.write_file("/f", "one");
    let fd = world.open("/f", raw::O_WRONLY | raw::O_APPEND).unwrap();
    assert_eq!(world.write(fd, "two"), Ok(3));
    assert_eq!(world.run(|calls| calls.pwrite64(fd, 0, &mut &b"x"[..])), Ok(1));
    assert_eq!(world.read_file("/f").unwrap(), "onetwox");
    assert_eq!(world.read(fd, 1), failed(Errno::EBADF));
    let fd = world.open("/f", raw::O_RDONLY).unwrap();
    assert_eq!(world.write(fd, "x"), failed(Errno::EBADF));
}

#[test]
fn seeks_go_where_lseek_says() {
    let world = World::new();
    world.write_file("/f", "0123456789");
    let fd = world.open("/f", raw::O_RDONLY).unwrap();
    let seek = |offset, whence| world.run(|calls| calls.lseek(fd, offset, whence));
    assert_eq!(seek(4, raw::SEEK_SET), Ok(4));
    assert_eq!(world.read(fd, 2).unwrap(), "45");
    assert_eq!(seek(-1, raw::SEEK_CUR), Ok(5));
    assert_eq!(seek(-3, raw::SEEK_END), Ok(7));
    assert_eq!(seek(2, raw::SEEK_DATA), Ok(2));
    assert_eq!(seek(2, raw::SEEK_HOLE), Ok(10));
    assert_eq!(seek(10, raw::SEEK_DATA), Err(Errno::ENXIO));
    assert_eq!(seek(-1, raw::SEEK_SET), Err(Errno::EINVAL));
    assert_eq!(seek(0, 9), Err(Errno::EINVAL));
    assert_eq!(seek(i64::MAX, raw::SEEK_CUR), Err(Errno::EOVERFLOW));
    assert_eq!(world.run(|calls| calls.lseek(77, 0, 0)), Err(Errno::EBADF));
}

#[test]
fn reads_and_writes_at_an_offset_leave_the_other_one_alone() {
    let world = World::new();
    world.write_file("/f", "0123456789");
    let fd = world.open("/f", raw::O_RDWR).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(world.run(|calls| calls.pread64(fd, 8, 9, &mut bytes)), Ok(2));
    assert_eq!(world.run(|calls| calls.pwrite64(fd, 1, &mut &b"AB"[..])), Ok(2));
    let negative = world.run(|calls| calls.pread64(fd, -1, 9, &mut bytes));
    assert_eq!(negative, failed(Errno::EINVAL));
    assert_eq!(world.read(fd, 4).unwrap(), "0AB3");
}

#[test]
fn sendfile_moves_bytes_and_the_offset_that_was_used() {
    let world = World::new();
    world.write_file("/from", &"x".repeat(10_000));
    let from = world.open("/from", raw::O_RDONLY).unwrap();
    let to = world.open("/to", raw::O_WRONLY | raw::O_CREAT).unwrap();
    assert_eq!(world.run(|calls| calls.sendfile(to, from, None, 9000)), Ok(9000));
    assert_eq!(world.run(|calls| calls.lseek(from, 0, raw::SEEK_CUR)), Ok(9000));
    assert_eq!(world.run(|calls| calls.sendfile(to, from, Some(9999), 50)), Ok(1));
    assert_eq!(world.run(|calls| calls.lseek(from, 0, raw::SEEK_CUR)), Ok(9000));
    assert_eq!(world.about("/to").unwrap().length, 9001);
    let [read, write] = world.run(|calls| calls.pipe2(0)).unwrap();
    let from_pipe = world.run(|calls| calls.sendfile(to, read, None, 9));
    assert_eq!(from_pipe, failed(Errno::EINVAL));
    world.write_file("/big", &"y".repeat(100_000));
    let big = world.open("/big", raw::O_RDONLY).unwrap();
    assert_eq!(world.run(|calls| calls.sendfile(write, big, None, 100_000)), Ok(CAPACITY));
    let blocked = world.run(|calls| calls.sendfile(write, big, None, 100_000));
    assert_eq!(blocked, Err(Halt::Blocked));
    assert_eq!(world.run(|calls| calls.lseek(big, 0, raw::SEEK_CUR)), Ok(CAPACITY as u64));
}

#[test]
fn devices_behave_as_their_names_say() {
    let world = World::new();
    let open = |name| world.open(name, raw::O_RDWR).unwrap();
    let (null, zero, full) = (open("/dev/null"), open("/dev/zero"), open("/dev/full"));
    assert_eq!((world.read(null, 9).unwrap().as_str(), world.write(null, "abc")), ("", Ok(3)));
    assert_eq!(world.read(zero, 300).unwrap(), "\0".repeat(300));
    assert_eq!(world.write(full, "x"), failed(Errno::ENOSPC));
    assert_eq!(world.read(open("/dev/urandom"), 3).unwrap(), "\x07\x07\x07");
    assert_eq!(world.write(open("/dev/kmsg"), "log\n"), Ok(4));
    assert_eq!(world.desk.take_shown(), "log\r\n");
    let device = joined((240, 1));
    let path = b"/dev/none";
    let mode = raw::S_IFCHR | 0o600;
    world.run(|calls| calls.mknodat(raw::AT_FDCWD, path, mode, device)).unwrap();
    assert_eq!(world.about("/dev/none").unwrap().device, (240, 1));
    assert_eq!(world.open("/dev/none", raw::O_RDONLY), failed(Errno::ENXIO));
}

#[test]
fn sync_succeeds_for_files_only() {
    let world = World::new();
    world.write_file("/f", "");
    let fd = world.open("/f", raw::O_RDONLY).unwrap();
    assert_eq!(world.run(|calls| calls.fsync(fd)), Ok(()));
    let [read, _] = world.run(|calls| calls.pipe2(0)).unwrap();
    assert_eq!(world.run(|calls| calls.fsync(read)), Err(Errno::EINVAL));
}
