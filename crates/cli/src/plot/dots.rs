//! Points in a plane, each with its name.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::style::{FONT, HEIGHT, INK, MARK, WIDTH, color_at, failed};

/// A point.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Dot {
    pub(crate) name: String,
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The plot is about it.
    pub(crate) marked: bool,
}

/// All points; an error without any. The names are in the legend.
pub(super) fn draw(x_label: &str, y_label: &str, dots: &[Dot]) -> Result<String> {
    let range = |figure: fn(&Dot) -> f64| {
        let least = dots.iter().map(figure).fold(f64::MAX, f64::min);
        let most = dots.iter().map(figure).fold(f64::MIN, f64::max);
        let margin = ((most - least) * 0.06).max(most.abs() * 0.01).max(1.0);
        (least - margin).max(0.0)..most + margin
    };
    if dots.is_empty() {
        return Err(anyhow!("no points"));
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(range(|dot| dot.x), range(|dot| dot.y))
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 13).into_font().color(&INK))
            .x_desc(x_label)
            .y_desc(y_label)
            .draw()
            .map_err(failed)?;
        for (at, dot) in dots.iter().enumerate() {
            let size = if dot.marked { 8 } else { 5 };
            let circle = Circle::new((dot.x, dot.y), size, color(dots, at).filled());
            chart.draw_series([circle]).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// The colour of a point.
pub(super) fn color(dots: &[Dot], at: usize) -> RGBColor {
    if dots[at].marked { MARK } else { color_at(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_points_are_drawn_with_their_axes_and_none_is_an_error() {
        let dot = |x, marked| Dot { name: "a".to_owned(), x, y: 2.0, marked };
        let svg = draw("faults", "KiB", &[dot(1.0, true), dot(9.0, false)]).unwrap();
        assert!(svg.matches("<circle").count() == 2 && svg.contains("faults"));
        assert!(draw("", "", &[]).is_err());
    }
}
