//! The recorded instruction counts of RPCs, and the comparison with them.

use std::fmt;

/// What one side of one kind of call costs, in instructions per RPC.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The kind of call.
    pub call: String,
    /// Connections, which take turns.
    pub connections: u64,
    /// Calls under way at one time, on all connections together.
    pub window: u64,
    /// `client` or `server`.
    pub side: String,
    /// All instructions of the program's own file.
    pub all: f64,
    /// Those of them that neither the provider nor the program that makes the calls executes.
    pub engine: f64,
    /// Those of the provider.
    pub provider: f64,
    /// Calls into the C library: `memcpy` and its like.
    pub library_calls: f64,
    /// Instructions there. They depend on the processor, and are never compared.
    pub library: f64,
}

/// How a count compares with the figure that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Within the slack.
    Same,
    /// More than the slack above.
    More,
    /// More than the slack below.
    Less,
}

/// What may lie between a figure and the next count: two parts in a hundred.
pub const SLACK: f64 = 0.02;

/// Compares a count with the figure.
pub fn compare(was: f64, now: f64) -> Change {
    if now > was * (1.0 + SLACK) + ROUNDING {
        Change::More
    } else if now < was * (1.0 - SLACK) - ROUNDING {
        Change::Less
    } else {
        Change::Same
    }
}

impl Figure {
    /// Instructions of the program that makes the calls: what remains.
    pub fn program(&self) -> f64 {
        self.all - self.engine - self.provider
    }

    fn is_of(&self, other: &Figure) -> bool {
        self.call == other.call
            && self.connections == other.connections
            && self.window == other.window
            && self.side == other.side
    }

    fn compared(&self) -> [(&'static str, f64); 4] {
        [
            ("all", self.all),
            ("engine", self.engine),
            ("provider", self.provider),
            ("library calls", self.library_calls),
        ]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { call, connections, window, side, all, engine, provider, .. } = self;
        write!(f, "{call:<26} {connections:>5} {window:>6} {side:<6} {all:>8.1} {engine:>8.1} ")?;
        write!(f, "{provider:>8.1} {:>7.1} ", self.program())?;
        write!(f, "{:>8.2} {:>8.1}", self.library_calls, self.library)
    }
}

/// The table of some figures, as it is printed and kept.
pub fn table(figures: &[Figure]) -> String {
    let rows: String = figures.iter().map(|figure| format!("{figure}\n")).collect();
    format!("{COLUMNS}\n{rows}")
}

/// Reads a table. What begins with `#` is for people.
///
/// # Errors
/// The first line that is no figure.
pub fn parse(text: &str) -> Result<Vec<Figure>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| figure(line).ok_or_else(|| format!("no figure: {line}"))).collect()
}

fn figure(line: &str) -> Option<Figure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [call, connections, window, side, all, engine, provider, _program, calls, library] =
        words[..]
    else {
        return None;
    };
    Some(Figure {
        call: call.into(),
        connections: connections.parse().ok()?,
        window: window.parse().ok()?,
        side: side.into(),
        all: all.parse().ok()?,
        engine: engine.parse().ok()?,
        provider: provider.parse().ok()?,
        library_calls: calls.parse().ok()?,
        library: library.parse().ok()?,
    })
}

/// Every difference between what was kept and what was counted, a line each; none if all is well.
pub fn differences(was: &[Figure], now: &[Figure]) -> Vec<String> {
    let mut lines = Vec::new();
    for figure in now {
        let Figure { call, connections, window, side, .. } = figure;
        let name = format!("{call} connections {connections} window {window} {side}");
        let Some(old) = was.iter().find(|old| old.is_of(figure)) else {
            lines.push(format!("{name}: no figure is kept"));
            continue;
        };
        for ((what, old), (_, new)) in old.compared().into_iter().zip(figure.compared()) {
            let percent = (new / old - 1.0) * 100.0;
            let advice = match compare(old, new) {
                Change::Same => continue,
                Change::More => "more than allowed",
                Change::Less => "better: lower the figure, so that it stays",
            };
            lines.push(format!("{name}, {what}: {old:.1} -> {new:.1} ({percent:+.1} %): {advice}"));
        }
    }
    let gone = was.iter().filter(|old| !now.iter().any(|figure| figure.is_of(old)));
    lines.extend(gone.map(|old| format!("{} {}: kept, and not counted", old.call, old.side)));
    lines
}

/// Every relation between figures of one build that does not hold, a line each; none if all is well:
/// what the C interface adds to the same calls of Rust, and what timed calls add to untimed ones.
pub fn excesses(now: &[Figure]) -> Vec<String> {
    let excess = |figure: &Figure| {
        let rust = figure.call.strip_prefix(IN_C);
        let call = rust.or_else(|| figure.call.strip_suffix(UNTIMED))?;
        let Some(other) = counterpart(now, figure, call) else {
            return Some(format!("{} {}: there is no {call}", figure.call, figure.side));
        };
        let (dear, max) = match rust {
            Some(_) => (figure, other.all * C_MAX),
            None => (other, figure.all + TIMING_MAX),
        };
        let Figure { call, side, all, .. } = dear;
        (*all > max).then(|| format!("{call} {side}: {all:.1}, and {max:.1} is allowed"))
    };
    now.iter().filter_map(excess).collect()
}

