//! Packages of Debian that are unpacked and not installed: busybox, kernels and small roots, for
//! each ISA, and Linux's own tests.
//!
//! apt works here with lists and a cache of its own in the build directory, so the machine stays as
//! it is, and needs to know nothing of other ISAs. Where its own release lacks an ISA, the next one
//! that has it takes its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::{may_install, suites};
use crate::guest::Isa;
use crate::steps::{Missing, build_dir};

/// The oldest Linux worth a comparison: folios of many sizes came with 6.8, and this is the next
/// one that distributions keep for long.
const OLDEST_LINUX: (u32, u32) = (6, 12);

/// The last release of Debian without riscv64, with the first suite that has it, and the newest: a
/// mirror may have lists of one of them that do not belong together, which apt refuses.
const BEFORE_RISCV: [(u32, &str); 2] = [(12, "trixie"), (12, "sid")];

/// A static busybox for `isa`: one that was unpacked before, the host's own, or Debian's.
///
/// # Errors
/// Why there is none.
pub fn busybox(root: &Path, isa: Isa, may_fetch: bool) -> Result<PathBuf, Missing> {
    let dir = build_dir(root).join("guest").join(isa.name()).join("busybox");
    // Since trixie, Debian's packages have their programs below `usr` alone.
    let places = ["bin", "usr/bin"].map(|place| dir.join(place).join("busybox"));
    let find = || places.iter().find(|path| is_static(path)).cloned();
    if let Some(found) = find() {
        return Ok(found);
    }
    let installed = Path::new("/bin/busybox");
    if std::env::consts::ARCH == isa.name() && is_static(installed) {
        return Ok(installed.to_path_buf());
    }
    if !may_fetch {
        return Err(missing(format!("there is no busybox for {} here.", isa.name())));
    }
    let packages = Packages::of(root, isa)?;
    packages.unpack("busybox-static", "busybox")?;
    find().ok_or_else(|| missing("the package busybox-static has no busybox.".to_owned()))
}

/// The packages of a small root of Debian: a shell and the usual tools, all of them dynamic, with
/// the libraries that they need.
const ROOT: [&str; 10] = [
    "libc6",
    "dash",
    "coreutils",
    "findutils",
    "libacl1",
    "libattr1",
    "libcap2",
    "libgmp10",
    "libpcre2-8-0",
    "libselinux1",
];

/// The packages that newer releases need besides, those that have the first of them.
const ROOT_LATER: [&str; 3] = ["libssl3t64", "libzstd1", "zlib1g"];

/// Directories that no program needs.
const UNUSED: [&str; 6] = ["doc", "man", "info", "locale", "lintian", "bug"];

/// A directory with dynamic programs of Debian for `isa`; one that was unpacked before, or now.
///
/// # Errors
/// Why there is none.
pub fn debian_root(root: &Path, isa: Isa) -> Result<PathBuf, Missing> {
    let dir = build_dir(root).join("guest").join(isa.name());
    let (whole, part) = (dir.join("root"), dir.join("root.part"));
    if whole.is_dir() {
        return Ok(whole);
    }
    let packages = Packages::of(root, isa)?;
    let fail = |error: std::io::Error| missing(format!("{}: {error}.", part.display()));
    if part.exists() {
        fs::remove_dir_all(&part).map_err(fail)?;
    }
    let is_later = packages.run("apt-cache", &["show", ROOT_LATER[0]]).is_ok();
    for package in ROOT.into_iter().chain(ROOT_LATER.into_iter().filter(|_| is_later)) {
        packages.unpack(package, "root.part")?;
    }
    for name in UNUSED {
        // It need not be there.
        let _ = fs::remove_dir_all(part.join("usr/share").join(name));
    }
    // Since trixie no package has these links, which older ones have as directories.
    for name in ["bin", "sbin", "lib"] {
        let (link, place) = (part.join(name), Path::new("usr").join(name));
        if !link.exists() && part.join(&place).is_dir() {
            std::os::unix::fs::symlink(place, link).map_err(fail)?;
        }
    }
    // The package has no link for the shell's other name.
    let shell = part.join("bin/sh");
    if !shell.is_symlink() {
        std::os::unix::fs::symlink("dash", &shell).map_err(fail)?;
    }
    fs::rename(&part, &whole).map_err(fail)?;
    Ok(whole)
}

