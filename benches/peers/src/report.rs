//! Rounds, medians, and their printed form.

use std::time::Instant;

/// The form of printed results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Columns, for human readers.
    Table,
    /// One JSON object a line.
    Json,
}

/// One way to do the work of a case: its name, and a function that runs one round and returns its
/// number of operations.
pub(crate) type Variant<'a> = (&'static str, Box<dyn FnMut() -> u64 + 'a>);

/// Runs cases and prints a line for each variant.
pub(crate) struct Report {
    format: Format,
    rounds: usize,
}

impl Report {
    /// Prints as `format`, each case measured `rounds` times.
    pub(crate) fn new(format: Format, rounds: usize) -> Self {
        if format == Format::Table {
            println!(
                "{:<7} {:<26} {:<30} {:>10} {:>10} {:>10} {:>8}",
                "bench", "case", "variant", "median", "min", "max", "first×"
            );
        }
        Self { format, rounds }
    }

    /// Measures `variants` in turn, in nanoseconds for each operation, and prints them. The last
    /// column of the table is the ratio to the first variant's time.
    pub(crate) fn case(&mut self, bench: &str, case: &str, mut variants: Vec<Variant<'_>>) {
        let mut samples = vec![Vec::with_capacity(self.rounds); variants.len()];
        for round in 0..=self.rounds {
            for ((_, work), samples) in variants.iter_mut().zip(&mut samples) {
                let began = Instant::now();
                let operations = work();
                let nanoseconds = began.elapsed().as_nanos() as f64;
                // The first round finds cold caches and untouched memory.
                if round > 0 {
                    samples.push(nanoseconds / operations as f64);
                }
            }
        }
        let named = variants.iter().map(|(name, _)| *name).zip(samples).collect();
        self.samples(bench, case, named);
    }

    /// The number of rounds for each case.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Prints samples measured elsewhere, in nanoseconds for each operation, as
    /// [`case`](Self::case) does.
    pub(crate) fn samples(&self, bench: &str, case: &str, variants: Vec<(&str, Vec<f64>)>) {
        let mut first = None;
        for (variant, mut samples) in variants {
            samples.sort_by(f64::total_cmp);
            let first = *first.get_or_insert(median(&samples));
            self.line(bench, case, variant, &samples, median(&samples) / first);
        }
    }

    fn line(&self, bench: &str, case: &str, variant: &str, sorted: &[f64], times: f64) {
        let (middle, least, most) = (median(sorted), sorted[0], sorted[sorted.len() - 1]);
        let n = sorted.len();
        match self.format {
            Format::Table => println!(
                "{bench:<7} {case:<26} {variant:<30} \
                 {middle:>8.1}ns {least:>8.1}ns {most:>8.1}ns {times:>8.2}"
            ),
            Format::Json => println!(
                "{{\"bench\":\"{bench}\",\"case\":\"{case}\",\"variant\":\"{variant}\",\
                 \"metric\":\"time-per-pair\",\"unit\":\"ns\",\"median\":{middle:.2},\
                 \"min\":{least:.2},\"max\":{most:.2},\"n\":{n}}}"
            ),
        }
    }
}

/// The middle of a sorted sample that is not empty.
fn median(sorted: &[f64]) -> f64 {
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}
