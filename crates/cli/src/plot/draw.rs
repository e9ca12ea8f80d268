//! Lines and bars.
//!
//! The x axis is logarithmic to base two, because every size is a power of two and the caches'
//! sizes are where the lines bend.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use serde::{Deserialize, Serialize};

use crate::size::Size;

use super::curves::{self, Curve};
use super::dots::{self, Dot};
use super::style::{BASELINE, FONT, GRID, HEIGHT, INK, MARK, WIDTH, color_at, css, failed};

/// A plot, as a run saves it.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Plot {
    pub(crate) caption: String,
    /// The label of the y axis.
    y: String,
    shape: Shape,
}

#[derive(Clone, Serialize, Deserialize, Debug)]
enum Shape {
    Lines(Vec<Line>),
    /// The names of the parts of each bar, and groups of bars.
    Bars(Vec<String>, Vec<(String, Vec<Bar>)>),
    /// The label of the x axis, and points.
    Dots(String, Vec<Dot>),
    /// The label of the x axis, and values over it.
    Curves(String, Vec<Curve>),
}

impl Plot {
    /// Values against sizes.
    pub(crate) fn lines(caption: &str, y: &str, lines: Vec<Line>) -> Plot {
        Plot { caption: caption.to_owned(), y: y.to_owned(), shape: Shape::Lines(lines) }
    }

    /// Bars beside each other in groups, each bar a stack of `parts`.
    pub(crate) fn bars(
        caption: &str,
        y: &str,
        parts: &[&str],
        groups: Vec<(String, Vec<Bar>)>,
    ) -> Plot {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        Plot { caption: caption.to_owned(), y: y.to_owned(), shape: Shape::Bars(parts, groups) }
    }

    /// Points, each with its name.
    pub(crate) fn dots(caption: &str, [x, y]: [&str; 2], dots: Vec<Dot>) -> Plot {
        let shape = Shape::Dots(x.to_owned(), dots);
        Plot { caption: caption.to_owned(), y: y.to_owned(), shape }
    }

    /// Values over time.
    pub(crate) fn curves(caption: &str, [x, y]: [&str; 2], curves: Vec<Curve>) -> Plot {
        let shape = Shape::Curves(x.to_owned(), curves);
        Plot { caption: caption.to_owned(), y: y.to_owned(), shape }
    }

    /// Whether there is anything to draw.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.shape {
            Shape::Lines(all) => all.iter().all(|line| line.points.is_empty()),
            Shape::Bars(_, groups) => groups.iter().all(|(_, bars)| bars.is_empty()),
            Shape::Dots(_, dots) => dots.is_empty(),
            Shape::Curves(_, all) => all.iter().all(|curve| curve.points.is_empty()),
        }
    }

    /// The plot as SVG, and its legend: names and CSS colours.
    pub(crate) fn draw(&self) -> Result<(String, Vec<(String, String)>)> {
        match &self.shape {
            Shape::Lines(all) => Ok((lines(&self.y, all)?, legend(all))),
            Shape::Bars(parts, groups) => {
                let legend = parts.iter().enumerate().map(|(at, n)| (n.clone(), part_color(at)));
                Ok((bars(&self.y, groups)?, legend.collect()))
            }
            Shape::Dots(x, all) => {
                let name = |at: usize| (all[at].name.clone(), css(dots::color(all, at)));
                Ok((dots::draw(x, &self.y, all)?, (0..all.len()).map(name).collect()))
            }
            Shape::Curves(x, all) => {
                let name = |at: usize| (all[at].name.clone(), css(color_at(at)));
                Ok((curves::draw(x, &self.y, all)?, (0..all.len()).map(name).collect()))
            }
        }
    }
}

/// How strongly a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum Weight {
    /// The line the plot is about: thick, with a dot at each point.
    Marked,
    /// The first baseline: dark.
    Baseline,
    /// The second baseline: grey.
    Second,
    /// A bound: a broad pale band behind the others.
    Limit,
    /// One of many.
    Thin,
}

