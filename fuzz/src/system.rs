//! Scripts of the simulator of a whole system, and of its exact worlds: each few bytes are a step.

use quire_sim::whole::{
    ARGS, Failure, Fault, Format, Options, Script, Setup, Step, Theme, Verb, run,
};

/// How many steps a script has at most.
const LENGTH: usize = 300;

/// How many steps a script of an exact world has at most: all is compared after each.
const LENGTH_EXACT: usize = 40;

/// Bytes of a step: its actor, verb, arguments and fault.
const STEP_BYTES: usize = 2 * ARGS + 4;

/// Operations on files, and those that evict or move their pages: no others change the indices.
const OF_FILES: &[Verb] = &[
    Verb::Look,
    Verb::Put,
    Verb::Sync,
    Verb::Drop,
    Verb::Truncate,
    Verb::Punch,
    Verb::FileSize,
    Verb::Show,
    Verb::Read,
    Verb::Write,
    Verb::Populate,
    Verb::Reclaim,
    Verb::Compact,
    Verb::Take,
    Verb::Hoard,
    Verb::Return,
    Verb::Lose,
    Verb::Mend,
];

/// Scripts of all verbs.
///
/// # Panics
/// When the simulator finds a violation.
pub fn whole(bytes: &[u8]) {
    play(bytes, Verb::ALL);
}

/// Files and their page indices.
///
/// # Panics
/// As [`whole`].
pub fn files(bytes: &[u8]) {
    play(bytes, OF_FILES);
}

/// Areas, page tables and faults beside the exact model.
///
/// # Panics
/// As [`whole`].
pub fn engine(bytes: &[u8]) {
    exact(bytes, 2, 1536, Theme::SPACES, "");
}

/// Processes that share memory beside the exact model.
///
/// # Panics
/// As [`whole`].
pub fn fork(bytes: &[u8]) {
    let filled = "0 0 place 0 88 3 0 0 1\n0 0 populate 0 88\n0 0 fork 1\n";
    exact(bytes, 4, 96, Theme::FORKS, filled);
}

/// Plays steps of a theme in an exact world, after those of a text.
fn exact(bytes: &[u8], processes: u32, window: u32, theme: Theme, before: &str) {
    let at = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let verbs: Vec<Verb> = theme.verbs.iter().map(|(verb, _)| *verb).collect();
    let format = [Format::X86_64, Format::Arm4k, Format::Sv39][at(0) as usize % 3];
    let (frames, every) = (4096, 1 << 19);
    let base = Setup { cpus: 1, pages: 1, slots: 0, exact: 1, ..Setup::new(format) };
    let sizes = 0x3fffe & (at(1) << 1 | at(2) << 9);
    let setup = Setup { processes, window, frames, every, sizes, ..base };
    let mut script: Script = format!("{setup}\n{before}").parse().expect("it is a script");
    let steps = bytes.get(3..).unwrap_or_default().chunks(STEP_BYTES).take(LENGTH_EXACT);
    script.steps.extend(steps.map(|bytes| match step(bytes, &verbs) {
        one @ Step { fault: Fault::None | Fault::Alloc, .. } => one,
        one => Step { fault: Fault::None, nth: 0, ..one },
    }));
    try_out(&script);
}

fn play(bytes: &[u8], verbs: &[Verb]) {
    let at = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let format = Format::ALL[at(0) as usize % Format::ALL.len()];
    let setup = Setup {
        cpus: 1 + at(1) % 3,
        frames: 1024,
        processes: 1 + (at(1) >> 2) % 3,
        pages: [3, 40, 150, 600][at(2) as usize % 4],
        window: 256,
        slots: [0, 50, 700][at(3) as usize % 3],
        sizes: [0, 1 << 4, 1 << 2 | 1 << 4, 0x1e][(at(3) >> 4) as usize % 4],
        every: 64,
        pool: [0, 3, 20, 0][(at(2) >> 2) as usize % 4],
        whole: 4 + (at(2) >> 4 & 1),
        packed: at(2) >> 5 & 3,
        more: [0, 40][(at(2) >> 7) as usize % 2],
        ..Setup::new(format)
    };
    let steps = bytes.get(4..).unwrap_or_default().chunks(STEP_BYTES).take(LENGTH);
    try_out(&Script { setup, steps: steps.map(|bytes| step(bytes, verbs)).collect() });
}

fn try_out(script: &Script) {
    if let Err(failure @ (Failure::Violation(_) | Failure::System(_))) =
        run(script, Options::default())
    {
        panic!("{failure}\n{script}");
    }
}

/// Decodes a step from bytes.
fn step(bytes: &[u8], verbs: &[Verb]) -> Step {
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let verb = verbs[byte(0) as usize % verbs.len()];
    let mut args = [0; ARGS];
    for (at, arg) in args.iter_mut().enumerate().take(verb.args().len()) {
        // Mostly small numbers; the simulator takes each modulo its number of objects.
        *arg = byte(4 + 2 * at) | (byte(5 + 2 * at) & 3) << 8;
    }
    let (fault, nth) = match Fault::ALL.get(byte(2) as usize / 4) {
        Some(fault) => (*fault, 1 + byte(3)),
        None => (Fault::None, 0),
    };
    Step { cpu: byte(1) & 3, process: byte(1) >> 2 & 3, verb, args, fault, nth }
}

/// Scripts of files that are mapped, written, truncated, dropped and reclaimed.
pub fn stories() -> Vec<Vec<u8>> {
    let place = |verb| OF_FILES.iter().position(|of| *of == verb).unwrap_or(0) as u8;
    let one = |verb, args: &[u8]| {
        let mut bytes = vec![place(verb), 0, 255, 0];
        args.iter().for_each(|arg| bytes.extend([*arg, 0]));
        bytes.resize(STEP_BYTES, 0);
        bytes
    };
    let steps = [
        one(Verb::Show, &[0, 40, 2, 0, 0, 0]),
        one(Verb::Write, &[3]),
        one(Verb::Put, &[0, 9]),
        one(Verb::Look, &[0, 5]),
        one(Verb::Sync, &[0]),
        one(Verb::Drop, &[0, 0, 64]),
        one(Verb::Populate, &[0, 40]),
        one(Verb::Truncate, &[0, 7]),
        one(Verb::Reclaim, &[200]),
        one(Verb::Read, &[3]),
    ];
    let mut story = vec![0, 1, 1, 0];
    story.extend(steps.concat());
    vec![story.clone(), [&story[..], &story[4..]].concat()]
}
