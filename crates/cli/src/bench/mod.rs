//! The benches: they measure in shuffled rounds, save what they found, and print it.

mod setup;
mod rounds;
pub(crate) mod lanes;
mod pace;
pub(crate) mod clear;
pub(crate) mod sweep;
pub(crate) mod fault;
pub(crate) mod entries;
pub(crate) mod exec;
pub(crate) mod read;
pub(crate) mod pageout;

pub(crate) use rounds::{measured, rounds, thread_ns};
pub(crate) use setup::{Filter, empty_run, run, sizes};
