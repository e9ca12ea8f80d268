//! Memory groups (cgroups) of our own: for a child whose memory the kernel can be told to give up,
//! and for a program whose memory is bounded.
//!
//! A device that answers later leaves what was written in the swap cache, where a touch finds it
//! without reading the device. The pages of a group of its own can be reclaimed from there, too,
//! and no others.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::Host;
use super::keeper::{Keeper, own_name, quoted};

/// Files that bound the memory of a group: of cgroup v1 and of v2.
const BOUNDS: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// Files with the number of processes that were ended: of cgroup v1 and of v2.
const KILLS: [&str; 2] = ["memory.oom_control", "memory.events"];

/// Files by which a group is told to give up memory: of cgroup v1 and of v2.
const FILES: [&str; 2] = ["memory.force_empty", "memory.reclaim"];

/// A new group; `None` where none can be made, or where it cannot be told to give up memory.
pub(crate) fn make(host: &Host, keeper: &mut Keeper) -> Option<PathBuf> {
    parents(host).iter().find_map(|parent| make_in(parent, keeper))
}

/// A new group whose processes may have `bytes` of memory together.
pub(crate) fn bounded(host: &Host, keeper: &mut Keeper, bytes: u64) -> Result<PathBuf, String> {
    let mut why = "the host has no memory groups (cgroups)".to_owned();
    for parent in parents(host) {
        match bounded_in(&parent, keeper, bytes) {
            Ok(group) => return Ok(group),
            Err(e) => why = format!("no memory group can be made in {}: {e}", parent.display()),
        }
    }
    Err(why)
}

/// How many processes of a group the kernel has ended because its memory was full.
pub(crate) fn killed(group: &Path) -> u64 {
    let texts = KILLS.iter().filter_map(|file| fs::read_to_string(group.join(file)).ok());
    let count = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    texts.filter_map(count).sum()
}

fn bounded_in(parent: &Path, keeper: &mut Keeper, bytes: u64) -> io::Result<PathBuf> {
    let group = parent.join(own_name("group"));
    keeper.promise(&format!("rmdir {}", quoted(&group)))?;
    fs::create_dir(&group)?;
    let bound = BOUNDS.iter().map(|file| group.join(file)).find(|file| file.exists());
    let set = match bound {
        Some(file) => fs::write(file, bytes.to_string()),
        None => Err(io::Error::other("it has no memory controller")),
    };
    // Else the keeper does it later.
    set.inspect_err(|_| drop(fs::remove_dir(&group)))?;
    Ok(group)
}

fn make_in(parent: &Path, keeper: &mut Keeper) -> Option<PathBuf> {
    let group = parent.join(own_name("group"));
    keeper.promise(&format!("rmdir {}", quoted(&group))).ok()?;
    fs::create_dir(&group).ok()?;
    let can_be_told = FILES.iter().any(|file| group.join(file).exists());
    if !can_be_told {
        // Else the keeper does it later.
        let _ = fs::remove_dir(&group);
    }
    can_be_told.then_some(group)
}

/// The folders in which a group may be made: below our own, or at the top.
fn parents(host: &Host) -> Vec<PathBuf> {
    let text = host.read("proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for (controllers, path) in text.lines().filter_map(fields) {
        let is_v1 = controllers.split(',').any(|name| name == "memory");
        if !is_v1 && !controllers.is_empty() {
            continue;
        }
        let top = if is_v1 { "sys/fs/cgroup/memory" } else { "sys/fs/cgroup" };
        for place in [host.path(top).join(path.trim_start_matches('/')), host.path(top)] {
            if place.is_dir() && !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// Controllers and path of a line like `4:memory:/user`.
fn fields(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')?.1.split_once(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cgroup: &str, dirs: &[&str]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for path in dirs.iter().chain(&["proc/self"]) {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("proc/self/cgroup"), cgroup).unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn d7_a_group_is_made_below_our_own_of_either_version_or_at_the_top() {
        let v1 = "9:cpu,cpuacct:/a\n4:memory:/a\n0::/b\n";
        let (dir, host) = host(v1, &["sys/fs/cgroup/memory/a", "sys/fs/cgroup/cpu/a"]);
        let at = |path: &str| dir.path().join("sys/fs/cgroup").join(path);
        assert_eq!(parents(&host), [at("memory/a"), at("memory"), at("")]);
        assert!(parents(&Host::new(Path::new("/nonexistent"))).is_empty());
    }

    #[test]
    fn f1_a_group_that_cannot_be_bounded_is_refused_and_goes_away() {
        let (dir, host) = host("4:memory:/", &["sys/fs/cgroup/memory"]);
        let mut keeper = Keeper::new().unwrap();
        let why = bounded(&host, &mut keeper, 1 << 20).unwrap_err();
        assert!(why.contains("memory controller"), "{why}");
        assert_eq!(fs::read_dir(dir.path().join("sys/fs/cgroup/memory")).unwrap().count(), 0);
        let none = bounded(&Host::new(Path::new("/nonexistent")), &mut keeper, 1).unwrap_err();
        assert!(none.contains("no memory groups"), "{none}");
    }

    #[test]
    fn f1_processes_that_the_kernel_ended_are_counted_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(killed(dir.path()), 0);
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        fs::write(dir.path().join("memory.oom_control"), v1).unwrap();
        assert_eq!(killed(dir.path()), 2);
        let v2 = "low 0\nhigh 0\nmax 17\noom 4\noom_kill 3\noom_group_kill 0\n";
        fs::write(dir.path().join("memory.events"), v2).unwrap();
        fs::remove_file(dir.path().join("memory.oom_control")).unwrap();
        assert_eq!(killed(dir.path()), 3);
    }

    #[test]
    fn d7_a_group_that_cannot_be_told_is_none_and_goes_away() {
        let (dir, host) = host("4:memory:/", &["sys/fs/cgroup/memory"]);
        assert_eq!(make(&host, &mut Keeper::new().unwrap()), None);
        assert_eq!(fs::read_dir(dir.path().join("sys/fs/cgroup/memory")).unwrap().count(), 0);
    }
}
