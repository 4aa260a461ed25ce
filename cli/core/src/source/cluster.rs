//! ClusterCatalogs, and their content from catalogd: through the API server's service proxy, or directly inside of the
//! cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Uri};
use kube::api::{Api, ListParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use olm_api::ClusterCatalog;
use olm_api::conditions::types;
use olm_runtime::cluster::list_all;
use tokio::time::timeout;

use super::{Sink, accept, catalogd};
use crate::error::CliError;
use crate::names::listed;
use crate::session::Session;

/// Service of catalogd and its port name, as in the install files.
const SERVICE: &str = "https:catalogd-service:443";
/// Deadline for the API server: to connect, for a response, and for each further part of it.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
/// Page size of list calls.
const PAGE: u32 = 200;
/// Largest object of a catalog. catalogd rejects larger ones.
const MAX_LINE: usize = 128 << 20;
/// Largest catalog.
const MAX_CATALOG: usize = 4 << 30;

/// Flags for access to a cluster.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterArgs {
    /// kubeconfig file; default: $KUBECONFIG, else ~/.kube/config, else the pod's service account
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig file; default: its current one
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
    /// Namespace that catalogd and operator-controller run in
    #[arg(long, value_name = "NAMESPACE", default_value = "olmv1-system", help_heading = "Cluster")]
    catalogd_namespace: String,
    /// Connection that takes the place of these flags, such as that of the user of a request.
    #[arg(skip)]
    connected: Option<Arc<ClusterConnection>>,
}

/// Connection to a cluster.
#[derive(Clone)]
pub struct ClusterConnection {
    client: Client,
    /// Host of the API server, for messages.
    server: String,
    /// Context of the kubeconfig file. Empty in a pod.
    context: String,
    namespace: String,
    /// Folder with the CAs of catalogd, which is called directly. `None`: through the API server.
    catalogd_cas: Option<PathBuf>,
}

impl fmt::Debug for ClusterConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ClusterArgs {
    /// Reports whether a flag selects a cluster.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.connected.is_some()
    }

    /// Namespace that catalogd and operator-controller run in.
    pub fn namespace(&self) -> &str {
        self.connected.as_ref().map_or(&self.catalogd_namespace, |cluster| &cluster.namespace)
    }

    /// The same flags with this connection, which [`Self::connect`] then returns.
    pub(crate) fn connected_to(&self, cluster: &Arc<ClusterConnection>) -> Self {
        Self { connected: Some(Arc::clone(cluster)), ..self.clone() }
    }

    /// Reads the configuration. Does not connect yet.
    ///
    /// # Errors
    /// The configuration names no cluster.
    pub async fn connect(&self) -> Result<ClusterConnection, CliError> {
        if let Some(cluster) = &self.connected {
            return Ok(ClusterConnection::clone(cluster));
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let failed = |error: &dyn std::error::Error| {
            CliError::operational(format!(
                "no access to a cluster: {}\nspecify a kubeconfig file with --kubeconfig or $KUBECONFIG",
                olm_api::text::with_causes(error)
            ))
        };
        let mut context = self.context.clone();
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                context = context.or_else(|| file.current_context.clone());
                Config::from_custom_kubeconfig(file, &options).await.map_err(|error| failed(&error))?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|error| failed(&error))?,
            (None, None) => {
                context = Kubeconfig::read().ok().and_then(|file| file.current_context);
                Config::infer().await.map_err(|error| failed(&error))?
            }
        };
        config.connect_timeout = Some(DEADLINE);
        config.read_timeout = Some(DEADLINE);
        let server = config.cluster_url.host().unwrap_or_default().to_owned();
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        Ok(ClusterConnection {
            client,
            server,
            context: context.unwrap_or_default(),
            namespace: self.catalogd_namespace.clone(),
            catalogd_cas: None,
        })
    }

    /// Connection inside of the cluster without credentials, for [`ClusterConnection::as_user`].
    ///
    /// # Errors
    /// `ca` has no certificate.
    pub fn of_pod(&self, url: Uri, ca: &Path, catalogd_cas: PathBuf) -> Result<ClusterConnection, CliError> {
        let server = url.host().unwrap_or_default().to_owned();
        Ok(ClusterConnection {
            client: catalogd::client(url, ca)?,
            server,
            context: String::new(),
            namespace: self.catalogd_namespace.clone(),
            catalogd_cas: Some(catalogd_cas),
        })
    }
}

