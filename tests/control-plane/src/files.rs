//! Files that a control plane needs before its start: certificate, token, kubeconfig.

use crate::Error;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Serving certificate, which is also the root certificate of clients.
pub(crate) const CERTIFICATE: &str = "tls.crt";
/// Key of the certificate, which also signs ServiceAccount tokens.
pub(crate) const KEY: &str = "tls.key";
/// Static tokens of the API server.
pub(crate) const TOKENS: &str = "tokens.csv";

const KUBECONFIG: &str = "kubeconfig";
/// Token of the administrator. Not secret: the server listens on loopback and only during one test.
const ADMINISTRATOR_TOKEN: &str = "control-plane-test";

pub(crate) fn write_credentials(directory: &Path) -> Result<(), Error> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names)?;
    write(&directory.join(CERTIFICATE), &certified.cert.pem())?;
    write(&directory.join(KEY), &certified.signing_key.serialize_pem())?;
    let tokens = format!("{ADMINISTRATOR_TOKEN},administrator,administrator,system:masters\n");
    write(&directory.join(TOKENS), &tokens)
}

pub(crate) fn write_kubeconfig(directory: &Path, port: u16) -> Result<PathBuf, Error> {
    let path = directory.join(KUBECONFIG);
    let server = format!("https://127.0.0.1:{port}");
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "administrator"}}],
        "clusters": [{
            "name": "test",
            "cluster": {"server": server, "certificate-authority": directory.join(CERTIFICATE)},
        }],
        "users": [{"name": "administrator", "user": {"token": ADMINISTRATOR_TOKEN}}],
    });
    write(&path, &kubeconfig.to_string())?;
    Ok(path)
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    fs::write(path, content).map_err(|error| Error::Io(path.display().to_string(), error))
}