/// One line of a plot.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Line {
    /// For the legend.
    pub(crate) name: String,
    pub(crate) weight: Weight,
    /// Value at each size, in rising order of sizes.
    pub(crate) points: Vec<(Size, f64)>,
}

/// One bar, stacked from parts, bottom first.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Bar {
    /// Below the bar.
    pub(crate) name: String,
    /// The value and the legend's index of each part.
    pub(crate) parts: Vec<(f64, usize)>,
}

/// The colour of line `at` of `lines`.
fn color(lines: &[Line], at: usize) -> RGBColor {
    let thin = lines[..at].iter().filter(|line| line.weight == Weight::Thin).count();
    match lines[at].weight {
        Weight::Marked => MARK,
        Weight::Baseline => BASELINE,
        Weight::Second => RGBColor(0x6b, 0x72, 0x80),
        Weight::Limit => RGBColor(0xd9, 0xdd, 0xe4),
        Weight::Thin => color_at(thin),
    }
}

/// The legend of [`lines`](self::lines): name and CSS colour of each.
fn legend(lines: &[Line]) -> Vec<(String, String)> {
    (0..lines.len()).map(|at| (lines[at].name.clone(), css(color(lines, at)))).collect()
}

/// CSS colour of part `index` of bars.
fn part_color(index: usize) -> String {
    css(bar_color(index))
}

fn bar_color(index: usize) -> RGBColor {
    [RGBColor(0x9d, 0xb4, 0xc9), MARK, RGBColor(0x2b, 0x5c, 0x8a), RGBColor(0x8a, 0x94, 0xa6)]
        [index % 4]
}

