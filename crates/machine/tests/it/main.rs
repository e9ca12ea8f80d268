//! The hosted machine, and the examiner of its rules.
//!
//! * [`walk`]: programs on the machine, beside a naive interpretation of its tables.
//! * [`examiner`], [`blocks`], [`block_dirty`], [`block_flush`], [`code`]: each rule is broken on
//!   purpose and the examiner finds it; beside it stands the nearest correct sequence, and it stays
//!   quiet.
//! * [`support`]: tables for these tests, by an encoder of their own.

mod block_dirty;
mod block_flush;
mod blocks;
mod code;
mod examiner;
mod support;
mod tags;
mod walk;
