//! The screen: draws the state.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell as Drawn, Paragraph, Row, Table as Grid, TableState};

use crate::app::App;
use crate::cell::Cell;
use crate::tables::Table;

/// Draws everything. Only bold, reversed and underlined text, so that every terminal shows it.
pub fn draw(app: &App, at: Instant, frame: &mut Frame<'_>) {
    let rows =
        [Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [status, tabs, body, help] = Layout::vertical(rows).areas(frame.area());
    let (text, is_bad) = app.status(at);
    let style = if is_bad { Style::new().reversed() } else { Style::new() };
    frame.render_widget(Paragraph::new(text).style(style), status);
    frame.render_widget(Paragraph::new(names(app)), tabs);
    if let Some(table) = app.shown() {
        draw_table(app, &table, body, frame);
    }
    frame.render_widget(Paragraph::new(HELP).style(Style::new().dim()), help);
}

/// The names of the tables; the chosen one is reversed.
fn names(app: &App) -> Line<'static> {
    let name = |(at, name): (usize, &'static str)| {
        let style = if at == app.table { Style::new().reversed() } else { Style::new() };
        [Span::styled(format!(" {} {name} ", at + 1), style), Span::raw(" ")]
    };
    NAMES.into_iter().enumerate().flat_map(name).collect()
}

fn draw_table(app: &App, table: &Table, area: Rect, frame: &mut Frame<'_>) {
    let chosen = app.column[app.table];
    let widths = table.widths();
    let columns = visible(&widths, chosen, area.width.into());
    let title = |&at: &usize| {
        let is_number = table.rows.first().is_some_and(|row| row[at].is_number());
        let style = if at == chosen { Modifier::UNDERLINED } else { Modifier::empty() };
        let title = drawn(table.columns[at].to_owned(), is_number);
        title.style(Style::new().bold().add_modifier(style))
    };
    let row = |row: &Vec<Cell>| {
        columns.iter().map(|&at| drawn(row[at].to_string(), row[at].is_number())).collect()
    };
    let rows: Vec<Row<'_>> = table.rows.iter().map(row).collect();
    let grid = Grid::new(rows, columns.iter().map(|&at| Constraint::Length(widths[at] as u16)))
        .header(Row::new(columns.iter().map(title)))
        .row_highlight_style(Style::new().reversed());
    let selected = (!table.rows.is_empty()).then(|| app.row[app.table].min(table.rows.len() - 1));
    frame.render_stateful_widget(grid, area, &mut TableState::new().with_selected(selected));
}

/// The columns that fit: the first, which names the row, and others up to the chosen one or beyond.
fn visible(widths: &[usize], chosen: usize, width: usize) -> Vec<usize> {
    let fits = |first: usize| {
        let others = (first.max(1)..widths.len()).scan(widths[0], |sum, at| {
            *sum += 1 + widths[at];
            (*sum <= width).then_some(at)
        });
        [0].into_iter().chain(others).collect::<Vec<usize>>()
    };
    let shows = |columns: &Vec<usize>| columns.contains(&chosen);
    (1..=chosen.max(1)).map(fits).find(shows).unwrap_or_else(|| vec![0])
}

fn drawn(text: String, is_number: bool) -> Drawn<'static> {
    let side = if is_number { Alignment::Right } else { Alignment::Left };
    Drawn::from(Text::from(text).alignment(side))
}

const NAMES: [&str; 4] = ["Shards", "Peers", "Latencies", "Counters"];
const HELP: &str = "Tab table  up/down row  left/right order by  r reverse  q quit";
