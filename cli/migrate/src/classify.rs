//! Judges each package of classic OLM. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::output::{counted, qualified};
use serde::Serialize;

use super::group_role;
use super::objects::{Csv, Key, Objects, OperatorGroup, Subscription};
use super::rule::{self, Class, Finding, Rule};

/// Group of the API of the package server, which is a part of classic OLM.
const PACKAGE_SERVER: &str = ".packages.operators.coreos.com";

/// End of the message about several watched namespaces.
pub(super) const MULTI_WATCH: &str = "gate MultiWatchNamespaces must be on";

/// Installed package, with what its migration needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PackageReport {
    pub(super) package: String,
    pub(super) namespace: String,
    /// Empty for a ClusterServiceVersion without Subscription.
    pub(super) subscription: String,
    pub(super) csv: String,
    pub(super) version: String,
    pub(super) channel: String,
    pub(super) class: Class,
    pub(super) findings: Vec<Finding>,
    /// Packages that must migrate before this one, as `namespace/package`.
    pub(super) after: Vec<String>,
}

impl PackageReport {
    /// Adds a finding, and adjusts the class.
    pub(super) fn add(&mut self, rule: &'static Rule, message: String) {
        self.findings.push(Finding { rule, message });
        self.class = worst(&self.findings);
    }

    /// `namespace/package`
    pub(super) fn id(&self) -> String {
        qualified(&self.namespace, &self.package)
    }
}

/// Judges all packages, by name and namespace.
pub(super) fn classify(objects: &Objects) -> Vec<PackageReport> {
    let context = Context::new(objects);
    let subscriptions = objects.subscriptions.iter();
    let mut reports: Vec<PackageReport> =
        subscriptions.map(|(key, subscription)| context.subscribed(key, subscription)).collect();
    // A Subscription names its ClusterServiceVersion as the current one before that is installed.
    let of_subscription = |((namespace, _), subscription): (&Key, &Subscription)| {
        let names = [&subscription.installed_csv, &subscription.current_csv];
        names.map(|name| (namespace.clone(), name.clone()))
    };
    let subscribed: BTreeSet<Key> = objects.subscriptions.iter().flat_map(of_subscription).collect();
    let is_of_olm = |csv: &Csv| csv.owned.iter().any(|api| api.ends_with(PACKAGE_SERVER));
    let orphans = objects
        .csvs
        .iter()
        .filter(|(key, csv)| csv.copied_from.is_empty() && !subscribed.contains(*key) && !is_of_olm(csv));
    // A version that is being replaced belongs to the Subscription of its successor.
    let replaced: BTreeSet<Key> =
        objects.csvs.iter().map(|((namespace, _), csv)| (namespace.clone(), csv.replaces.clone())).collect();
    let orphans = orphans.filter(|(key, _)| !replaced.contains(*key));
    reports.extend(orphans.map(|(key, csv)| context.orphan(key, csv)));
    reports.sort_by(|a, b| (&a.package, &a.namespace, &a.csv).cmp(&(&b.package, &b.namespace, &b.csv)));
    reports
}

/// Facts about all packages.
struct Context<'a> {
    objects: &'a Objects,
    /// Subscriptions by package.
    by_package: BTreeMap<&'a str, Vec<&'a Key>>,
    /// Installed operators that provide an API, by API.
    providers: BTreeMap<&'a str, Vec<&'a Key>>,
    /// Copies by namespace and name of the original.
    copies: BTreeMap<Key, usize>,
    /// Image references of the ClusterCatalogs.
    catalog_images: BTreeSet<&'a str>,
    /// OperatorGroups by namespace.
    groups: BTreeMap<&'a str, Vec<(&'a str, &'a OperatorGroup)>>,
}

impl<'a> Context<'a> {
    fn new(objects: &'a Objects) -> Self {
        let mut context = Self {
            objects,
            by_package: BTreeMap::new(),
            providers: BTreeMap::new(),
            copies: BTreeMap::new(),
            catalog_images: objects.catalogs.values().map(String::as_str).collect(),
            groups: BTreeMap::new(),
        };
        for (key, subscription) in &objects.subscriptions {
            context.by_package.entry(&subscription.package).or_default().push(key);
        }
        for (key, csv) in &objects.csvs {
            if csv.copied_from.is_empty() {
                csv.owned.iter().for_each(|api| context.providers.entry(api).or_default().push(key));
            } else {
                *context.copies.entry((csv.copied_from.clone(), key.1.clone())).or_default() += 1;
            }
        }
        for ((namespace, name), group) in &objects.groups {
            context.groups.entry(namespace).or_default().push((name, group));
        }
        context
    }

