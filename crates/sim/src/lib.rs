//! Naive models and operation sequences.
pub mod areas;
pub mod phys;
pub mod system;
pub mod tables;
