//! Faults between catalogd and a package: catalogd, its answers, the disk.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::core::Status;
use kube::runtime::watcher;
use olm_api::ClusterCatalog;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::fixture::{Behavior, CacheFixture, Catalogd, NOT_FOUND, bundle, cache, files, singles, until};

// Case resolution-4
#[tokio::test]
async fn unserved_content_is_requested_until_served() {
    for code in [404, 503] {
        let (catalogd, cache) = (Catalogd::start(), cache());
        catalogd.set_behavior("main", Behavior::Status(code));
        let catalog = catalogd.publish("main", 1, &["a"]);
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        side.expect_error(&catalog, "a", NOT_FOUND).await;
        let mut all = Vec::new();
        until("another attempt", async || {
            all.extend(catalogd.requests());
            all.len() > 4
        })
        .await;
        assert_eq!(side.ask(&catalog, "a").await.unwrap_err().to_string(), NOT_FOUND);
        assert_eq!(all.contains(&"main all".to_owned()), code == 404, "{all:?}");
        let announced = side.announced();
        catalogd.set_behavior("main", Behavior::Normal);
        until("the announcement", async || side.announced() > announced).await;
        // Missing content does not prove that catalogd serves no single packages, unless the content appeared
        // between the two requests of an attempt.
        let is_whole = catalogd.requests().last().is_some_and(|request| request == "main all");
        assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
        assert_eq!(side.package(&catalog, "b").await, Ok(None));
        let expected = if is_whole { Vec::new() } else { singles("main", "b").to_vec() };
        assert_eq!(catalogd.requests(), expected);
    }
}

// Case resolution-5
#[tokio::test]
async fn unreachable_catalogd_is_reported_until_it_returns() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a", "b"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    catalogd.requests();
    let address = catalogd.address;
    let restart = catalogd.stop().await;
    let text = format!(
        "error retrieving cache for catalog \"main\": error performing request: Get \"http://{address}/catalogs/main/api/v1/metas\": "
    );
    side.expect_error(&catalog, "b", &text).await;
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"), "the cached package remains available");
    let error = side.package(&catalog, "c").await.unwrap_err();
    assert_eq!(Err(error), side.package(&catalog, "b").await, "all packages report the same cause");
    let announced = side.announced();
    let catalogd = restart();
    until("the announcement", async || side.announced() > announced).await;
    side.expect(&catalog, "b", "b.v1").await;
    until("the other package", async || side.package(&catalog, "c").await == Ok(None)).await;
    assert_eq!(catalogd.requests().len(), 4);
}

// Case resolution-6
#[tokio::test]
async fn invalid_content_is_reported_and_old_content_is_not_used() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let first = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&first]);
    assert_eq!(side.package(&first, "a").await, bundle("a.v1"));
    let announced = side.announced();
    catalogd.set_behavior("main", Behavior::Body("{\"schema\":"));
    let second = catalogd.publish("main", 2, &["a"]);
    side.apply(&second);
    let text = "error retrieving cache for catalog \"main\": error parsing catalog contents: ";
    side.expect_error(&second, "a", text).await;
    until("the announcement", async || side.announced() > announced).await;
    catalogd.set_behavior("main", Behavior::Normal);
    side.expect(&second, "a", "a.v2").await;
}

// docs/design/resolution.md#complete-answers
#[tokio::test]
async fn truncated_answer_is_rejected() {
    for without_metas in [false, true] {
        let (catalogd, cache) = (Catalogd::start(), cache());
        let catalog = catalogd.publish("main", 1, &["a", "b"]);
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        if without_metas {
            catalogd.set_behavior("main", Behavior::NoMetas);
            assert_eq!(side.package(&catalog, "b").await, bundle("b.v1"));
            side.apply(&catalogd.publish("main", 2, &["a", "b"]));
        }
        catalogd.set_behavior("main", Behavior::Half);
        let catalog = catalogd.publish("main", 3, &["a", "b"]);
        side.apply(&catalog);
        side.expect_error(&catalog, "a", "error parsing catalog contents: ").await;
        catalogd.set_behavior("main", Behavior::Normal);
        side.expect(&catalog, "a", "a.v3").await;
    }
}

