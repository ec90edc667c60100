//! A plot: axes, lines, areas, marks and bars as SVG.
//!
//! What is drawn carries the colours of the light page; the style sheet knows them and puts others
//! in their place where it is dark, and gives each line its dashes, so that none is known by colour
//! alone.

use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::{KeyPointHint, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::scale::{Scale, Tick};

#[derive(Debug)]
pub struct Plot {
    pub title: String,
    pub note: String,
    pub x: PlotAxis,
    pub y: PlotAxis,
    pub series: Vec<PlotSeries>,
    /// A line across at this value of the bottom axis.
    pub guide: Option<f64>,
    pub form: Form,
}

/// An axis with its label.
#[derive(Debug)]
pub struct PlotAxis {
    pub scale: Scale,
    pub label: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Wide,
    /// So many names at the left, each with a row.
    Rows(usize),
}

#[derive(Debug)]
pub struct PlotSeries {
    pub name: String,
    /// Which colour: the n-th.
    pub colour: usize,
    pub shape: PlotShape,
}

/// What a series looks like. All values are those of the axes.
#[derive(Debug)]
pub enum PlotShape {
    Line(Vec<(f64, f64)>),
    Marked(Vec<(f64, f64)>),
    Area(Vec<(f64, f64)>),
    /// A point with a bar to either side: least, middle, greatest, and the row.
    Interval {
        low: f64,
        middle: f64,
        high: f64,
        row: f64,
    },
}

impl PlotAxis {
    pub fn new(scale: Scale, label: impl Into<String>) -> PlotAxis {
        PlotAxis { scale, label: label.into() }
    }
}

impl Plot {
    /// A wide plot without a note.
    pub fn wide(
        title: impl Into<String>,
        x: PlotAxis,
        y: PlotAxis,
        series: impl Iterator<Item = PlotSeries>,
    ) -> Plot {
        let (title, series) = (title.into(), series.collect());
        Plot { title, note: String::new(), x, y, series, guide: None, form: Form::Wide }
    }

    /// The plot as the page has it: its title, its note, its legend, and the drawing.
    pub fn drawn(&self) -> Markup {
        let (class, width, height) = match self.form {
            Form::Wide => ("plot", 720, 340),
            Form::Rows(rows) => ("rows", 720, 80 + 38 * rows as i32),
        };
        let (width, height) = (width * FINE, height * FINE);
        let mut drawn = String::new();
        {
            let size = (width as u32, height as u32);
            let root = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
            self.draw(&root).expect("a string takes whatever is written to it");
        }
        // The page has an element of its own around what stands in the drawing.
        let body = drawn.split_once("<svg").and_then(|(_, rest)| rest.split_once('>'));
        let body = body.and_then(|(_, body)| body.trim_end().strip_suffix("</svg>"));
        let body = PreEscaped(body.expect("a drawing is one element"));
        html! {
            figure {
                figcaption {
                    h3 { (self.title) }
                    @if !self.note.is_empty() { p.note { (self.note) } }
                    @if self.form == Form::Wide && !self.series.is_empty() { (self.legend()) }
                }
                div.scroll tabindex="0" role="group" aria-label=(self.title) {
                    svg class=(class) viewBox={ "0 0 " (width) " " (height) }
                        role="img" aria-label=(self.title) { (body) }
                }
            }
        }
    }

    /// The names of the series, each once and with its colour.
    fn legend(&self) -> Markup {
        let is_first = |(at, one): &(usize, &PlotSeries)| {
            self.series[..*at].iter().all(|known| known.name != one.name)
        };
        let firsts = self.series.iter().enumerate().filter(is_first);
        html! {
            ul.legend {
                @for (_, PlotSeries { name, colour, .. }) in firsts {
                    li {
                        svg.key viewBox="0 0 32 8" aria-hidden="true" {
                            polyline fill="none" stroke=(code(COLOURS[colour % COLOURS.len()]))
                                stroke-width="3" points="0,4 32,4" {}
                        }
                        (name)
                    }
                }
            }
        }
    }

    fn draw<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let left = match self.form {
            Form::Wide => 76,
            Form::Rows(_) => {
                let longest =
                    self.y.scale.ticks.iter().map(|tick| tick.label.chars().count()).max();
                24 + 7 * longest.unwrap_or(0).min(44) as i32
            }
        };
        let (x, y) = (Places(&self.x.scale.ticks), Places(&self.y.scale.ticks));
        let mut chart = ChartBuilder::on(root)
            .margin_top(10 * FINE)
            .margin_left(6 * FINE)
            .margin_right(34 * FINE)
            .margin_bottom(4 * FINE)
            .x_label_area_size(46 * FINE)
            .y_label_area_size(left * FINE)
            .build_cartesian_2d(x, y)?;
        let ink = INK;
        let ink = TextStyle::from(("sans-serif", 15 * FINE).into_font()).color(&ink);
        let grid = GRID.stroke_width(FINE as u32);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(short(&self.x.label, 64))
            .axis_desc_style(ink.clone())
            .label_style(ink)
            .axis_style(AXIS.stroke_width(FINE as u32))
            .bold_line_style(grid)
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(4 * FINE)
            .x_labels(64)
            .y_labels(64);
        match self.form {
            Form::Wide => mesh.y_desc(short(&self.y.label, 36)),
            Form::Rows(_) => mesh.disable_y_mesh(),
        };
        mesh.draw()?;
        let to = |at: (f64, f64)| (self.x.scale.place(at.0), self.y.scale.place(at.1));
        if let Some(at) = self.guide {
            let x = self.x.scale.place(at);
            let line = vec![(x, 0.0), (x, 1.0)];
            chart.draw_series([PathElement::new(line, INK.stroke_width(FINE as u32))])?;
        }
        for series in &self.series {
            let colour = COLOURS[series.colour % COLOURS.len()];
            let line = colour.stroke_width(2 * FINE as u32);
            match &series.shape {
                PlotShape::Line(points) => {
                    let points: Vec<_> = points.iter().map(|point| to(*point)).collect();
                    chart.draw_series([PathElement::new(points, line)])?;
                }
                PlotShape::Marked(points) => {
                    let points: Vec<_> = points.iter().map(|point| to(*point)).collect();
                    chart.draw_series([PathElement::new(points.clone(), line)])?;
                    let mark = |at| Circle::new(at, 4 * FINE, colour.filled());
                    chart.draw_series(points.into_iter().map(mark))?;
                }
                PlotShape::Area(points) => {
                    let outline: Vec<_> = points.iter().map(|point| to(*point)).collect();
                    let ends =
                        outline.last().zip(outline.first()).map(|(b, a)| [(b.0, 0.0), (a.0, 0.0)]);
                    let area: Vec<_> =
                        outline.iter().copied().chain(ends.into_iter().flatten()).collect();
                    chart.draw_series([Polygon::new(area, colour.mix(0.18).filled())])?;
                    chart.draw_series([PathElement::new(outline, line)])?;
                }
                PlotShape::Interval { low, middle, high, row } => {
                    let at = |value| to((value, *row));
                    let ends = vec![at(*low), at(*high)];
                    chart.draw_series([PathElement::new(
                        ends,
                        colour.stroke_width(5 * FINE as u32),
                    )])?;
                    chart.draw_series([Circle::new(at(*middle), 7 * FINE, colour.filled())])?;
                }
            }
        }
        root.present()
    }
}

