//! Render options: namespace, configuration, certificates and gates, from flags or from a ClusterExtension.

use clap::{Args, ValueEnum};
use olm_api::ClusterExtension;
use olm_bundle::{BundleContent, Certificates, RenderOptions, SYSTEM_NAMESPACE};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::names::is_label;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_request::{ExtensionRules, Settings};
use olm_runtime::gates::{FeatureGates, Gate, Stage};
use olm_version::quote;
use serde_json::Value;

/// Largest configuration file. The API server accepts no larger object.
const MAX_CONFIG: u64 = 3 << 20;

pub(super) const OWN_NAMESPACE: &str = "SingleOwnNamespaceInstallSupport";
pub(super) const DEPLOYMENT_CONFIG: &str = "DeploymentConfig";
pub(super) const MULTI_WATCH: &str = "MultiWatchNamespaces";
pub(super) const OWNED_API_SERVICES: &str = "OwnedAPIServices";
const OPERATOR_CONDITIONS: &str = "OperatorConditionCompat";

/// Feature gates of operator-controller, so that its arguments can be reused here. Gates of the reference that allow
/// more bundles to render are on.
const KNOWN: [Gate; 15] = [
    gate("BestEffortResolution", false),
    gate("BoxcutterRuntime", true),
    gate("BundleReleaseSupport", false),
    gate("ClusterConstraints", false),
    gate("ClusterUpgradeStatus", true),
    gate(DEPLOYMENT_CONFIG, true),
    gate("ExtensionPlans", false),
    gate(MULTI_WATCH, false),
    gate(OPERATOR_CONDITIONS, false),
    gate(OWNED_API_SERVICES, false),
    gate("ServiceAccountImpersonation", false),
    gate(OWN_NAMESPACE, true),
    gate("WebhookProviderBuiltin", true),
    gate("WebhookProviderCertManager", false),
    gate("WebhookProviderOpenshiftServiceCA", false),
];

const fn gate(name: &'static str, default: bool) -> Gate {
    Gate { name, default, stage: Stage::Alpha }
}

/// Flags with render options.
#[derive(Debug, Clone, Args)]
pub(crate) struct RenderSettingsArgs {
    /// Namespace that the operator is installed into; default: that of the ClusterExtension
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "file", help_heading = "Rendering")]
    namespace: Option<String>,
    /// File (YAML or JSON) with the configuration, as in spec.config.inline of a ClusterExtension; - is standard
    /// input; default: that of the ClusterExtension
    #[arg(long, value_name = "FILE", help_heading = "Rendering")]
    config: Option<String>,
    /// Provider of the certificates of webhooks; default: builtin, or the provider in use where installed objects are
    /// compared
    #[arg(long, value_enum, value_name = "PROVIDER", help_heading = "Rendering")]
    cert_provider: Option<CertProvider>,
    /// Feature gates of operator-controller, separated by commas; here DeploymentConfig and
    /// SingleOwnNamespaceInstallSupport are on unless set to false
    #[arg(long, value_name = "GATE=BOOL", help_heading = "Rendering")]
    feature_gates: Vec<String>,
    /// Add roles for the users of the APIs, as the annotation aggregate-api-roles of a ClusterExtension does
    #[arg(long, help_heading = "Rendering")]
    aggregate_api_roles: bool,
}

/// Provider of webhook certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CertProvider {
    /// operator-controller itself
    Builtin,
    /// cert-manager
    CertManager,
    /// The service CA of OpenShift
    OpenshiftServiceCa,
    /// No provider: bundles with webhooks are refused
    None,
}

impl From<CertProvider> for Certificates {
    fn from(provider: CertProvider) -> Self {
        match provider {
            CertProvider::Builtin => Self::Builtin,
            CertProvider::CertManager => Self::CertManager,
            CertProvider::OpenshiftServiceCa => Self::OpenshiftServiceCa,
            CertProvider::None => Self::None,
        }
    }
}

