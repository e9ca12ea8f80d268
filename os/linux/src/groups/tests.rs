//! Groups: made, removed, found; controllers passed on; writes to their files.

use std::string::String;
use std::vec::Vec;

use super::*;
use crate::files::Text;
use crate::{Errno, Result};

const ROOT: u32 = Groups::<()>::ROOT;
const ON: Control = Control { memory: Some(true) };
const OFF: Control = Control { memory: Some(false) };

fn add(groups: &mut Groups<()>, id: u32, name: &str) -> Result<u32> {
    groups.make(id, name.as_bytes(), || Ok(()))
}

fn path(groups: &Groups<()>, id: u32) -> Result<String> {
    let mut text = Text::new();
    groups.path(id, &mut text)?;
    Ok(String::from_utf8(text.bytes().to_vec()).unwrap())
}

#[test]
fn groups_are_found_by_their_names_and_told_by_their_paths() {
    let mut groups = Groups::new(());
    let shop = add(&mut groups, ROOT, "shop").unwrap();
    let till = add(&mut groups, shop, "till").unwrap();
    let other = add(&mut groups, ROOT, "till").unwrap();
    assert_eq!(groups.find(shop, b"till"), Ok(till));
    assert_eq!(groups.find(ROOT, b"till"), Ok(other));
    assert_eq!(groups.find(till, b"till"), Err(Errno::ENOENT));
    let names: Vec<_> = groups.below(ROOT, 0).collect();
    assert_eq!(names, [(shop, &b"shop"[..]), (other, b"till")]);
    assert_eq!(groups.below(ROOT, shop + 1).count(), 1);
    assert_eq!(path(&groups, till).unwrap(), "/shop/till");
    assert_eq!(path(&groups, ROOT).unwrap(), "/");
    assert!(groups.is_within(till, shop) && groups.is_within(till, ROOT));
    assert!(!groups.is_within(shop, till) && !groups.is_within(other, shop));
    assert_eq!(groups.upwards(till).collect::<Vec<_>>(), [till, shop, ROOT]);
    assert_eq!(groups.within(shop).collect::<Vec<_>>(), [shop, till]);
    assert_eq!(groups.within(ROOT).count(), 4);
    let mut groups = Groups::new('r');
    let one = groups.make(0, b"one", || Ok('1')).unwrap();
    assert_eq!(groups.find_of(|kept| *kept == '1'), Some(one));
    assert_eq!(groups.find_of(|kept| *kept == '2'), None);
}

#[test]
fn a_bad_name_makes_no_group() {
    let mut groups = Groups::new(());
    let one = add(&mut groups, ROOT, "one").unwrap();
    assert_eq!(add(&mut groups, ROOT, "one"), Err(Errno::EEXIST));
    assert_eq!(add(&mut groups, ROOT, "a\nb"), Err(Errno::EINVAL));
    assert_eq!(add(&mut groups, ROOT, &"x".repeat(256)), Err(Errno::ENAMETOOLONG));
    assert_eq!(groups.make(ROOT, b"two", || Err(Errno::ENOSPC)), Err(Errno::ENOSPC));
    assert_eq!(groups.find(ROOT, b"two"), Err(Errno::ENOENT));
    groups.remove(one, false).unwrap();
    assert_eq!(add(&mut groups, one, "in"), Err(Errno::ENOENT));
}

#[test]
fn only_an_empty_group_goes_and_its_number_never_comes_back() {
    let mut groups = Groups::new(());
    let outer = add(&mut groups, ROOT, "outer").unwrap();
    let inner = add(&mut groups, outer, "inner").unwrap();
    assert_eq!(groups.remove(outer, false), Err(Errno::EBUSY), "a group is in it");
    assert_eq!(groups.remove(inner, true), Err(Errno::EBUSY), "a process is in it");
    assert_eq!(groups.remove(ROOT, false), Err(Errno::EBUSY));
    assert_eq!(groups.remove(inner, false), Ok(()));
    assert_eq!(groups.remove(inner, false), Err(Errno::ENODEV));
    assert_eq!(groups.get(inner).err(), Some(Errno::ENODEV));
    assert_eq!(path(&groups, inner), Err(Errno::ENODEV));
    assert_ne!(add(&mut groups, outer, "inner"), Ok(inner));
}

