//! The initramfs: our `/init`, the program, busybox if there is one, and files that programs need.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cpio::Archive;
use super::modules::Module;
use super::run::Order;
use super::{Programs, request};
use crate::setup;
use crate::steps::Missing;

/// Links to busybox in `/bin`.
pub(super) const APPLETS: [&str; 72] = [
    "ash",
    "awk",
    "base64",
    "basename",
    "cat",
    "chmod",
    "clear",
    "cmp",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "diff",
    "dirname",
    "dmesg",
    "du",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "free",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "hostname",
    "id",
    "kill",
    "less",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "more",
    "mount",
    "mv",
    "nproc",
    "od",
    "printenv",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "sync",
    "tail",
    "tar",
    "tee",
    "test",
    "time",
    "top",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "vi",
    "wc",
    "xargs",
    "yes",
];

/// Packs an initramfs for the order's program: a program of `os/guest/`, a script of
/// `os/guest/scripts/` (`NAME.sh`), `busybox`, a static ELF file of the host, or a directory of the
/// host that becomes the root. Beside it stand the drivers that init loads, and init's files.
///
/// # Errors
/// The reason it cannot be packed, as a sentence.
pub(super) fn pack(root: &Path, order: &Order, modules: &[Module]) -> Result<Vec<u8>, Missing> {
    let isa = order.isa;
    let programs = Programs::new(root, isa)?;
    let mut archive = Archive::default();
    let (program, args) = (order.program(), order.words.get(1..).unwrap_or_default());
    let dir = program.map(Path::new).filter(|path| path.is_dir());
    if let Some(dir) = dir {
        add_tree(&mut archive, dir, "").map_err(failed)?;
    } else {
        skeleton(&mut archive);
    }
    add_modules(&mut archive, modules);
    archive.file("init", 0o755, &read(&programs.build("init").map_err(failed)?)?);
    if dir.is_some() {
        add_words(&mut archive, order, args)?;
        return Ok(archive.finish());
    }
    let is_script = program.is_some_and(|name| name.ends_with(".sh"));
    let wants_busybox = is_script || program.is_none_or(|name| name == "busybox");
    match setup::busybox(root, isa, wants_busybox) {
        Ok(path) => add_busybox(&mut archive, &read(&path)?, program),
        Err(missing) if wants_busybox => return Err(missing),
        Err(_) => {}
    }
    let mut words: Vec<OsString> = Vec::new();
    if let Some(name) = program.filter(|_| is_script) {
        archive.file("bin/script.sh", 0o755, &read(&script(root, name)?)?);
        words.extend(["/bin/sh", "/bin/script.sh"].map(OsString::from));
    } else if let Some(name) = program.filter(|_| !wants_busybox) {
        let path = find(root, &programs, name)?;
        let base = path.file_name().map_or_else(|| name.into(), |base| base.to_string_lossy());
        archive.file(&format!("bin/{base}"), 0o755, &read(&path)?);
        words.push(format!("/bin/{base}").into());
    } else if program.is_some() {
        words.push(if args.is_empty() { "/bin/sh" } else { "/bin/busybox" }.into());
    }
    words.extend_from_slice(args);
    add_words(&mut archive, order, &words)?;
    Ok(archive.finish())
}

/// Packs init, the drivers that it is to load, and the program if it is one of `os/guest/`: the
/// rest is on a disk.
///
/// # Errors
/// The reason it cannot be packed, as a sentence.
pub(super) fn pack_init(
    root: &Path,
    order: &Order,
    modules: &[Module],
) -> Result<Vec<u8>, Missing> {
    let programs = Programs::new(root, order.isa)?;
    let mut archive = Archive::default();
    archive.file("init", 0o755, &read(&programs.build("init").map_err(failed)?)?);
    if !modules.is_empty() {
        // Only Linux has modules, and it opens the console for init before anything is mounted.
        archive.directory("dev");
        archive.device("dev/console", (5, 1));
    }
    add_modules(&mut archive, modules);
    let mut words = order.words.clone();
    if let Some(name) = order.program()
        && Programs::names(root).iter().any(|known| known == name)
    {
        archive.file(name, 0o755, &read(&programs.build(name).map_err(failed)?)?);
        words[0] = format!("/{name}").into();
    }
    add_words(&mut archive, order, &words)?;
    Ok(archive.finish())
}

