//! Certificates from files: the system roots, and folders with CA certificates and client certificates
//! (docs/design/images.md#registry-configuration).
//!
//! System roots are found as Go does: `SSL_CERT_FILE` replaces the list of bundles and `SSL_CERT_DIR` the list of
//! folders, independently.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::settings::{Fingerprint, fingerprint};

/// Largest file read from a folder, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// CA bundles of Linux distributions. Only the first that exists is read.
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const SYSTEM_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// Snapshot of a folder of certificates: content of each file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// `true` if any file may hold CA certificates, `false` for `*.crt` only.
    any_name: bool,
}

/// Client certificate chain and its private key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Folder {
    /// Reads `folder`. Follows links, since a mounted ConfigMap consists of them.
    ///
    /// # Errors
    /// The folder cannot be read. A file that cannot be read is only logged, so that it does not block other
    /// registries.
    pub(crate) fn read(folder: &Path, any_name: bool) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let content = read_file(&path).inspect_err(
                |error| tracing::warn!(file = %path.display(), %error, "skipped unreadable certificate file"),
            );
            files.extend(content.ok().flatten().map(|content| (path, content)));
        }
        Ok(Self { files, any_name })
    }

    /// CA certificates. Unusable ones are logged and skipped.
    pub(crate) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        let mut usable = Vec::new();
        let is_candidate = |path: &Path| match extension(path) {
            "crt" => true,
            "cert" | "key" => false,
            _ => self.any_name,
        };
        for (path, content) in self.files.iter().filter(|(path, _)| is_candidate(path)) {
            let before = usable.len();
            for certificate in CertificateDer::pem_slice_iter(content) {
                let checked = certificate.map_err(|error| error.to_string()).and_then(|certificate| {
                    RootCertStore::empty().add(certificate.clone()).map_err(|error| error.to_string())?;
                    Ok(certificate)
                });
                usable.extend(checked.inspect_err(|error| {
                    tracing::warn!(file = %path.display(), %error, "skipped unusable certificate in CA file")
                }));
            }
            if usable.len() == before {
                tracing::warn!(file = %path.display(), "CA file has no usable certificate");
            }
        }
        usable
    }

    /// Client certificates: pairs of `NAME.cert` and `NAME.key`.
    ///
    /// # Errors
    /// Half of a pair is missing or is not PEM. The texts match containers/image.
    pub(crate) fn identities(&self) -> Result<Vec<Identity>, String> {
        let mut identities = Vec::new();
        for (path, content) in &self.files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let base = path.file_stem().unwrap_or_default().to_string_lossy();
            match extension(path) {
                "cert" => {
                    let key = self.files.get(&path.with_extension("key")).ok_or_else(|| {
                        format!(
                            "missing key {base}.key for client certificate {name}. Note that CA certificates should use the extension .crt"
                        )
                    })?;
                    let identity = identity(content, key)
                        .map_err(|cause| format!("loading client certificate {name}: {cause}"))?;
                    identities.push(identity);
                }
                "key" if !self.files.contains_key(&path.with_extension("cert")) => {
                    return Err(format!("missing client certificate {base}.cert for key {name}"));
                }
                _ => {}
            }
        }
        Ok(identities)
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn identity(chain: &[u8], key: &[u8]) -> Result<Identity, String> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    if chain.is_empty() {
        return Err("no certificate in PEM form".to_owned());
    }
    // The cause is dropped: a message must not contain any part of a key.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "its key is not in PEM form".to_owned())?;
    Ok(Identity { chain, key })
}

/// Content of a file, or `None` for a folder.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let metadata = fs::metadata(path)?;
    if metadata.len() > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    metadata.is_file().then(|| fs::read(path)).transpose()
}

/// System roots, reloaded when one of their files has changed.
#[derive(Default)]
pub(crate) struct SystemRoots {
    current: Mutex<Option<(Fingerprint, Arc<RootCertStore>)>>,
}

impl SystemRoots {
    /// Current roots. Unreadable files are skipped, since each distribution ships only some of them.
    pub(crate) fn load(&self) -> Arc<RootCertStore> {
        let files = system_authorities();
        let fingerprint = fingerprint(&files);
        let mut current = self.current.lock();
        if let Some((_, roots)) = current.as_ref().filter(|(known, _)| *known == fingerprint) {
            return Arc::clone(roots);
        }
        let mut roots = RootCertStore::empty();
        let mut seen = HashSet::new();
        let mut add = |certificates: Vec<CertificateDer<'static>>| {
            let new = certificates.into_iter().filter(|certificate| seen.insert(certificate.to_vec()));
            roots.add_parsable_certificates(new);
        };
        for content in files.iter().filter_map(|path| read_file(path).ok().flatten()) {
            add(CertificateDer::pem_slice_iter(&content).flatten().collect());
        }
        add(olm_os::trusted_certificates());
        let roots = Arc::new(roots);
        *current = Some((fingerprint, Arc::clone(&roots)));
        roots
    }
}

/// Paths that may hold system CA certificates: the first existing bundle and every entry of the folders, whether a
/// certificate or not.
pub fn system_authorities() -> Vec<PathBuf> {
    let mut files = paths_in("SSL_CERT_FILE");
    if files.is_empty() {
        files.extend(olm_os::system_paths(SYSTEM_FILES).into_iter().find(|path| path.is_file()));
    }
    let mut folders = paths_in("SSL_CERT_DIR");
    if folders.is_empty() {
        folders = olm_os::system_paths(SYSTEM_FOLDERS);
    }
    for folder in folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut in_folder: Vec<_> = entries.map(|entry| entry.path()).collect();
        in_folder.sort_unstable();
        files.append(&mut in_folder);
    }
    files
}

/// Paths in an environment variable.
pub(crate) fn paths_in(variable: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(variable).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn incomplete_certificate_pair_is_an_error() {
        let signed = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
        let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        for (files, expected) in [
            (&[("x.cert", certificate.as_str()), ("x.key", &key)][..], Ok(1)),
            (&[("x.crt", &certificate), ("note", "")], Ok(0)),
            (&[("x.key", &key)], Err("missing client certificate x.cert for key x.key")),
            (
                &[("x.cert", &certificate)],
                Err(
                    "missing key x.key for client certificate x.cert. Note that CA certificates should use the extension .crt",
                ),
            ),
            (
                &[("x.cert", "none"), ("x.key", &key)],
                Err("loading client certificate x.cert: no certificate in PEM form"),
            ),
            (
                &[("x.cert", &certificate), ("x.key", "s3cret")],
                Err("loading client certificate x.cert: its key is not in PEM form"),
            ),
        ] {
            let folder = TempDir::new().unwrap();
            for (name, content) in files {
                fs::write(folder.path().join(name), content).unwrap();
            }
            let identities = Folder::read(folder.path(), false).unwrap().identities();
            assert_eq!(identities.map(|pairs| pairs.len()), expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn file_extension_selects_ca_certificates() {
        let pem = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap().cert.pem();
        let folder = TempDir::new().unwrap();
        for name in ["a.crt", "b.pem", "c", "d.cert", "e.key"] {
            fs::write(folder.path().join(name), &pem).unwrap();
        }
        let count = |any_name| Folder::read(folder.path(), any_name).unwrap().authorities().len();
        assert_eq!((count(true), count(false)), (3, 1));
    }
}
