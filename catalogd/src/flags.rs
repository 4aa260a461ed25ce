//! The command line of catalogd (docs/design/catalogd.md#command-line).

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use olm_oci::{Config, ImageLimits};
use olm_runtime::Component;
use olm_runtime::gates::{Gate, Stage};
use olm_runtime::go_value;
use olm_serving::command_line::ServerCommand;
use olm_serving::flags::{ServiceFlags, heading};

/// Feature gate of the `/metas` endpoint.
pub const METAS_GATE: &str = "APIV1MetasHandler";

/// Feature gate of the `/graphql` endpoint.
pub const GRAPHQL_GATE: &str = "GraphQLCatalogQueries";

/// Feature gate of the conditions `Ready`, `Reconciling` and `Stalled` (docs/design/additions.md#status-summary).
pub const STATUS_SUMMARY: &str = "StatusSummary";

/// The feature gates of catalogd (docs/design/operations.md#feature-gates).
pub const GATES: [Gate; 3] = [
    Gate { name: METAS_GATE, default: false, stage: Stage::Alpha },
    Gate { name: GRAPHQL_GATE, default: false, stage: Stage::Alpha },
    Gate { name: STATUS_SUMMARY, default: false, stage: Stage::Alpha },
];

const CATALOGS: &str = "Catalogs";

/// Unpacks the images of ClusterCatalogs and serves their content over HTTPS.
#[derive(Parser, Clone, Debug)]
#[command(name = "catalogd")]
pub struct CatalogdFlags {
    /// Address of the catalog content server
    #[arg(long, default_value = ":8443", value_parser = go_value::listen_address, value_name = "ADDRESS",
          help_heading = CATALOGS)]
    pub catalogs_server_addr: std::net::SocketAddr,
    /// Host and port of the catalog content server in `status.urls`
    #[arg(long, default_value = "catalogd-service.olmv1-system.svc", value_name = "HOST[:PORT]", help_heading = CATALOGS)]
    pub external_address: String,
    /// Directory of catalog content, kept over restarts
    #[arg(long, default_value = "/var/cache/catalogd", value_name = "DIR", help_heading = CATALOGS)]
    pub cache_dir: PathBuf,
    /// Interval of garbage collection of content without a catalog
    #[arg(long, default_value = "12h0m0s", value_parser = go_value::duration, value_name = "DURATION",
          help_heading = CATALOGS)]
    pub gc_interval: Duration,
    /// Interval of reading the Kubernetes version while a catalog has an image template
    #[arg(long, default_value = "5m0s", value_parser = go_value::duration, value_name = "DURATION",
          help_heading = CATALOGS)]
    pub cluster_version_interval: Duration,
    /// Port of the admission webhook
    #[arg(long, default_value_t = 9443, value_name = "PORT", help_heading = heading::CLUSTER)]
    pub webhook_server_port: u16,
    /// Serve catalogs over plain HTTP for development, without --leader-elect
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL",
          help_heading = CATALOGS)]
    pub insecure_http: bool,
    /// Flags of both servers
    #[command(flatten)]
    pub service: ServiceFlags,
    /// Commands
    #[command(subcommand)]
    pub command: Option<ServerCommand>,
}

impl CatalogdFlags {
    /// Validates combinations of flags.
    ///
    /// # Errors
    /// The start-up error text.
    pub fn check(&self) -> Result<(), String> {
        self.service.check(Component::Catalogd)?;
        Config::new(ImageLimits::CATALOG)
            .apply_flags(&self.service.image_limits, &self.service.registry_deny_cidrs)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use olm_serving::command_line::parse;

    fn flags(arguments: &[&str]) -> Result<CatalogdFlags, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        parse(&arguments)
    }

    // docs/design/catalogd.md#command-line, docs/design/operations.md#start-up-errors
    #[test]
    fn flag_combinations_are_validated() {
        let none = "no serving certificate: give tls-cert and tls-key, or cert-management=builtin, or \
                    insecure-http=true for development";
        let rows: [(&[&str], Result<(), &str>); 10] = [
            (&["--tls-cert=a", "--tls-key=b"], Ok(())),
            (&["--cert-management=builtin", "--leader-elect"], Ok(())),
            (&["--insecure-http"], Ok(())),
            (&[], Err(none)),
            (&["--tls-key=a"], Err("tls-cert and tls-key flags must be used together")),
            (
                &["--insecure-http", "--leader-elect"],
                Err("insecure-http cannot be used together with leader-elect"),
            ),
            (
                &["--insecure-http", "--cert-management=builtin"],
                Err("insecure-http cannot be used together with a serving certificate"),
            ),
            (
                &["--insecure-http", "--image-limits=files"],
                Err("invalid argument \"files\" for \"--image-limits\" flag: missing value for files"),
            ),
            (
                &["--insecure-http", "--registry-deny-cidrs=localhost"],
                Err(
                    "invalid argument \"localhost\" for \"--registry-deny-cidrs\" flag: invalid CIDR address: localhost",
                ),
            ),
            (&["foo"], Err("unknown command \"foo\" for \"catalogd\"")),
        ];
        for (arguments, expect) in rows {
            let checked = flags(arguments).and_then(|flags| flags.check());
            assert_eq!(checked, expect.map_err(str::to_owned), "{arguments:?}");
        }
        assert!(matches!(
            flags(&["completion", "bash"]).unwrap().command,
            Some(ServerCommand::Completion { .. })
        ));
        let limited = flags(&["--image-limits=files=3", "--require-signature-policy"]).unwrap();
        assert!(limited.service.require_signature_policy);
        assert_eq!(limited.service.image_limits, "files=3");
        assert_eq!(limited.service.registry_deny_cidrs, olm_oci::DeniedNetworks::OF_SERVERS);
    }
}
