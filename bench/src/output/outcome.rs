//! The outcome of a run: conditions on figures, noise, and the exit code.
//!
//! ```text
//!   a check is requested, the run is noisy     3    measure again
//!   a condition holds, or the mode says so     2    worse than it may be
//!   it could not be measured                   1    options, device, file
//!   else                                       0
//! ```

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;

use super::figure::{Figure, Unit};
use super::report::Report;
use super::value;
use crate::error::BenchError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Good,
    /// Something is as it must not be: what, each in a line.
    Failed(Vec<String>),
    /// A mode failed by its own measure, which has an exit code of its own.
    FailedWith(u8, Vec<String>),
    /// A check was requested, and the run is too noisy for it: why, each in a line.
    Noisy(Vec<String>),
}

/// A condition under which a run fails: `rpc.round_trip.p99>5us`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    figure: String,
    /// One of [`SIGNS`].
    sign: &'static str,
    limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    number: f64,
    suffix: Suffix,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Suffix {
    text: &'static str,
    /// The unit that it is one of; `None` if it suits every number.
    unit: Option<Unit>,
    scale: f64,
}

/// Checks a report by the conditions under which it fails and by what its mode says itself;
/// `strict` if noise is a failure, too.
pub fn check(report: &Report, fail_if: &[Condition], strict: bool) -> Result<Outcome, BenchError> {
    let mut failures = report.failures.clone();
    for condition in fail_if {
        failures.extend(condition.holds(&report.figures)?);
    }
    if let Some(code) = report.failed_code.filter(|_| !failures.is_empty()) {
        return Ok(Outcome::FailedWith(code, failures));
    }
    let is_asked = strict || !fail_if.is_empty() || report.is_checked;
    let noise = &report.environment.noise;
    if is_asked && !noise.is_empty() {
        return Ok(Outcome::Noisy(noise.clone()));
    }
    Ok(if failures.is_empty() { Outcome::Good } else { Outcome::Failed(failures) })
}

impl Outcome {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Outcome::Good => ExitCode::SUCCESS,
            Outcome::Failed(_) => ExitCode::from(FAILED),
            Outcome::FailedWith(code, _) => ExitCode::from(*code),
            Outcome::Noisy(_) => ExitCode::from(NOISY),
        }
    }

    /// The same for people; nothing if nothing is wrong.
    pub fn lines(&self) -> Vec<String> {
        let (title, reasons) = match self {
            Outcome::Good => return Vec::new(),
            Outcome::Failed(reasons) | Outcome::FailedWith(_, reasons) => ("failed", reasons),
            Outcome::Noisy(reasons) => ("noisy, inconclusive", reasons),
        };
        reasons.iter().map(|reason| format!("{title}: {reason}")).collect()
    }
}

impl Condition {
    /// Why the condition holds; `None` if it does not.
    fn holds(&self, figures: &[Figure]) -> Result<Option<String>, BenchError> {
        let figure = named(&self.figure, figures)?;
        let limit = self.limit.of(figure)?;
        let Figure { value, unit, samples, .. } = figure;
        let holds = match self.sign {
            ">=" => *value >= limit,
            "<=" => *value <= limit,
            ">" => *value > limit,
            _ => *value < limit,
        };
        if !value.is_finite() {
            return Err(BenchError::Usage(format!("--fail-if {self}: it has no samples")));
        }
        let shown = value::text(*value, *unit);
        Ok(holds.then(|| format!("{self} holds: it is {shown} of {samples} samples")))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let form = "a figure, one of > >= < <=, and a limit, as in rpc.round_trip.p99>5us";
        let at = text.find(['<', '>']).ok_or(form)?;
        let (figure, rest) = (text[..at].trim(), &text[at..]);
        let split = |sign| Some((sign, rest.strip_prefix(sign)?));
        let (sign, limit) = SIGNS.into_iter().find_map(split).ok_or(form)?;
        if figure.is_empty() {
            return Err(form.into());
        }
        Ok(Condition { figure: figure.into(), sign, limit: limit.trim().parse()? })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { figure, sign, limit: Limit { number, suffix } } = self;
        write!(f, "{figure}{sign}{number}{}", suffix.text)
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let ends = SUFFIXES.iter().find(|suffix| text.ends_with(suffix.text));
        let suffix = *ends.expect("the last suffix is none");
        let number = text[..text.len() - suffix.text.len()].trim_end();
        let number: Option<f64> = number.parse().ok().filter(|number: &f64| number.is_finite());
        let known = SUFFIXES.map(|suffix| suffix.text).join(" ");
        let number = number.ok_or_else(|| format!("`{text}` is no number with one of {known}"))?;
        Ok(Limit { number, suffix })
    }
}

