//! `quire advise`.

mod linux;
mod reach;
mod run;

pub(crate) use run::{AdviseArgs, run};
