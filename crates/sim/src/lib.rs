//! Naive models and operation sequences.
pub mod areas;
pub mod phys;
pub mod beside;
pub mod fork;
pub mod script;
pub mod space;
pub mod system;
pub mod tables;
