//! Values over time.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::style::{FONT, GRID, HEIGHT, INK, WIDTH, color_at, failed};

/// A value over time.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Curve {
    /// For the legend.
    pub(crate) name: String,
    /// In rising order of time.
    pub(crate) points: Vec<(f64, f64)>,
}

/// All curves from zero on; an error without any point.
pub(super) fn draw(x_label: &str, y_label: &str, curves: &[Curve]) -> Result<String> {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let most = |figure: fn(&(f64, f64)) -> f64| all().map(figure).fold(f64::MIN_POSITIVE, f64::max);
    if all().next().is_none() {
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
            .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1) * 1.05)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style((FONT, 13).into_font().color(&INK))
            .x_desc(x_label)
            .y_desc(y_label)
            .draw()
            .map_err(failed)?;
        for (at, curve) in curves.iter().enumerate() {
            let line = LineSeries::new(curve.points.iter().copied(), color_at(at).stroke_width(2));
            chart.draw_series(line).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e8_curves_are_drawn_with_their_axes_and_none_is_an_error() {
        let curve = |points: &[(f64, f64)]| Curve { name: "a".to_owned(), points: points.to_vec() };
        let svg = draw("day", "share", &[curve(&[(1.0, 2.0), (2.0, 3.0)]), curve(&[])]).unwrap();
        assert!(svg.matches("<polyline").count() >= 1 && svg.contains("day"), "{svg}");
        assert!(draw("", "", &[curve(&[])]).is_err());
    }
}
