//! Sockets as programs use them: bytes, packets, names, descriptors in messages, and ends.

use std::collections::VecDeque;
use std::string::String;
use std::sync::atomic::Ordering;
use std::vec::Vec;

use linux_raw_sys::net as raw;
use proptest::prelude::*;

use super::queue::LIMIT;
use super::*;
use crate::Errno;
use crate::files::tests::{World, failed};
use crate::files::{Halt, Outcome, PollEvents, readiness};

const STREAM: u32 = raw::SOCK_STREAM;
const PACKETS: u32 = raw::SOCK_SEQPACKET;
const DATAGRAMS: u32 = raw::SOCK_DGRAM;
const UNIX: u32 = raw::AF_UNIX;
const INET: u32 = raw::AF_INET;

fn pair(world: &World, style: u32) -> [u32; 2] {
    world.run(|calls| calls.socketpair(UNIX, style, 0)).unwrap()
}

fn close(world: &World, fd: u32) {
    world.run(|calls| calls.close(fd)).unwrap();
}

fn unix(name: &str) -> Vec<u8> {
    [&(UNIX as u16).to_ne_bytes()[..], name.as_bytes()].concat()
}

fn inet(port: u16) -> Vec<u8> {
    let head = [(INET as u16).to_ne_bytes(), port.to_be_bytes()].concat();
    [&head[..], &[127, 0, 0, 1], &[0; 8]].concat()
}

/// A listener at `address`, a connection to it, and the accepted end.
fn connection(world: &World, family: u32, style: u32, address: &[u8]) -> [u32; 3] {
    world.run(|calls| {
        let listener = calls.socket(family, style, 0).unwrap();
        calls.bind(listener, address).unwrap();
        calls.listen(listener, 1).unwrap();
        let here = calls.getsockname(listener).unwrap();
        let one = calls.socket(family, style, 0).unwrap();
        assert_eq!(calls.accept4(listener, 0), Err(Halt::Blocked));
        calls.connect(one, &here).unwrap();
        let (other, _) = calls.accept4(listener, 0).unwrap();
        [listener, one, other]
    })
}

fn events(world: &World, fd: u32) -> PollEvents {
    readiness(&world.table.get(fd).unwrap())
}

