//! The terminal's lines, keys and settings.

use super::*;

fn typed(world: &World, text: &str) {
    world.console.feed(text.as_bytes());
}

fn set(world: &World, change: impl FnOnce(&mut Termios)) {
    let mut termios = world.console.termios();
    change(&mut termios);
    world.console.set_termios(termios, false);
}

fn tty(world: &World) -> u32 {
    world.open("/dev/tty", raw::O_RDWR).unwrap()
}

#[test]
fn a_line_can_be_read_when_it_is_whole() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "ab");
    assert_eq!(world.read(fd, 9), Err(Halt::Blocked));
    typed(&world, "c\rnext\r");
    assert_eq!(world.sleeper.0.load(Ordering::Relaxed), 1);
    assert_eq!(world.desk.take_shown(), "abc\r\nnext\r\n");
    assert_eq!(world.read(fd, 2).unwrap(), "ab");
    assert_eq!(world.read(fd, 99).unwrap(), "c\n");
    assert_eq!(world.read(fd, 99).unwrap(), "next\n");
    let fd = world.open("/dev/console", raw::O_RDWR | raw::O_NONBLOCK).unwrap();
    assert_eq!(world.read(fd, 99), failed(Errno::EAGAIN));
}

#[test]
fn keys_erase_a_character_a_word_and_the_line() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "ab\x7f\x7f\x7fxü\x7fy\r");
    assert_eq!(world.read(fd, 99).unwrap(), "xy\n");
    typed(&world, "one two \x17three\r");
    assert_eq!(world.read(fd, 99).unwrap(), "one three\n");
    typed(&world, "nothing\x15all\r");
    assert_eq!(world.read(fd, 99).unwrap(), "all\n");
}

#[test]
fn end_of_file_ends_a_typed_line_or_is_read_as_zero_bytes() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "ab\x04\x04");
    assert_eq!(world.read(fd, 99).unwrap(), "ab");
    assert_eq!(world.read(fd, 99).unwrap(), "");
    assert_eq!(world.read(fd, 99), Err(Halt::Blocked));
}

#[test]
fn signal_keys_ask_for_a_signal_and_drop_the_line() {
    let world = World::new();
    let fd = tty(&world);
    world.console.set_group(42);
    typed(&world, "abc\x03\x1c\x1adef\r");
    assert_eq!(*world.desk.signals.lock().unwrap(), [(42, 2), (42, 3), (42, 20)]);
    assert_eq!(world.desk.take_shown(), "abc^C^\\^Zdef\r\n");
    assert_eq!(world.read(fd, 99).unwrap(), "def\n");
    set(&world, |termios| termios.local &= !raw::ISIG);
    typed(&world, "\x03\r");
    assert_eq!(world.read(fd, 99).unwrap(), "\x03\n");
}

#[test]
fn a_raw_terminal_gives_bytes_at_once() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "par");
    set(&world, |termios| termios.local &= !(raw::ICANON | raw::ECHO));
    typed(&world, "t\x7f");
    assert_eq!(world.read(fd, 99).unwrap(), "part\x7f");
    assert_eq!(world.read(fd, 99), Err(Halt::Blocked));
    set(&world, |termios| termios.chars[raw::VMIN as usize] = 0);
    assert_eq!(world.read(fd, 99).unwrap(), "");
    typed(&world, "q");
    set(&world, |termios| termios.local |= raw::ICANON);
    assert_eq!(world.read(fd, 99).unwrap(), "q");
}

#[test]
fn a_fault_leaves_the_line_to_be_read() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "line\r");
    let mut none = Short { bytes: Vec::new(), room: 0 };
    assert_eq!(world.run(|calls| calls.read(fd, 9, &mut none)), failed(Errno::EFAULT));
    assert_eq!(world.read(fd, 9).unwrap(), "line\n");
}

#[test]
fn bytes_typed_beyond_the_room_are_lost_and_the_line_can_be_ended() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, &"x".repeat(5000));
    typed(&world, "\r");
    assert_eq!(world.read(fd, 9000).unwrap(), "x".repeat(4096) + "\n");
}

