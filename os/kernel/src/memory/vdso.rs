//! The vDSO: two pages that every program has, with which it reads the clock without a call.
//!
//! ```text
//!   end of the stack's room                       USER_END
//!        ─── stack │ [vvar] the data │ [vdso] the object │ nothing │
//!                    TimeBase, read    ELF, read and run
//! ```
//!
//! All programs see the same two frames, which boot takes out of RAM before the library has it
//! (`ForeignFrames`). So no process pays for memory, nothing counts their mappings, and a fork
//! copies two leaves. The pages lie beside the stack: they need no table of their own. Their place
//! is the same in each program, as that of everything else here; a program that moves or unmaps
//! them harms itself alone.
//!
//! The object is made at boot: `isa` has its code, [`quire_linux::exec::vdso`] writes the rest.

use quire::hw::ForeignFrames;
use quire::space::{Area, At, Backing, Request};
use quire::units::{FrameSpan, MemoryType, PageSpan, Prot, Vpn};
use quire_linux::Errno;
use quire_linux::exec::vdso::{Object, build};
use spin::Once;

use super::space::ALL;
use super::{Early, Memory, PAGE, enough, errno, mm};
use crate::isa::{self, TimeBase};

/// The room behind the stack. Two pages of it are used; but the stack shall end where blocks of
/// 16 pages do, which arm64 and riscv64 map as one.
const ROOM: u64 = 64 << 10;

/// Where the data is.
const DATA: u64 = isa::USER_END - ROOM;
/// Where the object is: its code expects the data in the page before.
const OBJECT: u64 = DATA + PAGE;

/// Where programs' stacks end.
pub(crate) const STACK_END: u64 = DATA;

struct Vdso {
    /// The frames of both pages.
    frames: ForeignFrames,
    /// Where in the object the code is that calls `rt_sigreturn`, if it is there.
    sigreturn: Option<u64>,
}

static VDSO: Once<Vdso> = Once::new();

/// Words of a page.
const WORDS: usize = PAGE as usize / 8;

/// Makes the content of the pages, out of RAM that the library will not have.
///
/// # Panics
/// When the machine has too little RAM to begin with, or the object is longer than a page.
#[inline(never)]
pub(super) fn init(early: &mut Early) {
    let code = isa::vdso();
    let object = Object {
        machine: code.machine,
        version: code.version,
        code: code.bytes,
        functions: &code.functions,
    };
    let (object, code_at) = build(&object).unwrap_or_else(|error| panic!("the vDSO: {error}"));
    // The code counts on it: it finds the data in the page before its own.
    assert!(object.len() <= PAGE as usize, "the vDSO has {} bytes", object.len());
    let TimeBase { start, scale, realtime } = isa::time_base();
    let data = [start, scale, realtime];
    let object_word = |at: usize| {
        let mut bytes = [0; 8];
        let rest = object.get(at * 8..).unwrap_or_default();
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(bytes)
    };
    // An array that was taken begins at a page.
    let words = enough(early.array((0..2 * WORDS).map(|at| match at.checked_sub(WORDS) {
        None => data.get(at).copied().unwrap_or(0),
        Some(at) => object_word(at),
    })));
    let span = FrameSpan::new(early.frame_of(&words[0]), 2);
    // SAFETY: 1. `early` keeps the two frames from the library for ever, and the reference to the
    // words in them ends here. 2. programs cannot write them: `map` gives them that right never.
    let frames = unsafe { ForeignFrames::new(span, MemoryType::Usual) };
    let sigreturn = code.sigreturn.map(|at| (code_at + at) as u64);
    VDSO.call_once(|| Vdso { frames, sigreturn });
}

/// Makes the code visible to the instruction fetches of all CPUs: once these run.
pub(crate) fn publish() {
    if let Some(vdso) = VDSO.get() {
        isa::publish_code(vdso.frames.span());
    }
}

/// Maps both pages; returns where the object is.
///
/// # Errors
/// `ENOMEM`, or that there is something already.
pub(crate) fn map(memory: &Memory) -> Result<u64, Errno> {
    let vdso = VDSO.get().ok_or(Errno::ENOMEM)?;
    for (frame, address, prot) in [(0, DATA, Prot::READ), (1, OBJECT, Prot::RX)] {
        let part = vdso.frames.part(frame..frame + 1).ok_or(Errno::ENOMEM)?;
        let at = At::FixedNoReplace(Vpn::new(address / PAGE));
        let request = Request { max_prot: prot, ..Request::anon(1).at(at).prot(prot) };
        mm().spaces().map_frames(memory.space(), &request, part).map_err(errno)?;
    }
    Ok(OBJECT)
}

/// The name of an area that shows one of the pages.
pub(crate) fn name(area: &Area) -> Option<&'static [u8]> {
    let Backing::Frames { first, .. } = area.backing else { return None };
    let data = VDSO.get()?.frames.span().start;
    match first {
        _ if first == data => Some(b"[vvar]"),
        _ if first == data.add(1) => Some(b"[vdso]"),
        _ => None,
    }
}

/// Where a program finds code that calls `rt_sigreturn`: in the object, wherever that is now. Where
/// it is no more, or has none, the address is of no use, and the return of a handler a fault.
pub(crate) fn sigreturn(memory: &Memory) -> u64 {
    let Some(at) = VDSO.get().and_then(|vdso| vdso.sigreturn) else { return 0 };
    let object_in = |span| {
        let mut areas = mm().spaces().areas(memory.space(), span);
        let object = areas.find(|area| name(area) == Some(b"[vdso]"))?;
        Some(object.span.start.get() * PAGE)
    };
    let usual = Vpn::new(OBJECT / PAGE);
    let found = object_in(PageSpan::new(usual, usual.add(1))).or_else(|| object_in(ALL));
    found.map_or(0, |object| object + at)
}
