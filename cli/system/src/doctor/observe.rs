//! Observation of a cluster: objects, logs, readiness checks, certificates. Reads only, except for one dry run.
//!
//! What the user may not read is named, and the rest is read. Secrets are removed before anything is stored.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, LogParams, PostParams};
use kube::core::GroupVersionKind;
use olm_api::ClusterCatalog;
use olm_api::conditions::types;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_migrate::{bundles_of_catalogs, classic_packages};
use olm_runtime::cluster::{describe, within_deadline};
use serde_json::{Value, json};

use super::diagnose::{SERVERS, server_pods};
use super::observed::{Log, Observed, list, name, text};
use super::redact::Redactor;
use super::secrets;

/// Concurrent reads.
const CONCURRENT: usize = 8;
/// Page size, and the highest number of pages of a kind.
const PAGE: u32 = 100;
const PAGES: usize = 50;
/// Last lines of a log, and their bytes.
const LOG_LINES: i64 = 1000;
const LOG_BYTES: i64 = 1 << 20;
/// Highest number of lines of a readiness answer.
const READINESS_LINES: usize = 20;
/// Port of the probes, as in the install files.
const PROBES: u16 = 8081;

/// Objects of a kind to read.
#[derive(Debug, Clone, Copy)]
enum Scope {
    /// All objects.
    All,
    /// Those in the namespace of the servers.
    Own,
    /// Those in namespace `default`, where Events of cluster-scoped objects are.
    Default,
    /// Those of all extensions, by their owner labels.
    Owned,
    /// Those of all installations, by their label.
    Installed,
}

/// Kind to read: group, version, kind, plural, objects.
type Kind = (&'static str, &'static str, &'static str, &'static str, Scope);

