//! The advice as one JSON object, for other programs.

use anyhow::Result;
use serde::Serialize;

use super::advice::Advice;
use super::clones::Copies;
use super::cost::Time;
use super::lines::lines;
use super::search::Tried;
use crate::stats::Summary;

#[derive(Serialize)]
struct Object<'a> {
    program: &'a str,
    note: &'a str,
    page_bytes: u64,
    touches: u64,
    processes: u64,
    /// The setting to choose; `null` where none fits.
    best: Option<String>,
    /// The host's own, and whether there is no reason to change it.
    now: String,
    now_is_best: bool,
    reasons: &'a [String],
    /// Of a recording with samples of use.
    cold: Option<Cold>,
    settings: Vec<Row>,
    ways: Vec<Way>,
    limits: &'a [String],
}

/// Private memory between two samples: shares that are not used, pages that are.
#[derive(Serialize)]
struct Cold {
    samples: u64,
    share: Spread,
    used_pages: Spread,
    lasting_pages: u64,
    used_once_pages: u64,
}

#[derive(Serialize)]
struct Way {
    way: &'static str,
    lines: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    setting: String,
    /// Bytes of a folio with the word of its switch.
    switches: Vec<(u64, String)>,
    linux: Predicted,
    quire: Option<OwnPredicted>,
    /// Nanoseconds of all faults, and of the walks of a second use of all touched pages: usual,
    /// least, most.
    faults_ns: Option<[f64; 3]>,
    walks_ns: Option<[f64; 3]>,
    measured: Option<Measured>,
    copy: Option<Copy>,
}

/// Each copy of the largest process.
#[derive(Serialize)]
struct Copy {
    own: u64,
    tables: u64,
    faults: u64,
    fork_ns: Option<f64>,
    measured_own: Option<Spread>,
    measured_tables: Option<Spread>,
    measured_fork_ns: Option<Spread>,
}

/// Memory is in bytes.
#[derive(Serialize)]
struct Predicted {
    faults: u64,
    peak: u64,
    waste: u64,
    cleared: u64,
    copied: u64,
    tables: u64,
    /// Bytes that left for the swap device, and came back; folios that were split for want of a
    /// place there; and how often nothing could leave.
    out: u64,
    back: u64,
    cut: u64,
    short: u64,
    /// Attempts to take a large folio for which there was no memory.
    fallbacks: u64,
    /// Folios of private memory that faults brought, by their order.
    folios: Vec<u64>,
    /// Translations of all touched pages, for each TLB.
    translations: Vec<u64>,
    walks: Vec<u64>,
}

#[derive(Serialize)]
struct OwnPredicted {
    faults: u64,
    peak: u64,
    cleared: u64,
    copied: u64,
    folded_blocks: u64,
    collapsed: u64,
    fallbacks: u64,
    out: u64,
    back: u64,
    short: u64,
}

#[derive(Serialize)]
struct Measured {
    faults: Spread,
    peak: Spread,
    wall_ns: Spread,
    kernel_ns: Spread,
    /// Pages, not bytes.
    out: Spread,
    back: Spread,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    n: usize,
}

/// The object and a line feed.
pub(super) fn object(advice: &Advice<'_>) -> Result<String> {
    let tape = advice.tape;
    let best = advice.best.as_ref();
    let ways = best.map(|best| lines(&best.setting, tape.page)).unwrap_or_default();
    let ways = ways.into_iter().map(|it| Way { way: it.way, lines: it.lines });
    let object = Object {
        program: &tape.program,
        note: &tape.note,
        page_bytes: tape.page,
        touches: advice.search.never().out.touches,
        processes: tape.processes,
        best: best.map(|best| best.setting.to_string()),
        now: advice.search.now.to_string(),
        now_is_best: advice.is_now_best,
        reasons: &advice.reasons,
        cold: advice.cold.as_ref().map(|it| Cold {
            samples: it.samples,
            share: spread(&it.share),
            used_pages: spread(&it.used),
            lasting_pages: it.lasting,
            used_once_pages: it.once,
        }),
        settings: advice.search.kept().into_iter().map(|it| row(advice, it)).collect(),
        ways: ways.collect(),
        limits: &advice.limits,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&object)?))
}

fn row(advice: &Advice<'_>, it: &Tried) -> Row {
    let page = advice.tape.page;
    let (counts, reach) = (&it.out.counts, &it.out.reach);
    let linux = Predicted {
        faults: it.faults,
        peak: it.peak,
        waste: it.out.waste * page,
        cleared: counts.cleared * page,
        copied: counts.copied * page,
        tables: it.out.tables * page,
        out: counts.out * page,
        back: counts.back * page,
        cut: counts.cut,
        short: counts.short,
        fallbacks: counts.fallbacks(),
        folios: counts.folios.to_vec(),
        translations: reach.entries.to_vec(),
        walks: reach.walks.to_vec(),
    };
    let measured = advice.proven.iter().find(|(setting, _)| *setting == it.setting);
    let measured = measured.map(|(_, measured)| Measured {
        faults: spread(&measured.faults),
        peak: spread(&measured.peak),
        wall_ns: spread(&measured.wall),
        kernel_ns: spread(&measured.kernel),
        out: spread(&measured.out),
        back: spread(&measured.back),
    });
    let own = advice.own.iter().find(|(setting, _)| *setting == it.setting);
    let quire = own.map(|(_, own)| OwnPredicted {
        faults: own.faults,
        peak: own.peak * page,
        cleared: own.cleared * page,
        copied: own.copied * page,
        folded_blocks: own.folded,
        collapsed: own.collapsed,
        fallbacks: own.scarce,
        out: own.out * page,
        back: own.back * page,
        short: own.short,
    });
    let three = |time: Time| [time.usual, time.least, time.most];
    let faults_ns = advice.costs.as_ref().map(|costs| three(costs.faults(&it.out)));
    let walks_ns = advice.costs.as_ref().map(|costs| three(costs.walks(&it.out)));
    let copy = advice.copies.iter().find(|copies| copies.setting == it.setting).map(copy);
    let switches = it.setting.switches(page).sizes;
    Row {
        setting: it.setting.to_string(),
        switches,
        linux,
        quire,
        faults_ns,
        walks_ns,
        measured,
        copy,
    }
}

fn copy(copies: &Copies) -> Copy {
    let measured = copies.measured.as_ref();
    Copy {
        own: copies.predicted.private,
        tables: copies.predicted.tables,
        faults: copies.predicted.faults,
        fork_ns: copies.predicted.fork,
        measured_own: measured.map(|it| spread(&it.private)),
        measured_tables: measured.map(|it| spread(&it.tables)),
        measured_fork_ns: measured.map(|it| spread(&it.fork)),
    }
}

fn spread(all: &Summary) -> Spread {
    let Summary { median, min, max, n } = *all;
    Spread { median, min, max, n }
}
