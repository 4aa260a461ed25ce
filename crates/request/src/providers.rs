//! Providers that can meet requirements: installed bundles with the APIs that they define, and APIs without a bundle.
//! Also the extensions with requirements on others (docs/design/resolution.md#judged-dependencies,
//! docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::{ObjectMeta, labels};
use olm_fbc::Property;
use olm_resolve::{
    AvailableProviders, ClusterFacts, Dependent, Gvk, Provider, Requirement, RequirementVerdict,
};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::installed::ExtensionBundle;

/// APIs that the cluster serves.
#[derive(Clone, Debug, Default)]
pub struct ServedApis {
    /// All APIs in discovery.
    pub gvks: BTreeSet<Gvk>,
    /// APIs whose CRDs are objects of extensions, by name of the extension.
    pub owned: BTreeMap<String, BTreeSet<Gvk>>,
    /// Kubernetes version as reported by the API server, such as `v1.36.3`.
    pub kubernetes: String,
}

impl ServedApis {
    /// Facts for the cluster constraints of bundles.
    pub fn facts(&self) -> ClusterFacts {
        ClusterFacts::new(&self.kubernetes, self.gvks.clone())
    }

    /// APIs that no `managed` extension defines.
    pub fn external(&self, managed: impl Fn(&str) -> bool) -> BTreeSet<Gvk> {
        let defined: BTreeSet<&Gvk> =
            self.owned.iter().filter(|(owner, _)| managed(owner)).flat_map(|(_, gvks)| gvks).collect();
        self.gvks.iter().filter(|gvk| !defined.contains(gvk)).cloned().collect()
    }
}

/// Used fields of the `spec` of a CustomResourceDefinition. The rest, with its large schemas, is not read.
#[derive(Clone, Debug, Deserialize)]
pub struct CrdFields {
    group: String,
    names: CrdNames,
    versions: Vec<CrdVersion>,
}

#[derive(Clone, Debug, Deserialize)]
struct CrdNames {
    kind: String,
}

#[derive(Clone, Debug, Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
}

impl CrdFields {
    fn gvks(&self) -> impl Iterator<Item = Gvk> {
        let served = self.versions.iter().filter(|version| version.served);
        served.map(|version| Gvk {
            group: self.group.clone(),
            version: version.name.clone(),
            kind: self.names.kind.clone(),
        })
    }
}

/// APIs that extensions define with their CustomResourceDefinitions, by name of the extension.
pub fn owned<'a>(
    crds: impl IntoIterator<Item = (&'a ObjectMeta, &'a CrdFields)>,
) -> BTreeMap<String, BTreeSet<Gvk>> {
    let mut owned: BTreeMap<String, BTreeSet<Gvk>> = BTreeMap::new();
    for (metadata, crd) in crds {
        let owner = metadata.labels.as_ref().and_then(|labels| labels.get(labels::OWNER_NAME));
        if let Some(owner) = owner.filter(|name| !name.is_empty()) {
            owned.entry(owner.clone()).or_default().extend(crd.gvks());
        }
    }
    owned
}

/// Providers around the extension `except`, and the dependents among the other extensions.
///
/// `owners` are the extensions that have any revision. An API that one of them defines is met by its installed
/// bundle. Without an installed bundle, it is unmet (case additions-e19). Every other API is external
/// (case additions-e18), unless `except` defines it, because an extension must not meet its own requirements. The
/// installed bundle of `except` is not part of the result.
///
/// `protects(extension, property_type)` returns `true` if the extension must not be broken: its rules protect it
/// ([`protect`](crate::ExtensionRules::protect)), and it does not ignore requirements of this type.
pub fn providers<'a>(
    installed: impl Iterator<Item = &'a ExtensionBundle> + Clone,
    owners: &BTreeSet<&str>,
    served: &ServedApis,
    except: &str,
    protects: impl Fn(&str, &str) -> bool,
) -> (AvailableProviders, Vec<Dependent>) {
    let external = served.external(|owner| owner == except || owners.contains(owner));
    let providers = installed.clone().map(|has| has.provider(served)).collect();
    let mut all = AvailableProviders { providers, served: external };
    let dependents = dependents(installed, &all, except, protects);
    all.providers.retain(|provider| provider.extension() != Some(except));
    (all, dependents)
}

impl ExtensionBundle {
    /// Provider of the installed bundle: its properties, and the APIs that its extension defines.
    pub fn provider(&self, served: &ServedApis) -> Provider {
        let mut properties = self.properties.clone();
        properties.extend(served.owned.get(&self.extension).into_iter().flatten().map(api));
        Provider::new(Some(self.extension.clone()), self.bundle.name.clone(), properties)
    }
}

