//! Programs of the host that the recorder needs.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, anyhow, bail};

use crate::refused::Refused;

/// Runs a tool to its end.
pub(super) fn tool<I, S>(name: &str, package: &str, args: I) -> Result<()>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let output = Command::new(name).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|e| absent(e, name, package))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", said.trim().replace('\n', "; "));
    }
    Ok(())
}

/// Why a tool could not be started.
pub(super) fn absent(e: std::io::Error, name: &str, package: &str) -> anyhow::Error {
    match e.kind() {
        ErrorKind::NotFound => {
            Refused(format!("recording needs `{name}`, from the package {package}")).into()
        }
        _ => anyhow!(e).context(format!("{name} cannot be started")),
    }
}

/// Where the program is that a shell would run as `name`, symbolic links followed.
pub(crate) fn program(name: &OsStr) -> Result<PathBuf> {
    let named = Path::new(name);
    let found = if named.components().count() > 1 {
        Some(named.to_owned())
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|dir| dir.join(named)).find(|path| path.is_file())
    };
    let found = found.filter(|path| path.is_file());
    let path = found.ok_or_else(|| Refused(format!("there is no program {}", named.display())))?;
    fs::canonicalize(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_is_named_with_its_package() {
        let none: [&str; 0] = [];
        let error = tool("quire-has-no-such-tool", "nosuch", none).unwrap_err();
        assert!(error.is::<Refused>());
        assert!(error.to_string().ends_with("from the package nosuch"), "{error}");
        let failed = tool("sh", "dash", ["-c", "echo a; echo why >&2; exit 3"]).unwrap_err();
        assert_eq!(failed.to_string(), "sh failed: why");
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        assert_eq!(program("/bin/sh".as_ref()).unwrap(), fs::canonicalize("/bin/sh").unwrap());
        assert!(program("sh".as_ref()).unwrap().is_absolute());
        for wrong in ["quire-has-no-such-tool", "/bin", "./nosuch"] {
            let error = program(wrong.as_ref()).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no program {wrong}"));
        }
    }
}
