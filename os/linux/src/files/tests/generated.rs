//! Generated trees: a /proc of a few entries.

use std::format;

use super::*;

/// /proc with `self`, `count`, `raw`, `note` and `10/fd0`, a jump to a node.
struct Proc {
    rendered: Arc<AtomicUsize>,
    target: Arc<Node>,
    depth: u32,
}

struct Count(Arc<AtomicUsize>);

impl Generated for Count {
    fn text(&self, who: &Caller<'_>, out: &mut Text) -> Result<()> {
        let times = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        out.print(format_args!("render {times} for {}\n", who.pid))
    }

    fn write(&self, _: &Caller<'_>, _: u64, bytes: &[u8]) -> Result<usize> {
        if bytes == b"reset\n" {
            self.0.store(0, Ordering::Relaxed);
            return Ok(bytes.len());
        }
        Err(Errno::EINVAL)
    }
}

struct Raw;

impl Generated for Raw {
    fn is_binary(&self) -> bool {
        true
    }

    fn read_at(
        &self,
        _: &Caller<'_>,
        offset: u64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize> {
        let byte = b'a' + (offset % 26) as u8;
        sink.put(&[byte].repeat(count))?;
        Ok(count)
    }
}

impl Directory for Proc {
    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        let pid = format!("{}", who.pid);
        let (inode, what) = match name {
            b"self" => (2, What::Link(pid.into_bytes())),
            b"count" => (3, What::File(Arc::new(Count(self.rendered.clone())))),
            b"raw" => (4, What::File(Arc::new(Raw))),
            b"fd0" => {
                let place = None;
                let jump = Jump { text: b"pipe:[1]".to_vec(), node: self.target.clone(), place };
                (5, What::Jump(jump))
            }
            name if name == pid.as_bytes() && self.depth == 0 => {
                let (rendered, target) = (self.rendered.clone(), self.target.clone());
                (6, What::Directory(Arc::new(Proc { rendered, target, depth: 1 })))
            }
            _ => return Err(Errno::ENOENT),
        };
        Ok(Entry { inode, mode: 0o444, what })
    }

    fn list(&self, _: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        let names = [(&b"self"[..], 2, Kind::Link), (b"count", 3, Kind::File)];
        for (at, (name, inode, kind)) in (0..).zip(names).skip(from as usize) {
            if !tell(at + 1, name, inode, kind) {
                break;
            }
        }
        Ok(())
    }
}

fn world() -> World {
    let world = World::new();
    let target = world.tree.make_file(None, 0o600, NOW).unwrap();
    let Body::File(data) = target.body() else { panic!("it is a regular file") };
    data.write_at(None, b"target").unwrap();
    let proc = Proc { rendered: Arc::default(), target, depth: 0 };
    let magic = raw::PROC_SUPER_MAGIC;
    world.tree.mount(&world.who(), b"/proc", "proc", magic, Arc::new(proc)).unwrap();
    world
}

#[test]
fn text_is_rendered_once_until_one_seeks_back() {
    let world = world();
    let fd = world.open("/proc/count", 0).unwrap();
    assert_eq!(world.read(fd, 6).unwrap(), "render");
    assert_eq!(world.read(fd, 99).unwrap(), " 1 for 10\n");
    assert_eq!(world.read(fd, 99).unwrap(), "");
    world.run(|calls| calls.lseek(fd, 7, raw::SEEK_SET)).unwrap();
    assert_eq!(world.read(fd, 1).unwrap(), "1");
    world.run(|calls| calls.lseek(fd, 0, raw::SEEK_SET)).unwrap();
    assert_eq!(world.read(fd, 99).unwrap(), "render 2 for 10\n");
    let mut bytes = Vec::new();
    assert_eq!(world.run(|calls| calls.pread64(fd, 7, 1, &mut bytes)), Ok(1));
    assert_eq!(world.run(|calls| calls.pread64(fd, 0, 8, &mut bytes)), Ok(8));
    assert_eq!(bytes, b"2render 3");
    assert_eq!(world.about("/proc/count").unwrap().length, 0);
}

#[test]
fn entries_are_looked_up_for_the_caller() {
    let world = world();
    assert_eq!(world.read_file("/proc/self/count").unwrap(), "render 1 for 10\n");
    assert_eq!(world.read_file("/proc/99/count"), failed(Errno::ENOENT));
    let fd = world.open("/proc/self", raw::O_DIRECTORY).unwrap();
    assert_eq!(world.table.get(fd).unwrap().path().unwrap(), b"/proc/10");
    world.run(|calls| calls.fchdir(fd)).unwrap();
    assert_eq!(world.read_file("../count").unwrap(), "render 2 for 10\n");
    assert_eq!(world.list("../..", 99).unwrap(), ["dev", "proc"]);
}

