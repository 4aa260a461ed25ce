//! Private keys: read from a file or the environment, and generated.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_os::HiddenInput;
use olm_pack::SigningKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;

use super::encrypted;

/// Environment variable with the password of a private key. cosign reads it, too.
const PASSWORD: &str = "COSIGN_PASSWORD";
/// Prefix of a `--key` that names an environment variable.
const ENVIRONMENT: &str = "env://";
/// Largest key file.
const MAX_KEY: u64 = 64 << 10;

/// First lines of the help of `olm bundle keygen`.
pub const ABOUT: &str = "Generate a key pair for the signatures of bundles and catalogs

Writes the private key to PREFIX.key, for `olm bundle sign` and `cosign sign`, and the public key to PREFIX.pub, for \
`olm bundle verify` and the signature policy of servers. The private key is encrypted with the password in the \
environment variable COSIGN_PASSWORD, or else with one that you type. An empty password is possible. Existing files \
are not replaced.";

/// Arguments of `olm bundle keygen`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} bundle keygen team                              # writes team.key and team.pub
  {olm} bundle sign registry.example.com/team/lamp:v1 --key team.key")]
pub struct KeygenArgs {
    /// Path of both files without their extension
    #[arg(value_name = "PREFIX", default_value = "olm")]
    prefix: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GeneratedKey {
    private_key: PathBuf,
    public_key: PathBuf,
}

/// Generates a pair of keys.
///
/// # Errors
/// A file exists or cannot be written, or there is no password.
pub async fn generate(args: KeygenArgs, session: &mut Session) -> Result<(), CliError> {
    let file = |extension: &str| {
        let mut name = args.prefix.clone().into_os_string();
        name.push(extension);
        PathBuf::from(name)
    };
    let (private, public) = (file(".key"), file(".pub"));
    if let Some(existing) = [&private, &public].into_iter().find(|path| path.exists()) {
        return Err(CliError::at(existing.display(), "the file exists; choose another PREFIX"));
    }
    let password = password("Password of the new key", true, session).await?;
    let key = SigningKey::generate()?;
    let pem = encrypted::seal(key.to_pkcs8()?.as_ref().to_vec(), password.as_bytes());
    write_new(&private, &pem.map_err(CliError::operational)?, 0o600)?;
    write_new(&public, &key.public_pem()?, 0o644)?;
    let generated = GeneratedKey { private_key: private, public_key: public };
    session.output.result(args.format.output, "GeneratedKey", &generated, |generated| {
        format!("{}\n{}\n", generated.private_key.display(), generated.public_key.display())
    })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let written = olm_os::create_new(path, mode).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| CliError::at(path.display(), error))
}

/// Private key that `--key` names.
///
/// # Errors
/// It cannot be read, is of an unknown kind, or the password is wrong.
pub(super) async fn load(source: &str, session: &Session) -> Result<SigningKey, CliError> {
    let wrong = |why: &str| CliError::at(format!("--key {source}"), why);
    let text = match source.strip_prefix(ENVIRONMENT) {
        Some(name) => std::env::var(name).map_err(|_| wrong("the environment variable is not set"))?,
        None => read(Path::new(source)).map_err(|error| wrong(&error.to_string()))?,
    };
    if let Some(block) = encrypted::block(&text) {
        let password = password(&format!("Password of {source}"), false, session).await?;
        let der = encrypted::open(block, password.as_bytes()).map_err(|why| wrong(&why))?;
        return SigningKey::from_der(&der).map_err(|error| wrong(&error.to_string()));
    }
    plain(&text).map_err(|why| wrong(&why))
}

/// Key in an unencrypted PEM block.
fn plain(text: &str) -> Result<SigningKey, String> {
    if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
        return Err("encrypted PKCS#8 is not supported; decrypt it with `openssl pkcs8`".to_owned());
    }
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        "expected a PEM block PRIVATE KEY, EC PRIVATE KEY or ENCRYPTED SIGSTORE PRIVATE KEY".to_owned()
    })?;
    SigningKey::from_der(der.secret_der()).map_err(|error| error.to_string())
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_KEY + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_KEY {
        return Err(io::Error::other(format!("larger than {MAX_KEY} bytes")));
    }
    Ok(text)
}

/// Password from the environment or the terminal, where a new one is typed twice.
async fn password(question: &str, is_new: bool, session: &Session) -> Result<String, CliError> {
    if let Ok(password) = std::env::var(PASSWORD) {
        return Ok(password);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let error = format!("set {PASSWORD}, because standard input or standard error is not a terminal");
        return Err(CliError::usage(error));
    }
    let hidden = HiddenInput::start();
    let _hidden =
        hidden.map_err(|error| CliError::operational(format!("cannot hide the password: {error}")))?;
    let first = ask(question, session).await?;
    if is_new && ask("Repeat the password", session).await? != first {
        return Err(CliError::operational("the passwords differ"));
    }
    Ok(first)
}

async fn ask(question: &str, session: &Session) -> Result<String, CliError> {
    let question = olm_cli_core::output::printable(&format!("{question}: "));
    let read = move || {
        write!(io::stderr(), "{question}")?;
        Ok::<_, io::Error>(HiddenInput::read_line()?.trim_end_matches(['\r', '\n']).to_owned())
    };
    let answer = session.detached(read, "cannot read the password").await?;
    answer.map_err(|error| CliError::operational(format!("cannot read the password: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unencrypted_keys_of_openssl_are_read() {
        let Some(openssl) = olm_require::program("openssl", "openssl") else { return };
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &[&str]| {
            let ran = std::process::Command::new(&openssl).current_dir(&folder).args(arguments).output();
            assert!(ran.unwrap().status.success());
        };
        openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1"]);
        openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", "sec1", "-out", "pkcs8"]);
        openssl(&["ec", "-in", "sec1", "-pubout", "-out", "public"]);
        openssl(&["pkcs8", "-topk8", "-passout", "pass:x", "-in", "sec1", "-out", "encrypted"]);
        openssl(&["ecparam", "-name", "secp384r1", "-genkey", "-out", "p384"]);
        let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        for name in ["sec1", "pkcs8"] {
            assert_eq!(plain(&text(name)).unwrap().public_pem().unwrap(), text("public"), "{name}");
        }
        for (text, expected) in [
            (text("encrypted"), "encrypted PKCS#8 is not supported; decrypt it with `openssl pkcs8`"),
            (text("p384"), "private key: expected an ECDSA key with the curve P-256"),
            (
                text("public"),
                "expected a PEM block PRIVATE KEY, EC PRIVATE KEY or ENCRYPTED SIGSTORE PRIVATE KEY",
            ),
        ] {
            assert_eq!(plain(&text).unwrap_err(), expected);
        }
    }
}
