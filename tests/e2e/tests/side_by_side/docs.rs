//! Runs the commands of each document of `docs/` and compares their output with the document.
//!
//! Documents that change the servers run alone, in `zz_manuals.rs`.

use anyhow::{Result, ensure};
use olm_e2e::follow;

/// Defines a test per document.
macro_rules! follow {
    ($($test:ident $path:literal)*) => {
        const FOLLOWED: &[&str] = &[$($path),*];
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() -> Result<()> {
            follow(&format!("doc-{}", stringify!($test).replace('_', "-")), &olm_docs::document($path)?).await
        })*
    };
}

follow! {
    bundles "authors/bundles.md"
    catalogs "authors/catalogs.md"
    channels "authors/channels.md"
    ci "authors/ci.md"
    deprecate "authors/deprecate.md"
    first_operator "authors/first-operator.md"
    publish "authors/publish.md"
    releases "authors/releases.md"
    concepts "concepts.md"
    bundle_files "reference/bundle-files.md"
    catalog_files "reference/catalog-files.md"
    conditions "reference/conditions.md"
    flags "reference/flags.md"
    metrics "reference/metrics.md"
    switching "switching.md"
    approve "tasks/approve.md"
    cluster_upgrade "tasks/cluster-upgrade.md"
    configure "tasks/configure.md"
    delegate "tasks/delegate.md"
    gitops "tasks/gitops.md"
    operator_conditions "tasks/operator-conditions.md"
    pin "tasks/pin.md"
    private_registry "tasks/private-registry.md"
    resolve "tasks/resolve.md"
    rights "tasks/rights.md"
    roll_back "tasks/roll-back.md"
    share_crds "tasks/share-crds.md"
    support "tasks/support.md"
    traces "tasks/traces.md"
    upgrade "tasks/upgrade.md"
    use_operators "tasks/use-operators.md"
    troubleshooting "troubleshooting.md"
}

#[test]
fn all_documents_with_commands_have_a_test() -> Result<()> {
    let mut here = Vec::new();
    for document in olm_docs::documents()? {
        let script = document.script()?;
        if !script.steps.is_empty() && !script.runs_alone() {
            here.push(document.path);
        }
    }
    ensure!(here == FOLLOWED, "documents with commands: {here:?}");
    Ok(())
}
