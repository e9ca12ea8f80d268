//! Options that benches share.

use clap::{Args, ValueEnum};

use crate::refused::Refused;
use crate::size::{BadSize, Size};

/// How results are printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Tables with units, settings and what the figures leave out
    Table,
    /// One record per line
    Json,
}

/// Options that every bench has.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// How often each thing is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loops: Option<u32>,
    /// A table for people or one JSON object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// Options of the benches that clear and fault.
#[derive(Args, Debug)]
pub(crate) struct Shared {
    /// Sizes, powers of two from 4K on: 4K,64K,2M,1G
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    pub(crate) sizes: Vec<Size>,
    /// How many threads work at the same time, each on memory of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Only these variants: chosen, page-at-a-time, raw-<backend>, linux
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    pub(crate) variants: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Shared {
    /// The named sizes in ascending order, each once; without any, those in `usual`.
    pub(crate) fn sizes(&self, usual: &[u64]) -> Vec<Size> {
        let mut sizes = match self.sizes.is_empty() {
            true => usual.iter().copied().map(Size).collect(),
            false => self.sizes.clone(),
        };
        sizes.sort();
        sizes.dedup();
        sizes
    }
}

/// The smallest size that anything is cleared or mapped in, and the largest extent of any machine.
const SIZES: [Size; 2] = [Size(4096), Size(1 << 36)];

/// Reads the size of a folio.
pub(crate) fn folio_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|e: BadSize| e.to_string())?;
    let [least, most] = SIZES;
    if !size.bytes().is_power_of_two() || !(least..=most).contains(&size) {
        return Err(format!("sizes are powers of two from {least} to {most}"));
    }
    Ok(size)
}

/// Which variants are measured: the named ones, or all.
pub(crate) struct Filter(Vec<String>);

impl Filter {
    /// The variants `named`, each of which must be in `known`; all if none is named.
    pub(crate) fn new(named: &[String], known: &[String]) -> Result<Filter, Refused> {
        match named.iter().find(|name| !known.contains(name)) {
            Some(name) => Err(Refused(format!(
                "there is no variant {name:?} here; there are {}",
                known.join(", ")
            ))),
            None => Ok(Filter(named.to_vec())),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|n| n == name)
    }
}