/// Render options of a bundle.
#[derive(Debug, Clone)]
pub struct RenderSettings {
    /// Namespace that the operator is installed into.
    pub(crate) namespace: String,
    /// Configuration, if any.
    pub(crate) config: Option<Value>,
    /// Certificate provider. `None` without the flag.
    pub certificates: Option<Certificates>,
    /// `true` to add an OperatorCondition.
    pub(crate) operator_condition: bool,
    /// `true` to add roles for the users of the APIs.
    aggregate_api_roles: bool,
    /// Namespaces that the configuration selects by label.
    pub(super) namespaces: Option<Vec<String>>,
    /// Name of the ClusterExtension.
    pub(super) extension: Option<String>,
    /// Namespace of OLM.
    pub(super) system_namespace: String,
    gates: FeatureGates,
}

impl RenderSettingsArgs {
    /// File that contains the configuration.
    pub(crate) fn config_file(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// Reads the flags and the configuration file. The extension provides the settings without a flag.
    ///
    /// # Errors
    /// The namespace is unknown, the file cannot be read, or a gate is unknown.
    pub(crate) async fn read(
        &self,
        extension: Option<&ClusterExtension>,
        session: &Session,
    ) -> Result<RenderSettings, CliError> {
        let gates = FeatureGates::parse(&KNOWN, &self.feature_gates).map_err(|error| {
            let names = KNOWN.map(|gate| gate.name).join(", ");
            CliError::usage(format!("{error}\nexpected NAME=true or NAME=false; feature gates: {names}"))
        })?;
        let spec = extension.and_then(|extension| extension.spec.as_ref());
        let namespace = self.namespace.clone().or_else(|| spec.map(|spec| spec.namespace.clone()));
        let namespace = namespace
            .filter(|namespace| !namespace.is_empty())
            .ok_or_else(|| CliError::usage("specify the namespace of the operator with --namespace"))?;
        let config = match &self.config {
            Some(file) => config(file, session).await?,
            None => extension.and_then(inline_config),
        };
        let certificates = self.cert_provider.map(Into::into);
        let settings = RenderSettings::of(namespace, config, gates, extension);
        let aggregate_api_roles = self.aggregate_api_roles || settings.aggregate_api_roles;
        Ok(RenderSettings { certificates, aggregate_api_roles, ..settings })
    }
}

impl RenderSettings {
    /// Options of a controller with these `--feature-gates` for the extension. Ignores unknown gates.
    ///
    /// # Errors
    /// The value of a gate is invalid.
    pub fn as_configured(extension: &ClusterExtension, gates: &[String]) -> Result<Self, CliError> {
        let pairs = gates.iter().flat_map(|gates| gates.split(',')).map(str::trim);
        let is_known = |pair: &&str| {
            let name = pair.split('=').next().unwrap_or_default().trim();
            name.starts_with("All") || KNOWN.iter().any(|gate| gate.name == name)
        };
        let known: Vec<String> = pairs.filter(is_known).map(str::to_owned).collect();
        let gates = FeatureGates::parse(&KNOWN, &known)
            .map_err(|error| CliError::operational(format!("operator-controller: {error}")))?;
        let namespace = extension.spec.as_ref().map(|spec| spec.namespace.clone()).unwrap_or_default();
        Ok(Self::of(namespace, inline_config(extension), gates, Some(extension)))
    }

    fn of(
        namespace: String,
        config: Option<Value>,
        gates: FeatureGates,
        extension: Option<&ClusterExtension>,
    ) -> Self {
        let operator_condition = gates.enabled(OPERATOR_CONDITIONS);
        let annotations = extension.and_then(|extension| extension.metadata.annotations.as_ref());
        Self {
            namespace,
            config,
            certificates: None,
            operator_condition,
            aggregate_api_roles: ExtensionRules::of(annotations, Settings::default()).aggregate_api_roles,
            namespaces: None,
            extension: extension.and_then(|extension| extension.metadata.name.clone()),
            system_namespace: SYSTEM_NAMESPACE.to_owned(),
            gates,
        }
    }

