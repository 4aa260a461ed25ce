//! Environment for dependency checks: other installed extensions, and the kinds that the cluster serves
//! (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_fbc::Property;
use olm_request::{
    ClusterState, ExtensionBundle, GroupMember, ServedApis, newest, owner, policy, providers, rolling_out,
    step,
};
use olm_resolve::{CatalogSelector, DependencyMode, GroupStep, Gvk, Provider};
use olm_solve::{InstalledExtension, PackageConstraints, SolverInput, SourceCatalog};
use olm_version::quote;

use super::catalogs::Catalogs;
use super::query::Query;
use super::rules::RuleArgs;

/// Installed extensions and served kinds.
#[derive(Debug, Default)]
pub(super) struct DependencyInputs {
    extensions: Vec<Extension>,
    /// Names of the extensions that have a revision.
    owners: BTreeSet<String>,
    served: ServedApis,
}

/// Installed extension.
#[derive(Debug)]
struct Extension {
    /// Resolution request of the extension.
    query: Query,
    /// Installed bundle.
    has: ExtensionBundle,
    /// Bundle of the revision that rolls out, if any.
    moved: Option<Provider>,
    /// `true` if other changes must not break its dependencies.
    protected: bool,
}

impl DependencyInputs {
    /// Environment described by flags: `--with PACKAGE@VERSION` and `--served GROUP/VERSION/KIND`.
    ///
    /// # Errors
    /// No catalog has such a bundle, or a kind is malformed.
    pub(super) fn described(
        with: &[String],
        served: &[String],
        rules: &RuleArgs,
        catalogs: &Catalogs,
    ) -> Result<Self, CliError> {
        let mut dependencies = Self::default();
        for text in with {
            let (package, version) = split_with(text)?;
            let mut query = Query::plain(package, rules)?;
            query.set_installed(version, catalogs)?;
            dependencies.extensions.extend(Extension::described(query, catalogs));
        }
        // Without CRDs to inspect, ownership of kinds follows from the bundles.
        for Extension { has, .. } in &dependencies.extensions {
            let defined = has.provider(&ServedApis::default()).gvks().cloned().collect();
            dependencies.served.owned.insert(has.extension.clone(), defined);
            dependencies.owners.insert(has.extension.clone());
        }
        dependencies.served.gvks = served.iter().map(|text| read_kind(text)).collect::<Result<_, _>>()?;
        Ok(dependencies)
    }

    /// Reads the environment from the cluster.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn of_cluster(
        cluster: &ClusterConnection,
        rules: &RuleArgs,
        session: &Session,
    ) -> Result<Self, CliError> {
        let served = cluster.kinds(session).await?;
        let revisions = cluster.object_sets(session).await?;
        let owners = revisions.iter().filter_map(owner).map(str::to_owned).collect();
        let objects = cluster.extensions(session).await?;
        let objects: BTreeMap<String, _> =
            objects.into_iter().map(|object| (object.name_any(), object)).collect();
        let mut extensions = Vec::new();
        for (name, revision) in newest(&revisions) {
            let (has, faults) = ExtensionBundle::read(revision);
            for fault in faults {
                say(&format!(
                    "warning: {}: {fault}; dependencies are checked without these properties",
                    revision.name_any()
                ));
            }
            let moved = rolling_out(&revisions, revision)
                .map(|revision| ExtensionBundle::read(revision).0.provider(&ServedApis::default()));
            extensions.push(Extension { moved, ..Extension::of_cluster(has, objects.get(name), rules)? });
        }
        Ok(Self { extensions, owners, served })
    }

    /// Part of the environment that the rules of the request use.
    pub(super) fn cluster_state(&self, query: &Query, catalogs: &Catalogs) -> ClusterState {
        let mut cluster_state = ClusterState::default();
        if query.rules.judges_dependencies() {
            // An installed bundle from a file or a flag counts like that of an extension of the cluster.
            let known = self.extensions.iter().any(|one| one.has.extension == query.name());
            let own = Extension::described(query.clone(), catalogs).filter(|_| !known);
            let installed = self.extensions.iter().chain(&own).map(|one| &one.has);
            let owners = self.owners.iter().map(String::as_str).collect();
            let protects = |other: &str, type_: &str| self.protects(other, type_);
            let (providers, dependents) = providers(installed, &owners, &self.served, query.name(), protects);
            cluster_state = ClusterState { providers: Some(providers), dependents, ..cluster_state };
        }
        if query.rules.settings.cluster_constraints {
            cluster_state.cluster = Some(self.served.facts());
        }
        cluster_state.group = self.group_step(query, catalogs, &cluster_state);
        cluster_state
    }

    /// Step of the upgrade group of the request, if it has one (docs/design/additions.md#upgrade-groups).
    fn group_step(
        &self,
        query: &Query,
        catalogs: &Catalogs,
        cluster_state: &ClusterState,
    ) -> Option<GroupStep> {
        let group = query.rules.upgrade_group.as_ref()?;
        let of_group =
            |one: &&Extension| one.protected && one.query.rules.upgrade_group.as_ref() == Some(group);
        let member = |one: &Extension| {
            let asked = if one.has.extension == query.name() { query } else { &one.query };
            GroupMember {
                extension: one.has.extension.clone(),
                filter: asked.filter.clone(),
                installed: one.has.bundle.clone(),
                rules: asked.rules.clone(),
                catalogs: catalogs.responses(asked.package(), &asked.selector),
                moved: one.moved.clone(),
            }
        };
        let members: Vec<GroupMember> = self.extensions.iter().filter(of_group).map(member).collect();
        step(query.name(), &members, cluster_state)
    }

    /// Reports whether changes must not break dependencies of this type that the extension has.
    fn protects(&self, extension: &str, property_type: &str) -> bool {
        let found = self.extensions.iter().find(|one| one.has.extension == extension);
        found.is_some_and(|one| one.protected && one.query.rules.counts(property_type))
    }

    /// Requests of the installed extensions.
    pub(super) fn queries(&self) -> impl Iterator<Item = &Query> {
        self.extensions.iter().map(|one| &one.query)
    }

    /// Input of a full solve.
    pub(super) fn input<'a>(
        &self,
        queries: &[Query],
        catalogs: &Catalogs,
        sources: &'a [SourceCatalog],
        deadline: Instant,
    ) -> SolverInput<'a> {
        let mut installed: Vec<_> =
            self.extensions.iter().map(|one| one.for_solving(&self.served, catalogs)).collect();
        for query in queries {
            // An installed bundle from a file or a flag, unless the cluster has the package.
            let known = installed.iter().any(|one| one.constraints.package == query.package());
            let added = Extension::described(query.clone(), catalogs).filter(|_| !known);
            installed.extend(added.map(|one| one.for_solving(&self.served, catalogs)));
        }
        let mut served = self.served.external(|owner| self.owners.contains(owner));
        served.extend(installed.iter().flat_map(|one| one.provider.gvks()).cloned());
        let requested = queries.iter().map(|query| constraints(query, catalogs)).collect();
        SolverInput { requested, installed, catalogs: sources, served, deadline }
    }
}

