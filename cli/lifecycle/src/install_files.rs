//! Install files in the program, which `build.rs` compresses.

use std::io::Read as _;

use clap::ValueEnum;
use flate2::read::GzDecoder;
use olm_cli_core::error::CliError;

/// Install file in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// For any cluster
    Install,
    /// With limited permissions and network traffic
    Hardened,
    /// With certificates of cert-manager
    InstallCertManager,
    /// With experimental gates, two replicas and certificates of cert-manager
    Experimental,
}

impl Variant {
    /// Variant of the file `name`, which is without `.yaml`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }

    /// Name without `.yaml`.
    pub fn name(self) -> &'static str {
        self.file().0
    }

    /// Place of the file in messages.
    pub fn origin(self) -> String {
        format!("{}.yaml in this program", self.name())
    }

    /// Content of the file, for the namespace `olmv1-system`.
    ///
    /// # Errors
    /// The program was built with an invalid file.
    pub fn text(self) -> Result<String, CliError> {
        let mut text = String::new();
        let unpacked = GzDecoder::new(self.file().1).read_to_string(&mut text);
        unpacked.map_err(|error| CliError::at(self.origin(), error))?;
        Ok(text)
    }

    /// Name, and content compressed by gzip.
    fn file(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::Install => ("install", include_bytes!(concat!(env!("OUT_DIR"), "/install.yaml.gz"))),
            Self::Hardened => ("hardened", include_bytes!(concat!(env!("OUT_DIR"), "/hardened.yaml.gz"))),
            Self::InstallCertManager => (
                "install-cert-manager",
                include_bytes!(concat!(env!("OUT_DIR"), "/install-cert-manager.yaml.gz")),
            ),
            Self::Experimental => {
                ("experimental", include_bytes!(concat!(env!("OUT_DIR"), "/experimental.yaml.gz")))
            }
        }
    }
}