impl ClusterConnection {
    /// The same connection with the value of the header `Authorization`.
    pub fn as_user(&self, authorization: HeaderValue) -> Self {
        let base = self.client.clone();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
            let base = base.clone();
            async move { base.send(request).await }
        });
        Self { client: Client::new(service, self.client.default_namespace()), ..self.clone() }
    }

    /// Connection of a pod to an API server of a test. Part of the library, because tests of other crates need it.
    pub fn of_test(client: Client) -> Self {
        let catalogd_cas = Some(PathBuf::from("/nonexistent"));
        let (server, namespace) = ("api.test".to_owned(), "olmv1-system".to_owned());
        Self { client, server, context: String::new(), namespace, catalogd_cas }
    }

    /// All ClusterCatalogs, by name.
    ///
    /// # Errors
    /// The API server does not return them.
    pub async fn catalogs(&self, session: &Session) -> Result<Vec<ClusterCatalog>, CliError> {
        let _step = session.progress.step("listing the cluster's catalogs");
        self.list(session).await
    }

    /// The ClusterCatalog `name`, or `None` if it does not exist.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn catalog(&self, name: &str, session: &Session) -> Result<Option<ClusterCatalog>, CliError> {
        let api: Api<ClusterCatalog> = Api::all(self.client.clone());
        self.call(&format!("ClusterCatalog {name:?}"), api.get_opt(name), session).await
    }

    /// All objects of a kind of OLM v1, by name.
    pub(super) async fn list<K>(&self, session: &Session) -> Result<Vec<K>, CliError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: &Api<K> = &Api::all(self.client.clone());
        let list = |page| async move {
            let failed = |error| list_failure::<K>(&self.server, &error);
            session.interruptible(within(api.list(&page))).await?.map_err(failed)
        };
        let mut objects = list_all(ListParams::default().limit(PAGE), list).await?;
        objects.sort_by_key(ResourceExt::name_any);
        Ok(objects)
    }

    /// Call to the API server, with a deadline.
    ///
    /// # Errors
    /// `what` cannot be read, or a signal arrived.
    pub async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
        session: &Session,
    ) -> Result<T, CliError> {
        let failed = |error| {
            CliError::operational(format!("cannot read {what}: {}", olm_runtime::cluster::describe(&error)))
        };
        session.interruptible(within(call)).await?.map_err(failed)
    }

    /// Client, for calls that this type does not offer.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Host of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Context of the kubeconfig file, else the host of the API server.
    pub fn title(&self) -> &str {
        if self.context.is_empty() { &self.server } else { &self.context }
    }

    /// Namespace that catalogd and operator-controller run in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Names of the served catalogs, or only the requested one.
    ///
    /// # Errors
    /// No catalog is served, or the requested one is not.
    pub async fn served(&self, requested: Option<&str>, session: &Session) -> Result<Vec<String>, CliError> {
        let catalogs = self.catalogs(session).await?;
        select(&catalogs, requested)
    }

    /// Reads the content of the catalog `name` into `sink`.
    ///
    /// # Errors
    /// The service does not answer, or denies access.
    pub async fn read(&self, name: &str, session: &Session, sink: &mut Sink<'_>) -> Result<(), CliError> {
        let step = session.progress.step(format!("reading catalog {name}"));
        let (client, path) = match &self.catalogd_cas {
            None => (self.client.clone(), content_path(&self.namespace, name)),
            Some(cas) => {
                let url = catalogd::url(name, self.catalog(name, session).await?)?;
                (catalogd::client(url, cas)?, "/api/v1/all".to_owned())
            }
        };
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| CliError::at(format!("catalog {name}"), error))?;
        let answer = session.interruptible(within(client.request_stream(request))).await?;
        let answer = answer.map_err(|error| content_failure(name, &self.namespace, &error))?;
        let mut lines = Lines { answer, line: Vec::new(), total: 0 };
        let mut count = 0_usize;
        while let Some(line) =
            session.interruptible(lines.next()).await?.map_err(|error| broken(name, &error))?
        {
            count += 1;
            step.update(format!("reading catalog {name}: {count} objects"));
            for meta in olm_fbc::MetaReader::new(line, olm_yaml::Limits::default()) {
                accept(name, name, meta.map_err(|error| broken(name, &error))?, sink)?;
            }
        }
        Ok(())
    }
}

/// Path of a catalog's whole content behind the API server's service proxy.
fn content_path(namespace: &str, catalog: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services/{SERVICE}/proxy/catalogs/{catalog}/api/v1/all")
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    olm_runtime::cluster::within(DEADLINE, call).await
}