    fn subscribed(&self, key: &Key, subscription: &Subscription) -> PackageReport {
        let csv_key = (key.0.clone(), subscription.installed_csv.clone());
        let csv = self.objects.csvs.get(&csv_key).filter(|csv| csv.copied_from.is_empty());
        let mut findings = Findings::default();
        self.state(key, subscription, csv, &mut findings);
        self.group(&key.0, csv, &mut findings);
        self.settings(subscription, &csv_key, csv, &mut findings);
        self.sharing(key, subscription, &csv_key, csv, &mut findings);
        PackageReport {
            package: subscription.package.clone(),
            namespace: key.0.clone(),
            subscription: key.1.clone(),
            csv: subscription.installed_csv.clone(),
            version: csv.map(|csv| csv.version.clone()).unwrap_or_default(),
            channel: subscription.channel.clone(),
            class: findings.class(),
            findings: findings.0,
            after: csv.map_or_else(Vec::new, |csv| {
                self.dependents(&csv_key, csv).into_iter().map(|dependent| self.package(dependent)).collect()
            }),
        }
    }

    fn orphan(&self, (namespace, name): &Key, csv: &Csv) -> PackageReport {
        let mut findings = Findings::default();
        match self.begun(namespace, &csv.package) {
            Some(begun) => findings.add(rule::BEGUN, begun),
            None => findings.add(rule::ORPHAN, format!("{name} has no Subscription")),
        }
        PackageReport {
            package: csv.package.clone(),
            namespace: namespace.clone(),
            subscription: String::new(),
            csv: name.clone(),
            version: csv.version.clone(),
            channel: String::new(),
            class: findings.class(),
            findings: findings.0,
            after: Vec::new(),
        }
    }

    /// Message if a migration of the package has begun and not ended.
    fn begun(&self, namespace: &str, package: &str) -> Option<String> {
        let is_complete = *self.objects.migrations.get(&(namespace.to_owned(), package.to_owned()))?;
        (!is_complete).then(|| {
            let id = qualified(namespace, package);
            format!("interrupted; to continue: olm migrate apply {id}; to return: olm migrate rollback {id}")
        })
    }

    /// States that a migration cannot start from.
    fn state(&self, key: &Key, subscription: &Subscription, csv: Option<&Csv>, findings: &mut Findings) {
        let installed = &subscription.installed_csv;
        match csv {
            _ if installed.is_empty() => findings.add(rule::NOT_INSTALLED, "nothing is installed".to_owned()),
            None => findings.add(rule::NOT_INSTALLED, format!("{installed} does not exist")),
            Some(csv) if csv.phase != "Succeeded" => {
                findings.add(rule::NOT_INSTALLED, format!("{installed} is {} ({})", csv.phase, csv.reason));
            }
            Some(_) => {}
        }
        let current = &subscription.current_csv;
        let waiting = self.objects.waiting(&key.0, subscription).filter(|_| !installed.is_empty());
        if let Some(plan) = waiting {
            let message = format!("the upgrade to {current} waits for approval in InstallPlan {plan}");
            findings.add(rule::PENDING, message);
        } else if !installed.is_empty() && !current.is_empty() && current != installed {
            findings.add(
                rule::UPGRADING,
                format!("an upgrade to {current} is in progress ({})", subscription.state),
            );
        }
        let plan_key = (key.0.clone(), subscription.install_plan.clone());
        let plan = self.objects.plans.get(&plan_key);
        if let Some(plan) = plan.filter(|plan| plan.is_running()) {
            let phase = if plan.phase.is_empty() { "new" } else { &plan.phase };
            let message = format!("InstallPlan {} for {} is {phase}", plan_key.1, plan.csvs.join(", "));
            findings.add(rule::UPGRADING, message);
        }
        if let Some(begun) = self.begun(&key.0, &subscription.package) {
            return findings.add(rule::BEGUN, begun);
        }
        let foreign = self.objects.foreign.iter().filter(|(_, package)| **package == subscription.package);
        let marked: Vec<&str> = foreign.map(|(object, _)| object.as_str()).collect();
        if !marked.is_empty() {
            return findings.add(rule::FOREIGN, format!("marks on {}", marked.join(", ")));
        }
        let extensions =
            self.objects.extensions.iter().filter(|(_, package)| **package == subscription.package);
        for (name, _) in extensions {
            findings.add(rule::EXTENSION, format!("ClusterExtension {name} installs the package"));
        }
    }

