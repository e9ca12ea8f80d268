//! The command as its user meets it: exit status, the one sentence, the lines of JSON.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{fs, thread, time::Duration};

use tempfile::TempDir;

/// A folder to run in, so that nothing is saved in the workspace.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quire"));
        command.args(line.split_whitespace()).current_dir(self.0.path());
        command.env("XDG_STATE_HOME", self.0.path().join("state"));
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// A host with a small cache, so that benches are short, and with `available` KiB of memory.
    fn fake_host(&self, available: u64) -> String {
        let root = self.0.path().join("host");
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        write("proc/meminfo", &format!("MemTotal: 9000000 kB\nMemAvailable: {available} kB\n"));
        for (file, text) in [("type", "Unified"), ("level", "3"), ("size", "256K")] {
            write(&format!("sys/devices/system/cpu/cpu0/cache/index0/{file}"), text);
        }
        root.display().to_string()
    }
}

/// Exit status 2, nothing on stdout, one sentence on stderr that has all of `words`.
fn assert_refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("quire: ") && said.ends_with(".\n"), "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word} in {said}"));
}

#[test]
fn an_impossible_request_is_refused_in_one_sentence_with_status_2() {
    let place = Place::new();
    for (line, words) in [
        ("", &["command"][..]),
        ("bench", &["command"]),
        ("bench swim", &["swim"]),
        ("swim", &["swim"]),
        ("bench clear --sizes 3K", &["3K", "powers of two"]),
        ("bench clear --sizes 4KB", &["4KB", "no unit"]),
        ("bench clear --sizes 2K", &["2K", "4K"]),
        ("bench clear --sizes 4K,x", &["'x'", "a size is"]),
        ("bench clear --loops 0", &["0", "loops"]),
        ("bench clear --threads none", &["none", "threads"]),
        ("bench clear --format xml", &["xml", "table, json"]),
        ("bench clear --nosuch", &["--nosuch"]),
        ("bench clear --variants raw-nosuch", &["raw-nosuch", "raw-portable", "chosen"]),
        ("bench clear --sweep --variants linux", &["linux", "raw-portable"]),
        ("bench fault --variants raw-nosuch", &["raw-nosuch", "linux"]),
        ("report", &["no run"]),
        ("explain", &["command"]),
        ("explain fault --size 3K", &["3K", "powers of two"]),
        ("explain fault --isa vax", &["vax", "x86_64", "riscv64_sv57"]),
        ("bench fault --isa vax", &["vax", "arm64_16k"]),
        ("bench fork --isa x86_64,vax", &["vax", "arm64_16k"]),
        ("bench fork --variants chosen", &["chosen", "by-runs, page-at-a-time, linux"]),
        ("bench zap --sizes 3K", &["3K", "powers of two"]),
        ("bench zap --sizes 1G", &["nothing to measure", "1G is left out"]),
        ("bench protect --region 1M", &["--region", "64M to 64G"]),
        ("bench protect --region 65M --sizes 2M", &["65M", "folios of 2M"]),
        ("bench protect --loops 0", &["0", "loops"]),
        ("bench read --size 3K", &["--size", "multiple of 1M from 16M to 64G"]),
        ("bench read --size 4KB", &["4KB", "no unit"]),
        ("bench read --loops 0", &["0", "loops"]),
        ("bench read --variants cache", &["--variants"]),
        ("bench pageout --size 3M", &["--size", "multiple of 2M from 16M to 16G"]),
        ("bench pageout --loops 0", &["0", "loops"]),
        ("bench age --memory 3M", &["--memory", "multiple of 2M from 128M to 256G"]),
        ("bench age --occupancy 99", &["99", "occupancy"]),
        ("bench age --variants never", &["never", "nothing, grouping, on-demand, background"]),
        ("helper fork", &["required"]),
        ("bench exec --isa arm64_16k", &["arm64_16k", "4K"]),
        ("bench exec --variants chosen", &["chosen", "read-around, read-ahead, exec-64K"]),
        ("maps", &["required", "PID"]),
        ("maps 1 --all", &["--all"]),
        ("maps 1 --cont 3K", &["3K", "powers of two"]),
        ("maps 4294967295", &["process 4294967295"]),
        ("record", &["required", "COMMAND"]),
        ("record true", &["true"]),
        ("advise", &["required", "COMMAND"]),
        ("advise --recording nosuch", &["no recording nosuch"]),
        ("advise --recording a --weigh time", &["time", "faults, memory, tlb"]),
        ("advise --recording a --verify", &["required", "COMMAND"]),
        ("advise --recording a --fragmented 2", &["2", "from 0 to 1"]),
        ("advise --recording a --snapshot 5d", &["5d", "a time is"]),
        ("launch --map nosuch -- true", &["nosuch", "cannot be read"]),
    ] {
        assert_refused(&place.run(line), words);
    }
}

