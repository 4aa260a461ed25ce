//! Catalogs and bundles in registries, pulled to a temporary folder that is removed on drop.

use std::path::{Path, PathBuf};

use olm_oci::{Config, CredentialSource, Credentials, ImageLabels, ImageLimits, Puller, Reference, Selector};
use tempfile::TempDir;

use crate::error::{CliError, Code};
use crate::session::Session;

/// Flags for access to registries.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ImageArgs {
    /// Directory with additional CA certificates (PEM) of registries
    #[arg(long, value_name = "DIR", help_heading = "Registries")]
    pub(crate) ca_dir: Option<PathBuf>,
    /// Credentials file; default: $REGISTRY_AUTH_FILE, else the auth.json of containers, else ~/.docker/config.json
    #[arg(long, value_name = "FILE", help_heading = "Registries")]
    pub(crate) authfile: Option<PathBuf>,
}

impl ImageArgs {
    /// Client configuration for the registry of `reference`.
    ///
    /// # Errors
    /// A file or directory that a flag names does not exist.
    pub fn config(&self, reference: &Reference, limits: ImageLimits) -> Result<Config, CliError> {
        let mut config = Config::new(limits);
        if let Some(dir) = &self.ca_dir {
            if !dir.is_dir() {
                return Err(CliError::usage(format!("--ca-dir {}: no such directory", dir.display())));
            }
            config.cas_dir = Some(dir.clone());
        }
        if let Some(file) = self.authfile(reference)? {
            config.credentials = CredentialSource::File(file);
        }
        Ok(config)
    }

    /// Credentials file for the registry of `reference`.
    ///
    /// # Errors
    /// The file that the flag names does not exist.
    pub fn authfile(&self, reference: &Reference) -> Result<Option<PathBuf>, CliError> {
        match &self.authfile {
            Some(file) if !file.is_file() => {
                Err(CliError::usage(format!("--authfile {}: no such file", file.display())))
            }
            Some(file) => Ok(Some(file.clone())),
            None => Ok(default_authfiles(|name| olm_os::variable(name).map(PathBuf::from))
                .into_iter()
                .find(|file| concerns(file, reference))),
        }
    }

    /// Pulls the folder that `select` returns for the image's labels.
    ///
    /// # Errors
    /// The registry fails, or the image is invalid.
    pub async fn pull(
        &self,
        reference: &Reference,
        select: impl FnOnce(&ImageLabels) -> Result<String, String>,
        session: &Session,
    ) -> Result<PulledContent, CliError> {
        let failed = |failure: CliError| match failure {
            CliError::Message(Code::Operational, message) => {
                CliError::operational(format!("image {reference}: {message}"))
            }
            other => other,
        };
        let puller = Puller::new(self.config(reference, ImageLimits::CATALOG)?);
        let step = session.progress.step(format!("resolving {reference}"));
        let image = session.unless_interrupted(puller.resolve(reference)).await.map_err(failed)?;
        step.update(format!("pulling {image}"));
        let folder = temporary_directory()?;
        let mut content = PulledContent { path: folder.path().join(UNPACKED), folder };
        let pull = puller.pull_folder(&image, select, &content.path);
        content.path = session.unless_interrupted(pull).await.map_err(failed)?.0.path;
        Ok(content)
    }
}

/// Creates a directory that is removed on drop.
///
/// # Errors
/// The disk refuses.
pub fn temporary_directory() -> Result<TempDir, CliError> {
    let directory = tempfile::Builder::new().prefix("olm-").tempdir();
    directory.map_err(|error| CliError::operational(format!("cannot create a temporary directory: {error}")))
}

