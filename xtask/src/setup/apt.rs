//! Debian's package manager, where we may use it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether the environment lets us install anything at all.
pub(super) fn may_install() -> bool {
    std::env::var("QUIRE_INSTALL").map_or(true, |value| value != "no")
}

/// The right to install packages: apt is there, and we are root.
pub(super) struct Apt(());

impl Apt {
    /// The right, if we have it.
    pub(super) fn find() -> Option<Self> {
        let has_apt = quiet("apt-get", &["--version"]).is_ok();
        let is_root = output("id", &["-u"]).is_some_and(|id| id.trim() == "0");
        (may_install() && has_apt && is_root).then_some(Self(()))
    }

    /// Fetches the lists of packages, once in a run; says whether they could be fetched.
    pub(super) fn update(&self) -> bool {
        static DONE: OnceLock<bool> = OnceLock::new();
        *DONE.get_or_init(|| quiet("apt-get", &["-qq", "update"]).is_ok())
    }

    /// Installs `packages`, from `suite` if one is named.
    pub(super) fn install(&self, packages: &[&str], suite: Option<&str>) -> Result<(), String> {
        let wait = "DPkg::Lock::Timeout=300";
        let mut words = vec!["-qq", "-o", wait, "install", "-y", "--no-install-recommends"];
        if let Some(suite) = suite {
            words.extend(["-t", suite]);
        }
        words.extend(packages);
        println!("Installing {}.", packages.join(", "));
        quiet("apt-get", &words)
    }

    /// The version that would be installed.
    pub(super) fn candidate(&self, package: &str) -> Option<String> {
        let policy = output("apt-cache", &["policy", package])?;
        let line = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
        (line != "(none)").then(|| line.to_owned())
    }

    /// Adds the suite `NAME-backports` beside the suite NAME, from the same places. Returns its
    /// name; `None` where the machine has no such suite.
    pub(super) fn add_backports(&self) -> Option<String> {
        let release = fs::read_to_string("/etc/os-release").ok()?;
        let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
        let suite = format!("{name}-backports");
        let sources = sources();
        if !sources.contains(&suite) {
            let text = backports(&sources, name)?;
            fs::write("/etc/apt/sources.list.d/quire-backports.sources", text).ok()?;
            quiet("apt-get", &["-qq", "update"]).ok()?;
        }
        Some(suite)
    }
}

/// All that the machine says about where packages come from.
fn sources() -> String {
    let mut paths = vec![Path::new("/etc/apt/sources.list").to_path_buf()];
    let entries = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    paths.extend(entries.map(|entry| entry.path()));
    let texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The entry for the backports of the suite `name`, made from the machine's own entry for it: the
/// same place, the same keys. Knows both notations of apt.
pub(super) fn backports(sources: &str, name: &str) -> Option<String> {
    sources
        .split("\n\n")
        .find_map(|paragraph| {
            let field = |field: &str| {
                paragraph.lines().find_map(|line| line.strip_prefix(field)).map(str::trim)
            };
            let suites = field("Suites:")?;
            if !suites.split(' ').any(|suite| suite == name) {
                return None;
            }
            let key =
                field("Signed-By:").map_or_else(String::new, |key| format!("Signed-By: {key}\n"));
            Some(entry(field("URIs:")?, name) + &key)
        })
        .or_else(|| {
            sources.lines().find_map(|line| {
                let rest = line.trim().strip_prefix("deb ")?.trim();
                // Options in brackets, such as a key, may precede the place.
                let (options, rest) = match rest.strip_prefix('[') {
                    Some(rest) => rest.split_once(']')?,
                    None => ("", rest),
                };
                let mut words = rest.split_whitespace();
                let (place, suite) = (words.next()?, words.next()?);
                let key =
                    options.split_whitespace().find_map(|word| word.strip_prefix("signed-by="));
                let key = key.map_or_else(String::new, |key| format!("Signed-By: {key}\n"));
                (suite == name).then(|| entry(place, name) + &key)
            })
        })
}

fn entry(place: &str, name: &str) -> String {
    format!("Types: deb\nURIs: {place}\nSuites: {name}-backports\nComponents: main\n")
}

/// The sources for a private list of packages: this machine's suite and its backports, from the
/// same places, or another suite in place of both where this one lacks the ISA (`instead`: up to
/// which release, and the suite). `None` on a machine that is no Debian.
pub(super) fn suites(instead: Option<(u32, &str)>) -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let field = |field| release.lines().find_map(|line| line.strip_prefix(field));
    let name = field("VERSION_CODENAME=")?;
    let number: Option<u32> = field("VERSION_ID=").and_then(|id| id.trim_matches('"').parse().ok());
    let entry = backports(&sources(), name)?;
    let all = match instead {
        Some((last, suite)) if number.is_some_and(|number| number <= last) => suite.to_owned(),
        _ => format!("{name} {name}-backports"),
    };
    Some(entry.replace(&format!("{name}-backports"), &all))
}

/// The output of a program; `None` if it fails or is not there.
pub(super) fn output(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program without its output; the last line it printed is the error.
pub(super) fn quiet(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    match output.status.success() {
        true => Ok(()),
        false => Err(last.unwrap_or("it failed without a word").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::backports;

    #[test]
    fn backports_come_from_where_the_suite_comes_from() {
        let sources = "Types: deb\nURIs: http://other.example/debian-security\n\
            Suites: bookworm-security\nComponents: main\n\n\
            Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
            Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\n";
        let expected = "Types: deb\nURIs: http://mirror.example/debian\n\
            Suites: bookworm-backports\nComponents: main\n\
            Signed-By: /usr/share/keyrings/debian.gpg\n";
        assert_eq!(backports(sources, "bookworm").as_deref(), Some(expected));
    }

    #[test]
    fn the_old_notation_of_apt_is_read_too() {
        let sources = "# deb http://no.example/debian bookworm main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main\n";
        let expected = "Types: deb\nURIs: http://mirror.example/debian\n\
            Suites: bookworm-backports\nComponents: main\nSigned-By: /k.gpg\n";
        assert_eq!(backports(sources, "bookworm").as_deref(), Some(expected));
    }

    #[test]
    fn a_machine_without_the_suite_gets_no_backports() {
        assert_eq!(backports("deb http://mirror.example/x nodistro main", "bookworm"), None);
    }
}
