//! The command: the steps in their order, and the program that is recorded.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs, process};

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::cold::Cold;
use super::events;
use super::files::{self, Image};
use super::program::Program;
use super::tool::{absent, program};
use super::trace::Trace;
use crate::host::Host;
use crate::host::thp::{Guard, Switches};
use crate::recorder::memory::{self, Wanted};
use crate::recording::{Recording, Source};
use crate::refused::Refused;
use crate::size::Size;
use crate::tape::{self, Tape};
use crate::watch::Manner;

/// Options of `record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Where to write the recording [default: the program's name, with .recording]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The work of the program, in one line
    #[arg(long, default_value = "")]
    note: String,
    /// Record all memory of the program, in one run, and not only the pages of its files
    #[arg(long)]
    memory: bool,
    /// Record the memory of this process, which runs already, and of its children
    #[arg(long, value_name = "PID", requires = "memory", conflicts_with = "command")]
    pid: Option<u32>,
    /// End after this time: 500ms, 60s, 5m
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "memory")]
    time: Option<Duration>,
    /// End when the recording has this size
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "memory")]
    limit: Size,
    /// Let addresses differ from run to run, as they do without a recorder
    #[arg(long, requires = "memory")]
    random: bool,
    /// Also sample which pages are used, each time after this: 500ms, 5s. Where the kernel has no
    /// idle bits, all memory goes to compressed memory at each sample, which takes time
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "memory")]
    uses: Option<Duration>,
    /// The command is in a mount namespace of its own
    #[arg(long, hide = true)]
    inside: bool,
    /// The program, which runs twice, or once with --memory, and its arguments
    #[arg(last = true, required_unless_present = "pid")]
    command: Vec<OsString>,
}

/// Records a program.
pub(crate) fn run(args: &RecordArgs, host: &Host) -> Result<()> {
    prepare("record", args.inside)?;
    if args.memory {
        return record_memory(args, host);
    }
    let (name, rest) = args.command.split_first().context("a program is missing")?;
    let interrupted = interrupted()?;
    let program = Program { path: program(name)?, name, args: rest, interrupted };
    let folder = Folder::new()?;
    let recording = record(&program, &folder.0, &args.note)?;
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| format!("{}.recording", recording.program).into());
    let text = recording.to_string();
    fs::write(&output, text).with_context(|| format!("cannot write {}", output.display()))?;
    eprintln!(
        "quire: {} pages of {} files, {} of them text, are recorded in {}.",
        recording.pages(),
        recording.files.len(),
        recording.text_pages(),
        output.display()
    );
    Ok(())
}

/// Refuses without root, and goes on in a mount namespace of its own: then the command begins anew
/// with the option `--inside`.
pub(crate) fn prepare(command: &str, inside: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let why = "recording needs root: it mounts, and reads the kernel's trace";
        return Err(Refused(why.to_owned()).into());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !may_mount(&status) {
        let why =
            "recording needs the capability CAP_SYS_ADMIN, which this container does not give";
        return Err(Refused(why.to_owned()).into());
    }
    if inside { Ok(()) } else { Err(enter(command)) }
}

/// Whether a process with this `status` has `CAP_SYS_ADMIN` (21); true where it does not say.
fn may_mount(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_none_or(|bits| bits >> 21 & 1 != 0)
}

/// Becomes true when a signal asks for the end.
fn interrupted() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first asks for the end; another ends the command as signals do.
        signal_hook::flag::register_conditional_default(signal, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}

/// Records all memory.
fn record_memory(args: &RecordArgs, host: &Host) -> Result<()> {
    let RecordArgs { time, random, uses, .. } = *args;
    let bounds = Bounds { time, bytes: args.limit.len(), random, uses, quiet: false };
    if let Some(folder) = args.output.as_deref().and_then(Path::parent)
        && !folder.as_os_str().is_empty()
        && !folder.is_dir()
    {
        return Err(Refused(format!("there is no folder {}", folder.display())).into());
    }
    let mut tape = tape(&args.command, args.pid, &bounds, host)?;
    tape.note = args.note.replace('\n', " ");
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| format!("{}.recording", tape.program).into());
    tape::save(&tape, &output)?;
    tape.limits.iter().for_each(|limit| eprintln!("quire: {limit}"));
    Ok(())
}

/// The bounds of a recording of memory.
pub(crate) struct Bounds {
    /// The longest time.
    pub(crate) time: Option<Duration>,
    /// The most bytes of events.
    pub(crate) bytes: usize,
    /// Whether addresses differ from run to run.
    pub(crate) random: bool,
    /// Between two samples of use.
    pub(crate) uses: Option<Duration>,
    /// The program's output is not shown.
    pub(crate) quiet: bool,
}

/// Records all memory of a program, or of process `pid`.
pub(crate) fn tape(
    command: &[OsString],
    pid: Option<u32>,
    bounds: &Bounds,
    host: &Host,
) -> Result<Tape> {
    let named = command.first().map(|name| files::name_of(&program(name)?)).transpose()?;
    let interrupted = interrupted()?;
    // A process that runs already cannot be told to do without large folios: the host does.
    let mut says = Vec::new();
    let guard = pid.map(|_| Guard::until_dropped(host, &mut says));
    if let Some(guard) = &guard {
        guard.put(&Switches::off()).context("large folios cannot be switched off")?;
    }
    says.iter().for_each(|sentence| eprintln!("quire: {sentence}"));
    let folder = Folder::new()?;
    let Bounds { time, bytes, uses, quiet, .. } = *bounds;
    let manner = Manner { small: true, fixed: !bounds.random, quiet, group: None };
    let stop = interrupted.clone();
    let wanted = Wanted { command, pid, time, bytes, uses, manner, interrupted: stop };
    let mut tape = memory::record(&wanted, &folder.0.join("trace"), host)?;
    // From now on a signal ends the command at once.
    interrupted.store(true, Ordering::Relaxed);
    tape.program = named
        .or_else(|| host.read(format!("proc/{}/comm", pid?)))
        .unwrap_or_else(|| "program".to_owned());
    Ok(tape)
}

