//! `olm catalog serve`: the HTTPS API of catalogd on this machine, with the handlers of catalogd
//! (docs/design/cli.md#local-catalog-server).

mod catalogs;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use clap::Args;
use olm_catalog_server::http::graphql::GraphQl;
use olm_catalog_server::http::route::{Route, route};
use olm_catalog_server::http::{CatalogServer, router};
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ImageArgs, temporary_directory};
use olm_runtime::metrics::Metrics;
use olm_serving::https::HttpServer;
use serde::Serialize;

use self::catalogs::Catalogs;
pub use self::catalogs::{default_name, named};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Serve catalogs on this machine with the HTTPS API of catalogd

Each catalog has the endpoints all, metas (GET) and graphql (POST) below https://ADDRESS/catalogs/NAME/api/v1/. A \
directory is read again when a file in it has changed; while it cannot be read, the earlier content is served. Without \
--tls-cert a new certificate is made, and its CA is written to a file that clients must trust. Requests are printed to \
standard error. Ctrl-C stops the server.

`olm` itself reads directories and images without a server. Classic OLM needs an image with `opm` instead.";

/// Time that open requests have at the end.
const GRACE: Duration = Duration::from_secs(1);

/// Arguments of `olm catalog serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog serve ./catalog
  {olm} catalog serve ./catalog mirror=registry.example.com/team/catalog:v1 --listen 127.0.0.1:8443 --ca-file ca.crt
  curl --cacert ca.crt 'https://127.0.0.1:8443/catalogs/catalog/api/v1/metas?schema=olm.package'")]
pub struct ServeArgs {
    /// Directories or image references, with their name in URLs; default: the last part of the path
    #[arg(value_name = "[NAME=]SOURCE", required = true)]
    sources: Vec<String>,
    /// Address to listen on; port 0 for a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// File for the certificate of the CA; default: a temporary file
    #[arg(long, value_name = "FILE", conflicts_with = "tls_cert")]
    ca_file: Option<PathBuf>,
    /// Certificate chain of the server (PEM), in place of a new one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Running server, as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Serving {
    /// CA that clients must trust. Absent with --tls-cert.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    catalogs: Vec<ServedCatalog>,
}

#[derive(Debug, Serialize)]
struct ServedCatalog {
    name: String,
    source: String,
    /// URL without the endpoint.
    url: String,
}

/// Runs the command until it is interrupted.
///
/// # Errors
/// A source cannot be read, the address is taken, or the certificate cannot be used.
pub(crate) async fn run(args: ServeArgs, session: &mut Session) -> Result<(), CliError> {
    let folder = temporary_directory()?;
    let catalogs = Arc::new(Catalogs::open(&args.sources, folder.path(), &args.images, session).await?);
    let files = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let ca_file = args.ca_file.unwrap_or_else(|| folder.path().join("ca.crt"));
    let (tls, ca_file) = match files {
        Some((certificate, key)) => (tls::from_files(certificate, key)?, None),
        None => (tls::new(&args.listen, &ca_file)?, Some(ca_file)),
    };
    let server = CatalogServer {
        store: catalogs.store(),
        is_expected: Box::new(|_| false),
        metas: true,
        graphql: Some(GraphQl::default()),
    };
    let app = router(server, &Metrics::new()).layer(from_fn_with_state(Arc::clone(&catalogs), refresh));
    let server = HttpServer::start(args.listen, Some(tls), app)
        .map_err(|error| CliError::operational(format!("cannot start the server: {error}")))?;
    let host = match server.address.ip() {
        // Every address of this machine.
        ip if ip.is_unspecified() => format!("localhost:{}", server.address.port()),
        _ => server.address.to_string(),
    };
    let served = catalogs.sources().map(|(name, source)| ServedCatalog {
        name: name.to_owned(),
        source: source.to_owned(),
        url: format!("https://{host}/catalogs/{name}/api/v1"),
    });
    let serving = Serving { ca_file, catalogs: served.collect() };
    session.output.result(args.format.output, "CatalogServer", &serving, text)?;
    session.output.finish()?;
    // Never ends by itself: the only result is the error of an interruption.
    let _ = session.interruptible(std::future::pending::<()>()).await;
    server.drain(GRACE).await;
    Ok(())
}

/// Reads the requested catalog again if it has changed, and prints the request.
async fn refresh(State(catalogs): State<Arc<Catalogs>>, request: Request, next: Next) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    if let Route::Catalog(_, name) = route(request.uri().path()) {
        catalogs.refresh(&name).await;
    }
    let response = next.run(request).await;
    say(&format!("{line} {}", response.status().as_u16()));
    response
}

fn text(serving: &Serving) -> String {
    let urls = serving.catalogs.iter().map(|catalog| format!("{}: {}/all\n", catalog.source, catalog.url));
    let ca = serving.ca_file.iter().map(|file| format!("CA certificate: {}\n", file.display()));
    urls.chain(ca).collect()
}
