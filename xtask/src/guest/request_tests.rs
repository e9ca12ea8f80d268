//! Each mistake in an order is refused with its own sentence.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{
    Isa, Order, Swap, check, check_boot_word, check_memory, check_thp, resolve, settings,
    swap_areas, swap_words,
};

fn order(words: &[&str]) -> Order {
    Order::new(Isa::X86_64, words)
}

/// A directory of this test's own, gone afterwards.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("quire-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("usr/bin")).expect("a directory");
        Self(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file");
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A test that failed may have left less.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An ELF file for `machine`; with a program header for the loader `/lib/ld` if it is dynamic.
fn elf(machine: u8, is_dynamic: bool) -> Vec<u8> {
    let mut bytes = vec![0; 120];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (bytes[18], bytes[32], bytes[54], bytes[56]) = (machine, 64, 56, u8::from(is_dynamic));
    (bytes[64], bytes[72], bytes[96]) = (3, 120, 8);
    bytes.extend(b"/lib/ld\0");
    bytes
}

fn said(order: &Order) -> String {
    check(Path::new("."), order).map_or_else(|missing| missing.sentence, |()| "fine".to_owned())
}

#[test]
fn folio_settings_are_read_before_boot() {
    for good in ["64K=always", "8K=never,2M=inherit", "2048K=madvise"] {
        assert_eq!(check_thp(good), Ok(()), "{good}");
    }
    for bad in ["64K=foo", "64K", "64=always", "4K=always", "4M=always", "96K=never", "", "K=never"]
    {
        assert!(check_thp(bad).is_err(), "{bad}");
    }
    let bad = Order { thp: Some("64K=foo".to_owned()), ..order(&["busybox"]) };
    assert!(said(&bad).contains("`foo` is none of always, inherit"));
}

#[test]
fn too_little_memory_is_refused_with_the_least() {
    let machine = |memory: &str, kernel: &str| Order {
        memory: memory.to_owned(),
        kernel: kernel.to_owned(),
        ..order(&[])
    };
    assert_eq!(check_memory(&machine("1G", "quire"), 4 << 20), Ok(()));
    assert_eq!(check_memory(&machine("64", "quire"), 4 << 20), Ok(()));
    let said = |memory, kernel| check_memory(&machine(memory, kernel), 4 << 20).unwrap_err();
    assert!(said("16M", "quire").contains("need 40M"));
    assert!(said("64M", "linux").contains("Linux and this program need 136M"));
    assert!(said("much", "quire").contains("is no size"));
    assert!(said("", "quire").contains("is no size"));
}

#[test]
fn boot_words_stay_words() {
    assert_eq!(check_boot_word("zram0=192M,unit=4K"), Ok(()));
    for bad in ["", "--", "two words", "a\"b", "a\nb"] {
        assert!(check_boot_word(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn swap_devices_have_a_name_and_a_size() {
    let two = Order {
        swaps: ["zram0=192M,unit=4K", "ram0=1G"].map(str::to_owned).to_vec(),
        ..order(&[])
    };
    assert_eq!(swap_words(&two), ["zram0=201326592,unit=4K", "ram0=1073741824"]);
    assert_eq!(swap_areas(&two), ["/dev/zram0=201326592", "/dev/ram0=1073741824"]);
    for bad in ["zram0", "zram0=", "vda=1G", "zram1=1G", "ram0=1", "zram0=1G,a b"] {
        assert!(Swap::read(bad).is_err(), "{bad}");
    }
    let linux = Order { kernel: "linux".to_owned(), ..two };
    assert!(said(&linux).contains("only Quire's kernel"));
}

#[test]
fn settings_become_files() {
    let some = Order {
        sysctls: vec!["vm.swappiness=10".to_owned()],
        group: vec!["memory.max=64M".to_owned()],
        ..order(&[])
    };
    let files = ["/proc/sys/vm/swappiness=10", "/sys/fs/cgroup/run/memory.max=64M"];
    assert_eq!(settings(&some).expect("files"), files);
    for bad in ["vm.swappiness", "=1", "vm..x=1", "a b=1", "vm.swappiness="] {
        let sysctls = vec![bad.to_owned()];
        assert!(settings(&Order { sysctls, ..order(&[]) }).is_err(), "{bad}");
    }
    let group = vec!["../memory.max=1".to_owned()];
    assert!(settings(&Order { group, ..order(&[]) }).is_err());
}

#[test]
fn a_dynamic_program_is_refused_with_the_way_out() {
    let dir = Dir::new("dynamic");
    let path = dir.file("program", &elf(62, true));
    let words = said(&order(&[&path]));
    assert!(words.contains("is a dynamic program: it needs /lib/ld"), "{words}");
    assert!(words.contains("--root DIR"), "{words}");
    let path = dir.file("program", &elf(62, false));
    assert_eq!(said(&order(&[&path])), "fine");
}

#[test]
fn a_program_of_another_isa_or_of_none_is_refused() {
    let dir = Dir::new("isa");
    let path = dir.file("program", &elf(183, false));
    assert!(said(&order(&[&path])).contains("is a program for aarch64, and --arch is x86_64"));
    let path = dir.file("text", b"words");
    assert!(said(&order(&[&path])).contains("neither an ELF file nor a script"));
    assert!(said(&order(&["./no/such/file"])).contains("No such file"));
    let path = dir.file("script", b"#!/bin/sh\n");
    assert_eq!(said(&order(&[&path])), "fine");
}

#[test]
fn a_root_has_the_program_and_its_loader() {
    let dir = Dir::new("root");
    let root = Order { root: Some(dir.0.clone()), ..order(&["/bin/program"]) };
    assert!(said(&root).contains("there is no /bin/program in"));
    dir.file("usr/bin/program", &elf(62, true));
    // From the host's root this link would lead elsewhere.
    symlink("/usr/bin", dir.0.join("bin")).expect("a link");
    assert!(said(&root).contains("its loader /lib/ld is not in"));
    fs::create_dir(dir.0.join("lib")).expect("a directory");
    dir.file("lib/ld", b"");
    assert_eq!(said(&root), "fine");
    assert_eq!(said(&Order { words: vec!["program".into()], ..root.clone() }), "fine");
    assert!(said(&Order { isa: Isa::Aarch64, ..root }).contains("--arch is aarch64"));
    symlink("circle", dir.0.join("circle")).expect("a link");
    assert_eq!(resolve(&dir.0, Path::new("/circle")), None);
    assert_eq!(resolve(&dir.0, Path::new("/../lib/../lib/ld")), Some(dir.0.join("lib/ld")));
}