#[test]
fn more_memory_than_there_is_is_refused_before_anything_is_measured() {
    let place = Place::new();
    let root = place.fake_host(1 << 20);
    for line in
        ["bench clear --sizes 4G", "bench clear --sizes 4G --sweep", "bench fault --sizes 4G"]
    {
        let output = place.run(&format!("--host-root {root} {line}"));
        assert_refused(&output, &["4G", "is available", "1G"]);
    }
    let output = place.run(&format!("--host-root {root} bench clear --sizes 256M --threads 8"));
    assert_refused(&output, &["8 thread", "is available"]);
    for bench in ["fork", "zap", "protect"] {
        let output = place.run(&format!("--host-root {root} bench {bench} --region 2G"));
        assert_refused(&output, &[bench, "2G", "is available", "1G"]);
    }
    let output = place.run(&format!("--host-root {root} bench read --size 2G"));
    assert_refused(&output, &["file of 2G", "is available", "1G"]);
    let output = place.run(&format!("--host-root {root} bench age --memory 2G"));
    assert_refused(&output, &["machine with 2G", "is available"]);
    let output = place.run(&format!("--host-root {root} bench pageout --size 1G"));
    assert_refused(&output, &["paging out 1G", "is available", "1G"]);
    let root = place.fake_host(200 << 10);
    let output = place.run(&format!("--host-root {root} bench fork"));
    assert_refused(&output, &["fork of 64M", "200M is available"]);
}

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::new();
    for line in ["--help", "--version", "bench clear --help", "bench fork --help"] {
        let output = place.run(line);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty());
        // The helper is internal.
        assert!(!String::from_utf8_lossy(&output.stdout).contains("helper"));
    }
}

/// The names of a record, in their order.
const NAMES: [&str; 9] =
    ["bench", "case", "variant", "metric", "unit", "median", "min", "max", "n"];

fn assert_records(text: &str, bench: &str) -> Vec<serde_json::Value> {
    let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let records: Vec<_> = text.lines().map(parse).collect();
    assert!(!records.is_empty());
    for (record, line) in records.iter().zip(text.lines()) {
        let at = |name: &str| line.find(&format!("\"{name}\":")).expect(name);
        assert!(NAMES.is_sorted_by_key(|name| at(name)), "{line}");
        assert_eq!(record.as_object().unwrap().len(), NAMES.len());
        assert_eq!(record["bench"], bench);
        let number = |name: &str| record[name].as_f64().unwrap();
        assert!(number("min") <= number("median") && number("median") <= number("max"), "{line}");
        let variant = record["variant"].as_str().unwrap();
        let known =
            ["chosen", "by-runs", "linux", "cache", "bare-copy", "one-lock"].contains(&variant);
        let pages = variant.split(", ").next() == Some("page-at-a-time");
        assert!(known || pages || variant.starts_with("raw-"), "{variant}");
    }
    records
}

