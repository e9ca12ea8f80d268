//! Facts about the machine that every saved run carries.

use serde::{Deserialize, Serialize};

use super::{Host, memory, thp};
use crate::size::Size;

/// Instruction-set extensions that decide how memory is cleared.
const CLEARING: [&str; 8] =
    ["erms", "fsrm", "fzrm", "clzero", "avx2", "avx512f", "movdiri", "zicboz"];

/// The facts about the machine by which a reader can judge a figure.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Machine {
    /// The CPU's name, with family, model and stepping: hosts of virtual machines hide the name.
    pub(crate) cpu: String,
    /// How many CPUs are online.
    pub(crate) cpus: usize,
    /// Extensions that matter for clearing.
    pub(crate) features: Vec<String>,
    /// Caches of one CPU: `L1d 32K`.
    pub(crate) caches: Vec<String>,
    /// Bytes in the last-level cache.
    pub(crate) last_level_cache: u64,
    /// Bytes in the cache before it, which one CPU has to itself: the L2 cache.
    #[serde(default = "usual_near_cache")]
    pub(crate) near_cache: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// Whether a hypervisor is below.
    pub(crate) virtual_machine: bool,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Settings of transparent huge pages, as they were before the run.
    pub(crate) thp: String,
}

impl Machine {
    /// Reads the facts from `/proc` and `/sys`; missing ones are unknown.
    pub(crate) fn read(host: &Host) -> Machine {
        let info = host.read("proc/cpuinfo").unwrap_or_default();
        let flags: Vec<&str> = field(&info, "flags").unwrap_or("").split(' ').collect();
        let has = |flag: &&&str| flags.contains(*flag);
        let caches = caches(host);
        Machine {
            cpu: cpu_name(&info),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            features: CLEARING.iter().filter(has).map(|f| (*f).to_owned()).collect(),
            last_level_cache: caches.iter().map(|(_, size)| size.bytes()).max().unwrap_or(32 << 20),
            near_cache: near_cache(&caches),
            caches: caches.into_iter().map(|(name, size)| format!("{name} {size}")).collect(),
            kernel: host.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            virtual_machine: flags.contains(&"hypervisor"),
            memory: memory::meminfo(host, "MemTotal").unwrap_or(0),
            thp: thp::settings(host),
        }
    }

    /// The facts in lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let place = if self.virtual_machine { "a virtual machine" } else { "no hypervisor seen" };
        vec![
            format!("{}, {} CPUs, {place}", self.cpu, self.cpus),
            format!("caches {}; {}", self.caches.join(", "), self.features.join(" ")),
            format!("kernel {}, {} of memory", self.kernel, rounded(self.memory)),
            format!("transparent huge pages: {}", self.thp),
        ]
    }
}

/// A size, rounded to one decimal.
pub(crate) fn rounded(bytes: u64) -> String {
    let (unit, letter) = match bytes {
        0..0x10_0000 => (1u64 << 10, 'K'),
        0x10_0000..0x4000_0000 => (1 << 20, 'M'),
        _ => (1 << 30, 'G'),
    };
    let text = format!("{:.1}", bytes as f64 / unit as f64);
    format!("{}{letter}", text.trim_end_matches(".0"))
}

fn cpu_name(info: &str) -> String {
    let name = field(info, "model name").unwrap_or("unknown CPU");
    match (field(info, "cpu family"), field(info, "model"), field(info, "stepping")) {
        (Some(family), Some(model), Some(stepping)) => {
            format!("{name} (family {family} model {model} stepping {stepping})")
        }
        _ => name.to_owned(),
    }
}

/// The value of the first line `name : value`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// The size of the L2 cache, or what it usually is.
fn near_cache(caches: &[(String, Size)]) -> u64 {
    let second = caches.iter().find(|(name, _)| name.starts_with("L2"));
    second.map_or_else(usual_near_cache, |(_, size)| size.bytes())
}

fn usual_near_cache() -> u64 {
    1 << 20
}

/// The first CPU's caches by name, the nearest first.
fn caches(host: &Host) -> Vec<(String, Size)> {
    let cache = |index: u32| {
        let read = |file: &str| {
            host.read(format!("sys/devices/system/cpu/cpu0/cache/index{index}/{file}"))
        };
        let letter = match read("type")?.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        Some((format!("L{}{letter}", read("level")?), read("size")?.parse().ok()?))
    };
    (0..8).map_while(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_one_digit() {
        assert_eq!(rounded(512 << 10), "512K");
        assert_eq!(rounded(1 << 30), "1G");
        assert_eq!(rounded(25_276_170_240), "23.5G");
    }

    #[test]
    fn facts_come_from_the_hosts_files_and_missing_ones_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let empty = Machine::read(&Host::new(dir.path()));
        assert_eq!((empty.cpu.as_str(), empty.kernel.as_str()), ("unknown CPU", "unknown"));
        write("proc/cpuinfo", "model name\t: Test CPU\nflags\t\t: fpu erms hypervisor clzero\n");
        write("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
        write("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
        write("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
        let machine = Machine::read(&Host::new(dir.path()));
        assert_eq!(machine.cpu, "Test CPU");
        assert_eq!(machine.features, ["erms", "clzero"]);
        assert_eq!(
            (machine.caches.as_slice(), machine.last_level_cache),
            (&["L1d 48K".to_owned()][..], 48 << 10)
        );
        assert!(machine.virtual_machine);
    }
}
