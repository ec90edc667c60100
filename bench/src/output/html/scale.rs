//! Axes: the position of a value, and the labelled ticks.

use crate::output::figure::Unit;

use crate::output::value;

#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    pub ticks: Vec<Tick>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Where it lies, 0 to 1.
    pub place: f64,
    pub label: String,
}

impl Scale {
    /// An axis that shows all of the values, in equal steps.
    pub fn linear(values: impl Iterator<Item = f64>, unit: Unit) -> Scale {
        let (low, high) = bounds(values);
        // Near to zero, zero is shown; a length of nothing is one of something.
        let low = if low > 0.0 && low < 0.6 * high { 0.0 } else { low };
        let room = (high - low).max(high.abs() * 0.02).max(1e-9);
        let step = step(room / 5.0);
        let low = (low / step).floor() * step;
        let high = (high / step).ceil().max(low / step + 1.0) * step;
        let count = ((high - low) / step).round() as usize;
        let (factor, name) = value::scale(low.abs().max(high.abs()), unit);
        let label = |at: f64| match name {
            "" => value::digits(at / factor),
            name => format!("{} {name}", value::digits(at / factor)),
        };
        let ticks = (0..=count).map(|n| low + step * n as f64).map(|at| (at, label(at)));
        Scale::new(low, high, false, ticks)
    }

    /// An axis that shows all of the positive values, in equal factors.
    pub fn log(values: impl Iterator<Item = f64>, unit: Unit) -> Scale {
        let (low, high) = bounds(values.filter(|value| *value > 0.0));
        let decades = (high / low).log10();
        // Few decades begin and end near the values, many at powers of ten.
        let digits: &[f64] = match decades {
            ..=1.5 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            ..=3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let all: Vec<f64> = (first..=last)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .collect();
        let below = all.iter().rev().find(|at| **at <= low * 1.0001).copied();
        let above = all.iter().find(|at| **at >= high * 0.9999).copied();
        let (low, high) = (below.unwrap_or(low), above.unwrap_or(high));
        let high = if high <= low { low * 2.0 } else { high };
        let within = all.iter().filter(|at| (low * 0.9999..=high * 1.0001).contains(*at));
        let within: Vec<f64> = within.copied().collect();
        let every = within.len().div_ceil(TICKS_MAX).max(1);
        let ticks = within.iter().step_by(every).map(|at| (*at, value::text(*at, unit)));
        Scale::new(low, high, true, ticks)
    }

    /// An axis of percentiles that gives each further nine as much room: `1 / (1 - p)` of so many
    /// samples.
    pub fn tail(samples: u64) -> Scale {
        let high = (samples.max(10)) as f64;
        let mut ticks = vec![(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())];
        for nines in 1..10 {
            let share = 100.0 - 100.0 / 10f64.powi(nines);
            let places = usize::try_from(nines - 2).unwrap_or(0);
            ticks.push((10f64.powi(nines), format!("{share:.places$} %")));
        }
        ticks.retain(|(at, _)| *at <= high);
        Scale::new(1.0, high, true, ticks.into_iter())
    }

    /// An axis of names, the first at the top.
    pub fn names(names: &[String]) -> Scale {
        let ticks = names.iter().enumerate().rev();
        let ticks = ticks.map(|(at, name)| (at as f64 + 0.5, name.clone()));
        Scale::new(names.len() as f64, 0.0, false, ticks)
    }

    /// An axis of so many things that are numbered from 1.
    pub fn numbers(count: usize) -> Scale {
        let every = count.div_ceil(10).max(1);
        let (low, high) = (0.5, count as f64 + 0.5);
        let numbers = (1..=count).filter(|n| n % every == 0 || (*n == 1 && every < 3));
        Scale::new(low, high, false, numbers.map(|n| (n as f64, n.to_string())))
    }

    /// Where a value lies, 0 to 1; beyond the ends at the end.
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    pub fn value(&self, place: f64) -> f64 {
        if self.is_log {
            return self.low * (self.high / self.low).powf(place);
        }
        self.low + (self.high - self.low) * place
    }

    fn new(low: f64, high: f64, is_log: bool, ticks: impl Iterator<Item = (f64, String)>) -> Scale {
        let mut scale = Scale { low, high, is_log, ticks: Vec::new() };
        scale.ticks = ticks.map(|(at, label)| Tick { place: scale.place(at), label }).collect();
        scale
    }
}

/// The least and the greatest of the values that are numbers; 1 and 10 if there is none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let numbers = values.filter(|value| value.is_finite());
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = numbers.fold(none, |(low, high), one| (low.min(one), high.max(one)));
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// The next larger of 1, 2, 2.5, 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = steps.into_iter().find(|step| step * power >= least * 0.9999);
    fits.unwrap_or(10.0) * power
}

