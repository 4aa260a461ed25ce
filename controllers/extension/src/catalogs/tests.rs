//! Events of ClusterCatalogs to packages, against a real catalogd.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use tokio::sync::watch;

use super::fixture::{Behavior, CacheFixture, Catalogd, NOT_FOUND, bundle, cache, files, singles, until};
use super::*;

fn unserved(mut catalog: ClusterCatalog) -> ClusterCatalog {
    for condition in &mut catalog.status.as_mut().unwrap().conditions {
        condition.status = "False".to_owned();
    }
    catalog
}

fn unavailable(mut catalog: ClusterCatalog) -> ClusterCatalog {
    let status = catalog.status.as_mut().unwrap();
    (status.resolved_source, status.urls) = (None, None);
    unserved(catalog)
}

// Case resolution-1
#[tokio::test]
async fn unserved_catalog_causes_no_request() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let mut catalog = unavailable(catalogd.publish("main", 1, &["a"]));
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    side.expect_error(&catalog, "a", "catalog \"main\" is not being served").await;
    for condition in &mut catalog.status.as_mut().unwrap().conditions {
        condition.status = "True".to_owned();
    }
    side.apply(&catalog);
    side.expect_error(&catalog, "a", "error: catalog \"main\" has a nil status.resolvedSource value").await;
    side.settled(&catalogd).await;
    assert_eq!(catalogd.requests(), [""; 0]);
}

// docs/design/resolution.md#complete-answers
#[tokio::test]
async fn requested_package_is_fetched_once() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a", "b", "a b+c/&=%"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    side.settled(&catalogd).await;
    assert_eq!(catalogd.requests(), [""; 0]);
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    assert_eq!(catalogd.requests(), singles("main", "a"));
    assert_eq!(side.package(&catalog, "none").await, Ok(None));
    assert_eq!(catalogd.requests(), singles("main", "none"));
    for _ in 0..3 {
        assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
        assert_eq!(side.package(&catalog, "none").await, Ok(None));
        // Case resolution-10
        assert_eq!(side.package(&catalog, "acme").await, Ok(None));
    }
    assert_eq!(catalogd.requests(), singles("main", "acme"));
    assert_eq!(side.package(&catalog, "a b+c/&=%").await, bundle("a b+c/&=%.v1"));
    let is_named_by_hash = |path: &PathBuf| path.file_name().unwrap().len() == 64;
    let files = files(&cache.path().join("main"));
    assert!(files.len() == 4 && files.iter().all(is_named_by_hash), "{files:?}");
}

// Case resolution-2
#[tokio::test]
async fn whole_catalog_is_fetched_once_without_single_packages() {
    for behavior in [Behavior::NoMetas, Behavior::NoDigest] {
        let (catalogd, cache) = (Catalogd::start(), cache());
        catalogd.set_behavior("main", behavior);
        let catalog = catalogd.publish("main", 1, &["a", "b"]);
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        let (a, b, none) = tokio::join!(
            side.package(&catalog, "a"),
            side.package(&catalog, "b"),
            side.package(&catalog, "none")
        );
        assert_eq!((a, b, none), (bundle("a.v1"), bundle("b.v1"), Ok(None)));
        assert_eq!(side.package(&catalog, "acme").await, Ok(None));
        side.apply(&catalog);
        side.settled(&catalogd).await;
        let requests = catalogd.requests();
        assert!(requests.len() == 2 && requests[0].starts_with("main metas?package="), "{requests:?}");
        assert_eq!(requests[1], "main all");
    }
}

// Case resolution-3
#[tokio::test]
async fn new_digest_fetches_the_requested_packages() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let first = catalogd.publish("main", 1, &["a", "b", "c"]);
    let side = CacheFixture::start(cache.path(), &[&first]);
    assert_eq!(side.package(&first, "a").await, bundle("a.v1"));
    assert_eq!(side.package(&first, "c").await, bundle("c.v1"));
    catalogd.requests();
    let announced = side.announced();

    let (release, released) = watch::channel(false);
    catalogd.set_behavior("main", Behavior::Late(released));
    let second = catalogd.publish("main", 2, &["a", "b"]);
    side.apply(&second);
    side.expect_error(&second, "a", NOT_FOUND).await;
    assert_eq!(side.announced(), announced, "no announcement before the fetch has ended");
    release.send(true).unwrap();
    until("the announcement", async || side.announced() > announced).await;
    assert_eq!(side.package(&second, "a").await, bundle("a.v2"));
    assert_eq!(side.package(&second, "c").await, Ok(None));
    let requests: BTreeSet<String> = catalogd.requests().into_iter().collect();
    let expected = [singles("main", "a"), singles("main", "c")].into_iter().flatten().collect();
    assert_eq!(requests, expected);
    // Only the current generation is on disk.
    until("the removal of the old content", async || files(cache.path()).len() == 2).await;
    // A request with the old status gets the same answer as before the new status.
    side.expect_error(&first, "a", NOT_FOUND).await;
}

