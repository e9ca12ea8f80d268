//! Pairs of sockets: bytes, packets, and hang-ups.

use super::*;

/// `SOCK_STREAM`, `SOCK_SEQPACKET`, `AF_UNIX`.
const STREAM: u32 = 1;
const PACKETS: u32 = 5;
const UNIX: u32 = 1;

#[test]
fn each_end_reads_the_others_writes() {
    let world = World::new();
    let [one, other] = world.run(|calls| calls.socketpair(UNIX, STREAM, 0)).unwrap();
    assert_eq!(world.read(other, 5), Err(Halt::Blocked));
    assert_eq!(world.write(one, "hello "), Ok(6));
    assert_eq!(world.write(one, "world"), Ok(5));
    assert_eq!(world.read(other, 8).unwrap(), "hello wo");
    assert_eq!(world.write(other, "back"), Ok(4));
    assert_eq!(world.read(one, 9).unwrap(), "back");
    assert_eq!(world.read(other, 9).unwrap(), "rld");
    world.run(|calls| calls.close(one)).unwrap();
    assert_eq!(world.read(other, 5).unwrap(), "", "the end");
    assert_eq!(world.write(other, "x"), failed(Errno::EPIPE));
}

#[test]
fn packets_are_read_as_they_were_written() {
    let world = World::new();
    let [one, other] = world.run(|calls| calls.socketpair(UNIX, PACKETS, 0)).unwrap();
    for _ in 0..3000 {
        // Around the ring's end, too.
        assert_eq!(world.write(one, "first packet"), Ok(12));
        assert_eq!(world.write(one, ""), Ok(0));
        assert_eq!(world.write(one, "second"), Ok(6));
        assert_eq!(world.read(other, 5).unwrap(), "first", "the rest is lost");
        assert_eq!(world.read(other, 5).unwrap(), "", "an empty one");
        assert_eq!(world.read(other, 50).unwrap(), "second");
    }
    assert_eq!(world.read(other, 50), Err(Halt::Blocked));
}

#[test]
fn a_packet_goes_whole_or_not_at_all() {
    let world = World::new();
    let [one, other] = world.run(|calls| calls.socketpair(UNIX, PACKETS, 0)).unwrap();
    let large = "x".repeat(PACKET_MOST);
    assert_eq!(world.write(one, &(large.clone() + "x")), failed(Errno::EMSGSIZE));
    assert_eq!(world.write(one, "in the way"), Ok(10));
    assert_eq!(world.write(one, &large), Err(Halt::Blocked));
    assert_eq!(world.read(other, 50).unwrap(), "in the way");
    assert_eq!(world.write(one, &large), Ok(PACKET_MOST));
    assert_eq!(world.read(other, PACKET_MOST).unwrap(), large);
}

#[test]
fn only_pairs_that_exist_are_made() {
    let world = World::new();
    let pair = |family, kind, protocol| {
        world.run(|calls| calls.socketpair(family, kind, protocol)).map(drop)
    };
    assert_eq!(pair(2, STREAM, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(pair(UNIX, 3, 0), Err(Errno::ESOCKTNOSUPPORT));
    assert_eq!(pair(UNIX, STREAM, 9), Err(Errno::EPROTONOSUPPORT));
    assert_eq!(pair(UNIX, STREAM | 1 << 20, 0), Err(Errno::EINVAL));
}