/// Parses a reference to push to.
///
/// # Errors
/// The reference is not fully qualified, or has a digest, which follows from the content.
pub fn tagged_reference(text: &str) -> Result<Reference, CliError> {
    let wrong = |why: &str| CliError::usage(format!("reference {}: {why}", olm_version::quote(text)));
    let reference: Reference = text.parse().map_err(|error: olm_oci::ReferenceError| {
        wrong(&format!("expected one such as registry.example.com/team/catalog:v1: {error}"))
    })?;
    match reference.selector() {
        Selector::Tag(_) => Ok(reference),
        Selector::Digest(_) => Err(wrong("expected a tag; the digest follows from the content")),
    }
}

/// Name of the unpacked image in the temporary folder.
const UNPACKED: &str = "image";

/// Pulled folder, removed on drop.
#[derive(Debug)]
pub struct PulledContent {
    path: PathBuf,
    folder: TempDir,
}

impl PulledContent {
    /// Path of the selected folder of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PulledContent {
    fn drop(&mut self) {
        // Unpacked files are read-only, which the removal of the temporary folder cannot handle.
        let _ = olm_oci::remove_folder(&self.folder.path().join(UNPACKED));
    }
}

/// Default paths of credentials files, most specific first.
fn default_authfiles(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let home = variable("HOME");
    let config = variable("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let docker = variable("DOCKER_CONFIG").or_else(|| home.map(|home| home.join(".docker")));
    let containers = |folder: PathBuf| folder.join("containers/auth.json");
    let files = [
        variable("REGISTRY_AUTH_FILE"),
        variable("XDG_RUNTIME_DIR").map(containers),
        config.map(containers),
        docker.map(|folder| folder.join("config.json")),
    ];
    files.into_iter().flatten().collect()
}

/// Reports whether `file` has a login for `reference`. Also `true` for a broken file, which the pull then reports.
fn concerns(file: &Path, reference: &Reference) -> bool {
    let Ok(text) = std::fs::read(file) else {
        return file.is_file();
    };
    Credentials::parse(&text)
        .and_then(|logins| Ok(logins.lookup(reference.host(), reference.path())?.is_some()))
        .unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_in_default_paths_of_container_tools() {
        let set = |set: &'static [(&'static str, &'static str)]| {
            let variable = move |name: &str| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
            };
            default_authfiles(variable).iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(set(&[]), Vec::<String>::new());
        assert_eq!(set(&[("HOME", "/h")]), ["/h/.config/containers/auth.json", "/h/.docker/config.json"]);
        assert_eq!(
            set(&[
                ("HOME", "/h"),
                ("REGISTRY_AUTH_FILE", "/r.json"),
                ("XDG_RUNTIME_DIR", "/run/u"),
                ("XDG_CONFIG_HOME", "/c"),
                ("DOCKER_CONFIG", "/d"),
            ]),
            ["/r.json", "/run/u/containers/auth.json", "/c/containers/auth.json", "/d/config.json"]
        );
    }

    #[test]
    fn credentials_file_without_login_for_registry_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("auth.json");
        let reference: Reference = "r.example/a/b:v1".parse().unwrap();
        assert!(!concerns(&file, &reference));
        for (text, expected) in [
            (r#"{"auths":{"r.example":{"auth":"dTpw"}}}"#, true),
            (r#"{"auths":{"other.example":{"auth":"dTpw"}}}"#, false),
            ("no json", true),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(concerns(&file, &reference), expected, "{text}");
        }
    }

    #[test]
    fn push_needs_fully_qualified_reference_with_tag() {
        assert!(tagged_reference("r.example:5000/team/catalog:v1").is_ok());
        let digest = format!("r.example/catalog@sha256:{}", "0".repeat(64));
        for (text, expected) in [
            ("catalog:v1", "expected one such as registry.example.com/team/catalog:v1: "),
            ("r.example/catalog", "expected one such as registry.example.com/team/catalog:v1: "),
            (digest.as_str(), "expected a tag; the digest follows from the content"),
        ] {
            let failure = tagged_reference(text).unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().starts_with(&format!("reference {text:?}: {expected}")), "{failure}");
        }
    }
}