#[tokio::test]
async fn new_digest_is_announced_once() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    let packages: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = catalogd.publish("main", 1, &packages);
    let side = CacheFixture::start(cache.path(), &[&first]);
    for package in &packages {
        assert!(side.package(&first, package).await.unwrap().is_some());
    }
    let announced = side.announced();
    let second = catalogd.publish("main", 2, &packages);
    side.apply(&second);
    until("the announcement", async || side.announced() > announced).await;
    catalogd.requests();
    for package in &packages {
        assert_eq!(side.package(&second, package).await, bundle(&format!("{package}.v2")));
    }
    assert_eq!(catalogd.requests(), [""; 0], "all packages were cached at the announcement");
    assert_eq!(side.announced(), announced + 1);
}

// Case resolution-7
#[tokio::test]
async fn deleted_catalog_leaves_no_files() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let [main, other] = ["main", "other"].map(|name| catalogd.publish(name, 1, &["a"]));
    let side = CacheFixture::start(cache.path(), &[&main, &other]);
    for catalog in [&main, &other] {
        assert_eq!(side.package(catalog, "a").await, bundle("a.v1"));
    }
    let announced = side.announced();
    side.delete(&main);
    until("the removal", async || files(cache.path()).len() == 1).await;
    assert!(!cache.path().join("main").exists());
    until("the announcement", async || side.announced() > announced).await;
    // It may be recreated at once.
    side.apply(&main);
    side.expect(&main, "a", "a.v1").await;
    // Deleted while the watch was broken.
    side.list(&[&other]);
    until("the removal", async || files(cache.path()).len() == 1).await;
    side.end().await;
    // Deleted while no process ran.
    fs::create_dir_all(cache.path().join(".1-0/left")).unwrap();
    let side = CacheFixture::start(cache.path(), &[&main]);
    until("the removal", async || fs::read_dir(cache.path()).unwrap().count() == 0).await;
    side.expect(&main, "a", "a.v1").await;
}

// Case resolution-8
#[tokio::test]
async fn catalog_that_returns_unchanged_causes_no_request() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    catalogd.requests();
    side.apply(&unavailable(catalog.clone()));
    side.apply(&catalog);
    side.settled(&catalogd).await;
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    assert_eq!(catalogd.requests(), [""; 0]);
}

// Case resolution-9
#[tokio::test]
async fn restart_causes_no_request() {
    for behavior in [Behavior::Normal, Behavior::NoMetas] {
        let (catalogd, cache) = (Catalogd::start(), cache());
        catalogd.set_behavior("main", behavior);
        let catalog = catalogd.publish("main", 1, &["a"]);
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
        assert_eq!(side.package(&catalog, "none").await, Ok(None));
        side.end().await;
        catalogd.requests();
        catalogd.set_behavior("main", Behavior::Status(500));
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        side.settled(&catalogd).await;
        assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
        assert_eq!(side.package(&catalog, "none").await, Ok(None));
        assert_eq!(catalogd.requests(), [""; 0]);
    }
}

// Cases resolution-11, additions-e23, additions-a36
#[tokio::test]
async fn only_changes_that_affect_resolutions_are_announced() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    side.settled(&catalogd).await;
    catalogd.requests();
    let edited = |edit: fn(&mut ClusterCatalog)| {
        let mut edited = catalog.clone();
        edit(&mut edited);
        edited
    };
    let rows = [
        (edited(|_| {}), false),
        (edited(|c| c.metadata.resource_version = Some("7".to_owned())), false),
        (edited(|c| c.status.as_mut().unwrap().conditions[0].message = "new".to_owned()), false),
        // A change of `spec.priority` or `spec.availabilityMode` increments the generation.
        (edited(|c| (c.spec.priority, c.metadata.generation) = (Some(5), Some(2))), true),
        (edited(|c| c.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into())), true),
        (unserved(catalog.clone()), true),
        (unavailable(catalog.clone()), true),
        (edited(|c| c.status = None), true),
    ];
    for (edited, is_announced) in rows {
        let before = side.announced();
        side.apply(&edited);
        side.settled(&catalogd).await;
        // `settled` announces its marker at its creation and at its deletion.
        assert_eq!(side.announced() - before - 2, u64::from(is_announced), "{edited:?}");
        side.apply(&catalog);
        side.settled(&catalogd).await;
    }
    let before = side.announced();
    side.apply(&catalogd.publish("main", 2, &["a"]));
    until("the announcement", async || side.announced() > before).await;
}

