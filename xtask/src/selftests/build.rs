//! Compiles Linux's tests, and lays out the root directory of a machine that runs one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::list::{COMMON, Program};
use crate::guest::Isa;
use crate::setup;
use crate::steps::{Missing, build_dir};

/// Where the tests are within Linux's sources.
const PLACE: &str = "tools/testing/selftests/mm";

/// The script that runs a test in the machine: it mounts file systems, as a distribution would, and
/// swaps to a disk in RAM where tests page something out, and has reserved folios where tests want
/// them.
const START: &str = "#!/bin/sh
/bin/busybox mkdir -p /tmp /dev/shm
/bin/busybox mount -t tmpfs tmpfs /tmp 2>/dev/null
/bin/busybox mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
case \"$1\" in cow|khugepaged|process_madv|guard-regions|uffd-wp-mremap|pagemap_ioctl)
/bin/busybox mkswap /dev/ram0 >/dev/null && /bin/busybox swapon /dev/ram0 ;;
hugetlb_fault_after_madv|hugetlb_madv_vs_map)
echo 1 >/proc/sys/vm/nr_hugepages ;;
huge*|map_huge*|thuge*|pagemap_ioctl|uffd-*)
echo 128 >/proc/sys/vm/nr_hugepages ;;
esac
cd /tests
exec \"./$@\"
";

/// Linux's tests, a compiler for them, and where they go.
pub(super) struct Tests {
    tree: PathBuf,
    headers: PathBuf,
    built: PathBuf,
    root: PathBuf,
    compiler: &'static str,
    busybox: PathBuf,
    /// Static libraries that some programs need; without them, these do not compile.
    libraries: Option<PathBuf>,
    isa: Isa,
}

impl Tests {
    /// The tests of Debian's Linux for `isa`.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub(super) fn new(root: &Path, isa: Isa) -> Result<Self, Missing> {
        let place = setup::linux_tests(root)?;
        let dir = build_dir(root).join("guest").join(isa.name());
        Ok(Self {
            tree: place.join("linux"),
            headers: place.join("usr"),
            built: dir.join("selftests-bin"),
            root: dir.join("selftests-root"),
            compiler: setup::c_compiler(isa)?,
            busybox: setup::busybox(root, isa, true)?,
            libraries: setup::test_libraries(root, isa).ok(),
            isa,
        })
    }

    /// Whether the sources have such a test.
    pub(super) fn has(&self, program: &Program) -> bool {
        self.tree.join(PLACE).join(format!("{}.c", program.source)).is_file()
    }

    /// Compiles a test.
    ///
    /// # Errors
    /// The output of the compiler.
    pub(super) fn compile(&self, program: &Program) -> Result<(), String> {
        let fail = |error| format!("{}: {error}", self.built.display());
        fs::create_dir_all(&self.built).map_err(fail)?;
        // The sources ask for what a probe of the host's libraries found: nothing.
        fs::write(self.built.join("local_config.h"), "").map_err(fail)?;
        let output = self.command(program).output();
        let output = output.map_err(|error| format!("{}: {error}", self.compiler))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error") || line.contains("undefined"));
        Err(first.unwrap_or("it does not compile").to_owned())
    }

    /// The compiler with all its words, as Linux's own makefiles give them, but static. Warnings
    /// about foreign sources are of no use.
    fn command(&self, program: &Program) -> Command {
        let dir = self.tree.join(PLACE);
        let (name, headers) = (program.source, self.headers.join("include"));
        let triple = format!("{}-linux-gnu", self.isa.name());
        let asm = headers.join(&triple);
        let mut command = Command::new(self.compiler);
        command.current_dir(&dir);
        command.args(["-static", "-no-pie", "-O2", "-w", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE="]);
        if self.isa == Isa::X86_64 {
            command.arg("-mxsave");
        }
        // Some rely on another header for this one, and not every version of that has it.
        command.args(["-include", "../kselftest.h"]);
        command.args(["-I", ".."]).arg("-I").arg(&self.tree).arg("-I").arg(&self.built);
        // The tools' own copies are older in places: they only fill gaps.
        for place in [&headers, &asm, &self.tree.join("tools/include/uapi")] {
            command.arg("-isystem").arg(place);
        }
        command.arg("-o").arg(self.built.join(name)).arg(format!("{name}.c"));
        let common = COMMON.iter().filter(|name| dir.join(name).is_file());
        command.args(program.parts).args(common);
        if let (Some(library), Some(place)) = (program.library, &self.libraries) {
            command.arg("-isystem").arg(place.join("include"));
            command.arg("-L").arg(place.join(&triple)).arg(format!("-l{library}"));
        }
        command.args(["-lrt", "-lpthread", "-lm"]);
        command
    }

    /// Keeps what `program` printed on the kernel `side`, for readers of the table.
    ///
    /// # Errors
    /// Which file could not be written.
    pub(super) fn keep(
        &self,
        program: &Program,
        side: &str,
        lines: &[String],
    ) -> Result<(), String> {
        let dir = self.root.with_file_name("selftests-said");
        let file = dir.join(format!("{}.{side}", program.name));
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(&file, lines.join("\n") + "\n"))
            .map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Lays out the root directory of a machine that runs `program`; returns it.
    ///
    /// # Errors
    /// Which file could not be written.
    pub(super) fn lay_out(&self, program: &Program) -> Result<PathBuf, String> {
        let fail = |error| format!("{}: {error}", self.root.display());
        if self.root.exists() {
            fs::remove_dir_all(&self.root).map_err(fail)?;
        }
        for dir in ["bin", "dev", "etc", "proc", "sys", "tests", "tmp"] {
            fs::create_dir_all(self.root.join(dir)).map_err(fail)?;
        }
        fs::copy(&self.busybox, self.root.join("bin/busybox")).map_err(fail)?;
        symlink("busybox", self.root.join("bin/sh")).map_err(fail)?;
        let test = self.root.join("tests").join(program.source);
        fs::copy(self.built.join(program.source), test).map_err(fail)?;
        let start = self.root.join("bin/start");
        fs::write(&start, START).map_err(fail)?;
        fs::set_permissions(&start, fs::Permissions::from_mode(0o755)).map_err(fail)?;
        Ok(self.root.clone())
    }
}

/// The words that start `program` in the machine.
pub(super) fn words(program: &Program) -> Vec<String> {
    let start = ["/bin/start", program.source];
    start.iter().chain(program.args).map(|&word| word.to_owned()).collect()
}
