//! Replacements for the functions of Linux.

use std::fs::File;
use std::io;

use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;

/// Fails: the system does not tell which bytes are in its cache.
///
/// # Errors
/// Always.
pub fn read_cached(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// Has no effect.
///
/// # Errors
/// None.
pub fn limit_unsent(_: &TcpStream, _: u32) -> io::Result<()> {
    Ok(())
}

/// CA certificates of the system's certificate store. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them.
pub fn trusted_certificates() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}
