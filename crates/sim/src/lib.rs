//! Naive models and operation sequences.
pub mod areas;
pub mod phys;
pub mod disk;
#[cfg(feature = "lines")]
pub mod lines;
pub mod program;
pub mod stage;
pub mod system;
pub mod tables;
pub mod whole;

pub use quire_script::Dice;
