//! The advice: what was predicted, what was measured, what to do.

use super::clones::Copies;
use super::cold::{Cold, cold};
use super::cost::Constants;
use super::library::{self, Own, Replayed};
use super::linux::Setting;
use super::memory::{Memory, Pace};
use super::options::AdviseArgs;
use super::search::{Search, Tried};
use super::verify::{self, Proven};
use super::words::{idle, is_now_best, reasons, short};
use crate::host::Host;
use crate::host::cpu::rounded;
use crate::host::thp::Guard;
use crate::host::{memory, thp};
use crate::isa::Isa;
use crate::refused::Refused;
use crate::tape::Tape;

use std::time::Instant;

use anyhow::{Context, Result};

/// All that is known about a program.
pub(super) struct Advice<'t> {
    /// The first recording.
    pub(super) tape: &'t Tape,
    pub(super) search: Search,
    /// The same settings through the library; empty where that needs too much memory.
    pub(super) own: Vec<(Setting, Own)>,
    pub(super) isa: Isa,
    pub(super) proven: Proven,
    pub(super) copies: Vec<Copies>,
    /// Memory that is not used, where the recording has samples.
    pub(super) cold: Option<Cold>,
    /// This host's constants, where they were asked for.
    pub(super) costs: Option<Constants>,
    /// The setting to choose, if any fits.
    pub(super) best: Option<Tried>,
    /// Whether there is no reason to change the host's own.
    pub(super) is_now_best: bool,
    pub(super) reasons: Vec<String>,
    /// Sentences about the limits of the figures.
    pub(super) limits: Vec<String>,
}

impl Advice<'_> {
    /// Whether the program is paged out to keep within its memory.
    pub(super) fn is_bounded(&self) -> bool {
        self.search.tried.iter().any(|it| it.out.is_bounded)
    }

    /// Whether an attempt to take a large folio found no memory.
    pub(super) fn is_scarce(&self) -> bool {
        self.search.tried.iter().any(|it| it.out.counts.fallbacks() > 0)
    }

    /// Predicts, measures where that is asked for, and chooses.
    pub(super) fn new<'t>(args: &AdviseArgs, tapes: &'t [Tape], host: &Host) -> Result<Advice<'t>> {
        let tape = tapes.first().context("a recording is missing")?;
        let now = Setting::of_switches(&thp::switches(host), tape.page);
        let (pace, limit) = (Pace::of_host(host), args.limit(tape.page, host));
        let memory = Memory { pace, limit, ..Memory::new(args.fragmented) };
        let search = Search::new(tapes, now, memory)?;
        let mut limits = limits(tape, &search);
        if limit.is_some() && !tape.has_uses() {
            limits.push(NO_USES.to_owned());
        }
        if args.fragmented > 0.0 {
            limits.push(if args.verify { WHOLE } else { IN_PIECES }.to_owned());
        }
        let guard = guard(args, host, &mut limits)?;
        let settings = verify::settings(&search, args.single);
        let proven = match guard.as_ref().filter(|_| args.verify) {
            Some(guard) => {
                let (runs, page) = (args.runs, tape.page);
                let with = (host, guard);
                let (proven, ended) =
                    verify::verify(&args.command, &settings, page, runs, with, limit)?;
                limits.extend(ended);
                proven
            }
            None => Vec::new(),
        };
        let copies = match args.copies() {
            Some(copies) => Copies::new(&search, tape.page, copies, args.verify, guard.as_ref())?,
            None => Vec::new(),
        };
        let costs = guard.as_ref().filter(|_| args.costs);
        let costs = costs.map(|guard| Constants::measure(host, guard)).transpose()?;
        drop(guard);
        let own = own(args, tape, (&search, memory), host, &mut limits)?;
        let best = search.choice(args.weigh, args.most()).cloned();
        let cold = cold(tape);
        let (is_now_best, mut reasons) = match &best {
            Some(best) => {
                (is_now_best(&search, best, args.weigh), reasons(&search, best, args.weigh))
            }
            None => (true, vec![too_large(&search, args)]),
        };
        reasons.extend(best.as_ref().and_then(short));
        reasons.extend(cold.as_ref().map(|cold| idle(cold, tape.page)));
        Ok(Advice {
            tape,
            search,
            own,
            isa: args.isa,
            proven,
            copies,
            cold,
            costs,
            best,
            is_now_best,
            reasons,
            limits,
        })
    }
}