/// Names of the served catalogs among `catalogs`, or only `requested`.
fn select(catalogs: &[ClusterCatalog], requested: Option<&str>) -> Result<Vec<String>, CliError> {
    let is_requested = |name: &String| requested.is_none_or(|requested| name == requested);
    let is_served = |catalog: &&ClusterCatalog| catalog.is_true(types::SERVING);
    let served: Vec<_> =
        catalogs.iter().filter(is_served).map(ResourceExt::name_any).filter(is_requested).collect();
    if !served.is_empty() {
        return Ok(served);
    }
    let names: Vec<_> = catalogs.iter().map(ResourceExt::name_any).collect();
    let all = listed(&names);
    let Some(requested) = requested else {
        return Err(CliError::no_candidate(format!("no catalog of the cluster is served; catalogs: {all}")));
    };
    let Some(catalog) = catalogs.iter().find(|catalog| catalog.name_any() == requested) else {
        return Err(CliError::no_candidate(format!(
            "there is no ClusterCatalog {requested:?}; catalogs: {all}"
        )));
    };
    let conditions = catalog.status.iter().flat_map(|status| &status.conditions);
    let messages: Vec<_> = conditions
        .filter(|condition| !condition.message.is_empty())
        .map(|condition| format!("{}={}: {}", condition.type_, condition.status, condition.message))
        .collect();
    let cause = if messages.is_empty() { "it has no status yet".to_owned() } else { messages.join("; ") };
    Err(CliError::operational(format!("ClusterCatalog {requested:?} is not served: {cause}")))
}

fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn list_failure<K: kube::Resource<DynamicType = ()>>(server: &str, error: &kube::Error) -> CliError {
    let (kinds, plural) = (format!("{}s", K::kind(&())), K::plural(&()));
    let cause = olm_runtime::cluster::describe(error);
    let advice = match status_code(error) {
        Some(403) => format!("\nyou need the permission to list {plural}.olm.operatorframework.io"),
        Some(404) => format!("\nOLM v1 is not installed in this cluster: it has no {kinds}"),
        Some(401) => "\nyour credentials for the cluster are missing or have expired".to_owned(),
        Some(_) => String::new(),
        None => format!(
            "\nthe API server of the kubeconfig's context is at {server}; use --context for another one"
        ),
    };
    CliError::operational(format!("cannot list {kinds}: {cause}{advice}"))
}

fn content_failure(catalog: &str, namespace: &str, error: &kube::Error) -> CliError {
    let cause = olm_runtime::cluster::describe(error);
    let advice = match (status_code(error), cause.contains("services \"")) {
        (Some(403), _) => format!(
            "\nyou need the permission to get services/proxy of {SERVICE} in namespace {namespace}:\n  \
             kubectl -n {namespace} create role catalog-reader --verb=get --resource=services/proxy \
             --resource-name={SERVICE}"
        ),
        (Some(404), true) => format!(
            "\ncatalogd's service is not in namespace {namespace}; use --catalogd-namespace for another one"
        ),
        (Some(404), false) => "\ncatalogd has no content of this catalog yet".to_owned(),
        (Some(502..=504), _) => {
            format!("\ncatalogd does not respond; run kubectl -n {namespace} get pods,endpointslices")
        }
        _ => String::new(),
    };
    CliError::operational(format!("cannot read catalog {catalog:?} from catalogd: {cause}{advice}"))
}

fn broken(catalog: &str, error: &dyn std::fmt::Display) -> CliError {
    CliError::at(format!("catalog {catalog:?}"), error)
}

/// Lines of a response, with a deadline for each part and size limits.
struct Lines<R> {
    answer: R,
    line: Vec<u8>,
    total: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Next line with its line feed, or `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        self.line.clear();
        loop {
            let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no more content within 30 s");
            let part = timeout(DEADLINE, self.answer.fill_buf()).await.map_err(|_| late())??;
            if part.is_empty() {
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
            let end = part.iter().position(|byte| *byte == b'\n').map(|index| index + 1);
            let taken = end.unwrap_or(part.len());
            self.total += taken;
            if self.total > MAX_CATALOG || self.line.len() + taken > MAX_LINE {
                let limits = format!("more than {MAX_CATALOG} bytes, or {MAX_LINE} in one object");
                return Err(std::io::Error::other(limits));
            }
            self.line.extend_from_slice(&part[..taken]);
            self.answer.consume_unpin(taken);
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }
}