/// Server that answers every request with this text, and counts the requests.
async fn server_with(text: String) -> (SocketAddr, Arc<AtomicUsize>, AbortOnDropHandle<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = connection.read(&mut [0; 4096]).await;
            let _ = connection.write_all(text.as_bytes()).await;
        }
    });
    (address, count, AbortOnDropHandle::new(server))
}

fn set_base(catalog: &mut ClusterCatalog, base: String) {
    catalog.status.as_mut().unwrap().urls.as_mut().unwrap().base = base;
}

// docs/design/resolution.md#complete-answers: a connection that only ends may have been cut between two objects.
#[tokio::test]
async fn answer_without_length_or_chunks_is_rejected() {
    let text = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"schema\":\"olm.package\",\"name\":\"a\"}\n";
    let (address, _, _server) = server_with(text.to_owned()).await;
    let (catalogd, cache) = (Catalogd::start(), cache());
    let mut catalog = catalogd.catalog("main", "r.example/main@sha256:1");
    set_base(&mut catalog, format!("http://{address}/catalogs/main"));
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    side.expect_error(&catalog, "a", "the response has neither Content-Length nor chunked encoding").await;
}

// docs/design/resolution.md#address-of-catalogd
#[tokio::test]
async fn status_leads_to_no_other_host_and_answers_to_no_redirect() {
    let (other, requests, _server) =
        server_with("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()).await;
    let (catalogd, cache) = (Catalogd::start(), cache());
    let side = CacheFixture::start(cache.path(), &[]);
    for base in [
        format!("http://localhost:{}/catalogs/main", other.port()),
        format!("https://127.0.0.1:{}/catalogs/main", other.port()),
        format!("http://127.0.0.1@localhost:{}/catalogs/main", other.port()),
    ] {
        let mut catalog = catalogd.catalog("main", "r.example/main@sha256:1");
        set_base(&mut catalog, base.clone());
        side.apply(&catalog);
        side.expect_error(&catalog, "a", "is not an https address of http://127.0.0.1; --catalogd-hosts")
            .await;
        side.delete(&catalog);
        side.settled(&catalogd).await;
    }
    let redirect = format!("HTTP/1.1 302 Found\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n");
    let (redirecting, redirected, _server) = server_with(redirect).await;
    let mut catalog = catalogd.catalog("main", "r.example/main@sha256:1");
    set_base(&mut catalog, format!("http://{redirecting}/catalogs/main"));
    side.apply(&catalog);
    let answered = async || {
        let _ = side.ask(&catalog, "a").await;
        redirected.load(Ordering::Relaxed) > 3
    };
    until("an answer with a redirect", answered).await;
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

// docs/design/resolution.md#complete-answers
#[tokio::test]
async fn content_of_another_digest_is_rejected() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    catalogd.set_behavior("main", Behavior::OtherDigest);
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    side.expect_error(&catalog, "a", NOT_FOUND).await;
    // The cause is reported after several attempts.
    let digest = catalog.status.as_ref().unwrap().resolved_source.as_ref().unwrap().image.ref_.clone();
    let digest = digest.rsplit_once('@').unwrap().1.to_owned();
    let text = format!("error: catalogd serves content of sha256:00 instead of {digest}");
    side.expect_error(&catalog, "a", &text).await;
    let requests = catalogd.requests();
    assert!(requests.iter().all(|request| request == &singles("main", "a")[0]), "{requests:?}");
    assert!(files(cache.path()).is_empty());
    catalogd.set_behavior("main", Behavior::Normal);
    side.expect(&catalog, "a", "a.v1").await;
}

#[tokio::test]
async fn broken_files_are_fetched_again() {
    for behavior in [Behavior::Normal, Behavior::NoMetas] {
        let (catalogd, cache) = (Catalogd::start(), cache());
        catalogd.set_behavior("main", behavior);
        let catalog = catalogd.publish("main", 1, &["a"]);
        let side = CacheFixture::start(cache.path(), &[&catalog]);
        assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
        side.end().await;
        let file = files(cache.path()).remove(0);
        let whole = fs::read(&file).unwrap();
        let mut other = whole.clone();
        other[10] ^= 1;
        for broken in [&whole[..whole.len() / 2], b"somebody else's", &other] {
            fs::write(&file, broken).unwrap();
            fs::write(file.with_file_name(".7"), "left").unwrap();
            let side = CacheFixture::start(cache.path(), &[&catalog]);
            side.settled(&catalogd).await;
            assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
            assert_eq!(fs::read(&file).unwrap(), whole);
            assert_eq!(files(cache.path()), [file.as_path()]);
            side.end().await;
        }
    }
}

#[tokio::test]
async fn disk_error_is_reported() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let [main, other] = ["main", "other"].map(|name| catalogd.publish(name, 1, &["a", "b"]));
    let side = CacheFixture::start(cache.path(), &[&main, &other]);
    assert_eq!(side.package(&main, "a").await, bundle("a.v1"));
    // A file in place of the folder simulates a disk fault.
    fs::remove_dir_all(cache.path().join("main")).unwrap();
    fs::write(cache.path().join("main"), "").unwrap();
    let text = "error retrieving cache for catalog \"main\": error creating directory for catalog metadata: ";
    side.expect_error(&main, "b", text).await;
    assert_eq!(side.package(&main, "a").await, bundle("a.v1"), "the package in memory remains available");
    assert_eq!(side.package(&other, "a").await, bundle("a.v1"));
    fs::remove_file(cache.path().join("main")).unwrap();
    side.expect(&main, "b", "b.v1").await;
}

