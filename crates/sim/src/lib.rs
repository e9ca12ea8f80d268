//! Naive models and operation sequences.
pub mod areas;
pub mod phys;
pub mod beside;
pub mod disk;
pub mod fork;
pub mod program;
pub mod script;
pub mod space;
pub mod stage;
pub mod system;
pub mod tables;
pub mod whole;

pub use quire_script::Dice;