    /// Install mode.
    fn group(&self, namespace: &str, csv: Option<&Csv>, findings: &mut Findings) {
        let groups = self.groups.get(namespace).map_or(&[][..], Vec::as_slice);
        let [(name, group)] = groups else {
            let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
            let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return findings.add(rule::GROUP, format!("OperatorGroups of namespace {namespace}: {found}"));
        };
        let (modes, setting) = watched(namespace, group);
        let missing: Vec<&str> =
            modes.into_iter().filter(|mode| csv.is_some_and(|csv| !csv.modes.contains(*mode))).collect();
        if !missing.is_empty() {
            findings
                .add(rule::MODE, format!("OperatorGroup {name} needs install mode {}", missing.join(", ")));
        }
        if let Some(setting) = setting {
            findings.add(rule::WATCH, setting);
        }
        if !group.service_account.is_empty() {
            let message = format!("OperatorGroup {name} has serviceAccountName {}", group.service_account);
            findings.add(rule::ACCOUNT, message);
        }
        let uses_role = |role: &str| group_role::access(namespace, name, role).is_some();
        let bindings = self.objects.bindings.iter().filter(|(_, binding)| uses_role(&binding.role));
        let users: Vec<String> = bindings.map(|((namespace, name), _)| qualified(namespace, name)).collect();
        if !users.is_empty() {
            findings
                .add(rule::USERS, format!("bindings to roles of OperatorGroup {name}: {}", users.join(", ")));
        }
    }

    /// Settings of Subscription, CatalogSource and operator.
    fn settings(
        &self,
        subscription: &Subscription,
        csv_key: &Key,
        csv: Option<&Csv>,
        findings: &mut Findings,
    ) {
        if let Some(config) = &subscription.config {
            let fields: Vec<&str> =
                config.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
            findings.add(rule::CONFIG, format!("spec.config: {}", fields.join(", ")));
        }
        if subscription.is_manual {
            findings.add(rule::APPROVAL, "installPlanApproval is Manual".to_owned());
        }
        if self.objects.used_conditions.contains(csv_key) {
            findings.add(rule::CONDITION, format!("OperatorCondition {} has conditions", csv_key.1));
        }
        if let Some(count) = csv.map(|csv| csv.api_services).filter(|count| *count > 0) {
            findings.add(rule::API_SERVICE, counted(count, "aggregated API"));
        }
        if let Some(csv) = csv.filter(|csv| !csv.classic_resources.is_empty()) {
            let all: Vec<&str> = csv.classic_resources.iter().map(String::as_str).collect();
            findings.add(rule::USES_CLASSIC, format!("uses {} of operators.coreos.com", all.join(", ")));
        }
        self.catalog(subscription, csv_key, findings);
    }

    /// Catalog that offers the installed bundle.
    fn catalog(&self, subscription: &Subscription, csv_key: &Key, findings: &mut Findings) {
        let offered = self.objects.offered.as_ref();
        let is_offered = offered.is_some_and(|offered| offered.contains_key(&csv_key.1));
        if is_offered || csv_key.1.is_empty() {
            return;
        }
        let (namespace, name) = &subscription.source;
        match self.objects.sources.get(&subscription.source).map(|source| source.image.as_str()) {
            None | Some("") => findings.add(
                rule::NO_IMAGE,
                format!("CatalogSource {} does not exist or has no image", qualified(namespace, name)),
            ),
            Some(image) if !self.catalog_images.contains(image) => {
                findings.add(rule::CATALOG, format!("CatalogSource {}: {image}", qualified(namespace, name)));
            }
            Some(_) if offered.is_some() => {
                findings.add(rule::NO_BUNDLE, format!("no ClusterCatalog has {}", csv_key.1));
            }
            Some(_) => {}
        }
    }

