//! Numbers with units for people: `1.35 us`, `3.1 M/s`, `99.9 %`.

use crate::output::figure::Unit;

pub fn text(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let (factor, name) = scale(value.abs(), unit);
    let number = digits(value / factor);
    if name.is_empty() { number } else { format!("{number} {name}") }
}

/// What a number is divided by to be read, and what stands behind it then.
fn scale(value: f64, unit: Unit) -> (f64, &'static str) {
    let steps: &[(f64, &str)] = match unit {
        Unit::Ns => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        Unit::PerSecond => &[(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        Unit::Bytes => &[(1073741824.0, "GiB"), (1048576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")],
        Unit::Share => &[(0.01, "%")],
        Unit::Ratio => &[(1.0, "x")],
        Unit::GbPerSecond => &[(1.0, "GB/s")],
        Unit::PerCall | Unit::Count => &[(1e9, "G"), (1e6, "M"), (1.0, "")],
        other => return (1.0, other.symbol()),
    };
    let fitting = steps.iter().find(|(factor, _)| value >= *factor * 0.9995);
    // Zero is zero of the unit that nothing is divided for.
    let smallest = steps.last().expect("every unit has a step");
    *fitting.unwrap_or(smallest)
}

/// Three significant digits, without zeros that say nothing; whole numbers whole.
fn digits(value: f64) -> String {
    let size = value.abs();
    let text = if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        let places = (2 - size.log10().floor() as i32).clamp(0, 9) as usize;
        format!("{value:.places$}")
    };
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_unit_that_fits() {
        let times = [0.0, 0.5, 999.0, 1000.0, 1352.0, 22_450.0, 4.2e6, 3.5e9];
        let said = ["0 ns", "0.5 ns", "999 ns", "1 us", "1.35 us", "22.4 us", "4.2 ms", "3.5 s"];
        assert_eq!(times.map(|ns| text(ns, Unit::Ns)), said);
    }

    #[test]
    fn a_number_that_rounds_up_to_the_next_unit_is_written_in_it() {
        assert_eq!(text(999.4, Unit::Ns), "999 ns");
        assert_eq!(text(999.6, Unit::Ns), "1 us");
    }

    #[test]
    fn every_unit_stands_behind_its_number() {
        assert_eq!(text(3_123_456.0, Unit::PerSecond), "3.12 M/s");
        assert_eq!(text(65_536.0, Unit::Bytes), "64 KiB");
        assert_eq!(text(0.7, Unit::Share), "70 %");
        assert_eq!(text(1.0, Unit::Share), "100 %");
        assert_eq!(text(1.352, Unit::Ratio), "1.35 x");
        assert_eq!(text(12.0, Unit::GbPerSecond), "12 GB/s");
        assert_eq!(text(300.0, Unit::Instructions), "300 instructions");
        assert_eq!(text(4096.0, Unit::Count), "4096");
        assert_eq!(text(f64::NAN, Unit::Ns), "none");
        assert_eq!(text(-1500.0, Unit::Ns), "-1.5 us");
    }
}
