//! Verification of signatures by the functions of the servers.

use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::source::temporary_directory;
use olm_oci::policy::PolicySource;
use olm_oci::{Config, ImagePlatform};
use serde_json::json;
use tempfile::TempDir;

/// Flags of the required signatures.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PolicyArgs {
    /// Require a signature by this public key (PEM); may be given several times, then a signature by one of them suffices
    #[arg(long = "key", value_name = "PUB", help_heading = "Signatures", conflicts_with = "policy")]
    keys: Vec<PathBuf>,
    /// Require what this signature policy demands, in the format policy.json of the servers
    #[arg(long, value_name = "FILE", help_heading = "Signatures")]
    policy: Option<PathBuf>,
}

/// Signature policy of a command, with its temporary files.
pub(crate) struct Verifier {
    source: PolicySource,
    _folder: TempDir,
}

impl PolicyArgs {
    /// `true` if a flag is set.
    pub(crate) fn is_set(&self) -> bool {
        !self.keys.is_empty() || self.policy.is_some()
    }

    /// Policy that the flags request. Signatures by a key must name the repository of the image.
    ///
    /// # Errors
    /// A file does not exist, or is not a policy or key.
    pub(crate) fn verifier(&self) -> Result<Verifier, CliError> {
        let folder = temporary_directory()?;
        let path = |name: &str| folder.path().join(name);
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|error| CliError::at(path.display(), error))
        };
        std::fs::create_dir(path("registries.d")).map_err(CliError::operational)?;
        write(&path("registries.d/all.yaml"), "default-docker:\n  use-sigstore-attachments: true\n")?;
        let mut keys = Vec::new();
        for key in &self.keys {
            let absolute = key.canonicalize();
            keys.push(absolute.map_err(|error| CliError::at(format!("--key {}", key.display()), error))?);
        }
        let policy = match &self.policy {
            Some(policy) if !policy.is_file() => {
                return Err(CliError::usage(format!("--policy {}: no such file", policy.display())));
            }
            Some(policy) => policy.clone(),
            None => {
                let identity = json!({ "type": "matchRepository" });
                let signed =
                    json!({ "type": "sigstoreSigned", "keyPaths": keys, "signedIdentity": identity });
                write(&path("policy.json"), &json!({ "default": [signed] }).to_string())?;
                path("policy.json")
            }
        };
        let source = PolicySource::new(Some(policy), vec![folder.path().to_owned()], true);
        source.validate().map_err(CliError::operational)?;
        Ok(Verifier { source, _folder: folder })
    }
}

impl Verifier {
    /// `config` with this policy, for images of any platform.
    pub(crate) fn applied(&self, config: Config) -> Config {
        Config { policy: self.source.clone(), platform: ImagePlatform::any(), ..config }
    }
}