    /// Relations to other packages and to users.
    fn sharing(
        &self,
        key: &Key,
        subscription: &Subscription,
        csv_key: &Key,
        csv: Option<&Csv>,
        findings: &mut Findings,
    ) {
        let twins = self.by_package.get(subscription.package.as_str()).into_iter().flatten();
        let twins: Vec<String> =
            twins.filter(|twin| **twin != key).map(|(namespace, name)| qualified(namespace, name)).collect();
        if !twins.is_empty() {
            findings.add(rule::SEVERAL, format!("also installed by Subscription {}", twins.join(", ")));
        }
        let Some(csv) = csv else { return };
        for api in csv.required.difference(&csv.owned) {
            let by: Vec<&str> = self.others(csv_key, api).map(|(_, name)| name.as_str()).collect();
            let by = if by.is_empty() { "no operator of classic OLM".to_owned() } else { by.join(", ") };
            findings.add(rule::REQUIRES, format!("requires {api}, provided by {by}"));
        }
        for api in &csv.owned {
            let is_other = |other: &&Key| self.package_of(other) != subscription.package;
            let by: Vec<&str> =
                self.others(csv_key, api).filter(is_other).map(|(_, name)| name.as_str()).collect();
            if !by.is_empty() {
                findings.add(rule::SHARED, format!("{api} is also provided by {}", by.join(", ")));
            }
        }
        let dependents = self.dependents(csv_key, csv);
        if !dependents.is_empty() {
            let names: Vec<&str> = dependents.iter().map(|(_, name)| name.as_str()).collect();
            findings.add(rule::REQUIRED, format!("required by {}", names.join(", ")));
        }
        if let Some(copies) = self.copies.get(csv_key) {
            findings.add(rule::COPIES, format!("copied to {}", counted(*copies, "namespace")));
        }
    }

    /// Providers of an API other than this operator.
    fn others(&self, csv: &Key, api: &str) -> impl Iterator<Item = &'a Key> {
        let providers = self.providers.get(api).cloned().unwrap_or_default();
        let own = csv.clone();
        providers.into_iter().filter(move |provider| **provider != own)
    }

    /// Operators that require an API of this one and do not provide it themselves.
    fn dependents(&self, key: &Key, csv: &Csv) -> Vec<&'a Key> {
        let requires = |other: &Csv| {
            other.required.iter().any(|api| csv.owned.contains(api) && !other.owned.contains(api))
        };
        let others = self.objects.csvs.iter().filter(|(other, _)| *other != key);
        let dependents = others.filter(|(_, other)| other.copied_from.is_empty() && requires(other));
        dependents.map(|(other, _)| other).collect()
    }

    /// `namespace/package` of an installed operator.
    fn package(&self, csv: &'a Key) -> String {
        qualified(&csv.0, self.package_of(csv))
    }

    /// Package of an installed operator, or its name if it has no Subscription.
    fn package_of(&self, (namespace, name): &'a Key) -> &'a str {
        let of_namespace = self.objects.subscriptions.iter().filter(|(key, _)| key.0 == *namespace);
        let mut subscriptions = of_namespace.filter(|(_, subscription)| subscription.installed_csv == *name);
        subscriptions.next().map_or(name, |(_, subscription)| &subscription.package)
    }
}

/// Install modes that an OperatorGroup needs, and the setting of a ClusterExtension.
fn watched(namespace: &str, group: &OperatorGroup) -> (Vec<&'static str>, Option<String>) {
    let targets =
        if group.targets.is_empty() && group.selector.is_some() { &group.namespaces } else { &group.targets };
    let has_own = targets.iter().any(|target| target == namespace);
    let modes = match targets.as_slice() {
        [] => vec!["AllNamespaces"],
        [_] if has_own => vec!["OwnNamespace"],
        [_] => vec!["SingleNamespace"],
        _ if has_own => vec!["MultiNamespace", "OwnNamespace"],
        _ => vec!["MultiNamespace"],
    };
    let setting = match (&group.selector, group.targets.as_slice()) {
        (Some(_), []) => Some(format!(
            "watchNamespaceSelector, which selects {}; {MULTI_WATCH}",
            counted(targets.len(), "namespace")
        )),
        (_, []) => None,
        (_, [target]) => Some(format!("watchNamespace: {target}")),
        (_, several) => Some(format!("watchNamespaces: [{}]; {MULTI_WATCH}", several.join(", "))),
    };
    // A selector that matches nothing yet needs no mode.
    let modes = if group.selector.is_some() && targets.is_empty() { Vec::new() } else { modes };
    (modes, setting)
}

/// Findings of one package.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, rule: &'static Rule, message: String) {
        self.0.push(Finding { rule, message });
    }

    fn class(&self) -> Class {
        worst(&self.0)
    }
}

/// Class of a package with these findings.
fn worst(findings: &[Finding]) -> Class {
    findings.iter().map(|finding| finding.rule.class).max().unwrap_or(Class::Ready)
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
