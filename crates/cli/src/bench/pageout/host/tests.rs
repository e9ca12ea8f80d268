//! The whole of it, as far as this host permits.

use std::fs;
use std::path::Path;

use super::super::data::Data;
use super::{Device, Plan, Row, run};
use crate::host::Host;
use crate::host::thp::Guard;
use crate::size::Size;

/// The things that a run must not leave behind: areas in use, devices with a size or a file,
/// folders.
fn state(host: &Host) -> Vec<String> {
    let swaps = host.read("proc/swaps").unwrap_or_default();
    let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let mut state: Vec<String> = names.map(str::to_owned).collect();
    for (folder, file) in [("sys/block", "loop/backing_file"), ("sys/block", "disksize")] {
        for entry in fs::read_dir(host.path(folder)).into_iter().flatten().flatten() {
            state.extend(host.read(entry.path().join(file)));
        }
    }
    let own = std::process::id().to_string();
    for folder in ["dev/shm", "tmp", "var/tmp", "sys/fs/cgroup", "sys/fs/cgroup/memory"] {
        let entries = fs::read_dir(host.path(folder)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        state.extend(names.filter(|name| name.starts_with("quire-") && name.ends_with(&own)));
    }
    state.sort();
    state
}

#[test]
fn d7_the_host_is_measured_as_far_as_permitted_and_left_as_it_was() {
    let host = Host::new(Path::new("/"));
    let before = state(&host);
    let mut says = Vec::new();
    let guard = Guard::new(&host, &mut says);
    let sizes = vec![Size(4 << 10), Size(64 << 10)];
    let data = vec![Data::Text, Data::Same];
    let plan = Plan { region: 8 << 20, rounds: 2, sizes, data, ..Plan::default() };
    let rows = run(&host, &guard, &plan, &mut says).unwrap();
    drop(guard);
    assert_eq!(state(&host), before, "{says:?}");
    println!("{says:?}");
    for device in Device::ALL {
        let found: Vec<&Row> = rows.iter().filter(|row| row.device == device).collect();
        // Where rows are missing, a sentence says why.
        let name = device.name();
        let is_whole = found.len() == plan.sizes.len() * plan.data.len();
        assert!(is_whole || says.iter().any(|why| why.contains("left out")), "{name}: {says:?}");
        for row in found {
            println!("{row:?}");
            assert!(row.out.len() == 2 && row.out.iter().all(|&ns| ns > 0.0), "{row:?}");
            assert!(row.out_summary().is_some() && !row.detail.is_empty());
            assert_eq!(row.back.len(), row.back_cpu.len());
        }
    }
}

#[test]
fn d7_a_host_without_swap_costs_its_rows_and_a_sentence_each() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let guard = Guard::new(&host, &mut Vec::new());
    let mut says = Vec::new();
    let rows = run(&host, &guard, &Plan::default(), &mut says).unwrap();
    assert_eq!((rows.len(), says.len()), (0, 2), "{says:?}");
    assert!(says.iter().all(|why| why.ends_with("; left out.")), "{says:?}");
    fs::create_dir(dir.path().join("proc")).unwrap();
    fs::write(dir.path().join("proc/meminfo"), "MemAvailable: 1024 kB\n").unwrap();
    let mut says = Vec::new();
    assert!(run(&host, &guard, &Plan::default(), &mut says).unwrap().is_empty());
    assert!(says.len() == 1 && says[0].contains("needs 1G of memory"), "{says:?}");
}
