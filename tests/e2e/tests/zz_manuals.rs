//! Documents whose commands change the servers: they are removed, installed again and given mirrors, one after the other.
//!
//! They run when all other tests are done; the file's name sorts last.

use anyhow::{Result, ensure};
use olm_e2e::follow;

/// In the order in which they follow each other on a cluster.
const DOCUMENTS: [(&str, &str); 3] = [
    ("doc-remove", "tasks/uninstall.md"),
    ("doc-install", "tasks/install.md"),
    ("doc-air-gap", "tasks/air-gap.md"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_are_removed_installed_and_cut_off() -> Result<()> {
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
        println!("skipped: nothing is removed from somebody's cluster");
        return Ok(());
    }
    for (test, path) in DOCUMENTS {
        follow(test, &olm_docs::document(path)?).await?;
    }
    Ok(())
}