/// The beginnings of the names of packages that newer releases have for a kernel's parts, where the
/// package `linux-image-` only asks for them: the kernel, beside the list of its drivers, and
/// these.
const PARTS: [&str; 2] = ["linux-binary-", "linux-modules-"];

/// The newest kernel that Debian has for virtual machines of `isa`.
///
/// # Errors
/// Why there is none.
pub fn linux(root: &Path, isa: Isa) -> Result<PathBuf, Missing> {
    let boot = build_dir(root).join("guest").join(isa.name()).join("linux/boot");
    if let Some(found) = image(&boot) {
        return Ok(found);
    }
    let packages = Packages::of(root, isa)?;
    let name = packages.newest_kernel(isa)?;
    println!("Fetching {name}.");
    packages.unpack(&name, "linux")?;
    if image(&boot).is_none() {
        for start in PARTS {
            packages.unpack(&name.replacen("linux-image-", start, 1), "linux")?;
        }
        let version = name.trim_start_matches("linux-image-");
        let file = boot.with_file_name("usr/lib/modules").join(version).join("vmlinuz");
        fs::create_dir_all(&boot)
            .and_then(|()| fs::rename(&file, boot.join(format!("vmlinuz-{version}"))))
            .map_err(|error| missing(format!("{}: {error}.", file.display())))?;
    }
    image(&boot).ok_or_else(|| missing(format!("the package {name} has no boot/vmlinuz.")))
}

/// The parts of Linux's sources that are needed to build its tests of memory management.
const TESTS: [&str; 8] = [
    "tools/testing/selftests/mm/*",
    "tools/testing/selftests/*/pidfd.h",
    "tools/testing/selftests/*.h",
    "tools/include/*",
    "tools/arch/*",
    "mm/gup_test.h",
    "include/vdso/time64.h",
    "lib/test_hmm_uapi.h",
];

/// Linux's own tests of memory management from the newest sources that Debian has, in `linux/`, and
/// the headers of the same version, in `usr/`; what was unpacked before, or now. A directory that
/// `QUIRE_LINUX_TESTS` names takes their place, where there are newer ones.
///
/// # Errors
/// Why there are none.
pub fn linux_tests(root: &Path) -> Result<PathBuf, Missing> {
    if let Some(other) = std::env::var_os("QUIRE_LINUX_TESTS") {
        return Ok(PathBuf::from(other));
    }
    // The packages are the same for each ISA.
    let isa = Isa::X86_64;
    let dir = build_dir(root).join("guest").join(isa.name());
    let (whole, part) = (dir.join("selftests"), dir.join("selftests.part"));
    if whole.is_dir() {
        return Ok(whole);
    }
    let packages = Packages::of(root, isa)?;
    let (name, version) = packages.newest_source()?;
    println!("Fetching {name} {version}.");
    let fail = |error: std::io::Error| missing(format!("{}: {error}.", part.display()));
    if part.exists() {
        fs::remove_dir_all(&part).map_err(fail)?;
    }
    packages.unpack(&name, "selftests.part")?;
    packages.unpack_version("linux-libc-dev", Some(&version), "selftests.part")?;
    let (archive, tree) = (part.join(format!("usr/src/{name}.tar.xz")), part.join("linux"));
    fs::create_dir_all(&tree).map_err(fail)?;
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(&archive).arg("-C").arg(&tree);
    tar.args(["--strip-components=1", "--wildcards"]);
    tar.args(TESTS.map(|pattern| format!("{name}/{pattern}")));
    match tar.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(missing(format!("tar could not unpack {name}."))),
        Err(error) => return Err(missing(format!("tar: {error}."))),
    }
    fs::remove_file(&archive).map_err(fail)?;
    fs::rename(&part, &whole).map_err(fail)?;
    Ok(whole)
}

/// The packages with the static libraries that some of these tests need.
const LIBRARIES: [&str; 2] = ["libcap-dev", "libnuma-dev"];

/// A directory with `include/`, and one for the ISA with static libraries; what was unpacked
/// before, or now.
///
/// # Errors
/// Why there is none.
pub fn test_libraries(root: &Path, isa: Isa) -> Result<PathBuf, Missing> {
    let dir = build_dir(root).join("guest").join(isa.name());
    let (whole, part) = (dir.join("libraries"), dir.join("libraries.part"));
    if !whole.is_dir() {
        let packages = Packages::of(root, isa)?;
        for package in LIBRARIES {
            packages.unpack(package, "libraries.part")?;
        }
        let usr = part.join("usr");
        let fail = |error: std::io::Error| missing(format!("{}: {error}.", part.display()));
        let triple = format!("{}-linux-gnu", isa.name());
        fs::rename(usr.join("lib").join(&triple), usr.join(&triple)).map_err(fail)?;
        fs::rename(&usr, &whole).map_err(fail)?;
    }
    Ok(whole)
}

