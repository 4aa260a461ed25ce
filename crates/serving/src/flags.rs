//! The flags of both servers, and the validation of their combinations (docs/design/operations.md#flag-syntax,
//! docs/design/operations.md#start-up-errors).
//!
//! A server flattens [`ServiceFlags`] into its own clap parser and calls
//! [`crate::command_line::from_command_line`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use olm_runtime::component::Component;
use olm_runtime::go_value;

use crate::tls_profile::{self, Curve, ProfileName, Suite, TlsProfile};

/// Error of a certificate without a key, or the other way round.
pub const TLS_PAIR: &str = "tls-cert and tls-key flags must be used together";
/// Prefix of the error of metrics without a certificate.
pub const METRICS_CERTIFICATE: &str = "metrics-bind-address requires tls-cert and tls-key flags";
/// End of the error of an invalid `--global-pull-secret`, which operator-controller only logs.
pub const PULL_SECRET_FORMAT: &str = "should be of the format <namespace>/<name>";
/// Error of operator-controller about an invalid `--global-pull-secret`.
pub const PULL_SECRET_PARTS: &str = "incorrect number of components";

/// Headings of `--help`.
pub mod heading {
    /// Connection to the cluster, and general settings of the server.
    pub const CLUSTER: &str = "Cluster and server";
    /// Leader election among replicas.
    pub const ELECTION: &str = "Leader election";
    /// Log format and verbosity.
    pub const LOGS: &str = "Logs";
    /// Metrics and probe endpoints.
    pub const METRICS: &str = "Metrics and probes";
    /// Image pulls.
    pub const REGISTRIES: &str = "Registries and images";
    /// Certificates, versions, suites and curves of the HTTPS servers.
    pub const TLS: &str = "TLS";
}

/// Value of `--cert-management`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertManagement {
    /// Files of `--tls-cert` and `--tls-key`.
    External,
    /// Secret that operator-controller writes, signed by its own CA.
    Builtin,
}

/// Value of `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One klog text line per record.
    Klog,
    /// One JSON object per record.
    Json,
}

/// Value of `--metrics-auth`: the authentication of metrics clients. The API server authorizes them in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAuth {
    /// Bearer token, authenticated by the API server
    Token,
    /// Client certificate of the CA that the API server trusts for clients
    Mtls,
    /// Either. A certificate takes precedence over a token
    TokenOrMtls,
}