#[tokio::test]
async fn slow_catalog_delays_no_other() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let (release, released) = watch::channel(false);
    catalogd.set_behavior("main", Behavior::Late(released));
    let [main, other] = ["main", "other"].map(|name| catalogd.publish(name, 1, &["a"]));
    let side = CacheFixture::start(cache.path(), &[&main, &other]);
    let (slow, fast) = tokio::join!(side.ask(&main, "a"), side.package(&other, "a"));
    assert_eq!(slow.unwrap_err().to_string(), NOT_FOUND);
    assert_eq!(fast, bundle("a.v1"));
    // The fetch continued, and its end is announced.
    let announced = side.announced();
    release.send(true).unwrap();
    until("the announcement", async || side.announced() > announced).await;
    assert_eq!(side.package(&main, "a").await, bundle("a.v1"));
    assert_eq!(catalogd.requests().len(), 4);
}

#[tokio::test]
async fn shutdown_does_not_wait_for_catalogd() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let (_never, released) = watch::channel(false);
    catalogd.set_behavior("main", Behavior::Late(released));
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    side.expect_error(&catalog, "a", NOT_FOUND).await;
    until("the request", async || catalogd.requests().len() == 1).await;
    side.end().await;
}

// Bundles may require packages by any name.
#[tokio::test]
async fn invalid_package_name_causes_no_request() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    for name in ["", &"0".repeat(254), &"0".repeat(100_000)] {
        assert_eq!(side.package(&catalog, name).await, Ok(None));
    }
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    assert_eq!(catalogd.requests(), singles("main", "a"));
}

// docs/design/apply.md#restored-cluster
#[tokio::test]
async fn catalogs_are_not_synced_from_a_failed_watch_until_the_next_list() {
    let (catalogd, cache) = (Catalogd::start(), cache());
    let catalog = catalogd.publish("main", 1, &["a"]);
    let side = CacheFixture::start(cache.path(), &[&catalog]);
    let mut synced = side.catalogs.synced();
    assert_eq!(side.package(&catalog, "a").await, bundle("a.v1"));
    let failed =
        |code: u16| watcher::Error::WatchError(Box::new(Status::failure("failed", "Reason").with_code(code)));
    side.fail(failed(403));
    side.fail(failed(410));
    synced.wait_for(|synced| !synced).await.unwrap();
    side.apply(&catalog);
    side.list(&[]);
    synced.wait_for(|synced| *synced).await.unwrap();
    side.expect_error(&catalog, "a", NOT_FOUND).await;
}
