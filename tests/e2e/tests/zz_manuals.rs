//! Documents whose commands change the servers: removal, installation and mirrors, one after the other.
//!
//! They run after all other tests. The file's name sorts last.

use anyhow::{Result, ensure};
use olm_e2e::follow;
use olm_require::Need;

/// In the required order.
const DOCUMENTS: [(&str, &str); 3] = [
    ("doc-remove", "tasks/uninstall.md"),
    ("doc-install", "tasks/install.md"),
    ("doc-air-gap", "tasks/air-gap.md"),
];

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_change_the_servers_work_in_sequence() -> Result<()> {
    let mut those = Vec::new();
    for document in olm_docs::documents()? {
        if document.script()?.runs_alone() {
            those.push(document.path);
        }
    }
    those.sort();
    let mut here = DOCUMENTS.map(|(_, path)| path);
    here.sort_unstable();
    ensure!(those == here, "documents that change the servers: {those:?}");
    if std::env::var("OLM_USE_CLUSTER").is_ok_and(|value| value == "1") {
        olm_require::report(Need::Cluster, "the test removes OLM, which requires a test cluster");
        return Ok(());
    }
    for (test, path) in DOCUMENTS {
        follow(test, &olm_docs::document(path)?).await?;
    }
    Ok(())
}
