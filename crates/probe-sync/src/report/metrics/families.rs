//! Registration of metrics: types, units, buckets and labels.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Label names and values.
pub(super) type Labels = Vec<(&'static str, Arc<str>)>;
/// A count that only grows.
pub(super) type Count = Counter;
/// A value that goes up and down.
pub(super) type Value = Gauge<f64, AtomicU64>;
/// One metric with many label sets.
pub(super) type Families<M> = Family<Labels, M>;
/// Histograms with equal buckets.
pub(super) type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Creates labels from names and values.
pub(super) fn labels(pairs: &[(&'static str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| (*name, Arc::from(*value))).collect()
}

pub(super) fn count(registry: &mut Registry, name: &str, help: &str) -> Count {
    let metric = Count::default();
    registry.register(name, help, metric.clone());
    metric
}

pub(super) fn byte_count(registry: &mut Registry, name: &str, help: &str) -> Count {
    let metric = Count::default();
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

pub(super) fn counts(registry: &mut Registry, name: &str, help: &str) -> Families<Count> {
    let metric = Families::<Count>::default();
    registry.register(name, help, metric.clone());
    metric
}

pub(super) fn byte_counts(registry: &mut Registry, name: &str, help: &str) -> Families<Count> {
    let metric = Families::<Count>::default();
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

pub(super) fn value(registry: &mut Registry, name: &str, help: &str) -> Value {
    let metric = Value::default();
    registry.register(name, help, metric.clone());
    metric
}

pub(super) fn values(registry: &mut Registry, name: &str, help: &str) -> Families<Value> {
    let metric = Families::<Value>::default();
    registry.register(name, help, metric.clone());
    metric
}

pub(super) fn seconds(registry: &mut Registry, name: &str, help: &str) -> Value {
    let metric = Value::default();
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

pub(super) fn bytes(registry: &mut Registry, name: &str, help: &str) -> Value {
    let metric = Value::default();
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

pub(super) fn seconds_by(registry: &mut Registry, name: &str, help: &str) -> Families<Value> {
    let metric = Families::<Value>::default();
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// Registers histograms of durations, which may have labels.
pub(super) fn durations(registry: &mut Registry, name: &str, help: &str) -> Histograms {
    let metric = Histograms::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// Registers one histogram of durations.
pub(super) fn duration(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let metric = Histogram::new(DURATION_BUCKETS);
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// Registers histograms of message sizes.
pub(super) fn sizes(registry: &mut Registry, name: &str, help: &str) -> Histograms {
    let metric = Histograms::new_with_constructor(|| Histogram::new(SIZE_BUCKETS));
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

/// Buckets from a message on loopback to waiting for a rank, s.
const DURATION_BUCKETS: [f64; 13] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0];
/// Buckets from two nodes to some thousand, bytes.
const SIZE_BUCKETS: [f64; 9] =
    [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