/// Kinds to read.
const KINDS: [Kind; 26] = [
    ("olm.operatorframework.io", "v1", "ClusterExtension", "clusterextensions", Scope::All),
    ("olm.operatorframework.io", "v1", "ClusterCatalog", "clustercatalogs", Scope::All),
    ("olm.operatorframework.io", "v1", "ClusterObjectSet", "clusterobjectsets", Scope::All),
    (
        "ext.olm.operatorframework.io",
        "v1alpha1",
        "ClusterUpgradeStatus",
        "clusterupgradestatuses",
        Scope::All,
    ),
    ("ext.olm.operatorframework.io", "v1alpha1", "ExtensionPlan", "extensionplans", Scope::All),
    ("", "v1", "Namespace", "namespaces", Scope::Installed),
    ("", "v1", "Pod", "pods", Scope::Own),
    ("", "v1", "Service", "services", Scope::Own),
    ("", "v1", "Service", "services", Scope::Owned),
    ("", "v1", "ServiceAccount", "serviceaccounts", Scope::Own),
    ("", "v1", "ServiceAccount", "serviceaccounts", Scope::Owned),
    ("", "v1", "Event", "events", Scope::Own),
    ("", "v1", "Event", "events", Scope::Default),
    ("apps", "v1", "Deployment", "deployments", Scope::Own),
    ("apps", "v1", "Deployment", "deployments", Scope::Owned),
    ("apps", "v1", "Deployment", "deployments", Scope::Installed),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", Scope::Own),
    ("coordination.k8s.io", "v1", "Lease", "leases", Scope::Own),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", Scope::Own),
    (WEBHOOKS, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", Scope::Owned),
    (WEBHOOKS, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", Scope::Installed),
    (WEBHOOKS, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", Scope::Owned),
    ("apiextensions.k8s.io", "v1", CRD, "customresourcedefinitions", Scope::Owned),
    (RBAC, "v1", "ClusterRole", "clusterroles", Scope::Owned),
    (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", Scope::Owned),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", Scope::Own),
];
const WEBHOOKS: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const CRD: &str = "CustomResourceDefinition";

/// Reads everything.
///
/// # Errors
/// The API server does not answer, or the command is interrupted.
pub(super) async fn observe(
    cluster: &ClusterConnection,
    access: &Access,
    dry_runs: bool,
    session: &Session,
) -> Result<Observed, CliError> {
    let (mut observed, redactor) = servers(cluster, &KINDS, dry_runs, session).await?;
    classic(cluster, &mut observed, session).await?;
    catalogs(access, &mut observed, session).await?;
    observed.unreadable.iter_mut().for_each(|why| *why = redactor.text(why));
    Ok(observed)
}

/// Reads only the objects and logs of the servers, without those of extensions and catalogs.
///
/// # Errors
/// Those of [`observe`].
pub(super) async fn observe_servers(
    cluster: &ClusterConnection,
    session: &Session,
) -> Result<Observed, CliError> {
    let of_servers = |kind: &&Kind| matches!(kind.4, Scope::Own | Scope::Installed);
    let kinds: Vec<Kind> = KINDS.iter().filter(of_servers).copied().collect();
    let (mut observed, redactor) = servers(cluster, &kinds, true, session).await?;
    observed.certificates.retain(|certificate| certificate.owner.is_empty());
    observed.unreadable.iter_mut().for_each(|why| *why = redactor.text(why));
    Ok(observed)
}

async fn servers(
    cluster: &ClusterConnection,
    kinds: &[Kind],
    dry_runs: bool,
    session: &Session,
) -> Result<(Observed, Redactor), CliError> {
    let version = cluster.call("the server's version", cluster.client().apiserver_version(), session).await?;
    let mut observed = Observed {
        namespace: cluster.namespace().to_owned(),
        kubernetes: version.git_version,
        // A Lease that is renewed while other objects are read is not expired.
        time: Timestamp::now(),
        ..Observed::default()
    };
    let mut raw = Vec::new();
    {
        let _step = session.progress.step("reading the objects of OLM");
        let reads = kinds.iter().map(|kind| objects(cluster, *kind));
        let read = stream::iter(reads).buffered(CONCURRENT).collect::<Vec<_>>();
        for (kind, found, failure) in session.interruptible(read).await? {
            raw.extend(found.into_iter().map(|object| (kind, object)));
            observed.unreadable.extend(failure);
        }
    }
    raw.into_iter().for_each(|(kind, object)| observed.add(kind, object));
    let _step = session.progress.step("reading Secrets, logs and readiness of the servers");
    let redactor = session.interruptible(secrets::read(cluster, &mut observed)).await?;
    redact(&mut observed, &redactor);
    session.interruptible(logs(cluster, &mut observed, &redactor)).await?;
    session.interruptible(readiness(cluster, &mut observed, &redactor)).await?;
    if dry_runs {
        let failure = session.interruptible(webhook_failure(cluster)).await?;
        observed.webhook_failure = failure.map(|why| redactor.text(&why));
    }
    Ok((observed, redactor))
}

fn redact(observed: &mut Observed, redactor: &Redactor) {
    observed.objects.values_mut().flatten().for_each(|object| redactor.object(object));
}

/// Objects of a kind, and the reason for which some were not read. A kind that is not served has none.
async fn objects(
    cluster: &ClusterConnection,
    (group, version, kind, plural, scope): Kind,
) -> (&'static str, Vec<Value>, Option<String>) {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let client = cluster.client().clone();
    let api: Api<DynamicObject> = match scope {
        Scope::Own => Api::namespaced_with(client, cluster.namespace(), &resource),
        Scope::Default => Api::namespaced_with(client, "default", &resource),
        Scope::All | Scope::Owned | Scope::Installed => Api::all_with(client, &resource),
    };
    let (page, place) = match scope {
        Scope::All => (ListParams::default(), String::new()),
        Scope::Own => (ListParams::default(), format!(" in namespace {}", cluster.namespace())),
        Scope::Default => (ListParams::default(), " in namespace default".to_owned()),
        Scope::Owned => (olm_cli_core::source::of_extensions(None), " of extensions".to_owned()),
        Scope::Installed => {
            (ListParams::default().labels("app.kubernetes.io/part-of=olm"), " of installations".to_owned())
        }
    };
    let (mut found, mut page) = (Vec::new(), page.limit(PAGE));
    for _ in 0..PAGES {
        let part = match within_deadline(api.list(&page)).await {
            Ok(part) => part,
            Err(kube::Error::Api(status)) if status.code == 404 => return (kind, found, None),
            Err(error) => return (kind, found, Some(format!("{plural}{place}: {}", describe(&error)))),
        };
        for object in part.items {
            let Ok(mut object) = serde_json::to_value(object) else { continue };
            // Items of a list have neither.
            object["apiVersion"] = Value::from(resource.api_version.clone());
            object["kind"] = Value::from(kind);
            found.push(object);
        }
        match part.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return (kind, found, None),
        }
    }
    let why = format!("{plural}{place}, the rest: more than {} objects", found.len());
    (kind, found, Some(why))
}

/// Logs of the pods of both servers: of the current run, and of the previous one of a container that was restarted.
async fn logs(cluster: &ClusterConnection, observed: &mut Observed, redactor: &Redactor) {
    let api: Api<Pod> = Api::namespaced(cluster.client().clone(), cluster.namespace());
    let mut wanted = Vec::new();
    for pod in SERVERS.into_iter().flat_map(|server| server_pods(server, observed)) {
        for status in list(pod, "/status/containerStatuses") {
            let has_previous = status["restartCount"].as_u64().unwrap_or_default() > 0;
            for previous in [Some(false), has_previous.then_some(true)].into_iter().flatten() {
                wanted.push((name(pod).to_owned(), text(status, "/name").to_owned(), previous));
            }
        }
    }
    let read = |(pod, container, previous): (String, String, bool)| {
        let api = api.clone();
        async move {
            let parameters = LogParams {
                container: Some(container.clone()),
                previous,
                tail_lines: Some(LOG_LINES),
                limit_bytes: Some(LOG_BYTES),
                ..LogParams::default()
            };
            let log = within_deadline(api.logs(&pod, &parameters)).await;
            log.map(|text| Log { pod: pod.clone(), container, previous, text })
                .map_err(|error| format!("log of pod {pod}: {}", describe(&error)))
        }
    };
    let mut found = stream::iter(wanted.into_iter().map(read)).buffered(CONCURRENT);
    while let Some(log) = found.next().await {
        match log {
            Ok(mut log) => {
                log.text = redactor.text(&log.text);
                observed.logs.push(log);
            }
            Err(why) => observed.unreadable.push(why),
        }
    }
}

/// Failing readiness checks of pods that run and are not ready, through the API server's proxy of pods.
async fn readiness(cluster: &ClusterConnection, observed: &mut Observed, redactor: &Redactor) {
    let is_unready = |pod: &&Value| {
        text(pod, "/status/phase") == "Running"
            && !list(pod, "/status/conditions")
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let pods: Vec<String> = SERVERS
        .into_iter()
        .flat_map(|server| server_pods(server, observed))
        .filter(is_unready)
        .map(|pod| name(pod).to_owned())
        .collect();
    for pod in pods {
        let namespace = cluster.namespace();
        let path = format!("/api/v1/namespaces/{namespace}/pods/http:{pod}:{PROBES}/proxy/readyz?verbose");
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { continue };
        // A failing check is status 500, with the checks in the body.
        let answer = match within_deadline(cluster.client().request_text(request)).await {
            Ok(answer) => answer,
            Err(error) => describe(&error),
        };
        let answer = redactor.text(&answer);
        let failing: Vec<&str> =
            answer.lines().filter(|line| line.contains("[-]")).take(READINESS_LINES).collect();
        if failing.is_empty() {
            let lines: Vec<&str> = answer.trim().lines().take(READINESS_LINES).collect();
            observed.unreadable.push(format!("readiness of pod {pod}: {}", lines.join("\n")));
        } else {
            observed.readiness.insert(pod, failing.join(", "));
        }
    }
}

/// Failure of an admission webhook for ClusterCatalogs, found by the dry run of a creation. A user who may not
/// create catalogs does not find it.
pub(crate) async fn webhook_failure(cluster: &ClusterConnection) -> Option<String> {
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().clone());
    let catalog = json!({"metadata": {"name": "olm-doctor-dry-run"},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/dry-run:latest"}}}});
    let catalog = serde_json::from_value(catalog).ok()?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let error = within_deadline(catalogs.create(&dry_run, &catalog)).await.err()?;
    Some(describe(&error)).filter(|why| why.contains("failed calling webhook"))
}

async fn classic(
    cluster: &ClusterConnection,
    observed: &mut Observed,
    session: &Session,
) -> Result<(), CliError> {
    match classic_packages(cluster, &mut observed.unreadable, session).await {
        Ok(packages) => observed.classic = packages,
        Err(failure @ CliError::Message(Code::Interrupted, _)) => return Err(failure),
        Err(failure) => observed.unreadable.push(format!("packages of classic OLM: {failure}")),
    }
    Ok(())
}

/// Bundles of all catalogs, if an extension is installed and all catalogs can be read.
async fn catalogs(access: &Access, observed: &mut Observed, session: &Session) -> Result<(), CliError> {
    let extensions = observed.list("ClusterExtension").iter();
    let installed = extensions.map(|one| text(one, "/status/install/bundle/name").to_owned());
    let installed: BTreeSet<String> = installed.filter(|name| !name.is_empty()).collect();
    let used = observed.list("ClusterCatalog").iter();
    let used = used.filter(|one| text(one, "/spec/availabilityMode") != "Unavailable");
    let (served, unserved): (Vec<&Value>, Vec<&Value>) = used.partition(|one| {
        list(one, "/status/conditions").iter().any(|c| c["type"] == types::SERVING && c["status"] == "True")
    });
    let is_complete = unserved.is_empty() && !served.is_empty();
    if !is_complete || installed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = served.iter().map(|one| name(one).to_owned()).collect();
    let (mut unreadable, mut offered) = (Vec::new(), BTreeSet::new());
    for name in names {
        offered.extend(bundles_of_catalogs(&[name], &installed, access, &mut unreadable, session).await?);
        // If catalogd does not answer, each catalog would take the whole deadline.
        if !unreadable.is_empty() {
            observed.unreadable.extend(unreadable);
            return Ok(());
        }
    }
    observed.offered = Some(offered);
    Ok(())
}
