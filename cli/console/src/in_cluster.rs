//! Console in a pod, behind the identities of its users (docs/design/console.md#in-the-cluster).

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ClusterConnection};
use olm_runtime::metrics::Metrics;
use olm_serving::ephemeral::EphemeralPair;
use olm_serving::https::{HttpServer, RustlsConfig};
use olm_serving::serving_certificate::{CertificateSource, ServingCertificate};
use olm_serving::tls_profile::{ProfileName, TlsProfile, TlsVersion};
use tokio_util::sync::CancellationToken;

use super::app::{App, router};

/// Interval of reading the files of the serving certificate until they are valid.
const POLL: Duration = Duration::from_secs(2);

/// Arguments of a console in the cluster.
#[derive(Debug, Args)]
pub(super) struct InClusterArgs {
    /// Serve the users of the cluster from a pod, each with the rights of their own token; the pod needs none
    #[arg(long, requires = "host", conflicts_with_all = ["kubeconfig", "context", "port", "authfile"])]
    pub(super) in_cluster: bool,
    /// With --in-cluster: host name of the console in the browser, without port; may be given several times
    #[arg(long, value_name = "NAME", requires = "in_cluster", value_parser = host_name)]
    pub(super) host: Vec<String>,
    /// With --in-cluster: address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443", requires = "in_cluster")]
    listen: SocketAddr,
    /// With --in-cluster: PEM file with the serving certificate and its chain; while it and its key do not exist, the
    /// console uses a certificate that it makes in memory
    #[arg(long, value_name = "FILE", default_value = "/var/certs/tls.crt", requires_all = ["tls_key", "in_cluster"])]
    tls_cert: PathBuf,
    /// With --in-cluster: PEM file with the key of the certificate
    #[arg(long, value_name = "FILE", default_value = "/var/certs/tls.key", requires_all = ["tls_cert", "in_cluster"])]
    tls_key: PathBuf,
    /// With --in-cluster: serve plain HTTP, behind a proxy that serves HTTPS
    #[arg(long, requires = "in_cluster", conflicts_with = "tls_cert")]
    insecure_http: bool,
    /// With --in-cluster: PEM file with the CAs of the API server
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        requires = "in_cluster"
    )]
    cluster_ca: PathBuf,
    /// With --in-cluster: folder with the CAs of catalogd
    #[arg(long, value_name = "DIR", default_value = "/var/ca-certs", requires = "in_cluster")]
    catalogd_cas_dir: PathBuf,
}

impl InClusterArgs {
    /// Connection to the cluster of the pod, without credentials.
    ///
    /// # Errors
    /// The process is in no pod, or the CA cannot be read.
    pub(super) fn base(&self, cluster: &ClusterArgs) -> Result<ClusterConnection, CliError> {
        let variable = |name| {
            let missing =
                |_| CliError::operational(format!("--in-cluster: ${name} is not set: run it in a pod"));
            std::env::var(name).map_err(missing)
        };
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let url = address(&host, &variable("KUBERNETES_SERVICE_PORT")?);
        let url = url.parse().map_err(|error| CliError::at("$KUBERNETES_SERVICE_HOST", error))?;
        cluster.of_pod(url, &self.cluster_ca, self.catalogd_cas_dir.clone())
    }

    /// Starts the server. Waits while the files of the serving certificate are invalid.
    ///
    /// # Errors
    /// The address is taken.
    pub(super) async fn listen(&self, console: &App, session: &Session) -> Result<HttpServer, CliError> {
        let tls = match self.insecure_http {
            true => None,
            false => Some(self.tls(session).await?),
        };
        let server = HttpServer::start(self.listen, tls, router(console))
            .map_err(|error| CliError::operational(format!("cannot start the server: {error}")))?;
        say(&format!("the console listens on {}", server.address));
        Ok(server)
    }

    /// TLS with a certificate that is read again when its files change.
    async fn tls(&self, session: &Session) -> Result<RustlsConfig, CliError> {
        let profile = TlsProfile::new(ProfileName::Intermediate, TlsVersion::Tls12, &[], &[]);
        let names = self.host.iter().map(|name| name.trim_matches(['[', ']']).to_owned()).collect();
        let source = CertificateSource::FilesOrEphemeral {
            certificate: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            ephemeral: EphemeralPair::new(names),
        };
        if source.is_ephemeral() {
            let file = self.tls_cert.display();
            say(&format!(
                "{file} does not exist: until it does, clients get a certificate that they cannot verify"
            ));
        }
        let metrics = Arc::new(Metrics::new());
        let serving =
            Arc::new(ServingCertificate::new(source, profile.map_err(CliError::operational)?, metrics));
        let mut is_reported = false;
        let pair = loop {
            match serving.load(None).await {
                Ok(pair) => break pair,
                Err(error) if !is_reported => say(&format!("waiting for the serving certificate: {error}")),
                Err(_) => {}
            }
            is_reported = true;
            session.interruptible(tokio::time::sleep(POLL)).await?;
        };
        tokio::spawn(Arc::clone(&serving).follow(pair, CancellationToken::new()));
        let config = serving.server_config(None).map_err(|error| CliError::at("TLS", error))?;
        Ok(RustlsConfig::from_config(config))
    }
}

/// Host as in the header `Host`, without port. An IPv6 address has brackets.
fn host_name(text: &str) -> Result<String, String> {
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_name = || {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        !text.is_empty() && text.chars().all(is_part)
    };
    match address.map_or_else(is_name, |address| address.parse::<Ipv6Addr>().is_ok()) {
        true => Ok(text.to_owned()),
        false => Err("specify a host name without scheme and port, such as olm.example.com".to_owned()),
    }
}

fn address(host: &str, port: &str) -> String {
    match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;
    use crate::ConsoleArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        _args: ConsoleArgs,
    }

    fn parse(flags: &[&str]) -> Option<ErrorKind> {
        Line::try_parse_from(["console"].iter().chain(flags)).err().map(|error| error.kind())
    }

    #[test]
    fn flags_of_the_other_mode_are_wrong_usage() {
        let pod = ["--in-cluster", "--host", "a.example"];
        assert_eq!(parse(&pod), None);
        // Users would read images with the credentials of the pod.
        assert_eq!(
            parse(&[pod.as_slice(), &["--authfile", "f"]].concat()),
            Some(ErrorKind::ArgumentConflict)
        );
        for flag in
            ["--listen=[::]:1", "--cluster-ca=f", "--catalogd-cas-dir=d", "--host=a", "--insecure-http"]
        {
            assert_eq!(parse(&[flag]), Some(ErrorKind::MissingRequiredArgument), "{flag}");
        }
    }

    #[test]
    fn host_has_neither_scheme_nor_port() {
        for name in ["olm.example.com", "10.0.0.1", "[fd00::1]", "LOCALHOST"] {
            assert_eq!(host_name(name).as_deref(), Ok(name));
        }
        for name in
            ["", "a.example:443", "https://a.example", "a.example/", "fd00::1", "[fd00::1]:443", "[a]", "a b"]
        {
            assert!(host_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn ipv6_address_of_the_api_server_gets_brackets() {
        assert_eq!(address("10.0.0.1", "443"), "https://10.0.0.1:443");
        assert_eq!(address("fd00::1", "443"), "https://[fd00::1]:443");
    }
}
