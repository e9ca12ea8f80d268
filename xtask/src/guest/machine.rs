//! Starts QEMU, follows its console, and ends it: when the guest powers off, when time is over, or
//! at Ctrl-C.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};

use super::Isa;
use super::console::{Console, Event};
use super::disk::Disk;

/// How long QEMU may take to end after the guest's power-off, or after SIGTERM.
const FAREWELL: Duration = Duration::from_secs(10);

/// How often the clock and Ctrl-C are looked at.
const TICK: Duration = Duration::from_millis(50);

/// The accelerator that runs the guest's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Accel {
    /// The one that works everywhere: the translator.
    Auto,
    /// QEMU's translator.
    Tcg,
    /// The machine's own CPU; only for its own ISA.
    Kvm,
}

/// A machine to start.
pub(super) struct Machine<'a> {
    /// Its ISA.
    pub isa: Isa,
    /// The kernel's file.
    pub kernel: &'a Path,
    /// The initramfs.
    pub archive: &'a [u8],
    /// The disk, if it has one.
    pub disk: Option<&'a Disk>,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// How many CPUs.
    pub cpus: u32,
    /// Which, as QEMU names them; the one that can do the most, unless one is named.
    pub cpu: Option<&'a str>,
    /// The board, as QEMU names it; the ISA's usual one, unless one is named.
    pub board: Option<&'a str>,
    /// Hides ERMS from the kernel, so that it copies by words: where instructions are counted, a
    /// string instruction counts once for each byte.
    pub moves_words: bool,
    /// How much memory, in QEMU's notation: 2G.
    pub memory: &'a str,
    /// The accelerator.
    pub accel: Accel,
    /// The guest's clock counts instructions, one nanosecond each.
    pub counts_instructions: bool,
    /// When it is ended.
    pub timeout: Duration,
    /// The console goes to our output, and our input to it.
    pub is_shown: bool,
}

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// By itself, or after its last word.
    Guest(Option<Event>),
    /// Time was over.
    Timeout,
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

impl Machine<'_> {
    /// Runs the machine to its end; gives the lines of its console. `dir` takes its files.
    ///
    /// # Errors
    /// A sentence: QEMU could not be started, or a file not be written.
    pub(super) fn run(&self, dir: &Path) -> Result<(Ending, Vec<String>), String> {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}.", dir.display()))?;
        let archive = dir.join(format!("initramfs-{}.cpio", std::process::id()));
        fs::write(&archive, self.archive).map_err(|e| format!("{}: {e}.", archive.display()))?;
        let result = self.start(&archive);
        // Only this machine needed it.
        let _ = fs::remove_file(&archive);
        result
    }

    fn start(&self, archive: &Path) -> Result<(Ending, Vec<String>), String> {
        let (program, packages) = self.isa.emulator();
        let watch = Watch { timeout: self.timeout, is_shown: self.is_shown };
        watch.run(&mut self.command(program, archive), packages)
    }

    /// QEMU with all its arguments. Its monitor is off, and signals of the terminal reach it.
    fn command(&self, program: &str, archive: &Path) -> Command {
        let mut command = Command::new(program);
        match self.isa {
            Isa::X86_64 => {
                let exit = "isa-debug-exit,iobase=0xf4,iosize=4";
                command.args(["-M", self.board.unwrap_or("q35"), "-device", exit]);
            }
            Isa::Aarch64 => {
                command.args(["-M", self.board.unwrap_or("virt,gic-version=3"), "-semihosting"]);
            }
            Isa::Riscv64 => {
                command.args(["-M", self.board.unwrap_or("virt")]);
            }
        }
        let cpu = match (self.cpu, self.isa) {
            (Some(cpu), _) => cpu,
            (None, Isa::X86_64) if self.moves_words => "max,erms=off",
            (None, _) => "max",
        };
        let accel = if self.accel == Accel::Kvm { "kvm" } else { "tcg" };
        command
            .args(["-accel", accel, "-cpu", cpu, "-nographic", "-no-reboot", "-nic", "none"])
            .args(["-chardev", "stdio,id=console,signal=on", "-serial", "chardev:console"])
            .args(["-monitor", "none", "-smp", &self.cpus.to_string(), "-m", self.memory])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(archive)
            .args(["-append", self.command_line]);
        if let Some(disk) = self.disk {
            command.args(disk.words(self.isa));
        }
        if self.counts_instructions {
            command.args(["-icount", "shift=0,sleep=off"]);
        }
        command
    }
}

