//! The kernel's trace: an instance of our own, with the events of pages that come in.

use std::fs;
use std::path::{Path, PathBuf};
use std::{io, process};

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

/// An instance, for this process and its children. Dropping it removes it.
pub(super) struct Instance {
    mount: PathBuf,
    folder: PathBuf,
}

impl Instance {
    /// Mounts the kernel's trace at the folder `place`, which it makes, and makes an instance that
    /// records nothing yet. All CPUs use one clock, so that their events can be put in order.
    pub(super) fn new(place: &Path) -> Result<Instance> {
        fs::create_dir(place)?;
        mount("quire", place, "tracefs", MountFlags::empty(), None)
            .map_err(|e| Refused(locked(&e.into())))?;
        let instances = place.join("instances");
        remove_stale(&instances);
        let folder = instances.join(format!("{NAME}{}", process::id()));
        let instance = Instance { mount: place.to_owned(), folder };
        fs::create_dir(&instance.folder).map_err(|e| Refused(locked(&e)))?;
        instance.set("trace_clock", "mono")?;
        instance.set("options/event-fork", "1")?;
        Ok(instance)
    }

    /// Switches an event on.
    pub(super) fn event(&self, event: &str) -> Result<()> {
        self.set(&format!("events/{event}/enable"), "1")
    }

    pub(super) fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("{file} of the trace cannot be set"))
    }

    /// The text of a file.
    pub(super) fn get(&self, file: &str) -> Result<String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).with_context(|| format!("{file} of the trace cannot be read"))
    }

    /// The folders of the CPUs.
    pub(super) fn cpus(&self) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for cpu in fs::read_dir(self.folder.join("per_cpu"))? {
            all.push(cpu?.path());
        }
        Ok(all)
    }

    /// How many events were lost until now.
    pub(super) fn lost(&self) -> Result<u64> {
        let mut sum = 0;
        for cpu in self.cpus()? {
            sum += lost(&fs::read_to_string(cpu.join("stats"))?);
        }
        Ok(sum)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
        let _ = unmount(&self.mount, UnmountFlags::DETACH);
    }
}

/// An instance with the events of pages that come in.
pub(super) struct Trace {
    instance: Instance,
    /// Whether the kernel reports the kind of access.
    pub(super) knows_kinds: bool,
}

impl Trace {
    /// Begins at the folder `place`, which it makes.
    pub(super) fn new(place: &Path) -> Result<Trace> {
        let instance = Instance::new(place)?;
        for event in NEEDED {
            instance.event(event).map_err(|_| {
                Refused(format!("the host's kernel has no event {event} to record from"))
            })?;
        }
        let knows_kinds = HELPFUL.iter().all(|event| instance.event(event).is_ok());
        instance.set("buffer_size_kb", BUFFER)?;
        instance.set("set_event_pid", &process::id().to_string())?;
        instance.set("tracing_on", "1")?;
        Ok(Trace { instance, knows_kinds })
    }

    /// Ends the recording; all events as text.
    pub(super) fn stop(&self) -> Result<String> {
        self.instance.set("tracing_on", "0")?;
        let lost = self.instance.lost()?;
        ensure!(lost == 0, "the kernel's trace lost {lost} events; let the program do less");
        self.instance.get("trace")
    }
}

/// Why there is no trace, in a sentence.
fn locked(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::PermissionDenied => {
            "the host forbids to trace: its kernel is locked down, or a container's rules say so"
                .to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the host's kernel lets no trace be made: tracefs is mounted read-only".to_owned()
        }
        _ if e.raw_os_error() == Some(libc::ENODEV) => {
            "the host's kernel has no trace to record from (CONFIG_FTRACE)".to_owned()
        }
        _ => format!("the host's kernel lets no trace be made: {e}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_host_that_forbids_to_trace_says_why() {
        let why = |number| locked(&io::Error::from_raw_os_error(number));
        assert!(why(libc::EPERM).contains("locked down"));
        assert!(why(libc::EACCES).contains("locked down"));
        assert!(why(libc::EROFS).contains("read-only"));
        assert!(why(libc::ENODEV).contains("CONFIG_FTRACE"));
        assert!(why(libc::ENOSPC).contains("No space left"));
    }

    #[test]
    fn lost_events_are_counted_of_all_kinds() {
        let stats = "entries: 38\noverrun: 2\ncommit overrun: 3\nbytes: 9\ndropped events: 4\n";
        assert_eq!((lost(stats), lost("entries: 1\n")), (9, 0));
    }
}
