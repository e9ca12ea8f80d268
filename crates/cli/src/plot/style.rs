//! Sizes, colours and fonts of all plots.

use anyhow::anyhow;
use plotters::prelude::*;

pub(super) const WIDTH: u32 = 920;
pub(super) const HEIGHT: u32 = 400;
pub(super) const FONT: &str = "system-ui, sans-serif";
pub(super) const INK: RGBColor = RGBColor(0x33, 0x3a, 0x45);
pub(super) const GRID: RGBColor = RGBColor(0xe6, 0xe8, 0xec);
/// Colours that stay apart also for colour-blind readers (Okabe and Ito), then some more.
pub(super) const COLORS: [RGBColor; 12] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xa6, 0x76, 0x1d),
    RGBColor(0x7a, 0x5c, 0xc4),
    RGBColor(0x9c, 0x8f, 0x6e),
    RGBColor(0x66, 0xa6, 0x1e),
    RGBColor(0xb0, 0x3a, 0x5b),
    RGBColor(0x2f, 0x8f, 0x9d),
    RGBColor(0xc4, 0xb4, 0x54),
];
pub(super) const MARK: RGBColor = RGBColor(0xd5, 0x3e, 0x1f);
pub(super) const BASELINE: RGBColor = RGBColor(0x20, 0x24, 0x2c);

/// One colour of many.
pub(super) fn color_at(at: usize) -> RGBColor {
    COLORS[at % COLORS.len()]
}

pub(super) fn css(color: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

pub(super) fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a plot cannot be drawn: {error}")
}
