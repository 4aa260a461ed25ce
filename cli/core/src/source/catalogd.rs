//! Direct calls inside of the cluster, which trust the CAs of a file or folder only.

use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::Scheme;
use kube::{Client, Config};
use olm_api::ClusterCatalog;
use olm_serving::certificate::read_limited;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::cluster::DEADLINE;
use crate::error::CliError;

/// Client without credentials for the server at `url`. `cas` is a file, or a folder with files.
///
/// # Errors
/// No certificate can be read.
pub(super) fn client(url: Uri, cas: &Path) -> Result<Client, CliError> {
    let mut config = Config::new(url);
    config.root_cert = Some(certificates(cas)?);
    // A file is read again when it changes.
    config.root_cert_file = cas.is_file().then(|| cas.to_owned());
    config.connect_timeout = Some(DEADLINE);
    config.read_timeout = Some(DEADLINE);
    Client::try_from(config).map_err(|error| CliError::at("TLS client", olm_api::text::with_causes(&error)))
}

/// Address of the content of a catalog in its status.
///
/// # Errors
/// The catalog does not exist, or the status has no HTTPS address of it: with another path, the content of one catalog
/// would be used for another one.
pub(super) fn url(name: &str, catalog: Option<ClusterCatalog>) -> Result<Uri, CliError> {
    let missing = || CliError::no_candidate(format!("there is no ClusterCatalog {name:?}"));
    let urls = catalog.ok_or_else(missing)?.status.and_then(|status| status.urls);
    let base = urls.and_then(|urls| urls.base.parse::<Uri>().ok());
    let path = format!("/catalogs/{name}");
    let is_of_catalog = |url: &Uri| {
        let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        url.scheme() == Some(&Scheme::HTTPS) && is_plain && url.path() == path && url.query().is_none()
    };
    base.filter(is_of_catalog).ok_or_else(|| {
        let what = "status.urls.base is not an https address that ends with";
        CliError::operational(format!("ClusterCatalog {name:?}: {what} {path}"))
    })
}

/// Certificates (DER) of a PEM file, or of all files of a folder.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::at("CA certificates", error);
    let files: Vec<PathBuf> = match path.is_dir() {
        false => vec![path.to_owned()],
        true => {
            let entries = path.read_dir().map_err(|error| failed(&error))?;
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect()
        }
    };
    let mut found = Vec::new();
    for file in files {
        let pem = read_limited(&file).map_err(|error| failed(&error))?;
        found.extend(CertificateDer::pem_slice_iter(&pem).flatten().map(|der| der.to_vec()));
    }
    match found.is_empty() {
        true => Err(failed(&format!("{} contains no certificates", path.display()))),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_address_must_be_https_and_of_the_catalog() {
        for (base, accepted) in [
            (Some("https://catalogd.ns.svc/catalogs/a"), true),
            (Some("http://catalogd.ns.svc/catalogs/a"), false),
            (Some("https://catalogd.ns.svc/catalogs/b"), false),
            (Some("https://catalogd.ns.svc/catalogs/a/"), false),
            (Some("https://catalogd.ns.svc/catalogs/a?b"), false),
            (Some("https://a@catalogd.ns.svc/catalogs/a"), false),
            (Some("file:///etc"), false),
            (Some("x"), false),
            (None, false),
        ] {
            let status = base.map_or_else(|| json!({}), |base| json!({"urls": {"base": base}}));
            let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
                "metadata": {"name": "a"}, "spec": {"source": {"type": "Image", "image": {"ref": "r.example/a"}}},
                "status": status});
            let catalog: ClusterCatalog = serde_json::from_value(catalog).unwrap();
            assert_eq!(url("a", Some(catalog)).is_ok(), accepted, "{base:?}");
        }
        assert!(url("a", None).is_err());
    }

    #[test]
    fn folder_without_certificate_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(certificates(folder.path()).is_err());
        let made = ca_pem();
        std::fs::write(folder.path().join("ca.crt"), format!("{made}{made}")).unwrap();
        std::fs::create_dir(folder.path().join("..data")).unwrap();
        assert_eq!(certificates(folder.path()).unwrap().len(), 2);
        assert_eq!(certificates(&folder.path().join("ca.crt")).unwrap().len(), 2);
        assert!(certificates(&folder.path().join("absent")).is_err());
    }

    fn ca_pem() -> String {
        let now = k8s_openapi::jiff::Timestamp::now();
        String::from_utf8(olm_serving::issue::new_ca("test", now).unwrap().certificate).unwrap()
    }
}
