//! Needs of an extension, derived from the contents of its revisions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::{Injection, InjectionKind, Serving, injections, issued_by_others};
use olm_revision::content::{self, ContentPhase};
use serde_json::Value;

/// Kind and name of an object with a CA bundle.
type Object = (InjectionKind, String);

/// Needs of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Objects to inject into.
    pub injections: Vec<Injection>,
    /// Webhook configurations, CRDs and APIServices without our annotation.
    pub unmarked: BTreeSet<Object>,
    /// Namespace and name of Secrets into which other providers issue.
    pub issued_by_others: BTreeSet<(String, String)>,
}

impl Needs {
    /// Derives the needs from the content of a revision.
    pub(super) fn of(phases: &[ContentPhase]) -> Self {
        let objects: Vec<&Value> = content::objects(phases).collect();
        let injections = injections(&objects);
        let marked: BTreeSet<Object> = injections.iter().map(object).collect();
        let unmarked = objects.iter().filter_map(|object| {
            let name = object.pointer("/metadata/name")?.as_str()?;
            Some((InjectionKind::of(object)?, name.to_owned())).filter(|object| !marked.contains(object))
        });
        Self { unmarked: unmarked.collect(), issued_by_others: issued_by_others(&objects), injections }
    }
}

fn object(injection: &Injection) -> Object {
    (injection.kind, injection.name.clone())
}

/// Combined needs of all active revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequiredCertificates {
    /// Services to serve, with the objects that call each.
    pub servings: BTreeMap<Serving, Vec<Injection>>,
    /// Objects that are no longer injected into, although an older revision still annotates them.
    pub released: Vec<Injection>,
    /// Namespace and name of Secrets into which other providers issue.
    pub issued_by_others: BTreeSet<(String, String)>,
}

impl RequiredCertificates {
    /// Combines the active revisions, newest first, and the injections that the next revision is `expected` to need.
    /// Every revision gets its certificates. The newest revision that contains an object decides about it.
    pub(super) fn new(newest_first: &[&Needs], expected: &[Injection]) -> Self {
        let mut required = Self::default();
        for injection in expected {
            required.servings.entry(injection.serving.clone()).or_default();
        }
        let mut decided = BTreeSet::new();
        let mut released = BTreeSet::new();
        for needs in newest_first {
            for injection in &needs.injections {
                let targets = required.servings.entry(injection.serving.clone()).or_default();
                if decided.insert(object(injection)) {
                    targets.push(injection.clone());
                } else if !targets.contains(injection) {
                    released.insert(injection.clone());
                }
            }
            decided.extend(needs.unmarked.iter().cloned());
            required.issued_by_others.extend(needs.issued_by_others.iter().cloned());
        }
        // An object that now calls another Service is injected into for that one.
        let injected: BTreeSet<Object> = required.servings.values().flatten().map(object).collect();
        required.released = released.into_iter().filter(|one| !injected.contains(&object(one))).collect();
        required
    }

    /// Returns namespace and name of the needed Secrets: the serving certificate and the CA of each Service.
    pub(super) fn secrets(&self) -> BTreeSet<(String, String)> {
        let both = |serving: &Serving| {
            let name = |name: &str| (serving.namespace.clone(), name.to_owned());
            [name(&serving.secret), name(&ca_secret(serving))]
        };
        self.servings.keys().flat_map(both).collect()
    }

    /// Returns `true` if another provider issues the certificate of this Service.
    pub(super) fn is_issued_by_others(&self, serving: &Serving) -> bool {
        self.issued_by_others.contains(&(serving.namespace.clone(), serving.secret.clone()))
    }
}

/// Returns the name of a Service's CA Secret.
pub(super) fn ca_secret(serving: &Serving) -> String {
    format!("{}-ca", serving.service)
}

/// Returns the DNS names of the Service. The API server uses the first.
pub(super) fn dns_names(serving: &Serving) -> Vec<String> {
    let host = format!("{}.{}", serving.service, serving.namespace);
    vec![format!("{host}.svc"), format!("{host}.svc.cluster.local"), host]
}

#[cfg(test)]
mod tests {
    use olm_bundle::BUILTIN_CA_ANNOTATION;
    use serde_json::json;

    use super::*;

