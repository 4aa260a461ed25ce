//! Process metrics from `/proc/self`, read at each scrape (docs/design/operations.md#metric-names).

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;

use crate::component::{COMMIT, VERSION};
use crate::samples::gauges;

/// Clock ticks per second in `/proc`, constant in the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Metrics of this process. Values that cannot be read are omitted.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let status = fs::read_to_string("/proc/self/status").ok();
        if let Some(seconds) = stat.as_deref().and_then(cpu_seconds) {
            let metric = ConstCounter::new(seconds);
            let help = "User and system CPU time in seconds";
            let kind = metric.metric_type();
            metric.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;
        }
        let memory = |field| status.as_deref().and_then(|text| kilobytes(text, field));
        let values = [
            ("process_resident_memory_bytes", "Resident memory in bytes", memory("VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory in bytes", memory("VmSize:")),
            ("process_open_fds", "Open file descriptors", open_files()),
            ("process_max_fds", "Most open file descriptors", most_files()),
            (
                "process_start_time_seconds",
                "Start time since the Unix epoch in seconds",
                stat.as_deref().and_then(start_time),
            ),
        ];
        for (name, help, value) in values {
            if let Some(value) = value {
                gauges(&mut encoder, name, help, [([], value)])?;
            }
        }
        let labels = [("version", VERSION.to_owned()), ("commit", COMMIT.to_owned())];
        gauges(&mut encoder, "olm_build_info", "1, with version and commit of the program", [(labels, 1.0)])
    }
}

/// Field `number` (from 1, as in the manual page) of `/proc/self/stat`. The command name may contain blanks.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_time(stat: &str) -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat_field(stat, 22)? / TICKS_PER_SECOND)
}

fn kilobytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let number: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024.0)
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn most_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_and_status_fields_are_parsed() {
        let stat = "1 (a b) c) S 0 1 1 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 9 0 777 1 1";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(stat_field(stat, 22), Some(777.0));
        assert_eq!(stat_field("", 22), None);
        assert_eq!(kilobytes("VmSize:\t 3 kB\nVmRSS:\t  2 kB\n", "VmRSS:"), Some(2048.0));
    }
}
