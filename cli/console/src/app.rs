//! State and routes of the console.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use tokio::sync::{OnceCell, Semaphore};

use super::catalog::Library;
use super::extensions::Followers;
use super::guard::Hosts;
use super::install::BundleCache;
use super::page::PageError;
use super::users::Users;
use super::visitor::{Identity, Keys};
use super::{
    ConsoleArgs, apis, assets, catalog, changes, cluster, extensions, find, graph, guard, install, page,
    rights, visit, visitor,
};

/// Limit of concurrent calls of [`Console::render`].
const RENDERED: usize = 4;

/// State of the console, shared by all requests.
pub(crate) type App = Arc<Console>;

/// Console of one process.
pub(crate) struct Console {
    /// Catalogs and their content.
    pub(super) library: Library,
    /// Keys of session cookies.
    pub(super) keys: Keys,
    /// Permitted values of the `Host` header.
    pub(super) hosts: Hosts,
    /// Source of the user's rights.
    pub(super) identity: Identity,
    /// `true` if no page may change the cluster.
    pub(super) read_only: bool,
    /// Bundle of the install page.
    pub(super) bundles: BundleCache,
    /// Bounds the work of [`visit::Visit::run`].
    pub(super) visits: Arc<Semaphore>,
    /// Permit of the only check of OLM that runs.
    pub(super) check: Semaphore,
    /// Bounds [`Self::render`].
    rendered: Arc<Semaphore>,
    /// Requests that follow the cluster.
    pub(super) followers: Arc<Followers>,
    /// Name of the user of a console on loopback, once the API server named it.
    pub(super) local_user: OnceCell<String>,
    /// Session for calls to the API server. It has no progress lines.
    pub(super) session: Session,
}

impl Console {
    /// Connects to the cluster if a catalog or a flag names it.
    ///
    /// # Errors
    /// A source is invalid, or the kubeconfig names no cluster.
    pub(super) async fn new(args: &ConsoleArgs, session: &Session) -> Result<Self, CliError> {
        if args.pod.in_cluster {
            return Self::in_cluster(args, &Arc::new(args.pod.base(&args.access.cluster)?), session);
        }
        let library = Library::new(&args.catalogs, args.access.clone())?;
        let cluster = match library.needs_cluster() {
            true => Some(Arc::new(library.flags().cluster.connect().await?)),
            false => None,
        };
        Self::of(args, library, Hosts::loopback()?, Identity::Local(cluster), session)
    }

    /// Console in a pod. `base` has no credentials. Neither does a connection without a user.
    ///
    /// # Errors
    /// A source is invalid.
    pub(super) fn in_cluster(
        args: &ConsoleArgs,
        base: &Arc<ClusterConnection>,
        session: &Session,
    ) -> Result<Self, CliError> {
        let library = Library::new(&args.catalogs, args.access.connected_to(base))?;
        let users = Users::new(Arc::clone(base));
        Self::of(args, library, Hosts::named(&args.pod.host), Identity::Users(users), session)
    }

    fn of(
        args: &ConsoleArgs,
        library: Library,
        hosts: Hosts,
        identity: Identity,
        session: &Session,
    ) -> Result<Self, CliError> {
        Ok(Self {
            library,
            keys: Keys::new()?,
            hosts,
            identity,
            read_only: args.read_only,
            bundles: BundleCache::default(),
            visits: Arc::new(Semaphore::new(visit::CONCURRENT)),
            check: Semaphore::new(1),
            rendered: Arc::new(Semaphore::new(RENDERED)),
            followers: Arc::default(),
            local_user: OnceCell::new(),
            session: session.in_background(),
        })
    }

    /// Runs `work`, which holds all bundles of a package, when its turn comes. A disconnect does not end it.
    ///
    /// # Errors
    /// Errors of `work`.
    pub(super) async fn render<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, CliError> {
        let permit = Arc::clone(&self.rendered).acquire_owned().await;
        let run = move || {
            let _permit = permit;
            work()
        };
        let done = tokio::task::spawn_blocking(run).await;
        done.map_err(|_| CliError::operational("rendering the page ended early"))?
    }
}

/// Pages that change nothing. A subject adds its routes here.
fn pages() -> Router<App> {
    Router::new()
        .merge(catalog::routes())
        .merge(graph::routes())
        .merge(install::routes())
        .merge(extensions::routes())
        .merge(changes::routes())
        .merge(cluster::routes())
        .merge(apis::routes())
        .merge(find::routes())
        .merge(rights::routes())
}

/// Routes that change the cluster. `--read-only` removes them.
fn changes() -> Router<App> {
    Router::new()
        .merge(install::changes())
        .merge(changes::changes())
        .merge(cluster::changes())
        .merge(apis::changes())
}

/// All routes, behind the checks of every request.
pub(super) fn router(console: &App) -> Router {
    let pages = match console.read_only {
        true => pages(),
        false => pages().merge(changes()),
    };
    let known = from_fn_with_state(Arc::clone(console), visitor::require);
    let framed = from_fn_with_state(Arc::clone(console), page::frame);
    let guarded = from_fn_with_state(Arc::clone(console), guard::guard);
    pages
        .fallback(async || PageError::new(StatusCode::NOT_FOUND, "there is no such page"))
        .route("/logout", post(visitor::logout))
        .layer(known)
        .merge(visitor::login_routes(console))
        .layer(framed)
        .merge(assets::routes())
        .layer(guarded)
        // The kubelet requests it by the address of the pod.
        .route("/healthz", get(async || "ok"))
        .with_state(Arc::clone(console))
}
