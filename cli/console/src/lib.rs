//! `olm console`: catalogs and extensions in the browser (docs/design/console.md).
//!
//! [`app`] composes the routes, [`guard`] checks every request, [`visitor`] knows the user, [`visit`] is what handlers get, [`page`] is the frame
//! of all pages. Each other module has the pages of one subject.

mod apis;
mod app;
mod assets;
mod browser;
mod catalog;
mod changes;
mod cluster;
mod extensions;
mod find;
mod graph;
mod guard;
mod in_cluster;
mod install;
mod markup;
mod page;
mod rights;
#[cfg(test)]
mod tests;
mod users;
mod visit;
mod visitor;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_serving::https::HttpServer;

use self::app::{App, Console, router};
use self::in_cluster::InClusterArgs;

/// First lines of the command's help.
pub const ABOUT: &str = "Open a console in the browser: catalogs, packages, extensions

The console listens on the loopback addresses of this machine and has your permissions on the cluster. It prints an \
address that signs in one browser, and after each sign-in the next address. Nothing is loaded from other hosts. Ctrl-C \
stops it.

With --in-cluster, the console serves the users of the cluster from a pod, see manifests/console.yaml.";

/// Time that open requests have at the end.
const GRACE: Duration = Duration::from_secs(1);
/// Most tries to find a port that is free on both loopback addresses.
const PORT_TRIES: usize = 16;

/// Arguments of `olm console`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 ended by Ctrl-C   1 operation failed, such as reading a catalog   2 wrong usage

Examples:
  {olm} console
  {olm} console --read-only --context production
  {olm} console --catalog ./catalog --catalog quay.io/operatorhubio/catalog:latest --no-open
  {olm} console --in-cluster --host olm.example.com --tls-cert tls.crt --tls-key tls.key")]
pub struct ConsoleArgs {
    /// Catalog to show, with its name in addresses: a directory, an image reference, cluster/NAME, or cluster for all
    /// catalogs of the cluster; may be given several times
    #[arg(long = "catalog", value_name = "[NAME=]SOURCE", default_value = "cluster")]
    catalogs: Vec<String>,
    /// Port on 127.0.0.1 and ::1; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Only print the address
    #[arg(long)]
    no_open: bool,
    /// Offer nothing that changes the cluster
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    pod: InClusterArgs,
    #[command(flatten)]
    access: Access,
}

/// Runs the command until it is interrupted.
///
/// # Errors
/// A catalog cannot be read, there is no access to the cluster, or the port is taken.
pub async fn run(args: ConsoleArgs, session: &mut Session) -> Result<(), CliError> {
    let console = Arc::new(Console::new(&args, session).await?);
    if args.pod.in_cluster {
        let server = args.pod.listen(&console, session).await?;
        return serve(vec![server], session).await;
    }
    let servers = listen(&console, args.port).await?;
    let address = console.hosts.address();
    let login = format!("http://{address}{}", console.keys.login_path());
    session.output.text(&format!("{login}\n"))?;
    session.output.finish()?;
    let opened = match args.no_open {
        true => None,
        false => browser::open(&login)?,
    };
    if opened.is_none() {
        say("open this address in a browser; Ctrl-C stops the console");
    }
    console.library.preload(&console);
    let ended = serve(servers, session).await;
    drop(opened);
    ended
}

/// Serves until an interruption.
async fn serve(servers: Vec<HttpServer>, session: &Session) -> Result<(), CliError> {
    // Never ends by itself: the only result is the error of an interruption.
    let _ = session.interruptible(std::future::pending::<()>()).await;
    futures::future::join_all(servers.into_iter().map(|server| server.drain(GRACE))).await;
    Ok(())
}

/// Servers on both loopback addresses with the same port. Browsers may use either for `localhost`, so that another user
/// of this machine must not get one of them.
async fn listen(console: &App, port: u16) -> Result<Vec<HttpServer>, CliError> {
    let failed = |error| CliError::operational(format!("cannot start the server: {error}"));
    let start = |address: SocketAddr| HttpServer::start(address, None, router(console));
    let mut tries = if port == 0 { PORT_TRIES } else { 1 };
    loop {
        tries -= 1;
        let first = start((Ipv4Addr::LOCALHOST, port).into()).map_err(failed)?;
        let port = first.address.port();
        let mut servers = vec![first];
        match start((Ipv6Addr::LOCALHOST, port).into()) {
            Ok(second) => servers.push(second),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                futures::future::join_all(servers.into_iter().map(|server| server.drain(GRACE))).await;
                if tries == 0 {
                    return Err(failed(error));
                }
                continue;
            }
            // The host has no IPv6.
            Err(_) => {}
        }
        console.hosts.listen_at(port);
        return Ok(servers);
    }
}
