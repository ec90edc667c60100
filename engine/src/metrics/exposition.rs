//! The exposition: families of samples in the text format of OpenMetrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// The labels of a sample, by name.
pub(super) type Labels = Vec<(&'static str, String)>;

/// All samples of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub kind: Kind,
    /// Without the prefix `rpcrdma_`, the unit, and the suffix `_total` of counters.
    pub name: &'static str,
    pub help: String,
    pub samples: Vec<(Labels, Value)>,
}

/// The value of a sample.
#[derive(Debug)]
pub(super) enum Value {
    Number(u64),
    Times(Times),
}

/// A distribution of times.
#[derive(Debug)]
pub(super) struct Times {
    pub count: u64,
    /// Seconds, of all of them together.
    pub sum: f64,
    /// How many are longer than the bound before and at most this one, in seconds. The last bound
    /// is infinite.
    pub buckets: Vec<(f64, u64)>,
}

/// What the samples of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A gauge of bytes.
    Bytes,
    /// Distributions of times, in seconds.
    Seconds,
}

impl Family {
    pub fn new(
        kind: Kind,
        name: &'static str,
        help: impl Into<String>,
        samples: Vec<(Labels, u64)>,
    ) -> Family {
        let number = |(labels, number)| (labels, Value::Number(number));
        Family { kind, name, help: help.into(), samples: samples.into_iter().map(number).collect() }
    }

    fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Bytes => MetricType::Gauge,
            Kind::Seconds => MetricType::Histogram,
        };
        let unit = match self.kind {
            Kind::Counter | Kind::Gauge => None,
            Kind::Bytes => Some(Unit::Bytes),
            Kind::Seconds => Some(Unit::Seconds),
        };
        let mut to = to.encode_descriptor(self.name, &self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            if labels.is_empty() {
                self.encode_value(value, &mut to)?;
            } else {
                self.encode_value(value, &mut to.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_value(&self, value: &Value, to: &mut MetricEncoder<'_>) -> fmt::Result {
        match value {
            Value::Times(Times { count, sum, buckets }) => {
                to.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
            Value::Number(value) if self.kind == Kind::Counter => {
                to.encode_counter::<NoLabelSet, u64, u64>(value, None)
            }
            Value::Number(value) => to.encode_gauge(value),
        }
    }
}

/// All families of a scrape.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

/// The text that Prometheus reads. Families without samples are not in it.
pub(super) fn text(mut families: Vec<Family>) -> String {
    families.retain(|family| !family.samples.is_empty());
    let mut registry = Registry::with_prefix("rpcrdma");
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}