fn image(boot: &Path) -> Option<PathBuf> {
    let entries = boot.read_dir().ok()?.flatten();
    let names = entries.map(|entry| entry.path());
    names
        .filter(|path| {
            ["vmlinuz-", "vmlinux-"].iter().any(|start| path.to_string_lossy().contains(start))
        })
        .max()
}

fn missing(sentence: String) -> Missing {
    Missing { sentence, fails: false }
}

/// Whether this is an ELF file that asks for no interpreter by its usual names.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let head = &bytes[..bytes.len().min(4096)];
    bytes.starts_with(b"\x7fELF") && !head.windows(8).any(|part| part == b"ld-linux")
}

/// Debian's packages for one ISA.
struct Packages {
    /// Where they are unpacked: a directory for each ISA.
    dir: PathBuf,
    /// apt's options, which keep it in that directory.
    options: Vec<String>,
}

impl Packages {
    fn of(root: &Path, isa: Isa) -> Result<Self, Missing> {
        if !may_install() {
            return Err(missing("QUIRE_INSTALL=no: nothing is fetched.".to_owned()));
        }
        if isa != Isa::Riscv64 {
            return Self::in_suite(root, isa, None);
        }
        let [first, newest] = BEFORE_RISCV;
        Self::in_suite(root, isa, Some(first)).or_else(|_| Self::in_suite(root, isa, Some(newest)))
    }

    /// The packages of the system's own release and its backports, or of `instead`, if its release
    /// is no newer than that.
    fn in_suite(root: &Path, isa: Isa, instead: Option<(u32, &str)>) -> Result<Self, Missing> {
        let Some(suites) = suites(instead) else {
            return Err(missing("this is no Debian: name a kernel by its path.".to_owned()));
        };
        let dir = build_dir(root).join("guest").join(isa.name());
        let apt = dir.join("apt");
        let list = apt.join("quire.sources");
        fs::create_dir_all(apt.join("state/lists/partial"))
            .and_then(|()| fs::create_dir_all(apt.join("cache/archives/partial")))
            .and_then(|()| fs::write(apt.join("status"), ""))
            .and_then(|()| fs::write(&list, suites))
            .map_err(|error| missing(format!("{}: {error}.", apt.display())))?;
        let at = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        let words = [
            at("Dir::State", apt.join("state")),
            at("Dir::State::status", apt.join("status")),
            at("Dir::Cache", apt.join("cache")),
            at("Dir::Etc::sourcelist", list),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("APT::Architecture={}", isa.debian()),
            format!("APT::Architectures={}", isa.debian()),
            "Acquire::Languages=none".to_owned(),
        ];
        let options = words.into_iter().flat_map(|word| ["-o".to_owned(), word]).collect();
        let packages = Self { dir, options };
        packages.run("apt-get", &["-qq", "update"])?;
        Ok(packages)
    }

