//! The host's own kernel on the same work, told beside the library's figures.

use anyhow::Result;

use super::host::{Plan, Row, run};
use crate::bench::sheet::Sheet;
use crate::host::Host;
use crate::host::thp::Guard;
use crate::stats::Summary;

/// The most rounds: each writes all of the memory to a device.
const ROUNDS: u32 = 5;

/// Measures the host's kernel with `bytes` of memory, and tells the results. Settings are as before
/// when this returns, with an error as well.
pub(super) fn tell(sheet: &mut Sheet, host: &Host, bytes: u64, loops: u32) -> Result<()> {
    let guard = Guard::new(host, &mut sheet.run.settings);
    let plan = Plan { region: bytes, rounds: loops.min(ROUNDS), ..Plan::default() };
    let rows = run(host, &guard, &plan, &mut sheet.run.skipped)?;
    sheet.run.findings.extend(rows.iter().map(sentence));
    Ok(())
}

fn sentence(row: &Row) -> String {
    let both = |wall: Option<Summary>, cpu: &[f64]| match (wall, Summary::of(cpu)) {
        (Some(wall), Some(cpu)) => {
            format!("{:.0} ns a page ({:.0} ns of CPU)", wall.median, cpu.median)
        }
        _ => "not measured, as it did not leave memory".to_owned(),
    };
    let count = |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
    format!(
        "The host's kernel, {} ({}), {} folios of {} data: out {}, back {}; whole out {}, split \
         {}, whole back {}.",
        row.device.name(),
        row.detail,
        row.size,
        row.data.name(),
        both(row.out_summary(), &row.out_cpu),
        both(row.back_summary(), &row.back_cpu),
        count(row.counts.out),
        count(row.counts.fallback),
        count(row.counts.back),
    )
}

#[cfg(test)]
mod tests {
    use super::super::data::Data;
    use super::super::host::{Counts, Device};
    use super::*;
    use crate::size::Size;

    #[test]
    fn d7_a_row_of_the_hosts_kernel_is_one_sentence_also_where_nothing_left() {
        let row = Row {
            device: Device::ALL[0],
            detail: "a file".to_owned(),
            size: Size(64 << 10),
            data: Data::Text,
            out: vec![100.0, 120.0, 110.0],
            out_cpu: vec![50.0, 60.0, 55.0],
            back: Vec::new(),
            back_cpu: Vec::new(),
            counts: Counts { out: Some(7), fallback: None, back: Some(0) },
        };
        let said = sentence(&row);
        assert!(
            said.contains("64K folios of text data: out 110 ns a page (55 ns of CPU)"),
            "{said}"
        );
        assert!(
            said.contains("back not measured") && said.contains("whole out 7, split ?"),
            "{said}"
        );
    }
}
