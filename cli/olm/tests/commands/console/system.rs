//! Catalogs, the cluster, rights, and the search on every page.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, ClusterExtension};
use serde_json::{Value, json};

use super::browser::Screen;
use super::rig::Visit;
use crate::changing::fixture::{Fixture, condition};
use crate::revisions::fixture::Fixture as Plain;

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_are_shown_refreshed_and_added() {
    let fixture = Fixture::start(&[]).await;
    let catalogs: Api<ClusterCatalog> = Api::all(fixture.client());
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    browser.click("nav a[href='/catalogs']").await;
    visit.until_at("/catalogs").await;
    let card = browser.texts(".card").await.remove(0);
    for part in ["hub", "✓ Served", "r.example/hub:v1", "sha256:aaaaaaaaaaaa…", "only on request"] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert_eq!(browser.texts(".identity span").await[0], "main");
    visit.assert_accessible("catalogs").await;
    browser.click("form[action='/catalogs/hub/refresh'] button").await;
    visit.until_at("/catalogs?refreshed=hub").await;
    let hub = catalogs.get("hub").await.unwrap();
    assert!(
        hub.metadata.annotations.unwrap().contains_key("ext.olm.operatorframework.io/refresh-requested-at")
    );

    browser.click("a[href='/catalogs/add']").await;
    visit.until_at("/catalogs/add").await;
    browser.click("#name").await;
    browser.keys("extra").await;
    browser.click("#image").await;
    browser.keys("no image").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('.notice.bad')").await;
    assert!(browser.texts("[data-apply]").await.is_empty(), "the API server refuses the image");
    visit.open("/catalogs/add?name=extra&image=r.example%2Fextra:v1&priority=7&preview=yes").await;
    assert!(browser.texts("#manifest").await[0].contains("priority: 7"));
    assert!(catalogs.get_opt("extra").await.unwrap().is_none(), "only a preview");
    visit.assert_accessible("new catalog").await;
    browser.run("document.querySelector('[name=priority][type=hidden]').value = '8'", json!([])).await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('.notice.bad')").await;
    assert!(browser.texts(".notice.bad").await[0].starts_with("The form has changed"));
    assert!(catalogs.get_opt("extra").await.unwrap().is_none());
    browser.click("[data-apply]").await;
    visit.until_at("/catalogs").await;
    assert_eq!(catalogs.get("extra").await.unwrap().spec.priority, Some(8));
    visit.finish(&["status of 409"]).await;
    read_only_console_changes_no_catalog(&fixture).await;
}

