//! State and routes of the console.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

use super::catalog::Library;
use super::guard::Hosts;
use super::install::BundleCache;
use super::page::PageError;
use super::visitor::{Identity, Keys};
use super::{ConsoleArgs, assets, catalog, graph, guard, install, page, visitor};
use crate::error::CliError;
use crate::session::Session;

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
    /// Session for calls to the API server. It has no progress lines.
    pub(super) session: Session,
}

impl Console {
    /// Connects to the cluster if a catalog or a flag names it.
    ///
    /// # Errors
    /// A source is invalid, or the kubeconfig names no cluster.
    pub(super) async fn new(args: ConsoleArgs, session: &Session) -> Result<Self, CliError> {
        let library = Library::new(&args.catalogs, args.access)?;
        let cluster = match library.needs_cluster() {
            true => Some(Arc::new(library.access().cluster.connect().await?)),
            false => None,
        };
        Ok(Self {
            library,
            keys: Keys::new()?,
            hosts: Hosts::loopback()?,
            identity: Identity::Local(cluster),
            read_only: args.read_only,
            bundles: BundleCache::default(),
            session: session.in_background(),
        })
    }
}

/// Pages that change nothing. A subject adds its routes here.
fn pages() -> Router<App> {
    Router::new().merge(catalog::routes()).merge(graph::routes()).merge(install::routes())
}

/// Routes that change the cluster. `--read-only` removes them.
fn changes() -> Router<App> {
    Router::new().merge(install::changes())
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
        .layer(known)
        .route("/login", get(visitor::login))
        .layer(framed)
        .merge(assets::routes())
        .layer(guarded)
        .with_state(Arc::clone(console))
}
