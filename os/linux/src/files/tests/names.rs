//! Paths, links, and calls that make, remove and rename.

use super::*;

const CREATE: u32 = raw::O_WRONLY | raw::O_CREAT;

#[test]
fn paths_go_up_down_and_through_links() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/a/b").unwrap();
    world.write_file("/a/b/f", "text");
    world.symlink("b", "/a/relative").unwrap();
    world.symlink("/a/b/", "/absolute").unwrap();
    for path in [
        "/a/b/f",
        "//a///b//f",
        "/./a/../a/b/./f",
        "/../../a/b/f",
        "a/b/f",
        "/a/relative/f",
        "/absolute/f",
        "/a/relative/../b/f",
        "/absolute/../relative/f",
    ] {
        assert_eq!(world.read_file(path).as_deref(), Ok("text"), "{path}");
    }
    for (path, error) in [
        ("", Errno::ENOENT),
        ("/a/none/f", Errno::ENOENT),
        ("/a/b/f/", Errno::ENOTDIR),
        ("/a/b/f/g", Errno::ENOTDIR),
        ("/a/b/f/.", Errno::ENOTDIR),
        ("/a/b/f/..", Errno::ENOTDIR),
        ("/a/b", Errno::EISDIR),
    ] {
        assert_eq!(world.read_file(path), failed(error), "{path}");
    }
}

#[test]
fn links_that_lead_nowhere_end_in_eloop() {
    let world = World::new();
    world.symlink("/x", "/y").unwrap();
    world.symlink("y", "/x").unwrap();
    assert_eq!(world.read_file("/x"), failed(Errno::ELOOP));
    world.write_file("/l0", "end");
    for number in 1..=41 {
        world.symlink(&std::format!("l{}", number - 1), &std::format!("/l{number}")).unwrap();
    }
    assert_eq!(world.read_file("/l40").unwrap(), "end");
    assert_eq!(world.read_file("/l41"), failed(Errno::ELOOP));
    assert_eq!(world.open("/l1", raw::O_NOFOLLOW), failed(Errno::ELOOP));
    assert!(world.open("/l1", raw::O_NOFOLLOW | raw::O_PATH).is_ok());
}

#[test]
fn names_and_paths_have_a_longest_length() {
    let world = World::new();
    let name = "n".repeat(255);
    world.write_file(&name, "x");
    assert_eq!(world.open(&(name + "n"), CREATE), failed(Errno::ENAMETOOLONG));
    assert!(world.open(&("/".repeat(4091) + "/dev"), 0).is_ok());
    assert_eq!(world.open(&("/".repeat(4092) + "/dev"), 0), failed(Errno::ENAMETOOLONG));
}

#[test]
fn open_makes_files_only_as_its_flags_say() {
    let world = World::new();
    assert_eq!(world.open("/f", raw::O_WRONLY), failed(Errno::ENOENT));
    world.write_file("/f", "long text");
    assert_eq!(world.about("/f").unwrap().meta.mode, 0o644);
    assert_eq!(world.open("/f", CREATE | raw::O_EXCL), failed(Errno::EEXIST));
    world.open("/f", CREATE).unwrap();
    assert_eq!(world.read_file("/f").unwrap(), "long text");
    world.open("/f", CREATE | raw::O_TRUNC).unwrap();
    assert_eq!(world.read_file("/f").unwrap(), "");
    for (path, flags, error) in [
        ("/new/", CREATE, Errno::EISDIR),
        ("/dev", CREATE, Errno::EISDIR),
        ("/dev", raw::O_RDWR, Errno::EISDIR),
        ("/f", raw::O_DIRECTORY, Errno::ENOTDIR),
        ("/f", raw::O_ACCMODE, Errno::EINVAL),
        ("/dev", raw::O_TMPFILE, Errno::EINVAL),
        ("/dev/null", raw::O_TMPFILE | raw::O_RDWR, Errno::ENOTDIR),
        ("/f/g", CREATE, Errno::ENOTDIR),
        ("/no/g", CREATE, Errno::ENOENT),
    ] {
        assert_eq!(world.open(path, flags), failed(error), "{path} {flags:o}");
    }
}