#[test]
fn output_has_carriage_returns_unless_they_are_turned_off() {
    let world = World::new();
    let fd = tty(&world);
    world.write(fd, "a\nb\n\nc").unwrap();
    assert_eq!(world.desk.take_shown(), "a\r\nb\r\n\r\nc");
    set(&world, |termios| termios.output &= !raw::OPOST);
    world.write(fd, "a\n").unwrap();
    assert_eq!(world.desk.take_shown(), "a\n");
}

fn ioctl(world: &World, fd: u32, request: u32, input: &[u8]) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    world.run(|calls| calls.ioctl(fd, request, 0, &mut &*input, &mut output))?;
    Ok(output)
}

#[test]
fn settings_go_out_and_in_by_ioctl() {
    let world = World::new();
    let fd = tty(&world);
    let mut bytes = ioctl(&world, fd, 0x5401, &[]).unwrap();
    assert_eq!(bytes.len(), 36);
    assert_eq!(Termios::decode(&bytes), Ok(Termios::new()));
    bytes[12] &= !(raw::ECHO as u8);
    ioctl(&world, fd, 0x5402, &bytes).unwrap();
    assert_eq!(world.console.termios().local & raw::ECHO, 0);
    assert_eq!(ioctl(&world, fd, 0x802c_542a, &[]).unwrap().len(), 44);
    assert_eq!(ioctl(&world, fd, 0x5402, &bytes[..9]), Err(Errno::EFAULT));
    assert_eq!(Termios::decode(&bytes[..9]), Err(Errno::EINVAL));
    assert_eq!(ioctl(&world, fd, 0x5413, &[]).unwrap(), [24, 0, 80, 0, 0, 0, 0, 0]);
    ioctl(&world, fd, 0x5414, &[50, 0, 1, 1, 0, 0, 0, 0]).unwrap();
    assert_eq!(world.console.window(), [50, 257, 0, 0]);
}

#[test]
fn the_foreground_group_is_unknown_until_it_is_set() {
    let world = World::new();
    let fd = tty(&world);
    assert_eq!(ioctl(&world, fd, 0x540f, &[]), Err(Errno::ENOTTY));
    assert_eq!(ioctl(&world, fd, 0x5410, &[0; 4]), Err(Errno::EINVAL));
    ioctl(&world, fd, 0x5410, &7u32.to_ne_bytes()).unwrap();
    assert_eq!(ioctl(&world, fd, 0x540f, &[]).unwrap(), 7u32.to_ne_bytes());
}

#[test]
fn bytes_that_wait_are_counted_and_other_requests_are_refused() {
    let world = World::new();
    let fd = tty(&world);
    typed(&world, "line\r");
    assert_eq!(ioctl(&world, fd, 0x541b, &[]).unwrap(), 5u32.to_ne_bytes());
    let open = world.table.get(fd).unwrap();
    assert!(readiness(&open).contains(PollEvents::IN));
    ioctl(&world, fd, 0x540b, &[]).unwrap();
    assert_eq!(ioctl(&world, fd, 0x541b, &[]).unwrap(), 0u32.to_ne_bytes());
    assert!(!readiness(&open).contains(PollEvents::IN));
    assert_eq!(ioctl(&world, fd, 0x9999, &[]), Err(Errno::ENOTTY));
    world.write_file("/f", "abc");
    let file = world.open("/f", raw::O_RDONLY).unwrap();
    assert_eq!(ioctl(&world, file, 0x5401, &[]), Err(Errno::ENOTTY));
    assert_eq!(ioctl(&world, file, 0x541b, &[]).unwrap(), 3u32.to_ne_bytes());
    ioctl(&world, file, 0x5421, &1u32.to_ne_bytes()).unwrap();
    assert!(world.table.get(file).unwrap().is_nonblocking());
    assert_eq!(ioctl(&world, 99, 0x5401, &[]), Err(Errno::EBADF));
}