/// How a machine is watched.
pub(super) struct Watch {
    /// When it is ended.
    pub timeout: Duration,
    /// The console goes to our output, and our input to it.
    pub is_shown: bool,
}

impl Watch {
    /// Runs QEMU, which one of the packages has, to its end; gives the lines of the console.
    ///
    /// # Errors
    /// A sentence: it could not be started.
    pub(super) fn run(
        &self,
        command: &mut Command,
        packages: &[&str],
    ) -> Result<(Ending, Vec<String>), String> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(|error| format!("signals: {error}."))?;
        }
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(if self.is_shown { Stdio::inherit() } else { Stdio::null() });
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}; install {}.", packages.join(" ")))?;
        let bytes = follow(child.stdout.take());
        let mut console = Console::default();
        let ending = self.watch(&bytes, &mut console, &stop);
        if ending != Ending::Guest(None) {
            end(&mut child, ending);
        }
        child.wait().map_err(|error| format!("{program}: {error}."))?;
        self.drain(&bytes, &mut console);
        Ok((ending, console.lines))
    }

    /// Until the guest said its last word, or something else ends it.
    fn watch(&self, bytes: &Receiver<Vec<u8>>, console: &mut Console, stop: &AtomicBool) -> Ending {
        let start = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ending::Interrupted;
            }
            if start.elapsed() >= self.timeout {
                return Ending::Timeout;
            }
            match bytes.recv_timeout(TICK) {
                Ok(bytes) => self.show(&bytes, console),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ending::Guest(console.event),
            }
            if console.event.is_some() {
                return Ending::Guest(console.event);
            }
        }
    }

    /// Reads the output that was still on its way.
    fn drain(&self, bytes: &Receiver<Vec<u8>>, console: &mut Console) {
        while let Ok(bytes) = bytes.recv_timeout(TICK) {
            self.show(&bytes, console);
        }
    }

    fn show(&self, bytes: &[u8], console: &mut Console) {
        if self.is_shown {
            // A reader that closed our output does not want to see it.
            let mut out = io::stdout().lock();
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        }
        console.take(bytes);
    }
}

/// Waits for QEMU where the guest is about to end it, terminates it otherwise, and kills it if that
/// has no effect. QEMU restores the terminal when terminated, not when killed.
fn end(child: &mut Child, ending: Ending) {
    let ends_itself = matches!(ending, Ending::Guest(Some(_)));
    if !(ends_itself && is_gone(child)) {
        if let Ok(pid) = i32::try_from(child.id())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended in between; then the signal is not needed.
            let _ = kill_process(pid, Signal::TERM);
        }
        if !is_gone(child) {
            let _ = child.kill();
        }
        restore_terminal();
    }
}

/// Whether it ends within [`FAREWELL`].
fn is_gone(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < FAREWELL {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(TICK);
    }
    false
}

/// Puts the terminal into its usual state, in case QEMU could not.
fn restore_terminal() {
    if io::stdin().is_terminal() {
        // Without stty the terminal stays as it is.
        let _ = Command::new("stty").arg("sane").status();
    }
}

/// Sends what can be read as it comes, from a thread of its own.
fn follow(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Where the files of machines are.
pub(super) fn files(root: &Path) -> PathBuf {
    crate::steps::build_dir(root).join("guest")
}