#[test]
fn a_link_to_nothing_leads_a_new_file_to_its_place() {
    let world = World::new();
    world.mkdir("/d").unwrap();
    world.symlink("d/target", "/link").unwrap();
    assert_eq!(world.open("/link", CREATE | raw::O_EXCL), failed(Errno::EEXIST));
    world.write_file("/link", "x");
    assert_eq!(world.read_file("/d/target").unwrap(), "x");
    assert_eq!(world.mkdir("/link"), Err(Errno::EEXIST));
}

#[test]
fn paths_begin_at_an_open_directory() {
    let world = World::new();
    world.mkdir("/d").unwrap();
    world.write_file("/d/f", "x");
    let dir = world.open("/d", raw::O_RDONLY | raw::O_DIRECTORY).unwrap();
    let at = |dir: i32, path: &[u8]| world.run(|calls| calls.openat(dir, path, 0, 0));
    let file = at(dir as i32, b"f").unwrap();
    at(dir as i32, b"/d/f").unwrap();
    assert_eq!(at(-1, b"f"), failed(Errno::EBADF));
    at(-1, b"/d/f").unwrap();
    assert_eq!(at(file as i32, b"f"), failed(Errno::ENOTDIR));
    let path_only = world.open("/d/f", raw::O_PATH).unwrap();
    assert_eq!(world.read(path_only, 1), failed(Errno::EBADF));
    assert_eq!(world.table.get(file).unwrap().path().unwrap(), b"/d/f");
    world.unlink("/d/f").unwrap();
    assert_eq!(world.table.get(file).unwrap().path().unwrap(), b"/d/f (deleted)");
    assert_eq!(world.read(file, 1).unwrap(), "x");
}

#[test]
fn directories_are_made_and_removed_when_empty() {
    let world = World::new();
    let links = |path| world.about(path).unwrap().meta.links;
    world.mkdir("/d/").unwrap();
    world.mkdir("/d/e").unwrap();
    assert_eq!((links("/d"), links("/d/e"), links("/")), (3, 2, 4));
    assert_eq!(world.mkdir("/d"), Err(Errno::EEXIST));
    assert_eq!(world.mkdir("/"), Err(Errno::EEXIST));
    assert_eq!(world.mkdir("/none/x"), Err(Errno::ENOENT));
    for (path, error) in [
        ("/d", Errno::ENOTEMPTY),
        ("/d/.", Errno::EINVAL),
        ("/d/e/..", Errno::ENOTEMPTY),
        ("/", Errno::EBUSY),
        ("/none", Errno::ENOENT),
        ("/dev/null", Errno::ENOTDIR),
    ] {
        assert_eq!(world.rmdir(path), Err(error), "{path}");
    }
    assert_eq!(world.unlink("/d/e"), Err(Errno::EISDIR));
    world.rmdir("/d/e/").unwrap();
    assert_eq!(links("/d"), 2);
    world.rmdir("/d").unwrap();
    assert_eq!(world.about("/d").err(), Some(Errno::ENOENT));
}

#[test]
fn nothing_is_made_in_a_directory_that_was_removed() {
    let world = World::new();
    world.mkdir("/d").unwrap();
    world.run(|calls| calls.chdir(b"/d")).unwrap();
    let cwd = |count| {
        let mut bytes = Vec::new();
        world.run(|calls| calls.getcwd(count, &mut bytes)).map(|_| bytes)
    };
    assert_eq!(cwd(99).unwrap(), b"/d\0");
    assert_eq!(cwd(2), Err(Errno::ERANGE));
    world.rmdir("/d").unwrap();
    assert_eq!(cwd(99), Err(Errno::ENOENT));
    assert_eq!(world.open("f", CREATE), failed(Errno::ENOENT));
    assert_eq!(world.mkdir("e"), Err(Errno::ENOENT));
    assert_eq!(world.list(".", 99), Err(Errno::ENOENT));
    assert_eq!(world.run(|calls| calls.chdir(b"/dev/null")), Err(Errno::ENOTDIR));
    world.run(|calls| calls.chdir(b"/")).unwrap();
    assert_eq!(cwd(99).unwrap(), b"/\0");
}