    /// The same options, but without an OperatorCondition if the cluster does not serve them, and with the namespaces of OLM
    /// and of the configuration's selector, as operator-controller renders.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn on(mut self, cluster: &ClusterConnection, session: &Session) -> Result<Self, CliError> {
        self.system_namespace = cluster.namespace().to_owned();
        if self.operator_condition {
            self.operator_condition = cluster.serves_operator_conditions(session).await?;
        }
        self.with_namespaces_of(cluster, session).await
    }

    /// Options for the renderer.
    pub fn options(&self) -> RenderOptions<'_> {
        RenderOptions {
            install_namespace: &self.namespace,
            config: self.config.as_ref(),
            certificates: self.certificates.unwrap_or(Certificates::Builtin),
            single_own_namespace: self.gates.enabled(OWN_NAMESPACE),
            deployment_config: self.gates.enabled(DEPLOYMENT_CONFIG),
            multi_watch_namespaces: self.gates.enabled(MULTI_WATCH),
            owned_api_services: self.gates.enabled(OWNED_API_SERVICES),
            selected_namespaces: self.namespaces.as_deref(),
            operator_condition: self.operator_condition,
            aggregate_api_roles: self.aggregate_api_roles,
        }
    }

    /// Warnings about the namespace, and about configuration without effect.
    pub(crate) fn warnings(&self, bundle: &BundleContent) -> Vec<String> {
        let config = self.config.as_ref();
        let mut warnings =
            config.map(|config| olm_bundle::config_warnings(bundle, config)).unwrap_or_default();
        if !is_label(&self.namespace) {
            warnings.push(format!(
                "namespace {} is invalid: expected at most 63 lower-case letters, digits and `-`, with a letter or digit \
                 at both ends",
                quote(&self.namespace)
            ));
        }
        warnings
    }

    /// Reports whether a gate is on.
    pub(crate) fn is_on(&self, gate: &str) -> bool {
        self.gates().any(|(name, is_on)| name == gate && is_on)
    }

    /// All gates, including those without effect on rendering, as name and value.
    pub(crate) fn gates(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.gates.iter()
    }
}

/// `spec.config.inline` of an extension.
pub(crate) fn inline_config(extension: &ClusterExtension) -> Option<Value> {
    let config = extension.spec.as_ref()?.config.as_ref()?;
    config.inline.clone().map(Value::Object)
}

/// Parses a value in YAML, such as one field of a configuration.
///
/// # Errors
/// The text is not YAML, or has several documents.
pub fn inline(text: &str) -> Result<Value, CliError> {
    let documents = olm_yaml::all_from_slice(text.as_bytes()).map_or(0, |documents| documents.len());
    if documents > 1 {
        return Err(CliError::usage(format!("expected one document, found {documents}")));
    }
    olm_yaml::from_slice(text.as_bytes()).map_err(|error| CliError::usage(error.to_string()))
}

/// Reads the configuration in a file. `None` if the file is empty.
///
/// # Errors
/// The file cannot be read, or contains no configuration.
pub async fn config(file: &str, session: &Session) -> Result<Option<Value>, CliError> {
    let text = manifest::text(file, MAX_CONFIG, session).await?;
    let failed = |problem: &str| CliError::usage(format!("--config {}: {problem}", quote(file)));
    let config = olm_yaml::from_slice(text.as_bytes()).map_err(|error| failed(&error.to_string()))?;
    let documents = olm_yaml::all_from_slice(text.as_bytes()).map_or(0, |documents| documents.len());
    if documents > 1 {
        return Err(failed(&format!("expected one document, found {documents}")));
    }
    if config.get("kind").is_some_and(|kind| kind == "ClusterExtension") {
        return Err(failed(
            "expected the content of spec.config.inline of a ClusterExtension; use -f for the whole object",
        ));
    }
    Ok(Some(config).filter(|config| !config.is_null()))
}
