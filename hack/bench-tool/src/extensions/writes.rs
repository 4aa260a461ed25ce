//! Write requests counted by the API server.

use anyhow::Result;
use kube::Client;

/// Number of mutating requests since the start of the API server, without Leases.
pub(super) async fn count(client: Client) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(sum(&client.request_text(request).await?))
}

fn sum(metrics: &str) -> f64 {
    const CHANGES: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
    let counted = metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{"));
    let parts = counted.filter_map(|line| line.rsplit_once("} "));
    let changes = parts.filter(|(labels, _)| {
        let is_change = CHANGES.iter().any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
        is_change && !labels.contains("resource=\"leases\"")
    });
    changes.filter_map(|(_, value)| value.trim().parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_counts_mutating_requests_without_leases() {
        let metrics = "# TYPE apiserver_request_total counter
apiserver_request_total{code=\"200\",resource=\"configmaps\",verb=\"GET\"} 40
apiserver_request_total{code=\"200\",resource=\"configmaps\",verb=\"PATCH\"} 3
apiserver_request_total{code=\"201\",resource=\"events\",verb=\"POST\"} 2
apiserver_request_total{code=\"200\",resource=\"leases\",verb=\"PUT\"} 17
apiserver_request_terminations_total{verb=\"POST\"} 5
";
        assert_eq!(sum(metrics), 5.0);
    }
}