    /// Runs a program of apt in our directory; gives what it prints.
    fn run(&self, program: &str, words: &[&str]) -> Result<String, Missing> {
        let output = Command::new(program)
            .args(&self.options)
            .args(words)
            .current_dir(self.dir.join("apt/cache"))
            .output()
            .map_err(|error| missing(format!("{program}: {error}.")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
        Err(missing(format!("{program} {}: {}.", words.join(" "), last.trim())))
    }

    /// The package of the newest kernel of the ISA's flavour that is signed for and not built for
    /// debugging.
    fn newest_kernel(&self, isa: Isa) -> Result<String, Missing> {
        let names = self.run("apt-cache", &["pkgnames", "linux-image-"])?;
        newest(&names, flavour(isa)).ok_or_else(|| {
            let (major, minor) = OLDEST_LINUX;
            missing(format!("Debian has no kernel {major}.{minor} or later here."))
        })
    }

    /// The package of Linux's newest sources, and its version.
    fn newest_source(&self) -> Result<(String, String), Missing> {
        let names = self.run("apt-cache", &["pkgnames", "linux-source-"])?;
        let name = newest_source(&names)
            .ok_or_else(|| missing("Debian has no sources of Linux here.".to_owned()))?;
        let policy = self.run("apt-cache", &["policy", &name])?;
        let found = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        let version = found.ok_or_else(|| missing(format!("{name} has no version.")))?;
        Ok((name, version.to_owned()))
    }

    /// Downloads a package and unpacks it into the directory `place`, replacing what is there.
    fn unpack(&self, package: &str, place: &str) -> Result<(), Missing> {
        self.unpack_version(package, None, place)
    }

    /// The same with a package of this version, where that is not the usual one.
    fn unpack_version(
        &self,
        package: &str,
        version: Option<&str>,
        place: &str,
    ) -> Result<(), Missing> {
        let cache = self.dir.join("apt/cache");
        let wanted = version.map_or_else(|| package.to_owned(), |v| format!("{package}={v}"));
        self.run("apt-get", &["-qq", "download", &wanted])?;
        let prefix = format!("{package}_");
        let entries = cache.read_dir().into_iter().flatten().flatten();
        let file = entries
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
            .ok_or_else(|| missing(format!("apt-get left no file of {package}.")))?;
        let place = self.dir.join(place);
        let unpacked = Command::new("dpkg").arg("-x").arg(&file).arg(&place).status();
        // It was only needed until now; a second one would be found in its place.
        let _ = fs::remove_file(&file);
        match unpacked {
            Ok(status) if status.success() => Ok(()),
            _ => Err(missing(format!("dpkg could not unpack {package}."))),
        }
    }
}

/// The part of a package's name that marks a kernel for virtual machines; riscv64 has one kernel
/// for all machines.
fn flavour(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 | Isa::Aarch64 => "-cloud-",
        Isa::Riscv64 => "-riscv64",
    }
}

/// The newest of these packages that is a kernel of this flavour, by version number.
fn newest(names: &str, flavour: &str) -> Option<String> {
    let kernels = names.lines().filter_map(|name| {
        let version = name.strip_prefix("linux-image-")?;
        let is_plain = !version.ends_with("-unsigned") && !version.ends_with("-dbg");
        (version.contains(flavour) && is_plain).then_some((numbers(version), name))
    });
    let (version, name) = kernels.max()?;
    let major_minor = (*version.first()?, *version.get(1)?);
    (major_minor >= OLDEST_LINUX).then(|| name.to_owned())
}

/// The newest of these packages that is a source of Linux, by version number.
fn newest_source(names: &str) -> Option<String> {
    let sources = names.lines().filter_map(|name| {
        let version = numbers(name.strip_prefix("linux-source-")?);
        let major_minor = (*version.first()?, *version.get(1)?);
        (major_minor >= OLDEST_LINUX).then_some((version, name))
    });
    sources.max().map(|(_, name)| name.to_owned())
}

/// The numbers that a version begins with: 6.12.95+deb12 gives 6, 12, 95, 12.
fn numbers(version: &str) -> Vec<u32> {
    let begins = version.starts_with(|c: char| c.is_ascii_digit());
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter(|_| begins).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{newest, newest_source};

    #[test]
    fn the_newest_sources_are_the_newest_by_number() {
        let names = "linux-source-6.9\nlinux-source\nlinux-source-6.12\nlinux-source-6.1\n";
        assert_eq!(newest_source(names).as_deref(), Some("linux-source-6.12"));
        assert_eq!(newest_source("linux-source-6.1\nlinux-source-x\n"), None);
    }

    #[test]
    fn the_newest_kernel_is_the_newest_by_number_and_not_for_debugging() {
        let names = "linux-image-6.9.7+bpo-cloud-amd64\nlinux-image-6.12.95+deb12-cloud-amd64\n\
            linux-image-6.12.95+deb12-cloud-amd64-unsigned\nlinux-image-6.12.9-amd64\n\
            linux-image-6.12.95+deb12-cloud-amd64-dbg\nlinux-image-cloud-amd64\n";
        assert_eq!(
            newest(names, "-cloud-").as_deref(),
            Some("linux-image-6.12.95+deb12-cloud-amd64")
        );
    }

    #[test]
    fn an_old_kernel_is_none() {
        assert_eq!(newest("linux-image-6.1.0-13-cloud-amd64\n", "-cloud-"), None);
    }
}
