//! Cluster under test and its registry.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client, Resource};
use olm_image::{Image, Push, push};
use olm_require::Need;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time limit of every wait for the cluster. Far above the usual duration, because a test that passes never reaches
/// it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Namespace of the servers under test.
const SYSTEM: &str = "olmv1-system";

/// Cluster with the servers under test, and a registry that its pods can reach.
#[derive(Clone)]
pub struct Cluster {
    /// Administrator's client.
    pub client: Client,
    /// Registry address for pods, `host:port`.
    pub registry: String,
    /// Image of the sample operator.
    pub operator_image: String,
    registry_from_here: String,
    registry_ca: Vec<u8>,
}

impl Cluster {
    /// Connects with the settings of the environment: `KUBECONFIG`, `OLM_REGISTRY`, `OLM_REGISTRY_ADDRESS` (the
    /// registry's address for this machine), `OLM_REGISTRY_CA` (a file) and `OLM_SAMPLE_IMAGE`.
    pub async fn connect() -> Result<Self> {
        // Fails if another test of the process has installed it. All install the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set; run hack/e2e"));
        let ca = variable("OLM_REGISTRY_CA")?;
        variable("KUBECONFIG")?;
        Ok(Self {
            client: Client::try_default().await.context("connecting to the cluster of KUBECONFIG")?,
            registry: variable("OLM_REGISTRY")?,
            operator_image: variable("OLM_SAMPLE_IMAGE")?,
            registry_from_here: variable("OLM_REGISTRY_ADDRESS")?,
            registry_ca: std::fs::read(&ca).with_context(|| format!("reading {ca}"))?,
        })
    }

    /// Pushes an image to `repository:tag`. Returns its digest reference for pods.
    pub async fn push(&self, repository: &str, tag: &str, image: &Image) -> Result<String> {
        let options = Push { ca_pem: Some(self.registry_ca.clone()), ..Push::default() };
        let digest =
            push(&format!("{}/{repository}:{tag}", self.registry_from_here), image, &options).await?;
        Ok(format!("{}/{repository}@{digest}", self.registry))
    }

    /// API of a cluster-scoped kind.
    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource,
        K::DynamicType: Default,
    {
        Api::all(self.client.clone())
    }

    /// API of a kind in a namespace.
    pub fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
        self.all::<Namespace>().create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// Applies a merge patch to an object.
    pub async fn merge<K>(&self, api: &Api<K>, name: &str, patch: serde_json::Value) -> Result<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("patching {name}"))
    }

    /// Waits until the object satisfies the condition. The error contains the last state of the object.
    pub async fn wait<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        condition: impl Condition<K>,
    ) -> Result<K>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
    {
        let failure = match tokio::time::timeout(PATIENCE, until(api, name, condition)).await {
            Ok(Some(object)) => return Ok(object),
            Ok(None) => anyhow!("it does not exist"),
            Err(_) => anyhow!("not within {} s", PATIENCE.as_secs()),
        };
        let last = match api.get_opt(name).await {
            Ok(Some(object)) => serde_saphyr::to_string(&object).unwrap_or_default(),
            Ok(None) => "it does not exist".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(failure.context(format!("waiting for {name}: {what}\nat last:\n{last}")))
    }

    /// Waits until the object is deleted.
    pub async fn wait_gone<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
    {
        let gone = until(api, name, |object: Option<&K>| object.is_none());
        match tokio::time::timeout(PATIENCE, gone).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let last = api.get_opt(name).await?;
                let last = last.map(|object| serde_saphyr::to_string(&object).unwrap_or_default());
                Err(anyhow!(
                    "{name} is not gone after {} s:\n{}",
                    PATIENCE.as_secs(),
                    last.unwrap_or_default()
                ))
            }
        }
    }

    /// Pods of a server.
    pub async fn pods_of(&self, component: &str) -> Result<Vec<Pod>> {
        let selector = format!("control-plane={component}-controller-manager");
        Ok(self.within::<Pod>(SYSTEM).list(&ListParams::default().labels(&selector)).await?.items)
    }

    /// Deletes an object without waiting. Succeeds if it does not exist.
    pub async fn delete<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("deleting {name}")),
        }
    }
}

/// Calls `ask` until it succeeds, for states that the watch of one object does not show. The error contains the last
/// failure.
pub async fn eventually<T>(
    what: &str,
    patience: Duration,
    mut ask: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let until = Instant::now() + patience;
    let mut again = tokio::time::interval(Duration::from_millis(200));
    loop {
        again.tick().await;
        match ask().await {
            Err(error) if Instant::now() >= until => {
                return Err(error.context(format!("not within {} s: {what}", patience.as_secs())));
            }
            Err(_) => {}
            answer => return answer,
        }
    }
}

/// Waits for the condition, and restarts watches that end when the API server stops or a CRD changes.
async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut again = tokio::time::interval(Duration::from_millis(500));
    loop {
        again.tick().await;
        let holds = |object: Option<&K>| condition.matches_object(object);
        if let Ok(object) = await_condition(api.clone(), name, holds).await {
            return object;
        }
    }
}

/// File map with one file, for [`Image`].
pub(crate) fn one_file(path: &str, text: &str) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([(path.to_owned(), text.as_bytes().to_vec())])
}

/// Stops or starts a component of the cluster. Returns `false` if the cluster must not be disturbed.
pub fn hack_cluster(verb: &str, part: &str) -> Result<bool> {
    if std::env::var("OLM_USE_CLUSTER").is_ok_and(|value| value == "1") {
        let reason = format!("{part} of the cluster of KUBECONFIG must not be stopped: use a test cluster");
        olm_require::report(Need::Cluster, &reason);
        return Ok(false);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/cluster");
    let status = std::process::Command::new(&script).args([verb, part]).status().context("hack/cluster")?;
    ensure!(status.success(), "hack/cluster {verb} {part}: {status}");
    Ok(true)
}