fn rights(fds: &[u32]) -> Vec<u8> {
    let words = [raw::SOL_SOCKET, raw::SCM_RIGHTS];
    let mut bytes = (16 + 4 * fds.len()).to_ne_bytes().to_vec();
    bytes.extend(words.iter().chain(fds).flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn send(world: &World, fd: u32, text: &str, control: &[u8]) -> Outcome<usize> {
    let what = Outgoing { control, ..Outgoing::default() };
    world.run(|calls| calls.send(fd, what, &mut text.as_bytes()))
}

fn receive(world: &World, fd: u32, flags: u32) -> Outcome<(String, Incoming)> {
    let mut bytes = Vec::new();
    let incoming = world.run(|calls| calls.receive(fd, 100, 100, flags, &mut bytes))?;
    Ok((String::from_utf8(bytes).unwrap(), incoming))
}

#[test]
fn each_end_reads_the_others_writes() {
    let world = World::new();
    let [_, a, b] = connection(&world, INET, STREAM, &inet(0));
    let [_, c, d] = connection(&world, UNIX, STREAM, &unix("\0each end"));
    let [e, f] = pair(&world, STREAM);
    for [one, other] in [[a, b], [c, d], [e, f]] {
        assert_eq!(world.read(other, 5), Err(Halt::Blocked));
        assert_eq!(world.write(one, "hello "), Ok(6));
        assert_eq!(world.write(one, "world"), Ok(5));
        assert_eq!(world.read(other, 8).unwrap(), "hello wo");
        assert_eq!(world.write(other, "back"), Ok(4));
        assert_eq!(world.read(one, 9).unwrap(), "back");
        assert_eq!(world.read(other, 9).unwrap(), "rld");
        close(&world, one);
        assert_eq!(world.read(other, 5).unwrap(), "", "the end");
        assert_eq!(world.write(other, "x"), failed(Errno::EPIPE));
    }
}

#[test]
fn packets_are_read_as_they_were_sent() {
    let world = World::new();
    for style in [PACKETS, DATAGRAMS] {
        let [one, other] = pair(&world, style);
        for text in ["first packet", "", "second"] {
            assert_eq!(world.write(one, text), Ok(text.len()));
        }
        assert_eq!(world.read(other, 5).unwrap(), "first", "the rest is lost");
        assert_eq!(world.read(other, 5).unwrap(), "", "an empty one");
        let (text, beside) = receive(&world, other, raw::MSG_PEEK).unwrap();
        assert_eq!((&text[..], beside.bytes, beside.flags), ("second", 6, 0));
        assert_eq!(world.read(other, 50).unwrap(), "second");
        assert_eq!(world.read(other, 50), Err(Halt::Blocked));
        let long = "x".repeat(LIMIT);
        assert_eq!(world.write(one, &long), failed(Errno::EMSGSIZE));
    }
}

#[test]
fn a_writer_waits_for_room_and_is_woken_once() {
    let world = World::new();
    let [one, other] = pair(&world, STREAM);
    let text = "x".repeat(LIMIT * 2);
    let count = world.write(one, &text).unwrap();
    assert!(count > LIMIT / 2 && count <= LIMIT);
    assert!(!events(&world, one).contains(PollEvents::OUT));
    assert_eq!(world.write(one, "y"), Err(Halt::Blocked));
    let woken = || world.sleeper.0.load(Ordering::Relaxed);
    let before = woken();
    world.read(other, LIMIT / 4).unwrap();
    assert_eq!(woken(), before, "there is little room yet");
    world.read(other, LIMIT).unwrap();
    assert_eq!(woken(), before + 1);
    assert!(events(&world, one).contains(PollEvents::OUT));
}

#[test]
fn readiness_tells_of_data_room_and_ends() {
    let world = World::new();
    let [listener, one, other] = connection(&world, UNIX, STREAM, &unix("/here"));
    let out = PollEvents::OUT | PollEvents::WRNORM;
    let input = PollEvents::IN | PollEvents::RDNORM;
    assert_eq!(events(&world, listener), PollEvents::empty());
    assert_eq!(events(&world, one), out);
    world.write(other, "x").unwrap();
    assert_eq!(events(&world, one), out | input);
    world.read(one, 5).unwrap();
    world.run(|calls| calls.shutdown(other, raw::SHUT_WR)).unwrap();
    assert_eq!(events(&world, one), out | input | PollEvents::RDHUP);
    assert_eq!(world.write(other, "x"), failed(Errno::EPIPE));
    assert_eq!(world.write(one, "x"), Ok(1), "the other way is open");
    close(&world, other);
    let all = out | input | PollEvents::RDHUP | PollEvents::HUP | PollEvents::ERR;
    assert_eq!(events(&world, one), all);
    assert_eq!(world.read(one, 1), failed(Errno::ECONNRESET), "a byte was not read");
    assert_eq!(world.read(one, 1).unwrap(), "");
}

#[test]
fn a_name_is_one_sockets_and_ends_with_it() {
    let world = World::new();
    for (family, address) in [(UNIX, unix("\0mine")), (INET, inet(6379)), (UNIX, unix("/path"))] {
        let [listener, one, other] = connection(&world, family, STREAM, &address);
        world.run(|calls| {
            let second = calls.socket(family, STREAM, 0).unwrap();
            assert_eq!(calls.bind(second, &address), Err(Errno::EADDRINUSE));
            assert_eq!(calls.connect(one, &address), failed(Errno::EISCONN));
            let _ = [listener, one, other].map(|fd| calls.close(fd).unwrap());
            assert_eq!(calls.connect(second, &address), failed(Errno::ECONNREFUSED));
            if address == unix("/path") {
                calls.unlinkat(linux_raw_sys::general::AT_FDCWD, b"/path", 0).unwrap();
            }
            calls.bind(second, &address).unwrap();
        });
    }
}

#[test]
fn both_ends_know_each_others_names() {
    let world = World::new();
    let [listener, one, other] = connection(&world, INET, STREAM, &inet(0));
    world.run(|calls| {
        let port = calls.getsockname(listener).unwrap();
        assert_eq!(calls.getpeername(one), Ok(port.clone()));
        assert_eq!(calls.getsockname(other), Ok(port));
        assert_eq!(calls.getpeername(other), calls.getsockname(one));
        assert_eq!(calls.getpeername(listener), Err(Errno::ENOTCONN));
    });
}

#[test]
fn all_addresses_hear_each_address_but_version_6_only_hears_its_own() {
    let world = World::new();
    world.run(|calls| {
        let six = calls.socket(raw::AF_INET6, STREAM, 0).unwrap();
        let any = Address::Port { ip: 0, port: 7001 }.encode(Family::Inet6).unwrap();
        calls.setsockopt(six, 41, raw::IPV6_V6ONLY, &1_u32.to_ne_bytes()).unwrap();
        calls.bind(six, &any).unwrap();
        calls.listen(six, 5).unwrap();
        let four = calls.socket(INET, STREAM, 0).unwrap();
        assert_eq!(calls.connect(four, &inet(7001)), failed(Errno::ECONNREFUSED));
        calls.bind(four, &inet(7001)).unwrap();
        let both = calls.socket(raw::AF_INET6, STREAM, 0).unwrap();
        assert_eq!(calls.bind(both, &any), Err(Errno::EADDRINUSE));
        let any = Address::Port { ip: 0, port: 7002 }.encode(Family::Inet6).unwrap();
        calls.bind(both, &any).unwrap();
        calls.listen(both, 5).unwrap();
        let client = calls.socket(INET, STREAM, 0).unwrap();
        calls.connect(client, &inet(7002)).unwrap();
    });
}

#[test]
fn datagrams_go_to_a_name_and_tell_theirs() {
    let world = World::new();
    let cases = [(INET, inet(7100), inet(7101)), (UNIX, unix("\0a"), unix("\0b"))];
    for (family, here, there) in cases {
        let [one, other] = world.run(|calls| {
            [&here, &there].map(|name| {
                let fd = calls.socket(family, DATAGRAMS, 0).unwrap();
                calls.bind(fd, name).unwrap();
                fd
            })
        });
        let to = Outgoing { to: Some(&there), ..Outgoing::default() };
        let sent = world.run(|calls| calls.send(one, to, &mut &b"hi"[..]));
        assert_eq!(sent, Ok(2));
        let (text, beside) = receive(&world, other, 0).unwrap();
        assert_eq!((&text[..], beside.address), ("hi", here.clone()));
        world.run(|calls| calls.connect(other, &there)).unwrap();
        // It hears itself alone now.
        let sent = world.run(|calls| calls.send(one, to, &mut &b"no"[..]));
        assert_eq!(sent, if family == UNIX { failed(Errno::EPERM) } else { Ok(2) });
        assert_eq!(receive(&world, other, 0), Err(Halt::Blocked));
    }
}

#[test]
fn descriptors_travel_with_the_first_byte() {
    let world = World::new();
    let [one, other] = pair(&world, STREAM);
    let [end, kept] = pair(&world, STREAM);
    assert_eq!(send(&world, one, "before", &[]), Ok(6));
    assert_eq!(send(&world, one, "take", &rights(&[end])), Ok(4));
    assert_eq!(send(&world, one, "after", &[]), Ok(5));
    close(&world, end);
    let (text, beside) = receive(&world, other, 0).unwrap();
    assert_eq!(text, "beforetake", "a read ends behind them");
    let got = u32::from_ne_bytes(*beside.control.last_chunk().unwrap());
    world.write(got, "through").unwrap();
    assert_eq!(world.read(kept, 10).unwrap(), "through");
    close(&world, got);
    assert_eq!(world.read(kept, 10).unwrap(), "", "it was the last");
    assert_eq!(receive(&world, other, 0).unwrap().0, "after");
}

#[test]
fn descriptors_that_are_not_received_are_closed() {
    let world = World::new();
    let [mut to, root] = pair(&world, STREAM);
    let [end, kept] = pair(&world, STREAM);
    // Each socket lies in the queue of the one before: a recursion would not survive that.
    for _ in 0..20_000 {
        let [next, inner] = pair(&world, STREAM);
        send(&world, to, "x", &rights(&[inner])).unwrap();
        close(&world, to);
        close(&world, inner);
        to = next;
    }
    send(&world, to, "x", &rights(&[end])).unwrap();
    close(&world, to);
    close(&world, end);
    assert_eq!(world.read(kept, 1), Err(Halt::Blocked));
    close(&world, root);
    assert_eq!(world.read(kept, 1).unwrap(), "");
}

#[test]
fn a_long_chain_is_not_sent() {
    let world = World::new();
    let mut last = pair(&world, STREAM)[0];
    for _ in 0..256 {
        let [a, b] = pair(&world, STREAM);
        send(&world, a, "x", &rights(&[last])).unwrap();
        close(&world, a);
        close(&world, last);
        last = b;
    }
    let [a, _] = pair(&world, STREAM);
    assert_eq!(send(&world, a, "x", &rights(&[last])), failed(Errno::ETOOMANYREFS));
}

#[test]
fn no_circle_of_descriptors_is_made() {
    let world = World::new();
    let [a, b] = pair(&world, STREAM);
    let [c, d] = pair(&world, STREAM);
    assert_eq!(send(&world, a, "x", &rights(&[b])), failed(Errno::ETOOMANYREFS));
    // To `b` goes `d`; what goes to `d` may not be `b`.
    assert_eq!(send(&world, a, "x", &rights(&[d])), Ok(1));
    assert_eq!(send(&world, c, "x", &rights(&[b])), failed(Errno::ETOOMANYREFS));
    assert_eq!(send(&world, c, "x", &rights(&[c])), Ok(1), "its own queue is empty");
}

#[test]
fn a_receiver_is_told_who_sent() {
    let world = World::new();
    let [one, other] = pair(&world, STREAM);
    let on = 1_u32.to_ne_bytes();
    world.run(|calls| calls.setsockopt(other, raw::SOL_SOCKET, raw::SO_PASSCRED, &on)).unwrap();
    world.write(one, "x").unwrap();
    let (_, beside) = receive(&world, other, 0).unwrap();
    assert_eq!(beside.control.len(), 28);
    assert_eq!(beside.control[16..20], 10_u32.to_ne_bytes());
    let peer = world.run(|calls| calls.getsockopt(other, raw::SOL_SOCKET, raw::SO_PEERCRED));
    assert_eq!(peer.unwrap()[..4], 10_u32.to_ne_bytes());
}

#[test]
fn only_sockets_that_exist_are_made() {
    let world = World::new();
    let make = |family, style, protocol| {
        world.run(|calls| calls.socket(family, style, protocol)).map(drop)
    };
    assert_eq!(make(99, STREAM, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(make(UNIX, 3, 0), Err(Errno::ESOCKTNOSUPPORT));
    assert_eq!(make(UNIX, STREAM, 9), Err(Errno::EPROTONOSUPPORT));
    assert_eq!(make(UNIX, STREAM | 1 << 20, 0), Err(Errno::EINVAL));
    assert_eq!(make(INET, STREAM, raw::IPPROTO_TCP as u32), Ok(()));
    assert_eq!(make(INET, PACKETS, 0), Err(Errno::ESOCKTNOSUPPORT));
}

proptest! {
    /// A stream is a queue of bytes, whatever the sizes of writes and reads.
    #[test]
    fn a_stream_is_a_queue_of_bytes(
        sizes in prop::collection::vec((0..90_000_usize, any::<bool>()), 1..60),
    ) {
        let world = World::new();
        let [one, other] = pair(&world, STREAM);
        let (mut model, mut next) = (VecDeque::new(), 0_u32);
        for (count, writes) in sizes {
            if writes {
                let text: String = (0..count).map(|_| {
                    next = next.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    char::from(b'a' + (next >> 16) as u8 % 26)
                }).collect();
                let went = world.write(one, &text).unwrap_or(0);
                model.extend(text.bytes().take(went));
            } else if count > 0 && !model.is_empty() {
                let got = world.read(other, count).unwrap();
                prop_assert_eq!(got.len(), count.min(model.len()));
                prop_assert!(model.drain(..got.len()).eq(got.bytes()));
            }
        }
        prop_assert_eq!(model.is_empty(), world.read(other, 1) == Err(Halt::Blocked));
    }
}
