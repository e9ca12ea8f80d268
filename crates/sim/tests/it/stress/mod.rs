//! Several CPUs at the same time, each a thread of its own, while the examiner of the machine
//! watches. `cargo xtask soak` runs these tests again and again: each run has other interleavings.

mod files;
mod forks;
mod spaces;
mod swap;