impl Limit {
    fn of(self, figure: &Figure) -> Result<f64, BenchError> {
        let Limit { number, suffix } = self;
        let (unit, id) = (figure.unit, figure.id());
        let fits = suffix.unit.is_none_or(|of| of == unit);
        // A time without a unit would be ambiguous.
        let is_bare_time = unit == Unit::Ns && suffix.unit.is_none();
        if fits && !is_bare_time {
            return Ok(number * suffix.scale);
        }
        let text =
            format!("--fail-if: {id} is in {}: {number}{} is not", unit.symbol(), suffix.text);
        Err(BenchError::Usage(text))
    }
}

/// The figure of this name, or the only one whose name ends with it: `ratio` for `a/b.ratio`.
fn named<'a>(name: &str, figures: &'a [Figure]) -> Result<&'a Figure, BenchError> {
    let name = &*with_plain_point(name);
    if let Some(figure) = figures.iter().find(|figure| figure.id() == name) {
        return Ok(figure);
    }
    let is_end =
        |figure: &&Figure| figure.id().strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let mut ends = figures.iter().filter(is_end);
    match (ends.next(), ends.next()) {
        (Some(figure), None) => Ok(figure),
        _ => Err(unknown(name, figures)),
    }
}

/// A name whose point has a number without a unit: `rpc@rate=20k.round_trip.p99` names the figure
/// `rpc@rate=20000.round_trip.p99`, and `load=70%` is `load=0.7`.
fn with_plain_point(name: &str) -> String {
    let plain = || {
        let (start, rest) = name.split_once('=').filter(|(start, _)| start.contains('@'))?;
        let at = rest.find(['k', 'M', '%'])?;
        let (number, behind) = (rest[..at].parse::<f64>().ok()?, &rest[at + 1..]);
        let value = match &rest[at..=at] {
            "k" => number * 1e3,
            "M" => number * 1e6,
            _ => number / 100.0,
        };
        behind.starts_with('.').then(|| format!("{start}={value}{behind}"))
    };
    plain().unwrap_or_else(|| name.to_owned())
}

#[cold]
fn unknown(figure: &str, figures: &[Figure]) -> BenchError {
    let mut text = format!("--fail-if: there is no figure `{figure}`; there are");
    for one in figures {
        text.push_str("\n  ");
        text.push_str(&one.id());
        text.push_str(&format!(" ({})", one.unit.symbol()));
    }
    BenchError::Usage(text)
}

const fn suffix(text: &'static str, unit: Option<Unit>, scale: f64) -> Suffix {
    Suffix { text, unit, scale }
}