/// Flags of both servers.
#[derive(Args, Clone, Debug)]
pub struct ServiceFlags {
    /// Certificate file (PEM) of the HTTPS servers, together with --tls-key
    #[arg(long, default_value = "", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_cert: String,
    /// Key file (PEM) of the HTTPS servers, together with --tls-cert
    #[arg(long, default_value = "", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_key: String,
    /// Source of the serving certificate
    #[arg(long, value_enum, default_value = "external", help_heading = heading::TLS)]
    pub cert_management: CertManagement,
    /// Address of the HTTPS metrics endpoint, or 0 to disable it
    #[arg(long, default_value = "", value_name = "ADDRESS", help_heading = heading::METRICS)]
    pub metrics_bind_address: String,
    /// Authentication of clients of the metrics endpoint
    #[arg(long, value_enum, default_value = "token", help_heading = heading::METRICS)]
    pub metrics_auth: MetricsAuth,
    /// Address of the plain HTTP probes /healthz and /readyz, or 0 to disable them
    #[arg(long, default_value = ":8081", value_name = "ADDRESS", help_heading = heading::METRICS)]
    pub health_probe_bind_address: String,
    /// Also export metrics under their names in classic OLM, for existing alerts
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL", help_heading = heading::METRICS)]
    pub classic_metric_names: bool,
    /// Accepted for compatibility. Profiling is not supported
    #[arg(long, default_value = "0", value_name = "ADDRESS", help_heading = heading::METRICS)]
    pub pprof_bind_address: String,
    /// Directory with CA files and client certificates (*.cert with *.key) for registries. Default: certs.d
    #[arg(long, default_value = "", value_name = "DIR", help_heading = heading::REGISTRIES)]
    pub pull_cas_dir: String,
    /// Limits on images as KEY=VALUE, comma separated: layers, blob-bytes, unpacked-bytes, kept-bytes, files,
    /// file-bytes, path-depth, path-bytes, tree-path-bytes, zstd-window, ratio, pull-timeout
    #[arg(long, default_value = "", value_name = "LIMITS", help_heading = heading::REGISTRIES)]
    pub image_limits: String,
    /// Denied networks of registries and redirect targets, comma separated. Empty: none
    #[arg(long, default_value = "169.254.0.0/16,fe80::/10,127.0.0.0/8,::1/128,168.63.129.16/32,100.100.100.200/32", value_name = "CIDRS", help_heading = heading::REGISTRIES)]
    pub registry_deny_cidrs: String,
    /// Pull no image unless a signature policy is configured
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL", help_heading = heading::REGISTRIES)]
    pub require_signature_policy: bool,
    /// Pull secret used for every registry, as NAMESPACE/NAME
    #[arg(long, default_value = "", value_name = "NAMESPACE/NAME", help_heading = heading::REGISTRIES)]
    pub global_pull_secret: String,
    /// Namespace of Secrets and the Lease. Default: the pod's, else olmv1-system
    #[arg(long, default_value = "", value_name = "NAMESPACE", help_heading = heading::CLUSTER)]
    pub system_namespace: String,
    /// kubeconfig file. Default: $KUBECONFIG, then the pod's service account, then ~/.kube/config
    #[arg(long, default_value = "", value_name = "FILE", help_heading = heading::CLUSTER)]
    pub kubeconfig: String,
    /// Enable leader election
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL", help_heading = heading::ELECTION)]
    pub leader_elect: bool,
    /// Duration for which followers wait for a leader that stopped renewing the Lease
    #[arg(long, default_value = "137s", value_parser = go_value::duration, value_name = "DURATION", help_heading = heading::ELECTION)]
    pub leader_elect_lease_duration: Duration,
    /// Duration for which a leader retries to renew the Lease before it stops leading
    #[arg(long, default_value = "107s", value_parser = go_value::duration, value_name = "DURATION", help_heading = heading::ELECTION)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire or renew the Lease
    #[arg(long, default_value = "26s", value_parser = go_value::duration, value_name = "DURATION", help_heading = heading::ELECTION)]
    pub leader_elect_retry_period: Duration,
    /// Lead even if there is an older installation in another namespace
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = go_value::boolean, value_name = "BOOL", help_heading = heading::ELECTION)]
    pub allow_multiple_installations: bool,
    /// Feature gates as NAME=true|false, comma separated, repeatable
    #[arg(long, value_name = "GATES", help_heading = heading::CLUSTER)]
    pub feature_gates: Vec<String>,
    /// Grace period for open connections after SIGTERM
    #[arg(long, default_value = "30s", value_parser = go_value::duration, value_name = "DURATION", help_heading = heading::CLUSTER)]
    pub shutdown_grace: Duration,
    /// TLS profile: modern, intermediate, old or custom
    #[arg(long, default_value = "intermediate", value_parser = tls_profile::profile_name, help_heading = heading::TLS)]
    pub tls_profile: ProfileName,
    /// Minimum TLS version of the custom profile: TLSv1.0 to TLSv1.3
    #[arg(long, default_value = "TLSv1.2", value_parser = tls_profile::version, value_name = "VERSION", help_heading = heading::TLS)]
    pub tls_custom_version: tls_profile::TlsVersion,
    /// Cipher suites of the custom profile, comma separated. Empty: defaults of the TLS library
    #[arg(long, default_value = "", value_parser = tls_profile::suites, value_name = "SUITES", help_heading = heading::TLS)]
    pub tls_custom_ciphers: std::sync::Arc<[Suite]>,
    /// Curves of the custom profile, comma separated. Empty: defaults of the TLS library
    #[arg(long, default_value = "", value_parser = tls_profile::curves, value_name = "CURVES", help_heading = heading::TLS)]
    pub tls_custom_curves: std::sync::Arc<[Curve]>,
    /// Format of log records
    #[arg(long, value_enum, default_value = "klog", help_heading = heading::LOGS)]
    pub log_format: LogFormat,
    /// Log verbosity, 0 to 8
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL", help_heading = heading::LOGS)]
    pub verbosity: u8,
    /// Omit severity, time and source location from klog records
    #[arg(long = "skip_headers", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = go_value::boolean,
          value_name = "BOOL", help_heading = heading::LOGS)]
    pub skip_headers: bool,
    #[command(flatten)]
    klog: IgnoredKlogFlags,
}