#[test]
fn benches_print_one_record_per_line_save_them_and_the_report_shows_them() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let small = format!("--host-root {root} bench --format json --loops 2 --sizes");
    let bench = |name: &str, rest: &str| {
        let line = small.replace("bench", &format!("bench {name}"));
        let output = place.run(&format!("{line} {rest}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let records = assert_records(&bench("clear", "4K,64K --threads 2"), "clear");
    assert!(records.iter().any(|r| r["variant"] == "chosen" && r["metric"] == "of-best"));
    assert!(records.iter().any(|r| r["case"] == "then-read 64K (2 threads)"));
    assert_records(&bench("clear --sweep", "16M"), "sweep");
    let records = assert_records(&bench("fault", "4K --region 1M"), "fault");
    assert!(records.iter().any(|r| r["case"] == "trap getppid"));
    assert!(records.iter().any(|r| r["case"] == "populate 4K (MADV_NOHUGEPAGE)"));
    for variant in ["chosen", "page-at-a-time", "linux"] {
        for metric in ["cost", "rate", "clear", "rest"] {
            let is = |r: &&serde_json::Value| r["variant"] == variant && r["metric"] == metric;
            let case = |r: &serde_json::Value| r["case"].as_str().unwrap().starts_with("demand 4K");
            assert!(records.iter().filter(is).any(case), "{variant} {metric}");
        }
    }
    for case in ["demand 4K (2 threads)", "demand 4K (2 threads, one area)"] {
        assert!(records.iter().any(|r| r["case"] == case && r["metric"] == "speed-up"), "{case}");
    }

    let output = place.run("report");
    let path = String::from_utf8(output.stdout).unwrap();
    assert!(Path::new(path.trim()).starts_with(place.0.path().join("state/quire")), "{path}");
    let page = fs::read_to_string(path.trim()).unwrap();
    assert_eq!(page.matches("<section>").count(), 3);
    assert!(page.matches("<svg").count() >= 4 && page.contains("Not in these figures"));
}

#[test]
fn c5_fork_zap_and_protect_give_times_ratios_and_counts_for_each_part() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let small = "--format json --loops 1 --region 64M --sizes 4K,2M --isa arm64_4k,x86_64";
    for (bench, parts) in [
        ("fork", &["first fork", "child exit", "later fork"][..]),
        ("zap", &["unmap"]),
        ("protect", &["to read-only", "to writable"]),
    ] {
        let output = place.run(&format!("--host-root {root} bench {bench} {small}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        let records = assert_records(&String::from_utf8(output.stdout).unwrap(), bench);
        let has = |case: &str, variant: &str, metric: &str| {
            let is = |r: &&serde_json::Value| r["variant"] == variant && r["metric"] == metric;
            let found = records.iter().filter(is).find(|r| r["case"] == case);
            assert!(found.is_some(), "{bench}: {case} {variant} {metric}");
        };
        for part in parts {
            for backing in ["4K (arm64_4k)", "2M (arm64_4k)", "2M (x86_64, block)"] {
                let case = format!("{part} {backing}");
                for metric in ["time", "per-entry", "over-pages", "words written", "unfolds"] {
                    has(&case, "by-runs", metric);
                }
                has(&case, "page-at-a-time", "per-entry");
            }
            has(&format!("{part} 4K (this host, MADV_NOHUGEPAGE)"), "linux", "per-entry");
        }
        if bench == "fork" {
            has("first fork 2M (arm64_4k)", "page-at-a-time, folded", "breaks before make");
        }
    }
    let path = String::from_utf8(place.run("report").stdout).unwrap();
    let page = fs::read_to_string(path.trim()).unwrap();
    for word in ["<h2>Fork</h2>", "<h2>Unmap</h2>", "<h2>Protect</h2>", "this host", "goal: at"] {
        assert!(page.contains(word), "{word}");
    }
    assert_eq!((page.matches("<section>").count(), page.matches("<svg").count()), (3, 9));
}

#[test]
fn b1_reading_gives_rates_lookups_and_folios_for_each_layout_and_a_section_of_the_report() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let line = format!("--host-root {root} bench read --size 16M --loops 1");
    let output = place.run(&format!("{line} --format json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let records = assert_records(&String::from_utf8(output.stdout).unwrap(), "read");
    for notes in ["folios as read ahead", "base pages"] {
        for (case, variant, metric) in [
            (format!("in memory 64K ({notes})"), "cache", "of-bare"),
            (format!("in memory 1M ({notes})"), "bare-copy", "rate"),
            (format!("lookup at random ({notes})"), "one-lock", "time"),
            (format!("lookup in order ({notes}, 2 threads)"), "cache", "speed-up"),
            (format!("first read 4K ({notes})"), "cache", "read"),
            (format!("folios 4K ({notes}, chunks of 4K)"), "cache", "count"),
        ] {
            let is = |r: &&serde_json::Value| r["variant"] == variant && r["metric"] == metric;
            assert!(records.iter().filter(is).any(|r| r["case"] == case.as_str()), "{case}");
        }
    }
    let text = String::from_utf8(place.run(&line).stdout).unwrap();
    for word in ["chunks of 1M through the cache", "goal: at least 0.9", "at random, one-lock"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let path = String::from_utf8(place.run("report").stdout).unwrap();
    assert!(fs::read_to_string(path.trim()).unwrap().contains("<h2>Files</h2>"));
}

#[test]
fn d7_paging_out_gives_times_counts_and_judged_goals_for_each_format_and_backing() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let line = format!("--host-root {root} bench pageout --size 16M --loops 1");
    let output = place.run(&format!("{line} --format json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let records = assert_records(&String::from_utf8(output.stdout).unwrap(), "pageout");
    for (case, variant, metric) in [
        ("out 64K (arm64_4k, idle device)", "by-runs", "per-page"),
        ("out 64K (arm64_4k, idle device)", "by-runs", "over-pages"),
        ("write 4K (x86_64, copying device)", "page-at-a-time", "per-page"),
        ("back 2M (x86_64, block, idle device)", "by-runs", "per-page"),
        ("out 2M (arm64_4k)", "by-runs", "rmap walks"),
        ("back 2M (arm64_4k)", "page-at-a-time", "pages in whole folios"),
    ] {
        let is = |r: &&serde_json::Value| r["variant"] == variant && r["metric"] == metric;
        assert!(records.iter().filter(is).any(|r| r["case"] == case), "{case}");
    }
    let text = String::from_utf8(place.run(&line).stdout).unwrap();
    for word in
        ["64K mapped by entries: paging out", "goal: at least 2.5", "back, by-runs, copying"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn c5_less_memory_is_populated_where_there_is_less_and_skipped_sizes_are_told() {
    let place = Place::new();
    let root = place.fake_host(500 << 10);
    let output = place.run(&format!("--host-root {root} bench protect --loops 1 --sizes 4K,64K"));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["Memory does not suffice for 1G: 128M instead.", "linux 64K", "Findings", "Saved"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(String::from_utf8(output.stderr).unwrap().is_empty());
}

#[test]
fn a_bench_of_another_format_says_which_sizes_it_has() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let line = "bench fault --isa arm64_16k --loops 1 --sizes 4K --region 1M --variants chosen";
    let output = place.run(&format!("--host-root {root} {line}"));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["arm64_16k has no folios of 4K: 16K instead.", "leave out exception entry"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_left_out_unless_they_were_named() {
    let place = Place::new();
    let root = place.fake_host(600 << 10);
    let line = "bench fault --loops 1 --region 1M --variants chosen";
    let output = place.run(&format!("--host-root {root} {line}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Memory does not suffice for folios of 1G; left out."), "{text}");
    let output = place.run(&format!("--host-root {root} {line} --sizes 4K,1G"));
    assert_refused(&output, &["1G", "is available"]);
    let output = place.run(&format!("--host-root {root} explain fault --size 1G"));
    assert_refused(&output, &["1G", "is available"]);
}

#[test]
fn explain_tells_a_fault_and_colours_only_terminals() {
    let place = Place::new();
    for line in ["explain fault", "explain fault --size 2M --isa riscv64_sv39"] {
        let output = place.run(line);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(text.contains("crates/mm/src/fault/plan.rs") && !text.contains('\x1b'), "{text}");
    }
}

#[test]
fn a_table_tells_settings_and_limits_beside_its_figures() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let line = "bench clear --loops 1 --sizes 4K --variants chosen page-at-a-time";
    let output = place.run(&format!("--host-root {root} {line}"));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["GB/s", "page-at-a-time", "Machine", "Settings", "Not in these figures", "Saved"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(!text.contains("raw-portable"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let line = format!("--host-root {root} bench clear --loops 1 --sizes 4K --format json");
    for line in [line.as_str(), "--help"] {
        let mut command = place.command(line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{said}");
        assert!(said.is_empty(), "{said}");
    }
}

#[test]
fn an_interrupted_bench_gives_the_huge_page_settings_back() {
    use rustix::process::{Pid, Signal, kill_process};
    let place = Place::new();
    let root = place.fake_host(8 << 20);
    let folder = Path::new(&root).join("sys/kernel/mm/transparent_hugepage");
    let before = [("enabled", "never"), ("defrag", "never"), ("hugepages-64kB/enabled", "always")];
    for (file, word) in before {
        fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        fs::write(folder.join(file), format!("[{word}] other")).unwrap();
    }
    fs::create_dir(Path::new(&root).join("run")).unwrap();
    let line = format!("--host-root {root} bench fault --sizes 4K --region 1M --loops 1000");
    let mut child = place.command(&line).stdout(Stdio::null()).spawn().unwrap();
    let note = Path::new(&root).join("run/quire-thp.json");
    while fs::read_to_string(folder.join("hugepages-64kB/enabled")).unwrap() != "never" {
        assert!(child.try_wait().unwrap().is_none(), "the bench ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(note.exists());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for (file, word) in before {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text == word || text.starts_with(&format!("[{word}]")), "{file}: {text}");
    }
    assert!(!note.exists());
}

#[test]
fn b6_recordings_are_replayed_and_the_figures_are_the_same_each_time() {
    let place = Place::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings");
    let line = format!("bench exec {folder}/perl.recording --format json");
    let run = || {
        let output = place.run(&line);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run();
    assert_eq!(text, run());
    let records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |variant: &str, metric: &str| {
        let is = |r: &&serde_json::Value| r["variant"] == variant && r["metric"] == metric;
        let found = records.iter().find(is).unwrap_or_else(|| panic!("{variant} {metric}"));
        assert_eq!(found["case"], "perl (arm64_4k)");
        found["median"].as_f64().unwrap()
    };
    // One page at a time reads what is touched, and nothing lies side by side.
    assert_eq!(value("page-at-a-time", "bytes read and not touched"), 0.0);
    assert_eq!(value("page-at-a-time", "touched text in foldable 64K blocks"), 0.0);
    assert_eq!(value("page-at-a-time", "reads"), value("page-at-a-time", "faults"));
    // The goal of text that is read in folios of 64 KiB.
    for policy in ["exec-64K", "tiers-2M"] {
        assert!(value(policy, "touched text in foldable 64K blocks") >= 0.8, "{policy}");
    }
    assert!(value("exec-64K", "bytes read") <= 1.25 * value("read-around", "bytes read"));
    let report = place.run("report");
    let page = fs::read_to_string(String::from_utf8(report.stdout).unwrap().trim()).unwrap();
    assert!(page.contains("exec perl (arm64_4k)") && page.contains("tiers-2M"));
}