fn constraints(query: &Query, catalogs: &Catalogs) -> PackageConstraints {
    PackageConstraints {
        package: query.filter.package_name.clone(),
        channels: query.filter.channels.clone(),
        version: query.filter.version.clone(),
        policy: policy(&query.filter),
        ignored_requirements: query.rules.ignored_requirements.clone(),
        upgrade_scope: query.rules.upgrade_scope,
        exclude_skipped: query.rules.exclude_skipped,
        catalogs: (query.selector != CatalogSelector::default())
            .then(|| catalogs.selected_names(&query.selector)),
    }
}

impl Extension {
    /// Extension of a request. `None` if it names no installed bundle.
    fn described(query: Query, catalogs: &Catalogs) -> Option<Self> {
        let bundle = query.installed.clone()?;
        let properties = offered(query.package(), &bundle.name, catalogs);
        let has =
            ExtensionBundle::new(query.name().to_owned(), query.package().to_owned(), bundle, properties);
        let protected = query.rules.settings.dependencies == DependencyMode::Check;
        Some(Self { query, has, moved: None, protected })
    }

    /// Extension of the cluster. If its object is deleted but a revision remains, it has no constraints.
    fn of_cluster(
        has: ExtensionBundle,
        object: Option<&ClusterExtension>,
        rules: &RuleArgs,
    ) -> Result<Self, CliError> {
        // An extension without valid request cannot be changed, but is still installed.
        let asked = object.and_then(|object| Query::of_extension(object, rules).ok());
        let mut query = asked.map_or_else(|| Query::plain(&has.package, rules), Ok)?;
        query.extension = Some(has.extension.clone());
        query.installed = Some(has.bundle.clone());
        let protected = object.is_some_and(|object| query.rules.protect(object));
        Ok(Self { query, has, moved: None, protected })
    }

    fn for_solving(&self, served: &ServedApis, catalogs: &Catalogs) -> InstalledExtension {
        let Self { query, has: ExtensionBundle { extension, bundle, package, properties, .. }, .. } = self;
        // A revision records all properties only if dependencies are checked. For a plan, the catalogs provide the
        // rest.
        let offered = offered(query.package(), &bundle.name, catalogs);
        let properties = properties.iter().cloned().chain(offered).collect();
        let has = ExtensionBundle::new(extension.clone(), package.clone(), bundle.clone(), properties);
        let counts = has.requirements.iter().filter(|one| query.rules.counts(one.property_type()));
        InstalledExtension {
            extension: has.extension.clone(),
            constraints: constraints(query, catalogs),
            bundle: has.bundle.name.clone(),
            version: has.bundle.version.clone(),
            release: has.bundle.release.clone(),
            provider: has.provider(served),
            requirements: counts.cloned().collect(),
        }
    }
}

/// Properties of a bundle in the catalogs.
fn offered(package: &str, bundle: &str, catalogs: &Catalogs) -> Vec<Property> {
    let found = catalogs.offers(package).find(|offer| offer.name() == bundle);
    found.map(|offer| offer.properties().to_vec()).unwrap_or_default()
}

/// Splits `--with PACKAGE@VERSION` into package and version.
///
/// # Errors
/// There is no `@`.
pub(super) fn split_with(text: &str) -> Result<(&str, &str), CliError> {
    text.split_once('@').ok_or_else(|| {
        CliError::usage(format!("--with {}: expected PACKAGE@VERSION, such as etcd@0.9.4", quote(text)))
    })
}

fn read_kind(text: &str) -> Result<Gvk, CliError> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, kind) = match parts[..] {
        [group, version, kind] => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => {
            return Err(CliError::usage(format!(
                "--served {}: expected GROUP/VERSION/KIND, such as monitoring.coreos.com/v1/ServiceMonitor",
                quote(text)
            )));
        }
    };
    Ok(Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
}
