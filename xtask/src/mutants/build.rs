//! The programs of the copy: built once, without the mutants that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};

use super::copy::{self, HOME, Places};
use super::draw::Mutant;

/// A kind of build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Build {
    /// No program: the compiler looks at the copy, and sorts out mutants sooner than a build does.
    Check,
    /// The hosted tests.
    Tests,
    /// The simulator's program.
    Simulator,
    /// The same as fast as it can be, and without the library's assertions.
    Swarm,
    /// The library under loom.
    Loom,
    /// The hosted system under shuttle.
    Shuttle,
}

/// The packages of the hosted tests.
const TESTED: [&str; 6] =
    ["quire-units", "quire-arch", "quire-hw", "quire-mm", "quire-zpool", "quire-sim"];

impl Build {
    fn words(self) -> Vec<&'static str> {
        match self {
            Self::Tests => {
                let packages = TESTED.iter().flat_map(|package| ["--package", package]);
                ["test", "--no-run", "--lib", "--tests"].into_iter().chain(packages).collect()
            }
            Self::Check => {
                let packages = TESTED.iter().flat_map(|package| ["--package", package]);
                ["check", "--lib"].into_iter().chain(packages).collect()
            }
            Self::Simulator => vec!["build", "--package", "quire-cli"],
            Self::Swarm => vec!["build", "--profile", "sim", "--package", "quire-cli"],
            Self::Loom => {
                let mut words = vec!["test", "--no-run", "--profile", "sim", "--lib"];
                words.extend(["--package", "quire-mm", "--package", "quire-hw"]);
                words
            }
            Self::Shuttle => {
                let mut words = crate::ci::SCHEDULES.to_vec();
                words.push("--no-run");
                words
            }
        }
    }

    /// Flags for the compiler, and the directory beside the copy.
    const fn flags(self) -> (&'static str, &'static str) {
        match self {
            Self::Check | Self::Tests | Self::Simulator | Self::Swarm => ("", "host"),
            Self::Loom => ("--cfg=loom -Cdebug-assertions", "loom"),
            Self::Shuttle => (crate::ci::SCHEDULES_FLAGS, "shuttle"),
        }
    }
}

/// A program of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// The directory of its package, such as `mm`, and the target's name.
    pub(crate) name: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// The directory that tests expect to run in.
    pub(crate) dir: PathBuf,
}

/// Mutants by number, and the programs of each build.
pub(crate) type Built = (BTreeMap<usize, Mutant>, Vec<Vec<Program>>);

/// The directory of all that this command makes.
pub(crate) fn dir(root: &Path) -> PathBuf {
    crate::steps::build_dir(root).join("mutants")
}

/// Makes the copy with the first `count` of `draw` that compile, and all `builds` of it. Returns
/// these mutants by number, and the programs of each build.
///
/// # Errors
/// A sentence: cargo does not start, or an error lies outside of all mutants.
pub(crate) fn all(
    root: &Path,
    draw: &mut dyn Iterator<Item = Mutant>,
    count: usize,
    builds: &[Build],
) -> Result<Built, String> {
    let mut good: BTreeMap<usize, Mutant> = BTreeMap::new();
    let (mut next, mut bad) = (1, 0);
    loop {
        // Some more, in place of those that will not compile.
        let lacking = count.saturating_sub(good.len());
        for mutant in draw.take(lacking + lacking / 8) {
            good.insert(next, mutant);
            next += 1;
        }
        if good.is_empty() {
            return Err("there is no place for a mutant.".to_owned());
        }
        let Some(programs) = attempt(root, &mut good, builds, &mut bad)? else { continue };
        println!("{bad} mutants that do not compile were left out.");
        // The programs have a few more.
        return Ok((good.into_iter().take(count).collect(), programs));
    }
}

/// Builds all; `None` if that took mutants away.
fn attempt(
    root: &Path,
    good: &mut BTreeMap<usize, Mutant>,
    builds: &[Build],
    bad: &mut usize,
) -> Result<Option<Vec<Vec<Program>>>, String> {
    let places = copy::make(root, &dir(root).join("tree"), good)?;
    let mut programs = Vec::new();
    for &build in builds {
        match run(root, build, &places)? {
            Ok(built) => programs.push(built),
            Err(accused) => {
                println!("  {build:?}: {} mutants do not compile", accused.len());
                *bad += accused.len();
                good.retain(|number, _| !accused.contains(number));
                return Ok(None);
            }
        }
    }
    Ok(Some(programs))
}

/// One build: its programs, or the mutants that the compiler refuses.
fn run(
    root: &Path,
    build: Build,
    places: &Places,
) -> Result<Result<Vec<Program>, BTreeSet<usize>>, String> {
    let tree = dir(root).join("tree");
    let (flags, target) = build.flags();
    let mut cargo = Command::new("cargo");
    cargo.args(build.words()).args(["--quiet", "--message-format", "json"]);
    cargo.env("CARGO_TARGET_DIR", dir(root).join(target)).env("RUSTC_BOOTSTRAP", HOME);
    // Set even if empty, so that the caller's flags are not those of the copy.
    cargo.env("RUSTFLAGS", flags);
    cargo.current_dir(&tree).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = cargo.spawn().map_err(|error| format!("`cargo`: {error}"))?;
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    let output = child.stdout.take().ok_or("`cargo` has no output")?;
    for message in Message::parse_stream(BufReader::new(output)).filter_map(Result::ok) {
        match message {
            Message::CompilerArtifact(artifact) => {
                if let Some(path) = artifact.executable {
                    let dir = artifact.manifest_path.parent().map(|dir| dir.as_std_path());
                    let dir = dir.unwrap_or(&tree).to_path_buf();
                    let package = dir.file_name().unwrap_or_default().to_string_lossy();
                    let name = format!("{package} {}", artifact.target.name);
                    programs.push(Program { name, path: path.into_std_path_buf(), dir });
                }
            }
            Message::CompilerMessage(message) => {
                if matches!(message.message.level, DiagnosticLevel::Error) {
                    errors.push(message.message);
                }
            }
            _ => {}
        }
    }
    let status = child.wait().map_err(|error| format!("`cargo`: {error}"))?;
    if status.success() {
        return Ok(Ok(programs));
    }
    let accused: BTreeSet<usize> = errors.iter().flat_map(|error| accused(error, places)).collect();
    if accused.is_empty() {
        let said = errors.first().map_or("no message", |error| error.message.as_str());
        return Err(format!("the copy does not compile ({build:?}): {said}."));
    }
    Ok(Err(accused))
}

/// The mutants that an error is about: first those at any of its places.
fn accused(error: &Diagnostic, places: &Places) -> Vec<usize> {
    let mut spans: Vec<_> = error.spans.iter().collect();
    spans.sort_by_key(|span| !span.is_primary);
    let of = |span: &&cargo_metadata::diagnostic::DiagnosticSpan, near: bool| {
        let range = span.byte_start as usize..span.byte_end as usize;
        places.accused(&span.file_name, range, near)
    };
    let found = [false, true].into_iter().find_map(|near| {
        spans.iter().map(|span| of(span, near)).find(|numbers| !numbers.is_empty())
    });
    found.unwrap_or_default()
}
