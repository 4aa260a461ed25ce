//! The two servers and their fixed names (docs/design/operations.md#names-and-labels,
//! docs/design/operations.md#start-up-errors, docs/design/operations.md#built-in-certificates,
//! docs/design/operations.md#lease).

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Serves catalog content.
    Catalogd,
    /// Installs and upgrades extensions.
    OperatorController,
}

impl Component {
    /// Binary and log name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Catalogd => "catalogd",
            Self::OperatorController => "operator-controller",
        }
    }

    /// Name of the Deployment in the system namespace, and of its ServiceAccount
    /// (docs/design/operations.md#names-and-labels).
    pub fn deployment_name(self) -> String {
        format!("{}-controller-manager", self.name())
    }

    /// Name of the Lease in the system namespace (docs/design/operations.md#lease).
    pub fn lease_name(self) -> &'static str {
        match self {
            Self::Catalogd => "catalogd-operator-lock",
            Self::OperatorController => "9c4404e7.operatorframework.io",
        }
    }

    /// Metrics address if a certificate is configured and no address is given.
    pub fn default_metrics_address(self) -> &'static str {
        match self {
            Self::Catalogd => ":7443",
            Self::OperatorController => ":8443",
        }
    }

    /// Secret of the built-in serving certificate.
    pub fn serving_secret(self) -> String {
        format!("{}-service-cert", self.name())
    }

    /// DNS names of the serving certificate in `namespace` (docs/design/operations.md#serving-certificate).
    pub fn dns_names(self, namespace: &str) -> Vec<String> {
        let service = format!("{}-service.{namespace}.svc", self.name());
        let cluster_local = format!("{service}.cluster.local");
        match self {
            Self::Catalogd => vec!["localhost".to_owned(), service, cluster_local],
            Self::OperatorController => vec![service, cluster_local],
        }
    }
}

/// Version of the release, such as `v0.1.0`, or of the workspace if this binary is not from a release.
pub const VERSION: &str = match option_env!("OLM_BUILD_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Git commit that this binary was built from, or `unknown`.
pub const COMMIT: &str = match option_env!("OLM_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Version, commit, date and state of the source that this binary was built from. Values that the build did not set
/// are `unknown` (docs/design/operations.md#flag-syntax).
pub fn version_text() -> String {
    let date = option_env!("OLM_BUILD_DATE").unwrap_or("unknown");
    let state = option_env!("OLM_BUILD_STATE").unwrap_or("unknown");
    format!("version: {VERSION:?}, commit: {COMMIT:?}, date: {date:?}, state: {state:?}")
}
