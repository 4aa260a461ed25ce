//! TLS configuration of the local server. The key of a new certificate is only in memory.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use olm_cli_core::error::CliError;
use olm_serving::certificate::{CertificateError, PemPair, read_limited};
use olm_serving::https::RustlsConfig;
use olm_serving::issue::{new_ca, new_leaf};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::SingleCertAndKey;

/// Common name of the CA.
const CA_NAME: &str = "olm catalog serve";

/// Configuration with the certificate and key in these files.
///
/// # Errors
/// A file cannot be read, or key and certificate do not match.
pub(super) fn from_files(certificate: &Path, key: &Path) -> Result<RustlsConfig, CliError> {
    let read = |file| read_limited(file).map_err(failed);
    let pair = PemPair { certificate: read(certificate)?, key: read(key)? };
    config(&pair, &certificate.display().to_string())
}

/// Configuration with a new certificate for this machine, and for the address to listen on. Its CA is written to
/// `ca_file`.
///
/// # Errors
/// The file cannot be written, or no certificate can be made.
pub(super) fn new(listen: &SocketAddr, ca_file: &Path) -> Result<RustlsConfig, CliError> {
    let now = Timestamp::now();
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let address: IpAddr = listen.ip();
    if !address.is_unspecified() && !names.contains(&address.to_string()) {
        names.push(address.to_string());
    }
    let ca = new_ca(CA_NAME, now).map_err(failed)?;
    let pair = new_leaf(&ca, CA_NAME, &names, now).map_err(failed)?;
    std::fs::write(ca_file, &ca.certificate)
        .map_err(|error| CliError::operational(format!("cannot write {}: {error}", ca_file.display())))?;
    config(&pair, CA_NAME)
}

fn config(pair: &PemPair, origin: &str) -> Result<RustlsConfig, CliError> {
    let certified = pair.parse(origin, &default_provider()).map_err(failed)?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

fn failed(error: CertificateError) -> CliError {
    CliError::operational(format!("certificate of the server: {error}"))
}
