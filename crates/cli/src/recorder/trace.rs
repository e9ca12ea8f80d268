//! The kernel's trace: an instance of our own, with the events of pages that come in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::refused::Refused;

/// Without these there is no recording.
const NEEDED: [&str; 2] = ["filemap/mm_filemap_fault", "filemap/mm_filemap_add_to_page_cache"];
/// These report the kind of access; not every machine has them.
const HELPFUL: [&str; 2] = ["exceptions/page_fault_user", "exceptions/page_fault_kernel"];
/// KiB for the events of one CPU.
const BUFFER: &str = "65536";
/// The start of the names of our instances; the number of the process follows.
const NAME: &str = "quire-";

/// The instance, for this process and its children. Dropping it removes it.
pub(super) struct Trace {
    mount: PathBuf,
    folder: PathBuf,
    /// Whether the kernel reports the kind of access.
    pub(super) knows_kinds: bool,
}

impl Trace {
    /// Mounts the kernel's trace at the folder `place`, which it makes, and makes an instance.
    pub(super) fn new(place: &Path) -> Result<Trace> {
        fs::create_dir(place)?;
        mount("quire", place, "tracefs", MountFlags::empty(), None).map_err(|e| {
            Refused(format!("the host's kernel has no trace to record from (CONFIG_FTRACE): {e}"))
        })?;
        let instances = place.join("instances");
        remove_stale(&instances);
        let folder = instances.join(format!("{NAME}{}", process::id()));
        let mut trace = Trace { mount: place.to_owned(), folder, knows_kinds: false };
        fs::create_dir(&trace.folder).context("the kernel makes no trace instance")?;
        for event in NEEDED {
            trace.event(event).map_err(|_| {
                Refused(format!("the host's kernel has no event {event} to record from"))
            })?;
        }
        trace.knows_kinds = HELPFUL.iter().all(|event| trace.event(event).is_ok());
        trace.set("buffer_size_kb", BUFFER)?;
        // One clock for all CPUs, so that their events can be put in order.
        trace.set("trace_clock", "mono")?;
        trace.set("options/event-fork", "1")?;
        trace.set("set_event_pid", &process::id().to_string())?;
        trace.set("tracing_on", "1")?;
        Ok(trace)
    }

    fn event(&self, event: &str) -> Result<()> {
        self.set(&format!("events/{event}/enable"), "1")
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("{file} of the trace cannot be set"))
    }

    /// Ends the recording; all events as text.
    pub(super) fn stop(&self) -> Result<String> {
        self.set("tracing_on", "0")?;
        for cpu in fs::read_dir(self.folder.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            ensure!(
                lost(&stats) == 0,
                "the kernel's trace lost {} events; let the program do less",
                lost(&stats)
            );
        }
        fs::read_to_string(self.folder.join("trace")).context("the trace cannot be read")
    }
}

/// How many events a CPU lost, by its `stats`.
fn lost(stats: &str) -> u64 {
    let count = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    count("overrun") + count("commit overrun") + count("dropped events")
}

/// Removes instances of recorders that were killed.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
        let _ = unmount(&self.mount, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_counted_of_all_kinds() {
        let stats = "entries: 38\noverrun: 2\ncommit overrun: 3\nbytes: 9\ndropped events: 4\n";
        assert_eq!((lost(stats), lost("entries: 1\n")), (9, 0));
    }
}