pub fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let begin: String = text.chars().take(most - 1).collect();
    format!("{begin}\u{2026}")
}

/// A colour as SVG has it.
fn code(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// What each series is drawn with: its colour, by a variable that differs where it is dark, and its
/// dashes.
pub fn colours() -> String {
    let rule = |(at, colour): (usize, &RGBColor)| {
        let (code, dashes) = (code(*colour), DASHES[at % DASHES.len()]);
        format!(
            "[stroke=\"{code}\"]{{stroke:var(--c{at})}}[fill=\"{code}\"]{{fill:var(--c{at})}}\
             .plot polyline[stroke=\"{code}\"]{{stroke-dasharray:{dashes}}}\
             .key polyline[stroke=\"{code}\"]{{stroke-dasharray:{}}}\n",
            narrow(dashes)
        )
    };
    COLOURS.iter().enumerate().map(rule).collect()
}

fn narrow(dashes: &str) -> String {
    let parts = dashes.split(' ').map(|part| part.strip_suffix('0').unwrap_or(part));
    parts.collect::<Vec<_>>().join(" ")
}

/// An axis of places from 0 to 1, of which some are written.
struct Places<'a>(&'a [Tick]);

impl Ranged for Places<'_> {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * value).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.0.iter().map(|tick| tick.place).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..1.0
    }
}

impl ValueFormatter<f64> for Places<'_> {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.0.iter().find(|tick| tick.place == *value);
        tick.map_or_else(String::new, |tick| tick.label.clone())
    }
}

/// Units of the drawing in one of the page: coordinates are whole numbers.
const FINE: i32 = 10;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const AXIS: RGBColor = RGBColor(0x77, 0x77, 0x77);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// The colours of series, after Okabe and Ito: distinct for colour-blind readers. The style sheet
/// has the same.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x8A, 0x6D, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x66, 0x66, 0x66),
];
const DASHES: [&str; 7] =
    ["none", "100 40", "30 30", "120 40 20 40", "60 30", "160 30 30 30 30 30", "20 50"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_a_variable_in_light_and_in_dark_and_dashes_of_its_own() {
        let page = include_str!("style.css");
        for at in 0..COLOURS.len() {
            assert_eq!(page.matches(&format!("--c{at}:")).count(), 2, "colour {at}");
        }
        let mut dashes = DASHES.to_vec();
        dashes.dedup();
        assert_eq!(dashes.len(), COLOURS.len());
    }
}
