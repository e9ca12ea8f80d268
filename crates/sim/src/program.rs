//! A program on one CPU, for tests that tell a story: it loads and stores, and takes the faults.

use quire::space::Space;
use quire::{Error, Need, Resolved, Stop};
use quire_arch::Arch;
use quire_machine::Cpu;
use quire_units::{Access, VirtAddr, Vpn};

use crate::system::HostedMm;

/// How often one access may trap.
const TRAPS: usize = 4;

/// How often one [`touch`] may trap: each fault may wait for a disk, or for memory.
const TOUCHES: usize = 50;

/// Loads the word at `addr` as a program does, or stores `store` there; `fault` resolves each trap.
///
/// # Errors
/// The error that `fault` ends with.
///
/// # Panics
/// When it traps again and again.
pub fn touch<E>(
    cpu: &Cpu<'_, '_>,
    addr: VirtAddr,
    store: Option<u64>,
    mut fault: impl FnMut(Access) -> Result<(), E>,
) -> Result<u64, E> {
    let access = if store.is_some() { Access::Write } else { Access::Read };
    for _ in 0..TOUCHES {
        let done = match store {
            Some(word) => cpu.write(addr, word).map(|()| word),
            None => cpu.read(addr),
        };
        match done {
            Ok(word) => return Ok(word),
            Err(_) => fault(access)?,
        }
    }
    panic!("{access:?} at {addr} never ends");
}

/// A program: a CPU that runs in a space.
#[derive(Clone, Copy)]
pub struct Program<'a, 'm, 'r, A: Arch> {
    cpu: &'a Cpu<'m, 'r>,
    mm: &'a HostedMm<'m, 'r, A>,
    space: &'a Space<A>,
}

/// An access that is not done, or traps for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The fault was refused.
    Refused(Error),
    /// The fault needs a page that is not in memory.
    Needs(Need),
    /// Each fault is resolved, and the access traps again.
    Endless,
}

impl From<Stop> for Stopped {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Need(need) => Stopped::Needs(need),
            Stop::Refuse(error) => Stopped::Refused(error),
        }
    }
}

impl<'a, 'm, 'r, A: Arch> Program<'a, 'm, 'r, A> {
    /// Lets `cpu` run in `space` from now on.
    pub fn on(cpu: &'a Cpu<'m, 'r>, mm: &'a HostedMm<'m, 'r, A>, space: &'a Space<A>) -> Self {
        cpu.bind();
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        Self { cpu, mm, space }
    }

    /// Stores `value` to the first word of `page`; how its faults were resolved.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn write(&self, page: Vpn, value: u64) -> Result<Vec<Resolved>, Stopped> {
        let store = |addr| self.cpu.write(addr, value).ok();
        self.access(page, Access::Write, store).map(|((), faults)| faults)
    }

    /// Loads the first word of `page`.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn read(&self, page: Vpn) -> Result<u64, Stopped> {
        self.access(page, Access::Read, |addr| self.cpu.read(addr).ok()).map(|(word, _)| word)
    }

    fn access<T>(
        &self,
        page: Vpn,
        access: Access,
        once: impl Fn(VirtAddr) -> Option<T>,
    ) -> Result<(T, Vec<Resolved>), Stopped> {
        let mut faults = Vec::new();
        loop {
            if let Some(done) = once(page.addr(A::PAGE_SHIFT)) {
                return Ok((done, faults));
            }
            if faults.len() == TRAPS {
                return Err(Stopped::Endless);
            }
            let _op = self.cpu.operation("fault");
            faults.push(self.mm.fault(self.space, page, access)?);
        }
    }
}
