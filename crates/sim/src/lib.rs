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
// Models of threads use none of it, and its eight formats take most of the time to build.
#[cfg(not(shuttle))]
pub mod whole;

pub use quire_script::Dice;
