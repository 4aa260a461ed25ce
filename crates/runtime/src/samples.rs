//! Metric families whose samples are computed at each scrape, so that no series has to be removed with its object.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Label names and values of one series.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// Writes a gauge with its series. A family without series is written without samples.
///
/// # Errors
/// The exposition cannot be written.
pub fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (Labels<N>, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let write = |mut one: MetricEncoder<'_>, value: f64| {
        if value.fract() == 0.0 { one.encode_gauge(&(value as i64)) } else { one.encode_gauge(&value) }
    };
    for (labels, value) in series {
        if N == 0 {
            write(family, value)?;
            return Ok(());
        }
        write(family.encode_family(&labels)?, value)?;
    }
    Ok(())
}

/// Writes a counter, as [`gauges`] does a gauge. `_total` is appended to its name.
///
/// # Errors
/// The exposition cannot be written.
pub fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (Labels<N>, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in series {
        if N == 0 {
            return family.encode_counter::<NoLabelSet, u64, u64>(&value, None);
        }
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
    }
    Ok(())
}
