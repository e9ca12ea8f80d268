//! The advice as a run, which the report shows.

use super::advice::Advice;
use super::search::Tried;
use crate::host::Host;
use crate::host::cpu::Machine;
use crate::plot::{Dot, Plot};
use crate::record::{Record, Run, Table};
use crate::stats::Summary;

/// The run.
pub(super) fn run(advice: &Advice<'_>, host: &Host) -> Run {
    let mut run = Run::new("advise", Machine::read(host));
    run.title = format!("Folio sizes for {}", advice.tape.program);
    run.about =
        "A program's recorded memory under settings of the folio sizes. Each setting is one \
                 that no other beats in faults, peak and translations."
            .to_owned();
    run.findings.clone_from(&advice.reasons);
    run.limits.clone_from(&advice.limits);
    let page = advice.tape.page as f64;
    let mut rows = Vec::new();
    for it in advice.search.kept() {
        let own = advice.own.iter().find(|(setting, _)| *setting == it.setting);
        let proven = advice.proven.iter().find(|(setting, _)| *setting == it.setting);
        let figures = [
            ("linux", "faults", Some(one(it.faults as f64))),
            ("linux", "peak", Some(one(it.peak as f64))),
            ("quire", "faults", own.map(|(_, own)| one(own.faults as f64))),
            ("quire", "peak", own.map(|(_, own)| one(own.peak as f64 * page))),
            ("measured", "faults", proven.map(|(_, it)| it.faults)),
            ("measured", "peak", proven.map(|(_, it)| it.peak)),
            ("measured", "time", proven.map(|(_, it)| it.wall)),
        ];
        let place = |(variant, metric, figure): (&str, &str, Option<Summary>)| {
            let figure = figure?;
            run.records.push(record(it, variant, metric, &figure));
            Some(run.records.len() - 1)
        };
        rows.push((it.setting.to_string(), figures.map(place).to_vec()));
    }
    let columns =
        ["Linux faults", "peak", "Quire faults", "peak", "measured faults", "peak", "time"];
    run.tables = vec![Table {
        title: "Settings".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    }];
    run.plots = vec![plot(advice)];
    run
}

/// Resident memory against faults.
fn plot(advice: &Advice<'_>) -> Plot {
    let best = advice.best.as_ref().map(|best| best.setting);
    let dot = |it: &Tried| Dot {
        name: it.setting.to_string(),
        x: it.faults as f64,
        y: it.peak as f64 / f64::from(1 << 20),
        marked: best == Some(it.setting),
    };
    let dots = advice.search.kept().into_iter().map(dot).collect();
    Plot::dots("One point for each setting", ["page faults", "MiB at the peak"], dots)
}

fn one(value: f64) -> Summary {
    Summary { median: value, min: value, max: value, n: 1 }
}

fn record(it: &Tried, variant: &str, metric: &str, all: &Summary) -> Record {
    let unit = match metric {
        "peak" => "bytes",
        "time" => "ns",
        _ => "count",
    };
    Record {
        bench: "advise".to_owned(),
        case: it.setting.to_string(),
        variant: variant.to_owned(),
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        median: all.median,
        min: all.min,
        max: all.max,
        n: all.n,
    }
}
