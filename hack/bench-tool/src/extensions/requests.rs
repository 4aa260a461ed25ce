//! Requests counted by the API server.

use std::ops::Sub;

use anyhow::Result;
use kube::Client;

/// Verbs of metrics of the API server.
const WRITES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
const READS: [&str; 3] = ["GET", "LIST", "WATCH"];

/// Requests since the start of the API server, without those for Leases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Requests {
    pub(super) writes: f64,
    /// Without those for extensions, which the measurement reads, too.
    pub(super) reads: f64,
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { writes: self.writes - before.writes, reads: self.reads - before.reads }
    }
}

pub(super) async fn count(client: Client) -> Result<Requests> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(of_metrics(&client.request_text(request).await?))
}

fn of_metrics(metrics: &str) -> Requests {
    let counted = metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{"));
    let mut requests = Requests { writes: 0.0, reads: 0.0 };
    for (labels, value) in counted.filter_map(|line| line.rsplit_once("} ")) {
        let has_verb = |verb: &&str| labels.contains(&format!("verb=\"{verb}\""));
        let is_for = |resource: &str| labels.contains(&format!(",resource=\"{resource}\""));
        let number = value.trim().parse().unwrap_or(0.0);
        if is_for("leases") {
            continue;
        } else if WRITES.iter().any(has_verb) {
            requests.writes += number;
        } else if READS.iter().any(has_verb) && !is_for("") && !is_for("clusterextensions") {
            requests.reads += number;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_without_leases_and_own_reads() {
        let metrics = "# TYPE apiserver_request_total counter
apiserver_request_total{code=\"200\",resource=\"configmaps\",subresource=\"\",verb=\"GET\"} 40
apiserver_request_total{code=\"200\",resource=\"clusterextensions\",verb=\"LIST\"} 4
apiserver_request_total{code=\"200\",resource=\"\",subresource=\"/metrics\",verb=\"GET\"} 7
apiserver_request_total{code=\"200\",resource=\"configmaps\",verb=\"PATCH\"} 3
apiserver_request_total{code=\"201\",resource=\"events\",verb=\"POST\"} 2
apiserver_request_total{code=\"200\",resource=\"leases\",verb=\"PUT\"} 17
apiserver_request_terminations_total{verb=\"POST\"} 5
";
        assert_eq!(of_metrics(metrics), Requests { writes: 5.0, reads: 40.0 });
    }
}
