//! Pages without a cluster, checked by axe-core. The other tests check their own pages.

use super::rig::Visit;

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_no_serious_accessibility_issue() {
    let Some(visit) = Visit::of_demo().await else { return };
    let packages = "/catalogs/demo/packages";
    for (page, path) in [
        ("list", "/".to_owned()),
        ("empty list", "/?q=nothing".to_owned()),
        ("package", format!("{packages}/tide-database")),
        ("deprecated package", format!("{packages}/relay-queue")),
        ("graph", format!("{packages}/orchard-backup/graph?installed=1.8.0&bundle=orchard-backup.v1.9.0")),
        ("install form", format!("{packages}/tide-database/install?namespace=N_S&preview=yes")),
        ("error", format!("{packages}/none")),
    ] {
        visit.open(&path).await;
        visit.assert_accessible(page).await;
    }
    visit.finish(&["status of 404"]).await;
}
