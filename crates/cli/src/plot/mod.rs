//! Plots as inline SVG: the only module that knows the plotting crate.

mod style;
mod dots;
mod curves;
mod draw;

pub(crate) use curves::Curve;
pub(crate) use dots::Dot;
pub(crate) use draw::{Bar, Line, Plot, Weight};