/// Values against sizes; an error without any.
fn lines(y_label: &str, lines: &[Line]) -> Result<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let least = all().map(|p| p.0).min().ok_or_else(|| anyhow!("no points"))?;
    let most = all().map(|p| p.0).max().unwrap_or(least);
    let top = all().map(|p| p.1).fold(0.0, f64::max) * 1.08;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let x = log2(least) - 0.3..log2(most) + 0.3;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(16)
            .x_label_area_size(30)
            .y_label_area_size(52)
            .build_cartesian_2d(x, 0.0..top.max(f64::MIN_POSITIVE))
            .map_err(failed)?;
        mesh(&mut chart, y_label, Some((log2(most) - log2(least)) as usize + 1))?;
        // The pale ones first, so that the marked ones lie on top.
        let order = [Weight::Limit, Weight::Thin, Weight::Second, Weight::Baseline, Weight::Marked];
        for weight in order {
            for (at, line) in lines.iter().enumerate().filter(|(_, l)| l.weight == weight) {
                draw_line(&mut chart, line, color(lines, at))?;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Grid and axes; `x_labels` sizes below, or none.
fn mesh(chart: &mut Chart<'_>, y_label: &str, x_labels: Option<usize>) -> Result<()> {
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style((FONT, 13).into_font().color(&INK))
        .y_desc(y_label)
        .y_labels(7)
        .y_label_formatter(&|y| if *y < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") });
    match x_labels {
        Some(labels) => mesh.x_labels(labels).x_label_formatter(&size_label).draw(),
        None => mesh.disable_x_axis().draw(),
    }
    .map_err(failed)
}

/// The size at `x`; nothing between two powers of two.
fn size_label(x: &f64) -> String {
    let near = x.round();
    if (x - near).abs() > 1e-6 { String::new() } else { Size(1 << near as u32).to_string() }
}

fn draw_line(chart: &mut Chart<'_>, line: &Line, color: RGBColor) -> Result<()> {
    let points = || line.points.iter().map(|(size, value)| (log2(*size), *value));
    let (width, dot) = match line.weight {
        Weight::Marked => (3, 4),
        Weight::Baseline | Weight::Second => (2, 3),
        Weight::Limit => (11, 0),
        Weight::Thin => (1, 2),
    };
    chart.draw_series(LineSeries::new(points(), color.stroke_width(width))).map_err(failed)?;
    if dot > 0 {
        let dots = points().map(|point| Circle::new(point, dot, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    Ok(())
}

/// Bars beside each other in groups, one group for each entry of `groups`.
fn bars(y_label: &str, groups: &[(String, Vec<Bar>)]) -> Result<String> {
    let height = |bar: &Bar| bar.parts.iter().map(|p| p.0).sum::<f64>();
    let top = groups.iter().flat_map(|g| &g.1).map(height).fold(0.0, f64::max) * 1.12;
    // A group is as wide as its bars and one more for the gap; single bars are not stretched.
    let width = |bars: &[Bar]| bars.len().max(3) as f64 + 1.0;
    let total: f64 = groups.iter().map(|(_, bars)| width(bars)).sum();
    if top <= 0.0 {
        return Err(anyhow!("no bars"));
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..total, 0.0..top)
            .map_err(failed)?;
        mesh(&mut chart, y_label, None)?;
        let mut edge = 0.0;
        for (name, bars) in groups {
            let left = edge + (width(bars) - bars.len() as f64) / 2.0;
            for (at, bar) in bars.iter().enumerate() {
                draw_bar(&mut chart, &area, bar, left + at as f64, top)?;
            }
            let middle = chart.backend_coord(&(left + bars.len() as f64 / 2.0, 0.0));
            text(&area, name, (middle.0, middle.1 + 32), 15)?;
            edge += width(bars);
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn draw_bar(
    chart: &mut Chart<'_>,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    bar: &Bar,
    left: f64,
    top: f64,
) -> Result<()> {
    let mut from = 0.0;
    for (value, part) in &bar.parts {
        let corners = [(left + 0.1, from), (left + 0.9, from + value)];
        let rectangle = Rectangle::new(corners, bar_color(*part).filled());
        chart.draw_series([rectangle]).map_err(failed)?;
        from += value;
    }
    let foot = chart.backend_coord(&(left + 0.5, 0.0));
    text(area, &bar.name, (foot.0, foot.1 + 14), 12)?;
    let head = chart.backend_coord(&(left + 0.5, from.min(top)));
    let total = if from < 10.0 { format!("{from:.1}") } else { format!("{from:.0}") };
    text(area, &total, (head.0, head.1 - 9), 12)
}

/// A text whose middle is at `place`.
fn text(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    place: (i32, i32),
    size: u32,
) -> Result<()> {
    let middle = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, size).into_font().color(&INK).pos(middle);
    area.draw_text(text, &style, place).map_err(failed)
}

fn log2(size: Size) -> f64 {
    (size.bytes() as f64).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, weight: Weight) -> Line {
        let points = vec![(Size(4096), 25.0), (Size(2 << 20), 88.0)];
        Line { name: name.to_owned(), weight, points }
    }

    #[test]
    fn a_plot_is_one_svg_with_sizes_below() {
        let all = [line("chosen", Weight::Marked), line("raw-a", Weight::Thin)];
        let svg = lines("GB/s", &all).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("4K") && svg.contains("2M") && svg.contains("GB/s"));
    }

    #[test]
    fn every_line_has_a_colour_of_its_own() {
        let mut all = vec![line("chosen", Weight::Marked), line("pages", Weight::Baseline)];
        all.extend((0..12).map(|at| line(&at.to_string(), Weight::Thin)));
        let mut colors: Vec<String> = legend(&all).into_iter().map(|(_, color)| color).collect();
        colors.sort();
        colors.dedup();
        assert_eq!(colors.len(), all.len());
    }

    #[test]
    fn nothing_to_plot_is_an_error_and_one_point_is_not() {
        assert!(lines("", &[]).is_err());
        assert!(bars("", &[]).is_err());
        let one = Line { points: vec![(Size(4096), 1.0)], ..line("a", Weight::Thin) };
        assert!(lines("", &[one]).is_ok());
    }

    #[test]
    fn a_bar_shows_its_sum() {
        let bar = Bar { name: "linux".to_owned(), parts: vec![(163.0, 0), (1214.0, 1)] };
        let svg = bars("ns", &[("4K".to_owned(), vec![bar])]).unwrap();
        assert!(svg.contains("1377") && svg.contains("linux"));
    }
}
