//! Writes of many extensions at rest.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::PostParams;
use olm_api::conditions::{self, types};
use olm_api::{ClusterExtension, annotations};
use olm_servers::{Bundle, Call, Catalog, PATIENCE, ServerFixture, extension};
use serde_json::json;

use crate::{launch, start};

const EXTENSIONS: usize = 60;
/// Number of extensions with an upgrade that waits for an approval.
const WAITING: usize = 20;
const FLAGS: [&str; 1] = ["--feature-gates=UpdateNotifications=true,StatusSummary=true"];
/// Duration without writes. Longer than the poll intervals.
const SILENCE: Duration = Duration::from_secs(12);
/// Number of extensions that are handled at a time.
const PARALLEL: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_extensions_write_nothing_at_rest() {
    let servers = start().await;
    let _catalogd = servers.start_catalogd().await.unwrap();
    let publish = |version: &str| {
        servers.publish(&Bundle::new("rest", version).config_map("rest", &[("version", version)])).unwrap()
    };
    let bundles = ["1.0.0", "1.0.1"].map(publish);
    servers.serve("rest", &Catalog::default().chain(&bundles[..1])).await.unwrap();
    let _controller = launch(&servers, &[], &FLAGS).await;
    let install = async |index: usize| install(&servers, index).await;
    stream::iter(0..EXTENSIONS).for_each_concurrent(PARALLEL, install).await;
    servers.serve("rest", &Catalog::default().chain(&bundles)).await.unwrap();
    for index in 0..EXTENSIONS {
        let name = name(index);
        if index < WAITING {
            servers.until(&name, "waits for an approval", waits).await.unwrap();
        } else {
            servers.until_installed(&name, "1.0.1").await.unwrap();
        }
    }
    // Archiving of the previous revisions.
    servers.proxy.wait_until_quiet(Duration::from_secs(3), PATIENCE).await.unwrap();
    let writes = servers.proxy.mutations_within(SILENCE).await;
    let lines: Vec<String> = writes.iter().filter(|call| !call.is_event()).map(Call::line).collect();
    assert!(lines.is_empty(), "writes at rest:\n{}", lines.join("\n"));
}

fn name(index: usize) -> String {
    format!("rest-{index:03}")
}

/// Installs the package into a namespace of its own.
async fn install(servers: &ServerFixture, index: usize) {
    let name = name(index);
    servers.create_namespace(&name).await.unwrap();
    let mut object = extension(&name, &name, "rest", None);
    if index < WAITING {
        object["metadata"]["annotations"] = json!({annotations::EXT_APPROVAL: "ManualUpgrades"});
    }
    let object: ClusterExtension = serde_json::from_value(object).unwrap();
    servers.extensions().create(&PostParams::default(), &object).await.unwrap();
    servers.until_installed(&name, "1.0.0").await.unwrap();
}

fn waits(extension: &ClusterExtension) -> bool {
    let conditions = extension.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions::find(conditions, types::UPGRADE_AVAILABLE)
        .is_some_and(|condition| condition.reason == "ApprovalRequired")
}