/// Other extensions whose requirements are met now and must stay met.
fn dependents<'a>(
    installed: impl Iterator<Item = &'a ExtensionBundle>,
    all: &AvailableProviders,
    except: &str,
    protects: impl Fn(&str, &str) -> bool,
) -> Vec<Dependent> {
    let dependent = |has: &ExtensionBundle| {
        let holds = |requirement: &&Requirement| {
            protects(&has.extension, requirement.property_type())
                && matches!(requirement.verdict(all), RequirementVerdict::Met { .. })
        };
        let requirements: Vec<Requirement> = has.requirements.iter().filter(holds).cloned().collect();
        let (extension, bundle) = (has.extension.clone(), has.bundle.name.clone());
        (!requirements.is_empty()).then_some(Dependent { extension, bundle, requirements })
    };
    installed.filter(|has| has.extension != except).filter_map(dependent).collect()
}

/// Requirements of the dependents that these providers do not meet, each as a sentence, sorted.
pub fn unmet(available: &AvailableProviders, dependents: &[Dependent]) -> Vec<String> {
    let lost = dependents.iter().flat_map(|Dependent { extension, bundle, requirements }| {
        let lost = requirements
            .iter()
            .filter(|one| !matches!(one.verdict(available), RequirementVerdict::Met { .. }));
        lost.map(move |requirement| {
            format!("installed extension {extension} (bundle {bundle}) requires an operator {requirement}")
        })
    });
    let mut lost: Vec<String> = lost.collect();
    lost.sort();
    lost
}

/// Property of a bundle that provides this API.
fn api(gvk: &Gvk) -> Property {
    let value = to_raw_value(gvk).unwrap_or_else(|_| RawValue::NULL.to_owned());
    Property { kind: "olm.gvk".to_owned(), value }
}

#[cfg(test)]
mod tests {
    use olm_api::annotations;
    use serde_json::json;

    use super::super::installed::tests::set;
    use super::*;

    const REQUIRES_G: &str =
        r#"[{"type":"olm.gvk.required","value":{"group":"g","version":"v1","kind":"G"}}]"#;
    const REQUIRES_A: &str =
        r#"[{"type":"olm.package.required","value":{"packageName":"a","versionRange":">=1.0.0"}}]"#;

    fn gvk(kind: &str) -> Gvk {
        Gvk { group: "g".into(), version: "v1".into(), kind: kind.into() }
    }

    /// Installed extensions with their properties, the CRDs that they own, and other served APIs.
    struct Fixture {
        installed: Vec<ExtensionBundle>,
        served: ServedApis,
        owners: Vec<&'static str>,
    }