/// klog flags of existing manifests. They have no effect, and the server logs a warning about them at startup.
#[derive(Args, Clone, Debug)]
struct IgnoredKlogFlags {
    #[arg(long = "vmodule", hide = true, value_name = "IGNORED")]
    vmodule: Option<String>,
    #[arg(long = "logtostderr", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    logtostderr: Option<bool>,
    #[arg(long = "alsologtostderr", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    alsologtostderr: Option<bool>,
    #[arg(long = "stderrthreshold", hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long = "alsologtostderrthreshold", hide = true)]
    alsologtostderrthreshold: Option<String>,
    #[arg(long = "legacy_stderr_threshold_behavior", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    legacy_stderr_threshold_behavior: Option<bool>,
    #[arg(long = "log_dir", hide = true)]
    log_dir: Option<String>,
    #[arg(long = "log_file", hide = true)]
    log_file: Option<String>,
    #[arg(long = "log_file_max_size", hide = true)]
    log_file_max_size: Option<String>,
    #[arg(long = "add_dir_header", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    add_dir_header: Option<bool>,
    #[arg(long = "skip_log_headers", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    skip_log_headers: Option<bool>,
    #[arg(long = "one_output", hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    one_output: Option<bool>,
    #[arg(long = "log_backtrace_at", hide = true)]
    log_backtrace_at: Option<String>,
}

impl ServiceFlags {
    /// Validates combinations of flags (docs/design/operations.md#start-up-errors).
    ///
    /// # Errors
    /// The start-up error text of `component`.
    pub fn check(&self, component: Component) -> Result<(), String> {
        if self.tls_cert.is_empty() != self.tls_key.is_empty() {
            let text = TLS_PAIR;
            return Err(match component {
                Component::Catalogd => text.to_owned(),
                Component::OperatorController => format!("unable to configure TLS certificates: {text}"),
            });
        }
        if !self.metrics_bind_address.is_empty() && !self.has_certificate() {
            let text = METRICS_CERTIFICATE;
            return Err(match component {
                Component::Catalogd => text.to_owned(),
                Component::OperatorController => format!("{text} to be set"),
            });
        }
        let halves: Vec<&str> = self.global_pull_secret.split('/').collect();
        if !self.global_pull_secret.is_empty() && (halves.len() != 2 || halves.contains(&"")) {
            return Err(match component {
                Component::Catalogd => {
                    format!("value of global-pull-secret {PULL_SECRET_FORMAT}")
                }
                Component::OperatorController => {
                    tracing::error!("Value of global-pull-secret {PULL_SECRET_FORMAT}");
                    PULL_SECRET_PARTS.to_owned()
                }
            });
        }
        if !(self.leader_elect_retry_period < self.leader_elect_renew_deadline
            && self.leader_elect_renew_deadline < self.leader_elect_lease_duration)
        {
            return Err("want leader-elect-retry-period < leader-elect-renew-deadline < \
                        leader-elect-lease-duration"
                .to_owned());
        }
        self.metrics_address(component)?;
        self.probe_address()?;
        self.tls_profile().map(drop)
    }

    /// The TLS profile of the `--tls-*` flags.
    ///
    /// # Errors
    /// No item of an explicit list is supported.
    pub fn tls_profile(&self) -> Result<TlsProfile, String> {
        let (suites, curves) = (&self.tls_custom_ciphers, &self.tls_custom_curves);
        TlsProfile::new(self.tls_profile, self.tls_custom_version, suites, curves)
    }

    /// `true` if the HTTPS servers have a certificate.
    pub fn has_certificate(&self) -> bool {
        self.is_builtin() || !self.tls_cert.is_empty()
    }

    /// `true` if operator-controller issues the certificates of the servers.
    pub fn is_builtin(&self) -> bool {
        self.cert_management == CertManagement::Builtin
    }