/// Of a recording without samples, replayed where memory is bounded.
const NO_USES: &str = "The recording has each page's first use only, so a page that has left comes \
                       back for few reasons: record with --uses for more.";

/// The limits of `--fragmented`.
const IN_PIECES: &str = "Attempts to find a large folio fail by chance, each by itself: neither \
                         column compacts memory.";
const WHOLE: &str = "Only the predictions have memory in pieces: the host's own is as it is.";

/// The switches, where they are to be set: restored at the end, on an error, and on a signal.
fn guard(args: &AdviseArgs, host: &Host, limits: &mut Vec<String>) -> Result<Option<Guard>> {
    if !args.verify && !args.costs && args.clones.is_none() {
        return Ok(None);
    }
    let mut says = Vec::new();
    let guard = Guard::new(host, &mut says);
    if guard.holds() {
        says.iter().for_each(|sentence| eprintln!("quire: {sentence}"));
        return Ok(Some(guard));
    }
    let why = says.last().map_or("", |why| why.trim_end_matches('.'));
    if args.verify {
        return Err(Refused(format!("no setting can be tried: {why}")).into());
    }
    limits.push(format!("No times are predicted: {why}."));
    Ok(None)
}

fn too_large(search: &Search, args: &AdviseArgs) -> String {
    let least = search.kept().iter().map(|it| it.peak).min().unwrap_or(0);
    format!(
        "No setting keeps the program within {}: it needs at least {}, so it would be paged out.",
        args.memory.map_or(String::new(), |size| size.to_string()),
        rounded(least)
    )
}

fn limits(tape: &Tape, search: &Search) -> Vec<String> {
    let mut all = tape.limits.clone();
    all.push(format!(
        "{} settings were replayed in {:.1} s, {:.0} million touches a minute.",
        search.tried.len(),
        search.seconds,
        search.touches as f64 / search.seconds.max(1e-9) * 60.0 / 1e6
    ));
    all
}

/// The column of Quire, for the settings that are kept.
fn own(
    args: &AdviseArgs,
    tape: &Tape,
    (search, memory): (&Search, Memory),
    host: &Host,
    limits: &mut Vec<String>,
) -> Result<Vec<(Setting, Own)>> {
    let kept = search.kept();
    let most = kept.iter().map(|it| it.out.memory).max().unwrap_or(0);
    let settings: Vec<Setting> = kept.iter().map(|it| it.setting).collect();
    let bytes = 2 * library::ram_bytes(most, tape.page);
    if let Err(refused) = memory::require(host, "the replay through the library", bytes) {
        limits.push(format!("The columns of Quire are missing: {refused}."));
        return Ok(Vec::new());
    }
    let start = Instant::now();
    let Replayed { mut all, busy } = library::all(tape, &settings, args.isa, most, memory)?;
    let touches: u64 = all.iter().map(|own| own.touches).sum();
    let a_minute = |seconds: f64| touches as f64 / seconds.max(1e-9) * 60.0 / 1e6;
    let seconds = start.elapsed().as_secs_f64();
    limits.push(format!(
        "Through the library: {} settings in {seconds:.1} s, {:.0} million touches a minute, and \
         {:.0} million a minute of a CPU.",
        all.len(),
        a_minute(seconds),
        a_minute(busy)
    ));
    for own in &mut all {
        own.faults = own.faults.saturating_add_signed(search.known[0]);
        own.peak = own.peak.saturating_add_signed(search.known[1] / tape.page as i64);
    }
    Ok(settings.into_iter().zip(all).collect())
}