#[test]
fn a_controller_is_handed_down_from_group_to_group() {
    let mut groups = Groups::new(());
    let outer = add(&mut groups, ROOT, "outer").unwrap();
    let inner = add(&mut groups, outer, "inner").unwrap();
    assert!(!groups.has_memory(outer) && groups.may_give(ROOT) && !groups.has_memory(ROOT));
    assert_eq!(groups.control(outer, ON, false), Err(Errno::ENOENT), "it has none to give");
    assert_eq!(groups.control(ROOT, ON, true), Ok(false), "the root may have processes");
    assert!(groups.has_memory(outer) && !groups.has_memory(inner));
    assert_eq!(groups.control(outer, ON, true), Err(Errno::EBUSY), "a process is in it");
    assert_eq!(groups.admit(outer), Ok(()));
    assert_eq!(groups.control(outer, ON, false), Ok(false));
    assert!(groups.has_memory(inner) && groups.gives(outer));
    assert_eq!(groups.admit(outer), Err(Errno::EBUSY), "processes are in what it gives to");
    assert_eq!((groups.admit(inner), groups.admit(ROOT)), (Ok(()), Ok(())));
    assert_eq!(groups.control(ROOT, OFF, false), Err(Errno::EBUSY), "a group gives it");
    assert_eq!(groups.control(outer, Control::default(), true), Ok(false));
    assert_eq!(groups.control(outer, OFF, true), Ok(true));
    assert!(!groups.has_memory(inner));
    assert_eq!(groups.control(ROOT, OFF, true), Ok(true));
    assert_eq!(groups.control(ROOT, OFF, true), Ok(false), "it was off already");
}

#[test]
fn controllers_are_named_with_a_sign() {
    assert_eq!(Control::of(b"+memory\n"), Ok(ON));
    assert_eq!(Control::of(b" +memory -memory"), Ok(OFF));
    assert_eq!(Control::of(b""), Ok(Control::default()));
    for bad in [&b"memory"[..], b"+cpu", b"+", b"+memory,-memory", b"+memory x"] {
        assert_eq!(Control::of(bad), Err(Errno::EINVAL));
    }
}

#[test]
fn amounts_have_one_letter_at_most() {
    for (text, bytes) in [
        ("4096", 4096),
        ("0", 0),
        ("16K\n", 16 << 10),
        (" 3m ", 3 << 20),
        ("2G", 2 << 30),
        ("1t", 1 << 40),
        ("5P", 5 << 50),
        ("1E", 1 << 60),
        ("0x1000", 4096),
        ("0x1E", 30),
        ("010k", 8 << 10),
        ("99999999999999999999", u64::MAX),
        ("64E", u64::MAX),
    ] {
        assert_eq!(amount(text.as_bytes()), Ok(bytes), "{text}");
        assert_eq!(limit(text.as_bytes()), Ok(Some(bytes)), "{text}");
    }
    for bad in ["", "max1", "-1", "1KB", "1Q", "K", "1 K", "1.5G", "08", "0x", "ma"] {
        assert_eq!(limit(bad.as_bytes()), Err(Errno::EINVAL), "{bad}");
    }
    assert_eq!(limit(b"max\n"), Ok(None));
    assert_eq!(amount(b"max"), Err(Errno::EINVAL));
}

#[test]
fn one_process_is_named_at_a_time() {
    assert_eq!((pid(b"0"), pid(b" 17\n")), (Ok(0), Ok(17)));
    for bad in [&b""[..], b"-1", b"1 2", b"x"] {
        assert_eq!(pid(bad), Err(Errno::EINVAL));
    }
    assert_eq!(pid(b"4294967296"), Err(Errno::ESRCH));
}
