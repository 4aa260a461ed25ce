//! Recording and faults of the proxy, with a real client and API server.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use olm_control_plane::ControlPlane;
use olm_servers::{Answer, Call, Fault, PATIENCE, Proxy, Rule, When, eventually};
use serde_json::json;

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn calls_are_recorded_and_faults_injected() {
    let plane = ControlPlane::start().await.unwrap();
    let proxy = Proxy::start(plane.kubeconfig()).await.unwrap();
    proxy.allow_long_lists();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(proxy.kubeconfig()).await);
    let direct: Api<ConfigMap> = Api::default_namespaced(plane.client());
    let make = async |name: &str| maps.create(&PostParams::default(), &config_map(name)).await;

    make("plain").await.unwrap();
    maps.get("plain").await.unwrap();
    let calls = proxy.calls(0);
    assert_eq!(calls.iter().map(Call::is_mutation).collect::<Vec<_>>(), [true, false]);
    assert!(calls[0].mentions("plain") && proxy.count() == 2);

    // Fault of the second call that mentions the name, before and after it takes effect.
    for (when, exists) in [(When::Before, false), (When::After, true)] {
        let name = format!("{when:?}").to_lowercase();
        let about = name.clone();
        let conflict = Rule::new(Fault::Answer(Answer::conflict()), move |call| call.mentions(&about));
        let rule = proxy.add(conflict.when(when).skip(1).times(1));
        make(&format!("{name}-1")).await.unwrap();
        let error = make(&format!("{name}-2")).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
        make(&format!("{name}-3")).await.unwrap();
        assert_eq!(direct.get_opt(&format!("{name}-2")).await.unwrap().is_some(), exists);
        assert_eq!(proxy.remove(rule), 1);
    }

    let rule = proxy.add(Rule::new(Fault::Cut, |call| call.mentions("cut")));
    assert!(!matches!(make("cut").await.unwrap_err(), kube::Error::Api(_)));
    proxy.remove(rule);

    let rule = proxy.add(Rule::new(Fault::Hang, |call| call.mentions("hung")));
    let hung = async {
        proxy.wait_for_hits(rule, 1, PATIENCE).await.unwrap();
        proxy.remove(rule);
    };
    let (answer, ()) = tokio::join!(make("hung"), hung);
    answer.unwrap_err();
    proxy.wait_until_quiet(Duration::from_millis(100), PATIENCE).await.unwrap();
    assert!(proxy.mutations_within(Duration::from_millis(100)).await.is_empty());
}

#[tokio::test]
async fn watches_break_or_expire_on_request() {
    let plane = ControlPlane::start().await.unwrap();
    let proxy = Proxy::start(plane.kubeconfig()).await.unwrap();
    proxy.allow_long_lists();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(proxy.kubeconfig()).await);
    for expire in [true, false] {
        let parameters = WatchParams::default().disable_bookmarks();
        let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let mut watch = Box::pin(maps.watch(&parameters, &version).await.unwrap());
        maps.create(&PostParams::default(), &config_map(&format!("seen-{expire}"))).await.unwrap();
        let first = watch.next().await;
        assert!(matches!(&first, Some(Ok(WatchEvent::Added(_)))), "{first:?}");
        if expire {
            proxy.expire_watches();
        } else {
            proxy.break_watches();
        }
        match watch.next().await {
            Some(Ok(WatchEvent::Error(status))) => assert!(expire && status.code == 410),
            Some(Err(_)) | None => assert!(!expire),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn kill_fault_kills_the_process_after_the_call() {
    let plane = ControlPlane::start().await.unwrap();
    let proxy = Proxy::start(plane.kubeconfig()).await.unwrap();
    proxy.allow_long_lists();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(proxy.kubeconfig()).await);
    let mut process = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    proxy.set_process(process.id());
    proxy.add(Rule::new(Fault::Kill, Call::is_mutation).when(When::After).times(1));
    maps.get_opt("last").await.unwrap();
    assert!(process.try_wait().unwrap().is_none());
    maps.create(&PostParams::default(), &config_map("last")).await.unwrap_err();
    eventually("the process exits", async || process.try_wait().unwrap()).await;
    let direct: Api<ConfigMap> = Api::default_namespaced(plane.client());
    direct.get("last").await.unwrap();
}
