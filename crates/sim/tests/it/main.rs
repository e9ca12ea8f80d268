//! All tests of the library on the hosted machine, except [shuttle](../shuttle/main.rs). They are
//! one binary, because each binary would compile the library again for each page-table format that
//! its tests name. To run one file's tests: `cargo test --package quire-sim --test it fork::`.
//!
//! * Beside a naive model: [`phys`], [`areas`], [`tables`], [`engine`], [`fork`], [`files`],
//!   [`swap`], [`clear`], [`policy`]; all of it at once in [`whole`].
//! * One story at a time: mapping ([`smoke`], [`advice`], [`remap`], [`ready`], [`looks`]), folding
//!   ([`folding`]), fork ([`cow`]), files ([`file_faults`], [`own_block`]), folios that become one
//!   or several ([`collapse`], [`collapse_file`], [`scan`], [`divide`], [`parts`], [`thin`]),
//!   reclaim ([`reclaim`], [`shed`], [`balance`], [`groups`], [`lazy`], [`swap_around`],
//!   [`devices`], [`zeroes`]), watchers ([`shield`]).
//! * When something fails: [`failures`], [`failed`]; when the hardware breaks a law: [`laws`].
//! * Instruction caches that are not coherent: [`code`].
//! * Several threads: [`stress`].
//!
//! Each test has its own machine with its own memory. The library and the machine have no state of
//! a process; the machine's number of the current CPU belongs to a thread.

mod advice;
mod areas;
mod balance;
mod clear;
mod code;
mod collapse;
mod collapse_file;
mod cow;
mod devices;
mod divide;
mod engine;
mod exact;
mod failed;
mod failures;
mod file_faults;
mod files;
mod folding;
mod fork;
mod groups;
mod laws;
mod lazy;
mod looks;
mod own_block;
mod parts;
mod phys;
mod policy;
mod ready;
mod reclaim;
mod remap;
mod scan;
mod shed;
mod shield;
mod shown;
mod smoke;
mod stress;
mod swap;
mod swap_around;
mod tables;
mod thin;
mod whole;
mod zeroes;
