//! An ISA without backends of its own: only the portable ones exist.

use super::Facts;
use crate::Reuse;

/// No way to clear: a value cannot exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClearWay {}

impl ClearWay {
    pub(super) fn available() -> impl Iterator<Item = Self> {
        core::iter::empty()
    }

    pub(super) fn wishes(_: u64, _: Reuse) -> &'static [Self] {
        &[]
    }

    pub(super) fn facts(self) -> Facts {
        match self {}
    }

    /// # Safety
    /// Cannot be called.
    pub(super) unsafe fn run(self, _: *mut u8, _: usize) {
        match self {}
    }
}

/// No way to copy: a value cannot exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CopyWay {}

impl CopyWay {
    pub(super) fn available() -> impl Iterator<Item = Self> {
        core::iter::empty()
    }

    pub(super) fn wishes(_: u64, _: Reuse) -> &'static [Self] {
        &[]
    }

    pub(super) fn facts(self) -> Facts {
        match self {}
    }

    /// # Safety
    /// Cannot be called.
    pub(super) unsafe fn run(self, _: *mut u8, _: *const u8, _: usize) {
        match self {}
    }
}