#[test]
fn a_jump_leads_to_its_node_whatever_its_text() {
    let world = world();
    assert_eq!(world.read_file("/proc/self/fd0").unwrap(), "target");
    let mut text = Vec::new();
    let path = b"/proc/self/fd0";
    world.run(|calls| calls.readlinkat(raw::AT_FDCWD, path, 99, &mut text)).unwrap();
    assert_eq!(text, b"pipe:[1]");
    let nofollow = world.open("/proc/self/fd0", raw::O_NOFOLLOW);
    assert_eq!(nofollow, failed(Errno::ELOOP));
    assert_eq!(world.read_file("/proc/self/fd0/x"), failed(Errno::ENOTDIR));
}

#[test]
fn binary_files_are_read_where_one_asks() {
    let world = world();
    let fd = world.open("/proc/raw", 0).unwrap();
    assert_eq!(world.read(fd, 2).unwrap(), "aa");
    assert_eq!(world.read(fd, 2).unwrap(), "cc");
    let mut bytes = Vec::new();
    assert_eq!(world.run(|calls| calls.pread64(fd, 25, 1, &mut bytes)), Ok(1));
    assert_eq!(bytes, b"z");
    assert_eq!(world.run(|calls| calls.lseek(fd, 0, raw::SEEK_END)), Err(Errno::EINVAL));
}

#[test]
fn generated_files_take_only_known_writes() {
    let world = world();
    let fd = world.open("/proc/count", raw::O_WRONLY | raw::O_TRUNC).unwrap();
    assert_eq!(world.write(fd, "reset\n"), Ok(6));
    assert_eq!(world.write(fd, "nonsense"), failed(Errno::EINVAL));
    let mut broken = Broken { bytes: b"", claimed: 4 };
    assert_eq!(world.run(|calls| calls.write(fd, &mut broken)), failed(Errno::EFAULT));
    let fd = world.open("/proc/raw", raw::O_WRONLY).unwrap();
    assert_eq!(world.write(fd, "x"), failed(Errno::EINVAL));
}

#[test]
fn nothing_is_made_changed_or_removed_in_a_generated_tree() {
    let world = world();
    world.write_file("/f", "");
    let create = raw::O_CREAT | raw::O_WRONLY;
    assert_eq!(world.open("/proc/new", create), failed(Errno::EACCES));
    assert_eq!(world.mkdir("/proc/new"), Err(Errno::EPERM));
    assert_eq!(world.unlink("/proc/count"), Err(Errno::EPERM));
    assert_eq!(world.rmdir("/proc/10"), Err(Errno::EPERM));
    assert_eq!(world.rename("/f", "/proc/new", 0), Err(Errno::EXDEV));
    assert_eq!(world.rename("/proc/count", "/proc/new", 0), Err(Errno::EPERM));
    assert_eq!(world.link("/proc/count", "/new"), Err(Errno::EXDEV));
    let changed = world.run(|calls| calls.fchmodat(raw::AT_FDCWD, b"/proc/count", 0, 0));
    assert_eq!(changed, Err(Errno::EPERM));
}

#[test]
fn where_a_tree_begins_the_name_stays() {
    let world = world();
    assert_eq!(world.rmdir("/proc"), Err(Errno::EBUSY));
    assert_eq!(world.rename("/proc", "/x", 0), Err(Errno::EBUSY));
    assert_eq!(world.mkdir("/proc"), Err(Errno::EEXIST));
    let again = |path: &[u8]| {
        let target = world.tree.make_directory(0, NOW);
        let tree = Arc::new(Proc { rendered: Arc::default(), target, depth: 0 });
        world.tree.mount(&world.who(), path, "proc", 1, tree)
    };
    assert_eq!(again(b"/proc"), Err(Errno::EBUSY));
    assert_eq!(again(b"/"), Err(Errno::EBUSY));
    assert_eq!(again(b"/dev/null"), Err(Errno::ENOTDIR));
    assert_eq!(again(b"/none/x"), Err(Errno::ENOENT));
    assert_eq!(again(b"/proc/x"), Err(Errno::EPERM));
    world.mkdir("/sys").unwrap();
    assert_eq!(again(b"/sys"), Ok(()));
    let mut mounts = Vec::new();
    world.tree.mounts(&mut |path, kind| {
        mounts.push((String::from_utf8(path.to_vec()).unwrap(), String::from(kind)));
    });
    let expected = [("/", "tmpfs"), ("/proc", "proc"), ("/sys", "proc")];
    assert_eq!(mounts, expected.map(|(path, kind)| (path.into(), kind.into())));
    let volume = world.about("/proc/count").unwrap().volume;
    assert_eq!(world.tree.magic(volume), raw::PROC_SUPER_MAGIC);
}