    fn fixture(
        installed: &[(&'static str, &str)],
        owned: &[(&'static str, &str)],
        external: &[&str],
    ) -> Fixture {
        let mut served =
            ServedApis { gvks: external.iter().map(|kind| gvk(kind)).collect(), ..ServedApis::default() };
        for (owner, kind) in owned {
            served.owned.entry((*owner).to_owned()).or_default().insert(gvk(kind));
            served.gvks.insert(gvk(kind));
        }
        let read = |(name, properties): &(&'static str, &str)| {
            let (read, faults) =
                ExtensionBundle::read(&set(name, 1, &[(annotations::PROPERTIES, properties)]));
            assert!(faults.is_empty());
            read
        };
        let owners = installed.iter().map(|(name, _)| *name).collect();
        let mut installed: Vec<_> = installed.iter().map(read).collect();
        installed.sort_by(|a, b| a.extension.cmp(&b.extension));
        Fixture { installed, served, owners }
    }

    impl Fixture {
        fn providers_without(
            &self,
            except: &str,
            protects: impl Fn(&str, &str) -> bool,
        ) -> (AvailableProviders, Vec<Dependent>) {
            let owners = self.owners.iter().copied().collect();
            providers(self.installed.iter(), &owners, &self.served, except, protects)
        }

        fn verdict(&self, except: &str, requirement: &str) -> RequirementVerdict {
            let properties = format!(r#"[{{"type":"olm.constraint","value":{requirement}}}]"#);
            let (wants, _) =
                ExtensionBundle::read(&set("wants", 1, &[(annotations::PROPERTIES, &properties)]));
            wants.requirements[0].verdict(&self.providers_without(except, |_, _| true).0)
        }
    }

    fn met(by: &str, external: bool) -> RequirementVerdict {
        RequirementVerdict::Met { by: by.to_owned(), external }
    }

    const G: &str = r#"{"gvk":{"group":"g","version":"v1","kind":"G"}}"#;
    const UNMET: RequirementVerdict = RequirementVerdict::Unmet { wide: false };

    #[test]
    fn served_crd_versions_belong_to_the_labeled_owner() {
        let crd = |kind: &str| -> CrdFields {
            let versions = json!([{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]);
            let spec = json!({"group": "g", "names": {"kind": kind, "plural": "x"}, "versions": versions});
            serde_json::from_value(spec).unwrap()
        };
        let by = |owner: Option<&str>| ObjectMeta {
            labels: owner.map(|owner| BTreeMap::from([(labels::OWNER_NAME.to_owned(), owner.to_owned())])),
            ..ObjectMeta::default()
        };
        let all = [
            (by(Some("a")), crd("G")),
            (by(Some("a")), crd("H")),
            (by(Some("")), crd("I")),
            (by(None), crd("J")),
        ];
        let owned = owned(all.iter().map(|(metadata, spec)| (metadata, spec)));
        assert_eq!(owned, BTreeMap::from([("a".to_owned(), BTreeSet::from([gvk("G"), gvk("H")]))]));
        let served = ServedApis { gvks: ["G", "K"].map(gvk).into(), owned, ..ServedApis::default() };
        assert_eq!(served.external(|owner| owner == "a"), BTreeSet::from([gvk("K")]));
        assert_eq!(served.external(|_| false), served.gvks);
    }

    #[test]
    fn required_api_is_met_by_crd_owner_or_external_crd() {
        // Cases additions-a24, additions-e18
        let external = || met("group: g, version: v1, kind: G", true);
        assert_eq!(fixture(&[], &[], &["G"]).verdict("x", G), external());
        assert_eq!(fixture(&[], &[], &["H"]).verdict("x", G), UNMET);
        let owned = fixture(&[("a", "[]")], &[("a", "G")], &[]);
        assert_eq!(owned.verdict("x", G), met("a", false));
        // The upgrade may remove the APIs of the extension's own bundle.
        assert_eq!(owned.verdict("a", G), UNMET);
        // Case additions-e19: the revisions of b have not succeeded yet, so b has no installed bundle.
        let mut pending = fixture(&[("a", "[]")], &[("b", "G")], &[]);
        pending.owners.push("b");
        assert_eq!(pending.verdict("x", G), UNMET);
        // An API of a deleted extension without revisions is external.
        assert_eq!(fixture(&[("a", "[]")], &[("gone", "G")], &[]).verdict("x", G), external());
    }

    #[test]
    fn any_and_all_constraints_match_a_single_bundle() {
        let package =
            |range: &str| format!(r#"{{"package":{{"packageName":"a","versionRange":"{range}"}}}}"#);
        // Case additions-a25
        let any = format!(r#"{{"any":{{"constraints":[{},{G}]}}}}"#, package(">=2.0.0"));
        assert!(matches!(
            fixture(&[], &[], &["G"]).verdict("x", &any),
            RequirementVerdict::Met { external: true, .. }
        ));
        assert_eq!(fixture(&[("a", "[]")], &[("b", "G")], &[]).verdict("b", &any), UNMET);
        // Case additions-a26
        let all = format!(r#"{{"all":{{"constraints":[{},{G}]}}}}"#, package(">=1.0.0"));
        let both = [("a", "[]"), ("b", "[]")];
        assert_eq!(
            fixture(&both, &[("b", "G")], &[]).verdict("x", &all),
            RequirementVerdict::Unmet { wide: true }
        );
        assert_eq!(fixture(&both, &[("a", "G")], &[]).verdict("x", &all), met("a", false));
    }

    // Case additions-a31
    #[test]
    fn dependents_include_only_extensions_with_met_requirements() {
        let apps = [("a", "[]"), ("y", REQUIRES_G), ("z", REQUIRES_A)];
        let fixture = fixture(&apps, &[("a", "G")], &[]);
        let names = |except: &str, protects: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
            let (_, dependents) = fixture.providers_without(except, protects);
            dependents
                .iter()
                .map(|one| format!("{} {} {}", one.extension, one.bundle, one.requirements.len()))
                .collect()
        };
        assert_eq!(names("a", &|_, _| true), ["y y.v1 1", "z z.v1 1"]);
        assert_eq!(names("y", &|_, _| true), ["z z.v1 1"]);
        assert_eq!(names("a", &|extension, _| extension == "y"), ["y y.v1 1"]);
        assert_eq!(names("a", &|_, kind| kind == "olm.package.required"), ["z z.v1 1"]);
        assert_eq!(names("a", &|_, _| false), Vec::<String>::new());
        // An extension whose requirement is unmet already cannot break.
        let lacking = super::tests::fixture(&[("a", "[]"), ("y", REQUIRES_G)], &[], &[]);
        assert!(lacking.providers_without("a", |_, _| true).1.is_empty());
    }

    #[test]
    fn providers_exclude_the_extension_and_are_sorted_by_name() {
        let (available, _) = fixture(&[("c", "[]"), ("a", "[]"), ("b", "[]")], &[("c", "G")], &["H"])
            .providers_without("b", |_, _| true);
        let names: Vec<_> = available.providers.iter().filter_map(|one| one.extension()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(available.providers[0].package(), Some("a"));
        assert_eq!(available.providers[1].gvks().cloned().collect::<Vec<_>>(), [gvk("G")]);
        assert_eq!(available.served, BTreeSet::from([gvk("H")]));
    }
}