/// A time as people write it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let scale = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number and a unit, such as 500ms, 60s or 5m".to_owned()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * scale);
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds < 1e7);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a time is more than nothing".to_owned())
}

/// Runs this command again in a mount namespace of its own; returns only when that fails.
fn enter(command: &str) -> anyhow::Error {
    let own = match env::current_exe() {
        Ok(own) => own,
        Err(e) => return anyhow::Error::new(e).context("the command does not find itself"),
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--"]).arg(own);
    let mut args: Vec<OsString> = env::args_os().skip(1).collect();
    // Behind the command's name, before the program's words.
    let place = args.iter().position(|arg| arg == command).map_or(args.len(), |at| at + 1);
    args.insert(place, "--inside".into());
    absent(unshare.args(args).exec(), "unshare", "util-linux")
}

fn record(program: &Program<'_>, folder: &Path, note: &str) -> Result<Recording> {
    let images = files::discover(program)?;
    let cold = Cold::new(folder, &images)?;
    let trace = Trace::new(&folder.join("trace"))?;
    let mut child = program.start(true)?;
    while child.is_running()? {
        sleep(Duration::from_millis(2));
    }
    let events = events::read(&trace.stop()?, cold.device);
    if let Some(status) = child.status.filter(|status| !status.success()) {
        eprintln!("quire: the program ended with {status}.");
    }
    if !trace.knows_kinds {
        eprintln!("quire: the host's kernel does not report the kind of touches: each is a `?`.");
    }
    if events.together > 0 {
        eprintln!(
            "quire: {} pages came in together with others: their own order is not known.",
            events.together
        );
    }
    made(program, note, images, &cold.inodes, &events.came)
}

/// The recording of the pages that came in.
fn made(
    program: &Program<'_>,
    note: &str,
    images: Vec<Image>,
    inodes: &[u64],
    came: &[events::Came],
) -> Result<Recording> {
    let page = rustix::param::page_size() as u64;
    let name = files::name_of(&program.path)?;
    // Files of which nothing was touched need not be in it.
    let touched = |at: &usize| came.iter().any(|came| came.inode == inodes[*at]);
    let kept: Vec<usize> = (0..images.len()).filter(touched).collect();
    let sources: Vec<Source> = kept.iter().map(|at| images[*at].source.clone()).collect();
    let note = note.replace('\n', " ");
    let (files, touches) = (sources, Vec::new());
    let mut recording = Recording { program: name, note, page, files, touches };
    for came in came {
        let file = kept.iter().position(|at| inodes[*at] == came.inode);
        file.into_iter().for_each(|file| recording.touch(came.kind, file, came.offset / page));
    }
    if recording.touches.is_empty() {
        bail!("the program touched nothing that the kernel reported");
    }
    Ok(recording)
}

/// The start of the names of our folders; the number of the process follows.
const FOLDER: &str = "quire-record-";

/// A folder for a while.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        remove_stale();
        let path = env::temp_dir().join(format!("{FOLDER}{}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }
}

/// Removes folders of recorders that were killed.
fn remove_stale() {
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

/// Removes a recorder's folder; never the files in its folders, on which a disk may be mounted.
fn remove(folder: &Path) {
    let _ = fs::remove_file(folder.join("disk"));
    for name in ["files", "trace", ""] {
        let _ = fs::remove_dir(folder.join(name));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
        if self.0.exists() {
            eprintln!("quire: {} was left behind.", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Kind, Touch};

    #[test]
    fn f1_a_container_without_the_capability_is_told_so() {
        assert!(may_mount("CapEff:\t000001ffffffffff\n") && may_mount(""));
        assert!(!may_mount("Name:\tquire\nCapEff:\t000001ffffdfffff\n"));
    }

    fn image(name: &str) -> Image {
        let source = Source { name: name.to_owned(), bytes: 1 << 20, segments: Vec::new() };
        Image { path: PathBuf::from(name), source }
    }

    #[test]
    fn a_recording_has_the_files_that_were_touched_and_counts_them_anew() {
        let page = rustix::param::page_size() as u64;
        let name = OsString::from("a.out");
        let interrupted = Arc::new(AtomicBool::new(false));
        let path = PathBuf::from("/somewhere/a.out");
        let program = Program { path, name: &name, args: &[], interrupted };
        let images = || vec![image("a.out"), image("idle.so"), image("busy.so")];
        let came = |kind, inode, at: u64| events::Came { kind, inode, offset: at * page };
        // Inode 99 is none of the copies.
        let all = [
            came(Kind::Read, 12, 0),
            came(Kind::Exec, 14, 2),
            came(Kind::Exec, 14, 3),
            came(Kind::Exec, 99, 4),
        ];
        let made =
            |came: &[events::Came]| made(&program, "two\nlines", images(), &[12, 13, 14], came);
        let recording = made(&all).unwrap();
        assert_eq!((recording.program.as_str(), recording.note.as_str()), ("a.out", "two lines"));
        let names: Vec<&str> = recording.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.out", "busy.so"]);
        assert_eq!(
            recording.touches,
            [
                Touch { kind: Kind::Read, file: 0, first: 0, count: 1 },
                Touch { kind: Kind::Exec, file: 1, first: 2, count: 2 },
            ]
        );
        assert_eq!(recording.to_string().parse::<Recording>().as_ref(), Ok(&recording));
        assert!(made(&[]).unwrap_err().to_string().contains("touched nothing"));
    }
}