#[test]
fn a_file_lives_until_its_last_name_goes() {
    let world = World::new();
    world.write_file("/f", "x");
    world.link("/f", "/g").unwrap();
    assert_eq!(world.about("/g").unwrap().meta.links, 2);
    assert_eq!(world.about("/f").unwrap().inode, world.about("/g").unwrap().inode);
    world.unlink("/f").unwrap();
    assert_eq!(world.read_file("/g").unwrap(), "x");
    assert_eq!(world.link("/g", "/g"), Err(Errno::EEXIST));
    assert_eq!(world.link("/dev", "/dev2"), Err(Errno::EPERM));
    assert_eq!(world.link("/none", "/h"), Err(Errno::ENOENT));
    assert_eq!(world.link("/g", "/h/"), Err(Errno::ENOENT));
    world.symlink("g", "/s").unwrap();
    world.link("/s", "/t").unwrap();
    assert_eq!(world.about("/t").unwrap().mode & raw::S_IFMT, raw::S_IFLNK);
    assert_eq!(world.unlink("/g/"), Err(Errno::ENOTDIR));
    assert_eq!(world.unlink("/none"), Err(Errno::ENOENT));
}

#[test]
fn readlink_gives_as_much_as_fits() {
    let world = World::new();
    world.symlink("target", "/s").unwrap();
    let read = |path: &[u8], count| {
        let mut bytes = Vec::new();
        world.run(|calls| calls.readlinkat(raw::AT_FDCWD, path, count, &mut bytes)).map(|_| bytes)
    };
    assert_eq!(read(b"/s", 99).unwrap(), b"target");
    assert_eq!(read(b"/s", 3).unwrap(), b"tar");
    assert_eq!(read(b"/s", 0), Err(Errno::EINVAL));
    assert_eq!(read(b"/dev", 9), Err(Errno::EINVAL));
    assert_eq!(read(b"/none", 9), Err(Errno::ENOENT));
    assert_eq!(world.symlink("", "/x"), Err(Errno::ENOENT));
    assert_eq!(world.symlink("x", "/s"), Err(Errno::EEXIST));
    assert_eq!(world.symlink(&"x".repeat(4096), "/x"), Err(Errno::ENAMETOOLONG));
}

#[test]
fn rename_moves_and_replaces_files_of_one_kind() {
    let world = World::new();
    for path in ["/d", "/d/e", "/full", "/full/x", "/empty"] {
        world.mkdir(path).unwrap();
    }
    world.write_file("/f", "f");
    world.write_file("/g", "g");
    for (from, to, error) in [
        ("/none", "/x", Errno::ENOENT),
        ("/d", "/d/e/sub", Errno::EINVAL),
        ("/d/e", "/d", Errno::ENOTEMPTY),
        ("/d", "/full", Errno::ENOTEMPTY),
        ("/d", "/f", Errno::ENOTDIR),
        ("/f", "/d", Errno::EISDIR),
        ("/f", "/new/", Errno::ENOTDIR),
        ("/", "/x", Errno::EBUSY),
        ("/d/.", "/x", Errno::EBUSY),
        ("/f", "/d/..", Errno::EBUSY),
    ] {
        assert_eq!(world.rename(from, to, 0), Err(error), "{from} {to}");
    }
    world.rename("/f", "/g", 0).unwrap();
    assert_eq!(world.read_file("/g").unwrap(), "f");
    assert_eq!(world.about("/f").err(), Some(Errno::ENOENT));
    world.rename("/d", "/empty", 0).unwrap();
    world.rename("/empty/e", "/full/x/e", 0).unwrap();
    assert_eq!(world.list("/full/x", 99).unwrap(), ["e"]);
    let links = |path| world.about(path).unwrap().meta.links;
    assert_eq!((links("/empty"), links("/full/x"), links("/")), (2, 3, 5));
    world.run(|calls| calls.chdir(b"/full/x/e")).unwrap();
    world.rename("/full", "/renamed", 0).unwrap();
    let mut cwd = Vec::new();
    world.run(|calls| calls.getcwd(99, &mut cwd)).unwrap();
    assert_eq!(cwd, b"/renamed/x/e\0");
    assert_eq!(world.list("../..", 99).unwrap(), ["x"]);
}

