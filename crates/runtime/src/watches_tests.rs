use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::RawQuery;
use futures::{StreamExt, TryStreamExt};
use http::Response;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;

use super::*;
use crate::metrics::Metrics;

#[test]
fn only_watches_from_a_version_are_checked() {
    let of = |query: &str| {
        Start::of(&format!("http://a/api/v1/pods?{query}").parse().unwrap()).map(|start| start.version)
    };
    for (query, expected) in [
        ("&watch=true&allowWatchBookmarks=true&resourceVersion=7", Some(7)),
        ("watch=true&resourceVersion=0", None),
        ("watch=true&resourceVersion=", None),
        ("watch=true", None),
        ("limit=500&resourceVersion=7", None),
        ("watch=true&resourceVersion=7&sendInitialEvents=true", None),
    ] {
        assert_eq!(of(query), expected, "{query}");
    }
}

/// Answers of an API server: a list at version 100, then a watch of a restored cluster, then the list of that one.
async fn restored(lists: Arc<AtomicUsize>, query: Option<String>) -> String {
    let object = |version: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"{version}"}}}}"#
        )
    };
    if query.unwrap_or_default().contains("watch=true") {
        let bookmark = r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"40"}}}"#;
        let changed = format!(r#"{{"type":"MODIFIED","object":{}}}"#, object("101"));
        return format!("{changed}\n{bookmark}\n");
    }
    let version = if lists.fetch_add(1, Ordering::Relaxed) == 0 { "100" } else { "40" };
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        object(version)
    )
}

#[tokio::test]
async fn watcher_lists_anew_after_a_bookmark_with_a_lower_version() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let answer = async move |RawQuery(query): RawQuery| restored(counted, query).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(answer)).await });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = crate::cluster::client(&config, &Arc::new(Metrics::new())).unwrap();
    let mut events = std::pin::pin!(watcher(Api::<ConfigMap>::all(client), watcher::Config::default()));
    let mut seen = Vec::new();
    while lists.load(Ordering::Relaxed) < 2 || !matches!(seen.last(), Some(last) if *last == "listed 40") {
        match events.try_next().await {
            Ok(Some(Event::InitApply(object))) => {
                seen.push(format!("listed {}", object.resource_version().unwrap()));
            }
            Ok(Some(Event::Apply(object))) => seen.push(object.resource_version().unwrap()),
            Ok(event) => assert!(event.is_some()),
            Err(error) => seen.push(error.to_string()),
        }
    }
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("listed 100", "101"));
    assert!(seen[2].contains("went back"), "{seen:?}");
    assert_eq!(seen[3], "listed 40");
}

#[tokio::test]
async fn events_in_parts_are_forwarded_whole() {
    let line = |version: u32| {
        format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n")
    };
    let text = [line(5), line(5), line(9), "rest".to_owned()].concat();
    let parts = text.as_bytes().chunks(7).map(|part| Ok::<_, BoxError>(Bytes::copy_from_slice(part)));
    let body = axum::body::Body::from_stream(futures::stream::iter(parts.collect::<Vec<_>>()));
    let body: Box<DynBody> = Box::new(body.map_err(|error| -> BoxError { error.into() }));
    let from = Start { version: 5, end: Instant::now() };
    let read = until_versions_go_back(Some(from), body).collect().await.unwrap().to_bytes();
    assert_eq!(read, text.as_bytes());
}

// docs/design/apply.md#restored-cluster
#[tokio::test(start_paused = true)]
async fn watch_that_fails_lists_anew_after_an_interval_unless_it_is_denied() {
    for (code, lists) in [(500, 13..=14), (403, 1..=1)] {
        let listed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&listed);
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": []});
            let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "X", "code": code});
            if !is_watch {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let (code, body) = if is_watch { (code, failure) } else { (200, list) };
            let response = Response::builder().status(code).body(axum::body::Body::from(body.to_string()));
            async move { response.map_err(BoxError::from) }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "default"));
        let events = watch(api, watcher::Config::default()).for_each(|_| async {});
        assert!(tokio::time::timeout(Duration::from_secs(65), events).await.is_err());
        let listed = listed.load(Ordering::Relaxed);
        assert!(lists.contains(&listed), "{code}: {listed} lists");
    }
}

// docs/design/apply.md#restored-cluster: the API server can end watches without an error when it stops.
#[tokio::test(start_paused = true)]
async fn watch_that_ends_early_lists_anew() {
    for (lasts, lists) in [(0, 13..=14), (290, 1..=1)] {
        let listed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&listed);
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": []}).to_string();
            counted.fetch_add(usize::from(!is_watch), Ordering::Relaxed);
            let ended = tokio::time::sleep(Duration::from_secs(if is_watch { lasts } else { 0 }));
            let text = if is_watch { String::new() } else { list };
            let body = stream::once(async move {
                ended.await;
                Ok::<_, BoxError>(Bytes::from(text))
            });
            let body: Box<DynBody> =
                Box::new(StreamBody::new(body.map(|bytes| bytes.map(Frame::data)).boxed()));
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        let client = Client::new(checked(BoxCloneService::new(service)), "default");
        let events = watch(Api::<ConfigMap>::all(client), watcher::Config::default()).for_each(|_| async {});
        assert!(tokio::time::timeout(Duration::from_secs(65), events).await.is_err());
        let listed = listed.load(Ordering::Relaxed);
        assert!(lists.contains(&listed), "{lasts}: {listed} lists");
    }
}