/// Adds init's files: the argument vector of the program, the settings, the devices to swap to. In
/// each a zero byte ends each string, so that any other byte can be in it.
fn add_words(archive: &mut Archive, order: &Order, words: &[OsString]) -> Result<(), Missing> {
    let mut add = |name: &str, strings: Vec<OsString>| {
        if !strings.is_empty() {
            archive.file(name, 0o644, &ended(&strings));
        }
    };
    let owned = |strings: Vec<String>| strings.into_iter().map(OsString::from).collect();
    add("init.argv", words.to_vec());
    add("init.settings", owned(request::settings(order).map_err(failed)?));
    add("init.swaps", owned(request::swap_areas(order)));
    Ok(())
}

/// Strings as init reads them.
fn ended(strings: &[OsString]) -> Vec<u8> {
    strings.iter().flat_map(|string| string.as_bytes().iter().copied().chain([0])).collect()
}

/// Adds drivers as init looks for them: a file by its number, and beside it its arguments.
fn add_modules(archive: &mut Archive, modules: &[Module]) {
    if !modules.is_empty() {
        archive.directory("modules");
    }
    for (number, module) in modules.iter().enumerate() {
        archive.file(&format!("modules/{number}"), 0o644, &module.image);
        if !module.args.is_empty() {
            let args = module.args.as_bytes();
            archive.file(&format!("modules/{number}.args"), 0o644, args);
        }
    }
}

/// The script's file: one of `os/guest/scripts/`, or a path.
fn script(root: &Path, name: &str) -> Result<PathBuf, Missing> {
    let ours = root.join("os/guest/scripts").join(name);
    let found = [ours, PathBuf::from(name)].into_iter().find(|path| path.is_file());
    found.ok_or_else(|| failed(format!("there is no script `{name}` in os/guest/scripts.")))
}

/// The program's file on the host, compiled now if it is ours.
///
/// # Errors
/// There is none, or it does not compile.
pub(super) fn find(root: &Path, programs: &Programs, name: &str) -> Result<PathBuf, Missing> {
    if !name.contains('/') && Programs::names(root).iter().any(|known| known == name) {
        return programs.build(name).map_err(failed);
    }
    if Path::new(name).is_file() {
        return Ok(PathBuf::from(name));
    }
    let known = Programs::names(root).join(", ");
    Err(failed(format!("there is no program `{name}`: name one of {known}, busybox, or a path.")))
}

fn skeleton(archive: &mut Archive) {
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        archive.directory(dir);
    }
    // Linux opens the console for init before anything is mounted.
    archive.device("dev/console", (5, 1));
    archive.device("dev/null", (1, 3));
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n");
    archive.file("etc/group", 0o644, b"root:x:0:\n");
}

/// Adds busybox under all its names but that of the program, which takes precedence.
fn add_busybox(archive: &mut Archive, bytes: &[u8], program: Option<&str>) {
    archive.file("bin/busybox", 0o755, bytes);
    let taken = program.and_then(|program| Path::new(program).file_name());
    for applet in APPLETS.iter().filter(|&&applet| taken.is_none_or(|taken| taken != applet)) {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
}

/// Packs a directory of the host, without devices and sockets.
fn add_tree(archive: &mut Archive, dir: &Path, prefix: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let fail = |path: &Path, error| format!("{}: {error}", path.display());
    let entries = dir.read_dir().map_err(|error| fail(dir, error))?;
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let data = path.symlink_metadata().map_err(|error| fail(&path, error))?;
        if data.is_symlink() {
            let target = fs::read_link(&path).map_err(|error| fail(&path, error))?;
            archive.link(&name, &target.to_string_lossy());
        } else if data.is_dir() {
            archive.directory(&name);
            add_tree(archive, &path, &format!("{name}/"))?;
        } else if data.is_file() {
            let content = fs::read(&path).map_err(|error| fail(&path, error))?;
            archive.file(&name, data.permissions().mode(), &content);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Missing> {
    fs::read(path).map_err(|error| failed(format!("{}: {error}.", path.display())))
}

fn failed(sentence: String) -> Missing {
    Missing { sentence, fails: true }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::ended;

    #[test]
    fn each_argument_keeps_its_bytes() {
        let odd: Vec<OsString> = [&b"a b;"[..], b"", b"\"\n'", b"\xff"]
            .map(|word| OsString::from_vec(word.into()))
            .into();
        assert_eq!(ended(&odd), b"a b;\0\0\"\n'\0\xff\0");
    }
}