    /// Address of the metrics endpoint. `None` if it is disabled.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn metrics_address(&self, component: Component) -> Result<Option<SocketAddr>, String> {
        let address = match self.metrics_bind_address.as_str() {
            "" if self.has_certificate() => component.default_metrics_address(),
            given => given,
        };
        listen_address("metrics-bind-address", address)
    }

    /// Address of the probes. `None` if they are disabled.
    ///
    /// # Errors
    /// The address is invalid.
    pub fn probe_address(&self) -> Result<Option<SocketAddr>, String> {
        listen_address("health-probe-bind-address", &self.health_probe_bind_address)
    }

    /// `--kubeconfig`, if given.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        (!self.kubeconfig.is_empty()).then(|| PathBuf::from(&self.kubeconfig))
    }

    /// `--pull-cas-dir`, if given.
    pub fn pull_cas_dir(&self) -> Option<PathBuf> {
        (!self.pull_cas_dir.is_empty()).then(|| PathBuf::from(&self.pull_cas_dir))
    }

    /// Names of the given flags that have no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let klog = &self.klog;
        let given = [
            ("pprof-bind-address", !matches!(self.pprof_bind_address.as_str(), "" | "0")),
            ("vmodule", klog.vmodule.is_some()),
            ("logtostderr", klog.logtostderr == Some(false)),
            ("alsologtostderr", klog.alsologtostderr.is_some()),
            ("stderrthreshold", klog.stderrthreshold.is_some()),
            ("alsologtostderrthreshold", klog.alsologtostderrthreshold.is_some()),
            ("legacy_stderr_threshold_behavior", klog.legacy_stderr_threshold_behavior.is_some()),
            ("log_dir", klog.log_dir.is_some()),
            ("log_file", klog.log_file.is_some()),
            ("log_file_max_size", klog.log_file_max_size.is_some()),
            ("add_dir_header", klog.add_dir_header.is_some()),
            ("skip_log_headers", klog.skip_log_headers.is_some()),
            ("one_output", klog.one_output.is_some()),
            ("log_backtrace_at", klog.log_backtrace_at.is_some()),
        ];
        given.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect()
    }
}

/// Parses the value of `flag`. `None` if it is empty or `0`.
fn listen_address(flag: &str, address: &str) -> Result<Option<SocketAddr>, String> {
    match address {
        "" | "0" => Ok(None),
        given => go_value::listen_address(given).map(Some).map_err(|why| format!("{flag}: {why}")),
    }
}

/// A command line with the flags of both servers only.
#[cfg(test)]
pub(crate) mod fixture {
    use super::ServiceFlags;
    use crate::command_line::parse;

    #[derive(clap::Parser, Debug)]
    #[command(name = "catalogd")]
    pub(crate) struct Flags {
        #[command(flatten)]
        service: ServiceFlags,
    }

    /// Parses the flags of a server.
    pub(crate) fn flags(arguments: &[&str]) -> Result<ServiceFlags, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        parse::<Flags>(&arguments).map(|flags| flags.service)
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::flags;
    use super::*;

    // Case catalogd-56
    #[test]
    fn flag_combinations_are_validated_with_component_texts() {
        let rows: [(&[&str], &str, &str); 4] = [
            (
                &["--tls-cert=/x"],
                "tls-cert and tls-key flags must be used together",
                "unable to configure TLS certificates: tls-cert and tls-key flags must be used together",
            ),
            (
                &["--metrics-bind-address=:7443"],
                "metrics-bind-address requires tls-cert and tls-key flags",
                "metrics-bind-address requires tls-cert and tls-key flags to be set",
            ),
            (
                &["--global-pull-secret=a"],
                "value of global-pull-secret should be of the format <namespace>/<name>",
                "incorrect number of components",
            ),
            (
                &["--global-pull-secret=a/"],
                "value of global-pull-secret should be of the format <namespace>/<name>",
                "incorrect number of components",
            ),
        ];
        for (arguments, catalogd, operator_controller) in rows {
            let got = flags(arguments).unwrap();
            assert_eq!(got.check(Component::Catalogd), Err(catalogd.to_owned()));
            assert_eq!(got.check(Component::OperatorController), Err(operator_controller.to_owned()));
        }
        // Cases operations-e3, operations-e4
        for (list, what) in [
            ("--tls-custom-ciphers=TLS_RSA_WITH_3DES_EDE_CBC_SHA", "cipher suites"),
            ("--tls-custom-curves=secp521r1", "curves"),
        ] {
            let custom = flags(&["--tls-profile=custom", list]).unwrap();
            let expect = format!("no supported {what} remain for TLS profile \"custom\"");
            assert_eq!(custom.check(Component::Catalogd), Err(expect));
        }
        let builtin = flags(&["--cert-management=builtin"]).unwrap();
        assert_eq!(builtin.check(Component::Catalogd), Ok(()));
        assert!(builtin.metrics_address(Component::Catalogd).unwrap().is_some());
        assert_eq!(flags(&[]).unwrap().metrics_address(Component::Catalogd), Ok(None));
    }
}