/// The figure of the same side of another call, made the same way.
fn counterpart<'a>(now: &'a [Figure], figure: &Figure, call: &str) -> Option<&'a Figure> {
    let other = Figure { call: call.into(), ..figure.clone() };
    now.iter().find(|figure| figure.is_of(&other))
}

/// The name of a call by the C interface begins with this, in front of that of Rust.
const IN_C: &str = "capi-";
/// The name of a call without timed ones ends with this, behind that of the default.
const UNTIMED: &str = "-untimed";
/// What a call by the C interface costs at most, as a part of one by Rust. It was 1.05 before clients,
/// sessions and shards were polled by one set of functions, and is to be that again.
const C_MAX: f64 = 1.10;
/// Instructions that timing adds to a call at most, by default.
const TIMING_MAX: f64 = 3.0;
const COLUMNS: &str = "# call                     conns window side        all   engine provider program libcalls  library";
/// Half of the last digit that is kept.
const ROUNDING: f64 = 0.051;

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(all: f64, engine: f64) -> Figure {
        Figure {
            call: "echo".into(),
            connections: 1,
            window: 32,
            side: "server".into(),
            all,
            engine,
            provider: 100.0,
            library_calls: 2.0,
            library: 60.0,
        }
    }

    #[test]
    fn two_percent_above_is_the_same_and_more_is_more() {
        assert_eq!(compare(1000.0, 1020.0), Change::Same);
        assert_eq!(compare(1000.0, 1020.2), Change::More);
    }

    #[test]
    fn two_percent_below_is_the_same_and_less_is_less() {
        assert_eq!(compare(1000.0, 980.0), Change::Same);
        assert_eq!(compare(1000.0, 979.8), Change::Less);
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(compare(0.0, 0.0), Change::Same);
        assert_eq!(compare(0.0, 1.0), Change::More);
    }

    #[test]
    fn what_was_written_is_read() {
        let figures = [echo(612.3, 400.1), Figure { window: 1, ..echo(1.0, 0.5) }];
        assert_eq!(parse(&table(&figures)).as_deref(), Ok(&figures[..]));
    }

    #[test]
    fn a_line_that_is_no_figure_is_named() {
        let broken = format!("{}nonsense 1 2\n", table(&[echo(1.0, 1.0)]));
        assert_eq!(parse(&broken), Err("no figure: nonsense 1 2".into()));
    }

    #[test]
    fn the_engine_is_compared_apart_from_the_whole() {
        let lines = differences(&[echo(1000.0, 400.0)], &[echo(1010.0, 410.0)]);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("engine: 400.0 -> 410.0 (+2.5 %): more than allowed"), "{line}");
    }

    #[test]
    fn a_better_count_asks_for_a_lower_figure() {
        let lines = differences(&[echo(1000.0, 400.0)], &[echo(900.0, 400.0)]);
        assert!(lines.len() == 1 && lines[0].contains("lower the figure"), "{lines:?}");
    }

    #[test]
    fn what_the_library_does_inside_is_not_compared() {
        let other = Figure { library: 600.0, ..echo(1000.0, 400.0) };
        assert!(differences(&[echo(1000.0, 400.0)], &[other]).is_empty());
    }

    #[test]
    fn a_call_in_c_costs_five_percent_more_at_most() {
        let capi = |all| Figure { call: "capi-echo".into(), ..echo(all, 500.0) };
        assert!(excesses(&[echo(1000.0, 500.0), capi(1100.0)]).is_empty());
        let lines = excesses(&[echo(1000.0, 500.0), capi(1100.1)]);
        assert_eq!(lines, ["capi-echo server: 1100.1, and 1100.0 is allowed"]);
    }

    #[test]
    fn timing_adds_three_instructions_at_most() {
        let untimed = |all| Figure { call: "echo-untimed".into(), ..echo(all, 500.0) };
        assert!(excesses(&[echo(1003.0, 500.0), untimed(1000.0)]).is_empty());
        let lines = excesses(&[echo(1003.1, 500.0), untimed(1000.0)]);
        assert_eq!(lines, ["echo server: 1003.1, and 1003.0 is allowed"]);
    }

    #[test]
    fn a_figure_is_compared_with_that_of_its_own_side_and_window() {
        let capi = Figure { call: "capi-echo".into(), ..echo(2000.0, 500.0) };
        for other in [
            Figure { side: "client".into(), ..echo(1000.0, 500.0) },
            Figure { window: 1, ..echo(1000.0, 500.0) },
        ] {
            let lines = excesses(&[other, capi.clone()]);
            assert_eq!(lines, ["capi-echo server: there is no echo"]);
        }
    }

    #[test]
    fn figures_come_and_go_on_purpose_only() {
        assert_eq!(differences(&[], &[echo(1.0, 1.0)]).len(), 1);
        assert_eq!(differences(&[echo(1.0, 1.0)], &[]).len(), 1);
        assert!(differences(&[echo(1.0, 1.0)], &[echo(1.0, 1.0)]).is_empty());
    }
}