#[tokio::test]
async fn concurrent_requests_for_a_package_share_one_fetch() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let (release, released) = watch::channel(false);
    catalogd.set_behavior("main", Behavior::Late(released));
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    let all = futures::future::join_all((0..100).map(|_| side.package(&catalog, "a")));
    let release = async {
        until("a request", async || !side.catalogs.known.lock().is_empty()).await;
        release.send(true).unwrap();
    };
    let (answers, ()) = tokio::join!(all, release);
    assert!(answers.iter().all(|answer| *answer == bundle("a.v1")));
    assert_eq!(catalogd.requests(), singles("main", "a"));
    // All callers share one index.
    let [one, two] = [(); 2].map(|()| side.catalogs.package(&catalog, "a", Indexing::default()));
    assert!(Arc::ptr_eq(&one.await.unwrap().unwrap(), &two.await.unwrap().unwrap()));
}

#[tokio::test]
async fn only_the_changed_catalog_is_requested_again() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let packages: Vec<String> = (0..100).map(|number| format!("p{number:02}")).collect();
    let mut catalogs: Vec<ClusterCatalog> = (0..5)
        .map(|number| {
            let own: Vec<&str> = packages[number * 20..][..20].iter().map(String::as_str).collect();
            catalogd.publish(&format!("c{number}"), 1, &own)
        })
        .collect();
    let side = CacheFixture::start(cache.path(), &catalogs.iter().collect::<Vec<_>>());
    let resolve_all = async |catalogs: &[ClusterCatalog]| {
        let mut found = 0;
        for package in &packages {
            let asked = catalogs.iter().map(|catalog| side.package(catalog, package));
            let answers = futures::future::join_all(asked).await;
            found += answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_some()).count();
        }
        found
    };
    assert_eq!(resolve_all(&catalogs).await, 100);
    assert_eq!(catalogd.requests().len(), 1000);
    assert_eq!(resolve_all(&catalogs).await, 100);
    assert_eq!(catalogd.requests(), [""; 0]);

    let own: Vec<&str> = packages[20..40].iter().map(String::as_str).collect();
    catalogs[1] = catalogd.publish("c1", 2, &own);
    let announced = side.announced();
    side.apply(&catalogs[1]);
    until("the announcement", async || side.announced() > announced).await;
    assert_eq!(resolve_all(&catalogs).await, 100);
    let requests = catalogd.requests();
    assert_eq!(requests.len(), 200);
    assert!(requests.iter().all(|request| request.starts_with("c1 metas?")), "{requests:?}");
    assert_eq!(side.package(&catalogs[1], "p20").await, bundle("p20.v2"));
}

#[tokio::test]
async fn unrequested_package_is_dropped_from_memory() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    let wide = Indexing { properties: true, ..Indexing::default() };
    let get = async |indexing| side.catalogs.package(&catalog, "a", indexing).await.unwrap().unwrap();
    // The first fetch can take longer than the patience of a request.
    side.package(&catalog, "a").await.unwrap();
    let first = get(Indexing::default()).await;
    let second = get(wide).await;
    assert!(!Arc::ptr_eq(&first, &second), "the wider request needs another index");
    assert!(Arc::ptr_eq(&second, &get(Indexing::default()).await), "it serves both requests");
    let generation = Arc::clone(&side.catalogs.known.lock()["main"]);
    drop(first);
    generation.forget_unrequested();
    assert_eq!(Arc::strong_count(&second), 2);
    generation.forget_unrequested();
    assert_eq!(Arc::strong_count(&second), 1);
    catalogd.requests();
    assert_eq!(get(wide).await.offers().count(), 1);
    assert_eq!(catalogd.requests(), [""; 0]);
}

/// A real catalog yields the same packages from single requests and as a whole.
#[tokio::test]
async fn real_content_is_equal_as_packages_and_as_a_whole() {
    let Some(data) = olm_require::field_data() else { return };
    let folder = data.join("catalogs/community-v4.20");
    let (catalogd, cache) = (Catalogd::start(), cache());
    catalogd.set_behavior("whole", Behavior::NoMetas);
    let [singles, whole] = ["singles", "whole"].map(|name| catalogd.publish_folder(name, 1, &folder));
    let side = CacheFixture::start(cache.path(), &[&singles, &whole]);
    let list = format!("http://{}/catalogs/singles/api/v1/metas?schema=olm.package", catalogd.address);
    let list = side.catalogs.pool.client().get(list).send().await.unwrap().text().await.unwrap();
    let mut count = 0;
    for line in list.lines() {
        let package = serde_json::from_str::<serde_json::Value>(line).unwrap();
        let package = package["name"].as_str().unwrap();
        let get = async |catalog| {
            let index = side.catalogs.package(catalog, package, Indexing::default()).await;
            index.unwrap().map(|index| format!("{index:?}"))
        };
        let found = get(&singles).await;
        assert!(found.is_some(), "{package}");
        assert_eq!(found, get(&whole).await, "{package}");
        count += 1;
    }
    assert!(count > 30, "{count}");
    assert_eq!(catalogd.requests().len(), 1 + 2 * count + 2);
}
