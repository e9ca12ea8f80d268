//! `quire bench together`: operations of several threads at the same time, beside one thread.
//!
//! The first five have the names that the paper of CortenMM gives them; each thread works on
//! addresses of its own in one space. The sixth is a fork in a process of each thread's own.

mod bench;
mod sample;

pub(crate) use bench::{Together, TogetherArgs};
