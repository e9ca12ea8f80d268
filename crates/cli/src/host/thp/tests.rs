//! The guard against a folder that plays `/sys`, `/proc` and `/run`.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use super::guard::FOLDER;
use super::note::note_path;
use super::{Guard, in_force, settings};
use crate::host::Host;
use crate::size::Size;

const CHILD: &str = "QUIRE_TEST_THP_ROOT";

/// Settings none of which is what the guard would set, except one.
const BEFORE: [(&str, &str); 5] = [
    ("enabled", "always madvise [never]"),
    ("defrag", "always defer defer+madvise madvise [never]"),
    ("hugepages-64kB/enabled", "[always] inherit madvise never"),
    ("hugepages-1024kB/enabled", "always inherit madvise [never]"),
    ("hugepages-2048kB/enabled", "always [inherit] madvise never"),
];

fn fake_host() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in BEFORE {
        let path = dir.path().join(FOLDER).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir(dir.path().join("run")).unwrap();
    let host = Host::new(dir.path());
    (dir, host)
}

/// The chosen word of each file: a real one keeps its brackets, a plain one is what was written.
fn words(host: &Host) -> Vec<String> {
    let read = |path: &str| host.read(Path::new(FOLDER).join(path)).unwrap();
    let chosen = |text: String| match text.split_once('[') {
        Some((_, rest)) => rest.split(']').next().unwrap().to_owned(),
        None => text,
    };
    BEFORE.iter().map(|(path, _)| chosen(read(path))).collect()
}

const UNTOUCHED: [&str; 5] = ["never", "never", "always", "never", "inherit"];
const ONLY_64K: [&str; 5] = ["never", "madvise", "madvise", "never", "never"];

#[test]
fn settings_are_changed_for_one_size_and_given_back_at_the_end() {
    let (_dir, host) = fake_host();
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    assert_eq!((says.len(), words(&host)), (0, UNTOUCHED.map(str::to_owned).to_vec()));
    guard.only(Size(64 << 10)).unwrap();
    assert_eq!(words(&host), ONLY_64K);
    assert!(note_path(&host).exists());
    drop(guard);
    assert_eq!(words(&host), UNTOUCHED);
    assert!(!note_path(&host).exists());
}

#[test]
fn settings_are_given_back_on_a_panic() {
    let (_dir, host) = fake_host();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let guard = Guard::new(&host, &mut Vec::new());
        guard.only(Size(64 << 10)).unwrap();
        assert_eq!(words(&host), ONLY_64K);
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(words(&host), UNTOUCHED);
}

#[test]
fn without_permission_it_is_said_and_nothing_is_changed() {
    let (_dir, host) = fake_host();
    fs::remove_file(host.path(FOLDER).join("defrag")).unwrap();
    fs::create_dir(host.path(FOLDER).join("defrag")).unwrap();
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    guard.only(Size(64 << 10)).unwrap();
    assert_eq!(says.len(), 1, "{says:?}");
    assert!(says[0].contains("no permission") && says[0].contains("defrag"), "{says:?}");
    assert!(!note_path(&host).exists());
}

#[test]
fn a_host_without_huge_pages_is_said_to_have_none() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let mut says = Vec::new();
    drop(Guard::new(&host, &mut says));
    assert_eq!(says, ["The host has no transparent huge pages to set."]);
    assert_eq!(settings(&host), "none");
}

/// Runs in a process that [`spawn_holder`] can kill. Without a parent that names a root it tests
/// the fake host on which its parents rely.
#[test]
fn the_child_holds_the_settings() {
    let Some(root) = std::env::var_os(CHILD) else {
        let (_dir, host) = fake_host();
        return assert_eq!(words(&host), UNTOUCHED);
    };
    let guard = Guard::new(&Host::new(Path::new(&root)), &mut Vec::new());
    guard.only(Size(64 << 10)).unwrap();
    fs::write(Path::new(&root).join("ready"), "").unwrap();
    thread::sleep(Duration::from_secs(60));
}

/// A process that has changed the settings below the root of `host` and waits.
fn spawn_holder(host: &Host) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host::thp::tests::the_child_holds_the_settings"])
        .env(CHILD, host.path(""))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !host.path("ready").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(words(host), ONLY_64K);
    child
}

fn kill(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn settings_are_given_back_on_a_signal_and_the_status_tells_which() {
    use rustix::process::Signal;
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (_dir, host) = fake_host();
        let mut child = spawn_holder(&host);
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert_eq!(words(&host), UNTOUCHED);
        assert!(!note_path(&host).exists());
    }
}

#[test]
fn settings_of_a_killed_run_are_restored_at_once_or_else_by_the_next() {
    let (_dir, host) = fake_host();
    let mut child = spawn_holder(&host);
    let note = fs::read(note_path(&host)).unwrap();
    kill(&child, rustix::process::Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let start = std::time::Instant::now();
    while note_path(&host).exists() && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(words(&host), UNTOUCHED);
    // Where the keeper was killed as well, there is the note.
    fs::write(note_path(&host), &note).unwrap();
    fs::write(host.path("sys/kernel/mm/transparent_hugepage/enabled"), "always").unwrap();
    assert_ne!(words(&host), UNTOUCHED);
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    assert_eq!(words(&host), UNTOUCHED);
    assert!(says.len() == 1 && says[0].contains("restored"), "{says:?}");
    drop(guard);
    assert!(!note_path(&host).exists());
}

#[test]
fn settings_of_a_living_run_are_left_alone() {
    let (dir, host) = fake_host();
    let stat = format!("7 (a b) c) S {} 4711 0", ["0"; 18].join(" "));
    fs::create_dir_all(dir.path().join("proc/7")).unwrap();
    fs::write(dir.path().join("proc/7/stat"), &stat).unwrap();
    let note = r#"{"pid":7,"started":4711,"knobs":[]}"#;
    fs::write(note_path(&host), note).unwrap();
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    guard.only(Size(64 << 10)).unwrap();
    drop(guard);
    assert!(says.len() == 1 && says[0].contains("run 7"), "{says:?}");
    assert_eq!(words(&host), UNTOUCHED);
    assert_eq!(fs::read_to_string(note_path(&host)).unwrap(), note);
    // The number is used again by a process that started later: the note is stale.
    fs::write(dir.path().join("proc/7/stat"), stat.replace("4711", "4712")).unwrap();
    let mut says = Vec::new();
    drop(Guard::new(&host, &mut says));
    assert!(says.len() == 1 && says[0].contains("restored"), "{says:?}");
}

#[test]
fn a_note_that_is_not_understood_stops_the_run_from_changing_anything() {
    let (_dir, host) = fake_host();
    fs::write(note_path(&host), "half a no").unwrap();
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    guard.only(Size(64 << 10)).unwrap();
    assert!(says.len() == 1 && says[0].contains("not understood"), "{says:?}");
    assert_eq!(words(&host), UNTOUCHED);
}

#[test]
fn settings_in_force_are_told_per_size() {
    let (_dir, host) = fake_host();
    assert_eq!(in_force(&host, Size(64 << 10)), "thp 64kB=always defrag=never");
    assert_eq!(in_force(&host, Size(2 << 20)), "thp inherit:enabled=never defrag=never");
    assert_eq!(in_force(&host, Size(32 << 10)), "thp enabled=never defrag=never");
    assert!(settings(&host).starts_with("enabled=never defrag=never 64kB=always 1024kB=never"));
}