    fn serving(deployment: &str) -> Serving {
        Serving {
            namespace: "ns".to_owned(),
            service: format!("{deployment}-service"),
            secret: format!("{deployment}-service-cert"),
        }
    }

    fn injection(kind: InjectionKind, name: &str, deployment: &str) -> Injection {
        Injection { kind, name: name.to_owned(), serving: serving(deployment) }
    }

    fn needs(injections: &[Injection], unmarked: &[&str]) -> Needs {
        let unmarked = unmarked.iter().map(|name| (InjectionKind::Crd, (*name).to_owned()));
        Needs { injections: injections.to_vec(), unmarked: unmarked.collect(), ..Needs::default() }
    }

    #[test]
    fn needs_are_derived_from_content() {
        let crd = |name: &str, mark: &str| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "annotations": {mark: "ns/d-service-cert"}},
                "spec": {"conversion": {"webhook": {
                    "clientConfig": {"service": {"namespace": "ns", "name": "d-service"}}}}},
            })
        };
        let certificate = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "c", "namespace": "ns"}, "spec": {"secretName": "c"},
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "d-service", "namespace": "ns"}});
        let phases = [
            ContentPhase::inline("crds", vec![crd("a.io", BUILTIN_CA_ANNOTATION), crd("b.io", "x")]),
            ContentPhase::inline("infrastructure", vec![certificate, service, json!({"kind": "ConfigMap"})]),
        ];
        let read = Needs::of(&phases);
        let expected = needs(&[injection(InjectionKind::Crd, "a.io", "d")], &["b.io"]);
        let others = BTreeSet::from([("ns".to_owned(), "c".to_owned())]);
        assert_eq!(read, Needs { issued_by_others: others, ..expected });
    }

    #[test]
    fn newest_revision_determines_ca_injection_into_webhook_or_crd() {
        use InjectionKind::{Crd, Validating};
        let (v, a, b) =
            (injection(Validating, "v", "d"), injection(Crd, "a.io", "d"), injection(Crd, "b.io", "e"));
        let moved = injection(Validating, "v", "f");
        let old = needs(&[v.clone(), a.clone(), b.clone()], &[]);
        let targets = |required: &RequiredCertificates| -> Vec<(String, Vec<String>)> {
            let name = |one: &Injection| one.name.clone();
            let row = |(serving, targets): (&Serving, &Vec<Injection>)| {
                (serving.service.clone(), targets.iter().map(name).collect())
            };
            required.servings.iter().map(row).collect()
        };
        let row = |service: &str, names: &[&str]| {
            (service.to_owned(), names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        // One revision, and one Service that several objects call.
        let alone = RequiredCertificates::new(&[&old], &[]);
        assert_eq!(targets(&alone), [row("d-service", &["v", "a.io"]), row("e-service", &["b.io"])]);
        assert!(alone.released.is_empty());
        // A newer revision stops converting `a.io`, lacks `b.io`, and calls another Service with `v`.
        let new = needs(std::slice::from_ref(&moved), &["a.io"]);
        let both = RequiredCertificates::new(&[&new, &old], &[]);
        assert_eq!(
            targets(&both),
            [row("d-service", &[]), row("e-service", &["b.io"]), row("f-service", &["v"])]
        );
        assert_eq!(both.released, [a]);
        let secrets = [
            "d-service-ca",
            "d-service-cert",
            "e-service-ca",
            "e-service-cert",
            "f-service-ca",
            "f-service-cert",
        ];
        assert_eq!(both.secrets(), secrets.map(|name| ("ns".to_owned(), name.to_owned())).into());
        // Expected injections need their certificates before the objects exist.
        assert_eq!(targets(&RequiredCertificates::new(&[], &[moved])), [row("f-service", &[])]);
        assert_eq!(RequiredCertificates::new(&[], &[]), RequiredCertificates::default());
    }

    // Case bundles-50
    #[test]
    fn secret_and_dns_names_match_other_providers() {
        let serving = serving("d");
        assert_eq!(ca_secret(&serving), "d-service-ca");
        assert_eq!(
            dns_names(&serving),
            ["d-service.ns.svc", "d-service.ns.svc.cluster.local", "d-service.ns"]
        );
    }
}