/// More are not to be read side by side.
const TICKS_MAX: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|tick| &*tick.label).collect()
    }

    #[test]
    fn a_linear_axis_has_round_steps_and_one_unit() {
        let scale = Scale::linear([0.0, 1850.0].into_iter(), Unit::Ns);
        assert_eq!(labels(&scale), ["0 us", "0.5 us", "1 us", "1.5 us", "2 us"]);
        assert_eq!((scale.place(0.0), scale.place(2000.0)), (0.0, 1.0));
        assert_eq!(scale.place(1000.0), 0.5);
    }

    #[test]
    fn values_that_hardly_differ_do_not_begin_at_zero() {
        let scale = Scale::linear([330.0, 350.0].into_iter(), Unit::Ns);
        assert_eq!(labels(&scale).first(), Some(&"330 ns"));
        assert_eq!(labels(&scale).last(), Some(&"350 ns"));
    }

    #[test]
    fn equal_values_and_none_at_all_have_an_axis_too() {
        for values in [vec![], vec![5.0], vec![0.0, 0.0], vec![f64::NAN]] {
            for scale in [
                Scale::linear(values.iter().copied(), Unit::Count),
                Scale::log(values.iter().copied(), Unit::Count),
            ] {
                assert!(scale.ticks.len() >= 2, "{values:?}: {scale:?}");
                assert!((0.0..=1.0).contains(&scale.place(5.0)), "{values:?}: {scale:?}");
            }
        }
    }

    #[test]
    fn a_logarithmic_axis_writes_powers_of_ten_or_what_is_between_if_there_is_room() {
        let wide = Scale::log([300.0, 4e6].into_iter(), Unit::Ns);
        assert_eq!(labels(&wide), ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"]);
        let narrow = Scale::log([310.0, 2400.0].into_iter(), Unit::Ns);
        assert_eq!(
            labels(&narrow),
            ["300 ns", "500 ns", "700 ns", "1 us", "1.5 us", "2 us", "3 us"]
        );
        assert!((narrow.place(300.0)).abs() < 1e-9 && (narrow.place(3000.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_value_is_found_at_its_place() {
        for scale in [
            Scale::log([310.0, 2400.0].into_iter(), Unit::Ns),
            Scale::linear([310.0, 2400.0].into_iter(), Unit::Ns),
        ] {
            assert!((scale.value(scale.place(777.0)) - 777.0).abs() < 1e-6);
        }
    }

    #[test]
    fn each_nine_has_as_much_room_as_the_one_before() {
        let scale = Scale::tail(1_000_000);
        assert_eq!(
            labels(&scale),
            ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"]
        );
        let places: Vec<f64> = scale.ticks.iter().map(|tick| tick.place).collect();
        assert!((places[3] - places[2] - (places[4] - places[3])).abs() < 1e-9);
        // What so few samples cannot show is not on the axis.
        assert_eq!(labels(&Scale::tail(500)).last(), Some(&"99 %"));
    }

    #[test]
    fn things_are_numbered_from_one() {
        assert_eq!(labels(&Scale::numbers(4)), ["1", "2", "3", "4"]);
        assert_eq!(labels(&Scale::numbers(40)).len(), 10);
        assert_eq!(labels(&Scale::numbers(40)).first(), Some(&"4"));
    }

    #[test]
    fn the_first_name_is_at_the_top() {
        let scale = Scale::names(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(labels(&scale), ["b", "a"]);
        assert!(scale.ticks[0].place < scale.ticks[1].place);
    }
}
