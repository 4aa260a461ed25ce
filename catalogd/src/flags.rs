//! The command line of catalogd (spec 02 §E1).

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use olm_service::flags::ServiceFlags;
use olm_service::gates::{Gate, Stage};
use olm_service::go_value;

/// Gate of the `/metas` endpoint.
pub const METAS_GATE: &str = "APIV1MetasHandler";

/// The gates that catalogd knows (spec 06 §2.6).
pub const GATES: [Gate; 2] = [
    Gate { name: METAS_GATE, default: false, stage: Stage::Alpha },
    Gate { name: "GraphQLCatalogQueries", default: false, stage: Stage::Alpha },
];

/// Unpacks the images of ClusterCatalogs and serves their content over HTTPS.
#[derive(Parser, Clone, Debug)]
#[command(name = "catalogd")]
pub struct Flags {
    /// Address of the catalog content server
    #[arg(long, default_value = ":8443", value_parser = go_value::listen_address, value_name = "ADDRESS")]
    pub catalogs_server_addr: std::net::SocketAddr,
    /// Host and port by which clients reach the catalog content server
    #[arg(long, default_value = "catalogd-service.olmv1-system.svc", value_name = "HOST[:PORT]")]
    pub external_address: String,
    /// Directory of catalog content; it is kept over restarts
    #[arg(long, default_value = "/var/cache/catalogd", value_name = "DIR")]
    pub cache_dir: PathBuf,
    /// How often content without a catalog is looked for
    #[arg(long, default_value = "12h0m0s", value_parser = go_value::duration, value_name = "DURATION")]
    pub gc_interval: Duration,
    /// Port of the admission webhook
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    pub webhook_server_port: u16,
    /// Serve catalogs over plain HTTP; for development, not with --leader-elect
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL")]
    pub insecure_http: bool,
    /// Flags that both servers have
    #[command(flatten)]
    pub service: ServiceFlags,
    /// Instead of running
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What catalogd does instead of running.
#[derive(clap::Subcommand, Clone, Copy, Debug)]
pub enum Command {
    /// Print the version
    Version,
}

impl Flags {
    /// Checks what concerns several flags at once.
    ///
    /// # Errors
    /// The start-up error text.
    pub fn check(&self) -> Result<(), String> {
        match (self.insecure_http, self.service.has_certificate()) {
            (true, true) => {
                Err("insecure-http cannot be used together with a serving certificate".to_owned())
            }
            (true, false) if self.service.leader_elect => {
                Err("insecure-http cannot be used together with leader-elect".to_owned())
            }
            (false, false) => Err("no serving certificate: give tls-cert and tls-key, or \
                                   cert-management=builtin, or insecure-http=true for development"
                .to_owned()),
            _ => Ok(()),
        }
    }

    /// Scheme and host of catalog addresses.
    pub fn external_url(&self) -> String {
        let scheme = if self.insecure_http { "http" } else { "https" };
        format!("{scheme}://{}", self.external_address)
    }
}
