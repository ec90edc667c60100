//! Rows: the samples of two scrapes, one row for each combination of some labels.

use std::collections::{BTreeMap, HashMap};

use crate::source::Scrape;

/// A scrape, and the one before it, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct Looks<'a> {
    pub before: Option<&'a Scrape>,
    pub now: &'a Scrape,
}

/// The values of the labels that a row is for.
pub type Key = Vec<String>;

/// All samples with the same values of some labels, now and before.
#[derive(Debug, Default)]
pub struct Row<'a> {
    now: HashMap<Name<'a>, f64>,
    before: HashMap<Name<'a>, f64>,
    seconds: f64,
}

/// What distinguishes the samples of a row: the name, and the value of one more label.
type Name<'a> = (&'a str, &'a str);

/// The rows of all samples whose names begin with `prefix`; `further` is the label that
/// distinguishes samples of one row.
pub fn rows<'a>(
    looks: Looks<'a>,
    prefix: &str,
    labels: &[&str],
    further: &str,
) -> BTreeMap<Key, Row<'a>> {
    let Looks { before, now } = looks;
    let mut rows = BTreeMap::<Key, Row<'a>>::new();
    let is_of = |sample: &&crate::samples::Sample| {
        sample.name.starts_with(prefix)
            && labels.iter().all(|label| !sample.label(label).is_empty())
    };
    for sample in now.samples.iter().filter(is_of) {
        let key = labels.iter().map(|label| sample.label(label).to_owned()).collect();
        let name = (sample.name.as_str(), sample.label(further));
        rows.entry(key).or_default().now.insert(name, sample.value);
    }
    let Some(before) = before else { return rows };
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    rows.values_mut().for_each(|row| row.seconds = seconds);
    for sample in before.samples.iter().filter(is_of) {
        let key: Key = labels.iter().map(|label| sample.label(label).to_owned()).collect();
        let Some(row) = rows.get_mut(&key) else { continue };
        row.before.insert((sample.name.as_str(), sample.label(further)), sample.value);
    }
    rows
}

impl<'a> Row<'a> {
    /// The value of a sample without a further label.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.value_of(name, "")
    }

    /// The value of a sample.
    pub fn value_of(&self, name: &str, further: &str) -> Option<f64> {
        self.now.get(&(name, further)).copied()
    }

    /// By how much a counter has grown. `None` if it is not known, or if it began anew.
    pub fn growth(&self, name: &str, further: &str) -> Option<f64> {
        let now = self.value_of(name, further)?;
        let before = *self.before.get(&(name, further))?;
        (now >= before).then_some(now - before)
    }

    /// How fast a counter grows, in 1/s.
    pub fn rate(&self, name: &str) -> Option<f64> {
        let growth = self.growth(name, "")?;
        (self.seconds > 0.0).then(|| growth / self.seconds)
    }

    /// The names of the samples, and their further labels.
    pub fn names(&self) -> Vec<Name<'a>> {
        let mut names: Vec<Name<'a>> = self.now.keys().copied().collect();
        names.sort_unstable();
        names
    }

    /// The value below which a share of what a histogram counted lies: of what it counted since
    /// the last look, or of all of it if it counted nothing or began anew.
    pub fn quantile(&self, name: &str, share: f64) -> Option<f64> {
        let bucket = format!("{name}_bucket");
        let bounds = || {
            let all = self.names().into_iter().filter(|(name, _)| *name == bucket);
            let mut all: Vec<(f64, &str)> =
                all.filter_map(|(_, bound)| Some((bound.parse().ok()?, bound))).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            all
        };
        let grown = |bound: &str| self.growth(&bucket, bound);
        let all = |bound: &str| self.value_of(&bucket, bound);
        let counts = |count: &dyn Fn(&str) -> Option<f64>| {
            let counts = bounds().into_iter().map(|(bound, text)| Some((bound, count(text)?)));
            counts
                .collect::<Option<Vec<_>>>()
                .filter(|counts| counts.last().is_some_and(|it| it.1 > 0.0))
        };
        interpolated(&counts(&grown).or_else(|| counts(&all))?, share)
    }
}

/// The quantile of cumulated counts, linear within a bucket, as Prometheus does it.
fn interpolated(counts: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = counts.last()?.1;
    let at = counts.iter().position(|(_, count)| *count >= total * share)?;
    let (bound, count) = counts[at];
    let (lower, below) = at.checked_sub(1).map_or((0.0, 0.0), |before| counts[before]);
    if bound.is_infinite() {
        return Some(lower);
    }
    let within = if count > below { (total * share - below) / (count - below) } else { 1.0 };
    Some(lower + (bound - lower) * within)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::samples::parse;

    /// Two looks, two seconds apart.
    fn looks(before: &str, now: &str) -> (Scrape, Scrape) {
        let at = Instant::now();
        let scrape = |text, at| Scrape { at, samples: parse(text).expect("metrics") };
        (scrape(before, at), scrape(now, at + Duration::from_secs(2)))
    }

    #[test]
    fn a_counter_that_began_anew_has_no_rate() {
        let (before, now) = looks(
            "c{shard=\"0\"} 10\nc{shard=\"1\"} 10",
            "c{shard=\"0\"} 16\nc{shard=\"1\"} 9\nc{shard=\"2\"} 5\nc 3",
        );
        let rows = rows(Looks { before: Some(&before), now: &now }, "c", &["shard"], "");
        let rates: Vec<_> = rows.values().map(|row| row.rate("c")).collect();
        assert_eq!(rates, [Some(3.0), None, None]);
        let values: Vec<_> = rows.values().map(|row| row.value("c")).collect();
        assert_eq!(values, [Some(16.0), Some(9.0), Some(5.0)]);
    }

    #[test]
    fn without_an_earlier_look_there_are_values_and_no_rates() {
        let (now, _) = looks("c{shard=\"0\"} 10", "");
        let rows = rows(Looks { before: None, now: &now }, "c", &["shard"], "");
        let row = &rows[&vec!["0".to_owned()]];
        assert_eq!((row.value("c"), row.rate("c")), (Some(10.0), None));
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since_the_last_look() {
        let text = |low: u32, mid: u32, all: u32| {
            format!(
                "t_bucket{{shard=\"0\",le=\"1\"}} {low}\nt_bucket{{shard=\"0\",le=\"3\"}} {mid}\n\
                 t_bucket{{shard=\"0\",le=\"+Inf\"}} {all}"
            )
        };
        let quantile = |before: &str, now: &str, share| {
            let (before, now) = looks(before, now);
            rows(Looks { before: Some(&before), now: &now }, "t", &["shard"], "le")
                [&vec!["0".to_owned()]]
                .quantile("t", share)
        };
        // Ten more up to 1, ten more up to 3.
        assert_eq!(quantile(&text(100, 100, 100), &text(110, 120, 120), 0.5), Some(1.0));
        assert_eq!(quantile(&text(100, 100, 100), &text(110, 120, 120), 0.75), Some(2.0));
        assert_eq!(quantile(&text(100, 100, 100), &text(110, 120, 120), 1.0), Some(3.0));
        // What is longer than all bounds is at least as long as the last.
        assert_eq!(quantile(&text(0, 0, 0), &text(0, 0, 5), 0.5), Some(3.0));
        // Nothing new, or begun anew: all of it.
        assert_eq!(quantile(&text(0, 10, 10), &text(0, 10, 10), 0.5), Some(2.0));
        assert_eq!(quantile(&text(50, 60, 60), &text(0, 10, 10), 0.5), Some(2.0));
        assert_eq!(quantile(&text(0, 0, 0), &text(0, 0, 0), 0.5), None);
    }
}