async fn read_only_console_changes_no_catalog(fixture: &Fixture) {
    let command = fixture.command(&["console", "--no-open", "--read-only"]);
    let Some(visit) = Visit::begin(command).await else { return };
    visit.open("/catalogs").await;
    assert_eq!(
        visit.browser.value("document.querySelectorAll('main form, main .button:not(.quiet)').length").await,
        0
    );
    visit.open("/catalogs/add?name=extra2&image=r.example%2Fextra:v1&preview=yes").await;
    assert!(visit.browser.texts("[data-apply]").await.is_empty());
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_shows_verdict_and_findings() {
    let fixture = Fixture::start(&[]).await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    browser.click("nav a[href='/cluster']").await;
    visit.until_at("/cluster").await;
    let text = browser.texts("main").await.remove(0);
    assert!(text.contains("Upgrade of Kubernetes ") && text.contains("✓ allowed"), "{text}");
    visit.assert_accessible("cluster").await;
    browser.click("a[href='/cluster/findings']").await;
    visit.until_at("/cluster/findings").await;
    // Nothing runs on this cluster.
    let findings = browser.texts(".finding").await.join("\n");
    assert!(findings.contains("error") && findings.contains("What to do."), "{findings}");
    visit.assert_accessible("findings").await;
    browser.keys("/").await;
    browser.keys(&format!("shade{}", super::browser::key::ENTER)).await;
    visit.until_at("/find?q=shade").await;
    assert!(browser.texts("main li").await.iter().any(|found| found.contains("shade")));
    visit.assert_accessible("search").await;
    visit.finish(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_sees_missing_permissions_and_the_role_that_gives_them() {
    let fixture = Plain::start().await;
    fixture.allow("viewer", &["olm.operatorframework.io/*"]).await;
    let command = fixture.command_as("viewer", &["console", "--no-open", "--catalog", "catalog"]);
    let Some(visit) = Visit::begin(command).await else { return };
    let browser = &visit.browser;
    assert_eq!(browser.texts(".identity span").await[1], "viewer");
    visit.open("/rights?namespace=pipe-system").await;
    let rows = browser.texts("#tasks tbody tr").await;
    assert!(
        rows[0].contains("✓ may") && rows.iter().any(|row| row.starts_with("Uninstall✕ may not")),
        "{rows:?}"
    );
    let role = browser.texts("#role").await.remove(0);
    for part in ["kind: ClusterRoleBinding", "kind: RoleBinding", "name: viewer", "- pods/log", "- delete"] {
        assert!(role.contains(part), "{part}: {role}");
    }
    visit.assert_accessible("rights").await;
    visit.finish(&[]).await;
}

/// Extensions of which every tenth fails and every 25th waits.
async fn add_extensions(fixture: &Fixture, count: usize) {
    let api = fixture.extensions();
    for number in 0..count {
        let name = format!("team-{number:03}-operator");
        let spec = json!({"namespace": format!("team-{number:03}"), "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe", "channels": ["stable"]}}});
        let object: ClusterExtension =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        let (reason, message) = match number % 10 {
            0 => (
                "Retrying",
                "error for resolved bundle \"pipe.v1.0.0\" with version \"1.0.0\": unpacking image: 401 Unauthorized",
            ),
            _ => ("Succeeded", "Desired state reached"),
        };
        let mut conditions = vec![
            condition("Installed", "True", "Succeeded", "Installed bundle successfully", 1),
            condition("Progressing", "True", reason, message, 1),
        ];
        if number % 25 == 1 {
            let waits = "bundle pipe.v1.1.0 version 1.1.0 is available; plan sha256:0: 1 object; x";
            conditions.push(condition("UpgradeAvailable", "True", "ApprovalRequired", waits, 1));
        }
        let status = json!({"status": {"conditions": conditions, "install": {"bundle": {"name": "pipe.v1.0.0", "version": "1.0.0"}}}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_500_extensions_is_small_fast_and_filtered() {
    let fixture = Fixture::start(&[]).await;
    add_extensions(&fixture, 500).await;
    let Some(visit) = Visit::begin(fixture.command(&["console", "--no-open"])).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions").await;
    let entry = browser.value("performance.getEntriesByType('navigation')[0].toJSON()").await;
    let (size, time) = (entry["encodedBodySize"].as_u64().unwrap(), entry["responseEnd"].as_f64().unwrap());
    println!("500 extensions: {size} bytes compressed, {time} ms");
    assert!(size <= 60_000, "{size} bytes");
    let rows = "document.querySelectorAll('#extensions tbody tr').length";
    assert_eq!(browser.value(rows).await, 500);
    let chips = browser.texts(".chips a").await;
    assert_eq!(chips, ["All 500", "Failing 50", "Waiting 20", "In progress 0", "Healthy 430"]);
    let first = browser.texts("#extensions tbody tr:first-child").await.remove(0);
    assert!(first.contains("team-000-operator") && first.contains("401 Unauthorized"), "{first}");
    browser.click(".chips a:nth-child(2)").await;
    visit.until_at("/extensions?state=failing").await;
    assert_eq!(browser.value(rows).await, 50);
    browser.click("#q").await;
    browser.keys("team-13").await;
    browser.until(&format!("{rows} === 1")).await;
    visit.until_at("/extensions?q=team-13&state=failing").await;
    visit.open("/extensions?sort=name").await;
    browser.click("th a[href*='name']").await;
    visit.until_at("/extensions?sort=%2Dname").await;
    assert!(browser.texts("#extensions tbody tr:first-child").await[0].contains("team-499-operator"));
    let sticky = "getComputedStyle(document.querySelector('#extensions thead th')).position";
    assert_eq!(browser.value(sticky).await, "sticky");
    visit.open("/extensions").await;
    visit.assert_accessible("500 extensions").await;
    browser.screen(Screen::Narrow).await;
    let top = browser
        .value("document.querySelector('#extensions tbody tr .badge').getBoundingClientRect().top")
        .await;
    assert!(top.as_f64().unwrap() < 3000.0, "health of the first extension is at {top}");
    let entry: Value = browser.value("document.querySelectorAll('.badge').length").await;
    assert!(entry.as_u64() > Some(0));
    visit.finish(&[]).await;
}
