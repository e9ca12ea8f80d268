//! Runs the tests, each in a machine of its own.

use std::path::Path;

use super::build::{Tests, words};
use super::list::{PROGRAMS, Program};
use super::report::{self, Row};
use super::tap::Said;
use crate::guest::{self, Isa, Order};
use crate::steps::Missing;

/// The number of CPUs of the machine.
const CPUS: u32 = 2;

/// The memory of the machine: `mremap_test` maps 2 GiB, which Linux refuses where there is less.
const MEMORY: &str = "3G";

/// The tests to run.
#[derive(Clone, Debug)]
pub struct What {
    /// The machine's ISA.
    pub isa: Isa,
    /// `quire` or `linux`, or a kernel's file; none: both.
    pub kernel: Option<String>,
    /// `linux`, or the file of another one.
    pub linux: String,
    /// Only these programs; none: all.
    pub programs: Vec<String>,
}

/// Builds and runs the tests and prints how they went, side by side; returns whether Quire's
/// kernel does as well as Linux.
///
/// # Errors
/// Why they cannot be built or run here.
pub fn run(root: &Path, what: &What) -> Result<bool, Missing> {
    let tests = Tests::new(root, what.isa)?;
    let mut rows = Vec::new();
    for program in chosen(&what.programs)? {
        if !tests.has(program) {
            println!("{}: not among these sources", program.name);
            continue;
        }
        if let Err(error) = tests.compile(program) {
            println!("{}: does not compile: {error}", program.name);
            continue;
        }
        rows.push(row(root, what, &tests, program)?);
    }
    println!();
    report::print(&rows);
    Ok(rows.iter().all(Row::is_good))
}

/// The programs of these names; all, without names.
fn chosen(names: &[String]) -> Result<Vec<&'static Program>, Missing> {
    let is_known = |name: &&String| PROGRAMS.iter().any(|program| is_of(program, name));
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(failed(format!("no test `{name}`: name some of {}.", known.join(", "))));
    }
    let is_meant = |p: &&Program| names.is_empty() || names.iter().any(|name| is_of(p, name));
    Ok(PROGRAMS.iter().filter(is_meant).collect())
}

/// Whether the program has this name, or is one of the runs of a program with this name.
fn is_of(program: &Program, name: &str) -> bool {
    program.name == name || program.source == name
}

/// Runs a program on the kernels that are asked for.
fn row(root: &Path, what: &What, tests: &Tests, program: &Program) -> Result<Row, Missing> {
    let dir = tests.lay_out(program).map_err(failed)?;
    let mut row = Row { name: program.name.to_owned(), linux: None, quire: None };
    let kernels = match &what.kernel {
        Some(kernel) if kernel == "linux" => vec![what.linux.as_str()],
        Some(kernel) => vec![kernel.as_str()],
        None => vec![what.linux.as_str(), "quire"],
    };
    for kernel in kernels {
        let mut all = vec![dir.to_string_lossy().into_owned()];
        all.extend(words(program));
        let order = Order {
            cpus: CPUS,
            memory: MEMORY.to_owned(),
            kernel: kernel.to_owned(),
            timeout_seconds: program.seconds,
            ..Order::new(what.isa, all)
        };
        let (status, lines) = guest::listen(root, &order)?;
        let said = Said::read(&lines, status);
        println!("{} on {kernel}: exit {status}, {} checks", program.name, said.checks.len());
        let is_linux = kernel == "stock" || kernel == what.linux;
        let (side, word) = match is_linux {
            true => (&mut row.linux, "linux"),
            false => (&mut row.quire, "quire"),
        };
        *side = Some(said);
        tests.keep(program, word, &lines).map_err(failed)?;
    }
    Ok(row)
}

fn failed(sentence: String) -> Missing {
    Missing { sentence, fails: false }
}

#[cfg(test)]
mod tests {
    use super::{PROGRAMS, chosen};

    #[test]
    fn no_name_means_all_and_an_unknown_one_is_refused() {
        assert_eq!(chosen(&[]).map(|all| all.len()), Ok(PROGRAMS.len()));
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let some = chosen(&names(&["cow", "mkdirty"])).expect("both are known");
        assert_eq!(some.iter().map(|p| p.name).collect::<Vec<_>>(), ["mkdirty", "cow"]);
        assert!(chosen(&names(&["cow", "calf"])).is_err());
    }
}
