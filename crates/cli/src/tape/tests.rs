//! Tests of the format.

use proptest::prelude::*;

use super::code::Reader;
use super::*;
use crate::recording::Recording;

fn tape(events: &[Event]) -> Tape {
    let mut writer = Writer::default();
    events.iter().for_each(|event| writer.push(*event));
    Tape {
        program: "t".to_owned(),
        note: "does it".to_owned(),
        page: 4096,
        counted: 3,
        peak: 4096,
        processes: 2,
        limits: vec!["The trace lost 1 event.".to_owned()],
        files: vec!["a b.so".to_owned(), "c".to_owned()],
        body: writer.finish(),
    }
}

fn span() -> impl Strategy<Value = Span> {
    (0_u64..1 << 50, 0_u64..1 << 30).prop_map(|(start, count)| Span::of(start, count))
}

fn area() -> impl Strategy<Value = Area> {
    let backing = prop_oneof![
        Just(Backing::Anon),
        (0_u32..2, 0_u64..1 << 40).prop_map(|(file, first)| Backing::File { file, first }),
        Just(Backing::Shared),
        Just(Backing::Other),
    ];
    let huge = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    (span(), 0_u64..8, backing, any::<[bool; 4]>(), huge).prop_map(
        |(span, rights, backing, [shared, grows, populate, alone], huge)| Area {
            span,
            rights: Rights::of_bits(rights),
            backing,
            shared,
            grows,
            populate,
            huge,
            alone,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Fetch)];
    let advice = prop_oneof![
        Just(Advice::Huge),
        Just(Advice::NoHuge),
        Just(Advice::Forget),
        any::<bool>().prop_map(Advice::Alone),
        Just(Advice::Populate),
        Just(Advice::Collapse),
    ];
    prop_oneof![
        any::<u32>().prop_map(Event::Space),
        any::<u64>().prop_map(Event::Time),
        Just(Event::Begin),
        any::<i64>().prop_map(Event::Held),
        (0_u64..1 << 52, access).prop_map(|(page, access)| Event::Touch { page, access }),
        area().prop_map(Event::Map),
        span().prop_map(Event::Unmap),
        (span(), 0_u64..8).prop_map(|(span, bits)| Event::Protect(span, Rights::of_bits(bits))),
        (span(), advice).prop_map(|(span, advice)| Event::Advise(span, advice)),
        (span(), span(), any::<bool>()).prop_map(|(from, to, keep)| Event::Move { from, to, keep }),
        any::<u32>().prop_map(Event::Fork),
        Just(Event::Exit),
        Just(Event::Mark),
    ]
}

proptest! {
    #[test]
    fn f1_a_recording_reads_back_as_it_was_written(
        events in proptest::collection::vec(event(), 0..60),
    ) {
        let tape = tape(&events);
        let back = Tape::of_bytes(&tape.to_bytes());
        prop_assert_eq!(back.as_ref(), Ok(&tape));
        prop_assert_eq!(back.unwrap().events().collect::<Vec<_>>(), events);
    }

    #[test]
    fn f1_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut whole = b"quire recording 2\npage 4096\nbody 0\n".to_vec();
        whole.extend_from_slice(&bytes);
        let _ = Tape::of_bytes(&whole);
        let _ = Tape::of_bytes(&bytes);
        prop_assert!(Reader::new(&bytes).count() <= bytes.len());
    }
}

#[test]
fn f1_neighbouring_touches_take_one_byte_each() {
    let touch = |page| Event::Touch { page, access: Access::Write };
    let far: Vec<Event> = (0..100).map(|page| touch(0x7_ffff_0000 + page)).collect();
    assert!(tape(&far).body.len() <= 99 + 7);
}

#[test]
fn f1_damage_is_told_with_its_place() {
    let good = tape(&[Event::Space(0), Event::Exit]).to_bytes();
    let text = String::from_utf8(good).unwrap();
    for (from, to, why) in [
        ("page 4096", "page 5000", "line 4 is damaged: page 5000"),
        ("page 4096\n", "", "it does not say how large its pages are"),
        ("counted 3 4096 2", "counted 3 2", "line 5 is damaged: counted 3 2"),
        ("note does", "nose does", "line 3 is damaged: nose does it"),
        ("body 3", "body 4", "its body has 3 bytes and not 4"),
        ("body 3", "bodies", "line 9 is damaged: bodies "),
    ] {
        let bad = text.replace(from, to);
        assert_eq!(Tape::of_bytes(bad.as_bytes()).unwrap_err(), why);
    }
    let mut cut = tape(&[Event::Exit]);
    cut.body = vec![0x7f, 0x80];
    assert_eq!(Tape::of_bytes(&cut.to_bytes()).unwrap_err(), "byte 0 of its body is damaged");
    let area = Area::file(Span::of(1, 1), Rights::default(), 2, 0);
    let error = Tape::of_bytes(&tape(&[Event::Map(area)]).to_bytes()).unwrap_err();
    assert_eq!(error, "there is no file 2");
}

#[test]
fn f1_a_recording_of_version_1_becomes_touches_of_mapped_files() {
    let text = "\
quire recording 1
program t
page 4096
file 400000 t
segment r-x 65536 262144 65536
segment rw- 327680 8192 393216
touches 2
x 0 16 2
w 0 80
";
    let old: Recording = text.parse().unwrap();
    let tape = Tape::of_old(&old);
    let touches: Vec<_> = tape
        .events()
        .filter_map(|event| match event {
            Event::Touch { page, access } => Some((page, access)),
            _ => None,
        })
        .collect();
    let base = 512;
    assert_eq!(
        touches,
        [(base + 16, Access::Fetch), (base + 17, Access::Fetch), (base + 96, Access::Write)]
    );
    assert_eq!(Tape::of_bytes(&tape.to_bytes()), Ok(tape));
}