#[test]
fn rename_can_keep_or_exchange_the_target() {
    let world = World::new();
    world.write_file("/f", "f");
    world.mkdir("/d").unwrap();
    world.mkdir("/d/e").unwrap();
    assert_eq!(world.rename("/f", "/d", raw::RENAME_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(world.rename("/f", "/n", raw::RENAME_EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(world.rename("/d", "/d/e", raw::RENAME_EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(world.rename("/d/e", "/d", raw::RENAME_EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(world.rename("/f", "/n", 4), Err(Errno::EINVAL));
    world.rename("/f", "/d/e", raw::RENAME_EXCHANGE).unwrap();
    assert_eq!(world.read_file("/d/e").unwrap(), "f");
    assert_eq!(world.list("/f", 99).unwrap().len(), 0);
    assert_eq!(world.about("/d").unwrap().meta.links, 2);
    world.rename("/d/e", "/new", raw::RENAME_NOREPLACE).unwrap();
    world.link("/new", "/same").unwrap();
    world.rename("/new", "/same", 0).unwrap();
    assert_eq!(world.about("/new").unwrap().meta.links, 2);
}

#[test]
fn listings_are_whole_however_small_the_buffer_and_while_names_go() {
    let world = World::new();
    world.mkdir("/d").unwrap();
    let mut expected: Vec<_> = (0..50).map(|number| std::format!("name{number}")).collect();
    expected.iter().for_each(|name| world.write_file(&std::format!("/d/{name}"), ""));
    expected.sort();
    assert_eq!(world.list("/d", 40).unwrap(), expected);
    assert_eq!(world.list("/d", 1 << 20).unwrap(), expected);
    assert_eq!(world.list("/d", 23), Err(Errno::EINVAL));
    assert_eq!(world.list("/dev/null", 99), Err(Errno::ENOTDIR));
    let fd = world.open("/d", 0).unwrap();
    loop {
        let mut bytes = Vec::new();
        world.run(|calls| calls.getdents64(fd, 100, &mut bytes)).unwrap();
        if bytes.is_empty() {
            break;
        }
        for name in names_of(&bytes).iter().filter(|name| !name.starts_with('.')) {
            world.unlink(&std::format!("/d/{name}")).unwrap();
        }
    }
    world.rmdir("/d").unwrap();
}

#[test]
fn mknod_makes_files_and_pipes_but_no_sockets() {
    let world = World::new();
    let make = |path: &[u8], mode| {
        world.run(|calls| calls.mknodat(raw::AT_FDCWD, path, mode, joined((1, 3))))
    };
    make(b"/file", raw::S_IFREG | 0o640).unwrap();
    make(b"/pipe", raw::S_IFIFO).unwrap();
    make(b"/null", raw::S_IFCHR).unwrap();
    assert_eq!(world.read_file("/null").unwrap(), "");
    assert_eq!(world.about("/pipe").unwrap().mode, raw::S_IFIFO);
    assert_eq!(make(b"/file", raw::S_IFREG), Err(Errno::EEXIST));
    assert_eq!(make(b"/sock", raw::S_IFSOCK), Err(Errno::EPERM));
    assert_eq!(make(b"/what", raw::S_IFMT), Err(Errno::EINVAL));
}

#[test]
fn unknown_flags_are_refused() {
    let world = World::new();
    let unlinked = world.run(|calls| calls.unlinkat(raw::AT_FDCWD, b"/x", 1));
    assert_eq!(unlinked, Err(Errno::EINVAL));
    let linked = world.run(|calls| calls.linkat(raw::AT_FDCWD, b"/x", raw::AT_FDCWD, b"/y", 1));
    assert_eq!(linked, Err(Errno::EINVAL));
}

#[test]
fn a_file_without_a_name_is_written_and_read_and_is_in_no_directory() {
    let world = World::new();
    let flags = raw::O_TMPFILE | raw::O_RDWR;
    let open = |calls: &Calls<'_>| calls.openat(raw::AT_FDCWD, b"/dev", flags, 0o600).ok();
    let fd = world.run(|calls| open(calls)).unwrap();
    assert_eq!(world.write(fd, "bytes"), Ok(5));
    world.run(|calls| calls.lseek(fd, 0, raw::SEEK_SET)).unwrap();
    assert_eq!(world.read(fd, 9).unwrap(), "bytes");
    let open = world.run(|calls| calls.open_file(fd)).unwrap();
    assert_eq!(About::of(open.node()).meta.links, 0);
    assert!(open.path().unwrap().ends_with(b" (deleted)"));
}
