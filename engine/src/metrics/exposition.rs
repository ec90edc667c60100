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
    pub samples: Vec<(Labels, u64)>,
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
}

impl Family {
    pub fn new(
        kind: Kind,
        name: &'static str,
        help: impl Into<String>,
        samples: Vec<(Labels, u64)>,
    ) -> Family {
        Family { kind, name, help: help.into(), samples }
    }

    fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Bytes => MetricType::Gauge,
        };
        let unit = (self.kind == Kind::Bytes).then_some(Unit::Bytes);
        let mut to = to.encode_descriptor(self.name, &self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            if labels.is_empty() {
                self.encode_value(*value, &mut to)?;
            } else {
                self.encode_value(*value, &mut to.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_value(&self, value: u64, to: &mut MetricEncoder<'_>) -> fmt::Result {
        match self.kind {
            Kind::Counter => to.encode_counter::<NoLabelSet, u64, u64>(&value, None),
            Kind::Gauge | Kind::Bytes => to.encode_gauge(&value),
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

/// The text that Prometheus reads.
pub(super) fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::with_prefix("rpcrdma");
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}
