//! TLS profiles: versions, suites and curves of the HTTPS servers and the catalog client
//! (docs/design/operations.md#tls-profiles). Known names that this build does not support are ignored with a
//! warning.

use std::sync::Arc;

use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Value of `--tls-profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.2 with modern suites, and 1.3.
    Intermediate,
    /// Same as intermediate: the additions of the reference are not supported.
    Old,
    /// Defined by the `--tls-custom-*` flags.
    Custom,
}

/// Minimum TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.0 or 1.1, raised to 1.2.
    Legacy,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// A known name with its implementation, if this build supports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named<T> {
    name: &'static str,
    offered: Option<T>,
}

/// A cipher suite.
pub type Suite = Named<SupportedCipherSuite>;
/// A key exchange group.
pub type Curve = Named<&'static dyn SupportedKxGroup>;

const fn offered<T: Copy>(name: &'static str, offered: T) -> Named<T> {
    Named { name, offered: Some(offered) }
}

const fn unavailable<T>(name: &'static str) -> Named<T> {
    Named { name, offered: None }
}

use aws_lc_rs::cipher_suite as suite;
use aws_lc_rs::kx_group as group;

static SUITES: [Suite; 25] = [
    offered("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    offered("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    offered("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    offered("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    offered("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    offered("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    offered("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    offered(
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    offered(
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    unavailable("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    unavailable("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    unavailable("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    unavailable("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
    unavailable("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    unavailable("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    unavailable("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    unavailable("TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
    unavailable("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    unavailable("TLS_RSA_WITH_RC4_128_SHA"),
    unavailable("TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    unavailable("TLS_RSA_WITH_AES_128_CBC_SHA"),
    unavailable("TLS_RSA_WITH_AES_256_CBC_SHA"),
    unavailable("TLS_RSA_WITH_AES_128_CBC_SHA256"),
    unavailable("TLS_RSA_WITH_AES_128_GCM_SHA256"),
    unavailable("TLS_RSA_WITH_AES_256_GCM_SHA384"),
];

static CURVES: [Curve; 8] = [
    offered("X25519MLKEM768", group::X25519MLKEM768),
    offered("X25519", group::X25519),
    offered("prime256v1", group::SECP256R1),
    offered("secp256r1", group::SECP256R1),
    offered("secp384r1", group::SECP384R1),
    unavailable("secp521r1"),
    offered("SecP256r1MLKEM768", group::SECP256R1MLKEM768),
    unavailable("SecP384r1MLKEM1024"),
];

/// Parses `--tls-profile`, case-insensitively.
///
/// # Errors
/// An unknown name.
pub fn profile_name(text: &str) -> Result<ProfileName, String> {
    ProfileName::from_str(text, true).map_err(|_| format!("unknown TLS profile: {text:?}"))
}

/// Parses `--tls-custom-version`.
///
/// # Errors
/// An unknown version.
pub fn version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "TLSv1.0" | "TLSv1.1" => Ok(TlsVersion::Legacy),
        "TLSv1.2" => Ok(TlsVersion::Tls12),
        "TLSv1.3" => Ok(TlsVersion::Tls13),
        _ => Err(format!("unknown TLS version: {text:?}")),
    }
}

/// Parses `--tls-custom-ciphers`.
///
/// # Errors
/// The first unknown name.
pub fn suites(text: &str) -> Result<Arc<[Suite]>, String> {
    find_all(&SUITES, text, "cipher")
}

/// Parses `--tls-custom-curves`.
///
/// # Errors
/// The first unknown name.
pub fn curves(text: &str) -> Result<Arc<[Curve]>, String> {
    find_all(&CURVES, text, "curve")
}

fn find_all<T: Copy>(known: &[Named<T>], text: &str, kind: &str) -> Result<Arc<[Named<T>]>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let find = |name| {
        let found = known.iter().find(|known| known.name == name);
        found.copied().ok_or_else(|| format!("unknown {kind} {name:?}"))
    };
    names.map(find).collect()
}

/// A warning for each of `asked` that is not supported.
fn unsupported<T>(asked: &[Named<T>], kind: &'static str) -> impl Iterator<Item = String> {
    let names = asked.iter().filter(|one| one.offered.is_none()).map(|one| one.name);
    names.map(move |name| format!("TLS {kind} {name:?} is not supported by this build and was ignored"))
}

/// A TLS profile mapped to this build.
#[derive(Clone, Debug)]
pub struct TlsProfile {
    /// Supported suites and groups.
    pub provider: Arc<CryptoProvider>,
    /// Supported protocol versions.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// One sentence for each requested item that is not supported.
    pub warnings: Vec<String>,
}

impl TlsProfile {
    /// Maps a profile to what this build supports (docs/design/operations.md#tls-profiles).
    ///
    /// # Errors
    /// No item of an explicit list is supported.
    pub fn new(
        name: ProfileName,
        custom_version: TlsVersion,
        custom_suites: &[Suite],
        custom_curves: &[Curve],
    ) -> Result<Self, String> {
        let profile_curves = &CURVES[..5];
        let (least, asked_suites, asked_curves) = match name {
            ProfileName::Modern => (TlsVersion::Tls13, &SUITES[..3], profile_curves),
            ProfileName::Intermediate => (TlsVersion::Tls12, &SUITES[..9], profile_curves),
            ProfileName::Old => (TlsVersion::Legacy, &SUITES[..9], profile_curves),
            ProfileName::Custom => (custom_version, custom_suites, custom_curves),
        };
        let mut warnings: Vec<String> = unsupported(asked_suites, "cipher suite").collect();
        warnings.extend(unsupported(asked_curves, "curve"));
        if least == TlsVersion::Legacy {
            warnings.push("TLS versions below 1.2 are not supported; using TLSv1.2".to_owned());
        }
        let label = format!("{name:?}").to_lowercase();
        let none = |what: &str| format!("no supported {what} remain for TLS profile {label:?}");
        let mut suites =
            usable(asked_suites, aws_lc_rs::DEFAULT_CIPHER_SUITES).ok_or_else(|| none("cipher suites"))?;
        // A list without TLS 1.3 suites gets all three of them.
        if !suites.iter().any(|suite| suite.version() == &rustls::version::TLS13) {
            suites.extend(SUITES[..3].iter().filter_map(|suite| suite.offered));
        }
        let groups = usable(asked_curves, aws_lc_rs::DEFAULT_KX_GROUPS).ok_or_else(|| none("curves"))?;
        let has_tls12 = suites.iter().any(|suite| suite.version() == &rustls::version::TLS12);
        let versions = if least < TlsVersion::Tls13 && has_tls12 {
            vec![&rustls::version::TLS12, &rustls::version::TLS13]
        } else {
            vec![&rustls::version::TLS13]
        };
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = suites;
        provider.kx_groups.clear();
        for group in groups {
            if !provider.kx_groups.iter().any(|known| known.name() == group.name()) {
                provider.kx_groups.push(group);
            }
        }
        Ok(Self { provider: Arc::new(provider), versions, warnings })
    }

    /// Versions, suites and groups as comma-separated lists, for the log.
    pub fn names(&self) -> (String, String, String) {
        let list = |names: Vec<String>| names.join(",");
        let versions = self.versions.iter().map(|version| format!("{:?}", version.version));
        let suites = self.provider.cipher_suites.iter().map(|suite| format!("{:?}", suite.suite()));
        let groups = self.provider.kx_groups.iter().map(|group| format!("{:?}", group.name()));
        (list(versions.collect()), list(suites.collect()), list(groups.collect()))
    }
}

/// The supported items of a list, or `defaults` if it is empty. `None` if no item is supported.
fn usable<T: Copy>(asked: &[Named<T>], defaults: &[T]) -> Option<Vec<T>> {
    if asked.is_empty() {
        return Some(defaults.to_vec());
    }
    let usable: Vec<T> = asked.iter().filter_map(|one| one.offered).collect();
    (!usable.is_empty()).then_some(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(version: TlsVersion, suite_names: &str, curve_names: &str) -> Result<TlsProfile, String> {
        TlsProfile::new(
            ProfileName::Custom,
            version,
            &suites(suite_names).unwrap(),
            &curves(curve_names).unwrap(),
        )
    }

    fn shape(profile: &TlsProfile) -> (usize, usize, usize) {
        (profile.versions.len(), profile.provider.cipher_suites.len(), profile.provider.kx_groups.len())
    }

    #[test]
    fn profiles_map_to_supported_versions_suites_and_groups() {
        let named = |name| TlsProfile::new(name, TlsVersion::Tls12, &[], &[]).unwrap();
        assert_eq!(shape(&named(ProfileName::Modern)), (1, 3, 4));
        assert_eq!(shape(&named(ProfileName::Intermediate)), (2, 9, 4));
        assert_eq!(shape(&named(ProfileName::Old)), (2, 9, 4));
        assert_eq!(
            named(ProfileName::Old).warnings,
            ["TLS versions below 1.2 are not supported; using TLSv1.2"]
        );
        // A list without TLS 1.3 names does not disable TLS 1.3.
        let one = custom(TlsVersion::Tls12, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "SecP256r1MLKEM768");
        assert_eq!(shape(&one.unwrap()), (2, 4, 1));
        let named = custom(TlsVersion::Tls13, "TLS_AES_128_GCM_SHA256", "prime256v1").unwrap().names();
        assert_eq!(
            named,
            ("TLSv1_3".to_owned(), "TLS13_AES_128_GCM_SHA256".to_owned(), "secp256r1".to_owned())
        );
        let tls13 = custom(TlsVersion::Tls13, "TLS_AES_128_GCM_SHA256", "X25519,prime256v1,secp256r1");
        assert_eq!(shape(&tls13.unwrap()), (1, 1, 2));
        // Every known name is accepted, with a warning if it is not supported.
        let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(custom(TlsVersion::Tls12, &all.join(","), "").unwrap().warnings.len(), 16);
        assert_eq!(
            custom(TlsVersion::Tls12, "TLS_RSA_WITH_RC4_128_SHA", "").err().as_deref(),
            Some("no supported cipher suites remain for TLS profile \"custom\"")
        );
        assert_eq!(
            custom(TlsVersion::Tls12, "", "secp521r1").err().as_deref(),
            Some("no supported curves remain for TLS profile \"custom\"")
        );
    }
}
