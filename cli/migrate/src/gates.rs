//! Feature gates of operator-controller that migrations need. Pure.

use std::collections::BTreeSet;

use olm_cli_core::controller::{ControllerArgs, DEPLOYMENT};
use serde::Serialize;

use super::classify::{MULTI_WATCH, PackageReport};
use super::rule::{self, Finding};

/// Gate of the provider of certificates that needs no other program.
const BUILTIN: &str = "WebhookProviderBuiltin";
/// Gates of other providers, which are preferred to it.
const OTHERS: [&str; 2] = ["WebhookProviderCertManager", "WebhookProviderOpenshiftServiceCA"];

/// Gates that packages need, and that are off.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MissingGates {
    names: Vec<&'static str>,
    /// Turns on all of them.
    command: String,
}

impl MissingGates {
    /// Gates that the ClusterExtensions of the packages need, and that `controller` has not. It runs in `namespace`.
    pub(super) fn of(
        reports: &[PackageReport],
        controller: &ControllerArgs,
        namespace: &str,
    ) -> Option<Self> {
        let findings = reports.iter().flat_map(|report| &report.findings);
        let needed: BTreeSet<&'static str> = findings.filter_map(needed).collect();
        // A gate of another provider, whose API is not served, has an effect before it.
        let is_missing = |gate: &&'static str| *gate == BUILTIN || !controller.is_on(gate);
        let names: Vec<&'static str> = needed.into_iter().filter(is_missing).collect();
        if names.is_empty() {
            return None;
        }
        let on = names.iter().map(|gate| format!("{gate}=true"));
        let off = OTHERS.iter().filter(|_| names.contains(&BUILTIN)).map(|gate| format!("{gate}=false"));
        let values: Vec<String> = on.chain(off).collect();
        let command = format!(
            "kubectl -n {namespace} patch deployment {DEPLOYMENT} --type json -p '[{{\"op\": \"add\", \
             \"path\": \"/spec/template/spec/containers/0/args/-\", \"value\": \"--feature-gates={}\"}}]'",
            values.join(",")
        );
        Some(Self { names, command })
    }

    pub(super) fn text(&self) -> String {
        format!(
            "Feature gates that are off, and that packages need: {}\nTo turn them on: {}\n",
            self.names.join(", "),
            self.command
        )
    }
}

/// Gate without which operator-controller refuses the setting of a finding.
fn needed(finding: &Finding) -> Option<&'static str> {
    Some(match finding.rule {
        found if found == rule::CONFIG => "DeploymentConfig",
        found if found == rule::CONDITION => "OperatorConditionCompat",
        found if found == rule::API_SERVICE => "OwnedAPIServices",
        found if found == rule::PROVIDER => BUILTIN,
        found if found == rule::WATCH && finding.message.ends_with(MULTI_WATCH) => "MultiWatchNamespaces",
        found if found == rule::WATCH => "SingleOwnNamespaceInstallSupport",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Class, Rule};
    use super::*;

    fn report(findings: &[(&'static Rule, &str)]) -> PackageReport {
        let findings =
            findings.iter().map(|(rule, message)| Finding { rule, message: (*message).to_owned() }).collect();
        let text = String::new;
        PackageReport {
            package: text(),
            namespace: text(),
            subscription: text(),
            csv: text(),
            version: text(),
            channel: text(),
            class: Class::Ready,
            findings,
            after: Vec::new(),
        }
    }

    #[test]
    fn gates_that_are_off_get_one_command() {
        let several = format!("watchNamespaces: [a, b]; {MULTI_WATCH}");
        let reports = [
            report(&[(rule::CONFIG, "spec.config: env"), (rule::WATCH, &several)]),
            report(&[
                (rule::WATCH, "watchNamespace: a"),
                (rule::CONFIG, "spec.config: env"),
                (rule::COPIES, "1"),
            ]),
        ];
        let of = |gates: &str| {
            let controller = ControllerArgs { gates: vec![gates.to_owned()], ..ControllerArgs::default() };
            MissingGates::of(&reports, &controller, "olmv1-system")
        };
        let missing = of("DeploymentConfig=true,MultiWatchNamespaces=false").unwrap();
        assert_eq!(missing.names, ["MultiWatchNamespaces", "SingleOwnNamespaceInstallSupport"]);
        let value = "--feature-gates=MultiWatchNamespaces=true,SingleOwnNamespaceInstallSupport=true";
        assert!(missing.command.contains(value), "{}", missing.command);
        assert_eq!(
            of("DeploymentConfig=true,MultiWatchNamespaces=true,SingleOwnNamespaceInstallSupport=true"),
            None
        );
        let provided = [report(&[(rule::PROVIDER, "1 webhook"), (rule::CONFIG, "spec.config: env")])];
        let controller = ControllerArgs {
            gates: vec!["DeploymentConfig=true,WebhookProviderBuiltin=true".to_owned()],
            ..ControllerArgs::default()
        };
        let missing = MissingGates::of(&provided, &controller, "olmv1-system").unwrap();
        let value = "--feature-gates=WebhookProviderBuiltin=true,WebhookProviderCertManager=false,\
                     WebhookProviderOpenshiftServiceCA=false\"";
        assert!(missing.command.contains(value), "{}", missing.command);
        // The flags could not be read.
        assert_eq!(MissingGates::of(&reports, &ControllerArgs::default(), "olmv1-system"), None);
    }
}
