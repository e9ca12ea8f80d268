//! The pool on pages that a test lends.
//!
//! * [`model`]: beside a naive model.
//! * [`cold`]: folios that are moved out. [`density`]: how little memory is needed.
//! * [`errors`], [`damage`]: each failure, and memory that was damaged.
//! * [`common`]: the lender, and data of several kinds.

mod cold;
mod common;
mod damage;
mod density;
mod errors;
mod model;