#[test]
fn a_generated_directory_is_listed_from_its_cookies_on() {
    let world = world();
    assert_eq!(world.list("/proc", 32).unwrap(), ["count", "self"]);
    assert_eq!(world.list("/proc", 999).unwrap(), ["count", "self"]);
}

/// A directory in which directories are made and removed, like that of groups. It has a file
/// `about`.
#[derive(Default)]
struct Maker {
    made: Mutex<Vec<Vec<u8>>>,
}

impl Directory for Maker {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        if name == b"about" {
            let what = What::File(Arc::new(Count(Arc::default())));
            return Ok(Entry { inode: 2, mode: 0o444, what });
        }
        let made = self.made.lock().unwrap();
        let at = made.iter().position(|own| own == name).ok_or(Errno::ENOENT)?;
        let what = What::Directory(Arc::new(Self::default()));
        Ok(Entry { inode: at as u64 + 3, mode: 0o755, what })
    }

    fn list(&self, _: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        for (at, name) in (0..).zip(&*self.made.lock().unwrap()).skip(from as usize) {
            if !tell(at + 1, name, at + 3, Kind::Directory) {
                break;
            }
        }
        Ok(())
    }

    fn make_directory(&self, who: &Caller<'_>, name: &[u8]) -> Result<()> {
        assert_eq!(who.pid, 10);
        self.made.lock().unwrap().push(name.to_vec());
        Ok(())
    }

    fn remove_directory(&self, _: &Caller<'_>, name: &[u8]) -> Result<()> {
        if name == b"busy" {
            return Err(Errno::EBUSY);
        }
        self.made.lock().unwrap().retain(|own| own != name);
        Ok(())
    }
}

#[test]
fn a_generated_directory_makes_and_removes_directories_itself() {
    let world = World::new();
    let maker = Arc::new(Maker::default());
    world.tree.mount(&world.who(), b"/groups", "cgroup2", 1, maker).unwrap();
    assert_eq!(world.mkdir("/groups/one"), Ok(()));
    assert_eq!(world.mkdir("/groups/one"), Err(Errno::EEXIST));
    assert_eq!(world.mkdir("/groups/about"), Err(Errno::EEXIST));
    assert_eq!(world.mkdir("/groups/two/"), Ok(()));
    assert_eq!(world.list("/groups", 99).unwrap(), ["one", "two"]);
    assert_eq!(world.rmdir("/groups/about"), Err(Errno::ENOTDIR));
    assert_eq!(world.rmdir("/groups/none"), Err(Errno::ENOENT));
    assert_eq!(world.unlink("/groups/one"), Err(Errno::EPERM));
    assert_eq!(world.rmdir("/groups/one/"), Ok(()));
    assert_eq!(world.mkdir("/groups/busy"), Ok(()));
    assert_eq!(world.rmdir("/groups/busy"), Err(Errno::EBUSY));
    assert_eq!(world.list("/groups", 99).unwrap(), ["busy", "two"]);
}

#[test]
fn a_generated_tree_may_begin_in_another_one() {
    let world = world();
    let maker = Arc::new(Maker::default());
    let below = |path: &[u8]| world.tree.mount(&world.who(), path, "cgroup2", 77, maker.clone());
    assert_eq!(below(b"/proc/10"), Ok(()));
    assert_eq!(below(b"/proc/10"), Err(Errno::EBUSY));
    assert_eq!(below(b"/proc/count"), Err(Errno::ENOTDIR));
    assert_eq!(below(b"/proc/11"), Err(Errno::EPERM));
    assert_eq!(world.mkdir("/proc/10/one"), Ok(()));
    assert_eq!(world.list("/proc/10", 99).unwrap(), ["one"]);
    assert_eq!(world.rmdir("/proc/10"), Err(Errno::EBUSY));
    let about = world.about("/proc/10/about").unwrap();
    assert_eq!(world.tree.magic(about.volume), 77);
    assert_ne!(about.volume, world.about("/proc/count").unwrap().volume);
    let fd = world.open("/proc/self/one", raw::O_DIRECTORY).unwrap();
    assert_eq!(world.table.get(fd).unwrap().path().unwrap(), b"/proc/10/one");
    world.run(|calls| calls.fchdir(fd)).unwrap();
    assert_eq!(world.read_file("../../count").unwrap(), "render 1 for 10\n");
}