/// Longer ones first.
const SIGNS: [&str; 4] = [">=", "<=", ">", "<"];
const SUFFIXES: [Suffix; 14] = [
    suffix("GB/s", Some(Unit::GbPerSecond), 1.0),
    suffix("M/s", Some(Unit::PerSecond), 1e6),
    suffix("k/s", Some(Unit::PerSecond), 1e3),
    suffix("/s", Some(Unit::PerSecond), 1.0),
    suffix("ns", Some(Unit::Ns), 1.0),
    suffix("us", Some(Unit::Ns), 1e3),
    suffix("ms", Some(Unit::Ns), 1e6),
    suffix("s", Some(Unit::Ns), 1e9),
    suffix("KiB", Some(Unit::Bytes), 1024.0),
    suffix("MiB", Some(Unit::Bytes), 1048576.0),
    suffix("%", Some(Unit::Share), 0.01),
    suffix("M", None, 1e6),
    suffix("k", None, 1e3),
    suffix("", None, 1.0),
];
const FAILED: u8 = 2;
const NOISY: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::figure::At;
    use crate::output::report::tests::odd;

    fn holds(text: &str) -> Result<bool, String> {
        let figures = [
            Figure::new("rpc", "round_trip.p99", 5e3, Unit::Ns, 10),
            Figure::new("rpc", "rate", 2e6, Unit::PerSecond, 10).at(At::new(
                "load",
                0.5,
                Unit::Share,
            )),
            Figure::new("rpc/floor", "ratio.median", 1.35, Unit::Ratio, 10),
            Figure::new("rpc", "cpu", 0.5, Unit::Share, 10),
            Figure::new("rpc", "memory", 4096.0, Unit::Bytes, 10),
            Figure::new("rpc/none", "ratio.rate", f64::NAN, Unit::Ratio, 0),
        ];
        let condition: Condition = text.parse()?;
        let reason = condition.holds(&figures).map_err(|error| error.to_string())?;
        Ok(reason.is_some())
    }

    #[test]
    fn a_point_may_be_named_with_a_unit() {
        for (name, plain) in [
            ("rpc@rate=20k.round_trip.p99", "rpc@rate=20000.round_trip.p99"),
            ("rpc@rate=1.5M.achieved", "rpc@rate=1500000.achieved"),
            ("rpc@load=70%.backlog.max", "rpc@load=0.7.backlog.max"),
            ("rpc@delay=5us.round_trip.p50", "rpc@delay=5us.round_trip.p50"),
            ("rpc@connections=16.rate.peak", "rpc@connections=16.rate.peak"),
            ("rpc.round_trip.p99", "rpc.round_trip.p99"),
        ] {
            assert_eq!(with_plain_point(name), plain);
        }
    }

    #[test]
    fn a_condition_holds_beyond_its_limit_and_not_at_it() {
        for (text, expected) in [
            ("rpc.round_trip.p99>5us", false),
            ("rpc.round_trip.p99>4999ns", true),
            ("rpc.round_trip.p99>=5us", true),
            ("rpc.round_trip.p99<5us", false),
            ("rpc.round_trip.p99<=5us", true),
            ("rpc.round_trip.p99 < 0.006 ms", true),
            ("rpc@load=0.5.rate<2M", false),
            ("rpc@load=0.5.rate<2000001", true),
            ("rpc@load=0.5.rate<2001k/s", true),
            ("rpc/floor.ratio.median>1.35", false),
            ("rpc/floor.ratio.median>1.34", true),
            ("rpc.cpu>49%", true),
            ("rpc.memory>4KiB", false),
        ] {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error_that_lists_what_is() {
        let error = holds("rpc.round_trip.p98>5us").expect_err("there is none");
        assert!(error.contains("no figure `rpc.round_trip.p98`"), "{error}");
        assert!(error.contains("\n  rpc.round_trip.p99 (ns)\n"), "{error}");
        assert!(error.contains("\n  rpc@load=0.5.rate (1/s)\n"), "{error}");
    }

    #[test]
    fn a_limit_in_another_unit_is_an_error_and_so_is_a_time_without_one() {
        for wrong in ["rpc.round_trip.p99>5", "rpc.round_trip.p99>5%", "rpc/floor.ratio.median>1us"]
        {
            assert!(holds(wrong).is_err(), "{wrong}");
        }
        assert!(holds("rpc/none.ratio.rate>1").is_err(), "a ratio of nothing");
    }

    #[test]
    fn what_is_no_condition_is_refused_at_once() {
        for wrong in ["", "rpc.rate", ">5", "rpc.rate>", "rpc.rate>x", "rpc.rate=5", "a>nan"] {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }

    fn checked(report: &Report, fail_if: &[&str], strict: bool) -> Outcome {
        let fail_if: Result<Vec<Condition>, String> = fail_if.iter().map(|it| it.parse()).collect();
        check(report, &fail_if.expect("conditions"), strict).expect("the figures are there")
    }

    #[test]
    fn a_condition_that_holds_fails_a_quiet_run_and_not_a_noisy_one() {
        let (holds, not) = (["a.round_trip.p50>1ns"], ["a.round_trip.p50>2ns"]);
        let quiet = odd(&[]);
        let failed = checked(&quiet, &holds, false);
        assert!(matches!(failed, Outcome::Failed(reasons) if reasons.len() == 1));
        assert_eq!(checked(&quiet, &not, false), Outcome::Good);
        let noisy = odd(&["core 1 was away"]);
        assert_eq!(checked(&noisy, &holds, false), Outcome::Noisy(vec!["core 1 was away".into()]));
        assert!(matches!(checked(&noisy, &not, false), Outcome::Noisy(_)), "it could be luck");
    }

    #[test]
    fn noise_is_no_failure_unless_a_check_is_requested() {
        let noisy = odd(&["core 1 was away"]);
        assert_eq!(checked(&noisy, &[], false), Outcome::Good);
        assert!(matches!(checked(&noisy, &[], true), Outcome::Noisy(_)));
        assert_eq!(checked(&odd(&[]), &[], true), Outcome::Good);
    }

    #[test]
    fn a_mode_may_have_an_exit_code_of_its_own_for_failures() {
        let mut proof = odd(&["core 1 was away"]);
        proof.failed_code = Some(1);
        assert_eq!(checked(&proof, &[], false), Outcome::Good);
        proof.failures.push("rate: no device".into());
        let failed = Outcome::FailedWith(1, vec!["rate: no device".into()]);
        assert_eq!(checked(&proof, &[], true), failed);
        assert_eq!(failed.exit_code(), ExitCode::from(1));
    }

    #[test]
    fn a_mode_may_fail_by_itself() {
        let mut leak = odd(&["core 1 was away"]);
        leak.failures.push("it leaks".into());
        assert_eq!(checked(&leak, &[], false), Outcome::Failed(vec!["it leaks".into()]));
        assert_eq!(checked(&leak, &[], false).lines(), ["failed: it leaks"]);
    }
}
