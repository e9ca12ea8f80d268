//! `files` of the library, for cargo-fuzz.
#![no_main]
#![allow(missing_docs)]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quire_fuzz::run("files", bytes));
