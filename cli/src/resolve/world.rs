//! Environment for dependency checks: other installed extensions, and the kinds that the cluster serves
//! (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_fbc::Property;
use olm_request::{ClusterState, Installed, ServedApis, newest, owner, policy, providers};
use olm_resolve::{CatalogSelector, DependencyMode, Gvk};
use olm_solve::{InstalledExtension, Question, SourceCatalog, Wish};
use olm_version::quote;

use super::ask::Ask;
use super::catalogs::Catalogs;
use super::rules::RuleArgs;
use crate::failure::Failure;
use crate::progress::say;
use crate::session::Session;
use crate::source::Cluster;

/// Installed extensions and served kinds.
#[derive(Debug, Default)]
pub(super) struct World {
    extensions: Vec<Extension>,
    /// Names of the extensions that have a revision.
    owners: BTreeSet<String>,
    served: ServedApis,
}

/// Installed extension.
#[derive(Debug)]
struct Extension {
    /// Resolution request of the extension.
    ask: Ask,
    /// Installed bundle.
    has: Installed,
    /// `true` if other changes must not break its dependencies.
    protected: bool,
}

impl World {
    /// Environment described by flags: `--with PACKAGE@VERSION` and `--served GROUP/VERSION/KIND`.
    ///
    /// # Errors
    /// No catalog has such a bundle, or a kind is malformed.
    pub(super) fn described(
        with: &[String],
        served: &[String],
        rules: &RuleArgs,
        catalogs: &Catalogs,
    ) -> Result<Self, Failure> {
        let mut world = Self::default();
        for text in with {
            let (package, version) = split_with(text)?;
            let mut ask = Ask::plain(package, rules)?;
            ask.set_installed(version, catalogs)?;
            world.extensions.extend(Extension::described(ask, catalogs));
        }
        // Without CRDs to inspect, ownership of kinds follows from the bundles.
        for Extension { has, .. } in &world.extensions {
            let defined = has.provider(&ServedApis::default()).gvks().cloned().collect();
            world.served.owned.insert(has.extension.clone(), defined);
            world.owners.insert(has.extension.clone());
        }
        world.served.gvks = served.iter().map(|text| read_kind(text)).collect::<Result<_, _>>()?;
        Ok(world)
    }

    /// Reads the environment from the cluster.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn of_cluster(
        cluster: &Cluster,
        rules: &RuleArgs,
        session: &Session,
    ) -> Result<Self, Failure> {
        let served = cluster.kinds(session).await?;
        let sets = cluster.object_sets(session).await?;
        let owners = sets.iter().filter_map(owner).map(str::to_owned).collect();
        let objects = cluster.extensions(session).await?;
        let objects: BTreeMap<String, _> =
            objects.into_iter().map(|object| (object.name_any(), object)).collect();
        let mut extensions = Vec::new();
        for (name, set) in newest(&sets) {
            let (has, faults) = Installed::read(set);
            for fault in faults {
                say(&format!(
                    "warning: {}: {fault}; dependencies are judged without these properties",
                    set.name_any()
                ));
            }
            extensions.push(Extension::of_cluster(has, objects.get(name), rules)?);
        }
        Ok(Self { extensions, owners, served })
    }

    /// Part of the environment that the rules of the request use.
    pub(super) fn around(&self, ask: &Ask) -> ClusterState {
        let mut around = ClusterState::default();
        if ask.rules.judges_dependencies() {
            let installed = self.extensions.iter().map(|one| &one.has);
            let owners = self.owners.iter().map(String::as_str).collect();
            let insists = |other: &str, type_: &str| self.insists(other, type_);
            let (surroundings, dependents) = providers(installed, &owners, &self.served, ask.name(), insists);
            around = ClusterState { surroundings: Some(surroundings), dependents, ..around };
        }
        if ask.rules.settings.cluster_constraints {
            around.cluster = Some(self.served.facts());
        }
        around
    }

    /// Reports whether changes must not break dependencies of this type that the extension has.
    fn insists(&self, extension: &str, property_type: &str) -> bool {
        let found = self.extensions.iter().find(|one| one.has.extension == extension);
        found.is_some_and(|one| one.protected && one.ask.rules.counts(property_type))
    }

    /// Requests of the installed extensions.
    pub(super) fn asks(&self) -> impl Iterator<Item = &Ask> {
        self.extensions.iter().map(|one| &one.ask)
    }

    /// Question for a full solve.
    pub(super) fn question<'a>(
        &self,
        asks: &[Ask],
        catalogs: &Catalogs,
        sources: &'a [SourceCatalog],
        deadline: Instant,
    ) -> Question<'a> {
        let mut installed: Vec<_> =
            self.extensions.iter().map(|one| one.for_solving(&self.served, catalogs)).collect();
        for ask in asks {
            // An installed bundle from a file or a flag, unless the cluster has the package.
            let known = installed.iter().any(|one| one.wish.package == ask.package());
            let added = Extension::described(ask.clone(), catalogs).filter(|_| !known);
            installed.extend(added.map(|one| one.for_solving(&self.served, catalogs)));
        }
        let mut served = self.served.external(|owner| self.owners.contains(owner));
        served.extend(installed.iter().flat_map(|one| one.provider.gvks()).cloned());
        let wanted = asks.iter().map(|ask| wish(ask, catalogs)).collect();
        Question { wanted, installed, catalogs: sources, served, deadline }
    }
}

fn wish(ask: &Ask, catalogs: &Catalogs) -> Wish {
    Wish {
        package: ask.filter.package_name.clone(),
        channels: ask.filter.channels.clone(),
        version: ask.filter.version.clone(),
        policy: policy(&ask.filter),
        ignored_requirements: ask.rules.ignored_requirements.clone(),
        upgrade_scope: ask.rules.upgrade_scope,
        exclude_skipped: ask.rules.exclude_skipped,
        catalogs: (ask.selector != CatalogSelector::default())
            .then(|| catalogs.selected_names(&ask.selector)),
    }
}

impl Extension {
    /// Extension of a request. `None` if it names no installed bundle.
    fn described(ask: Ask, catalogs: &Catalogs) -> Option<Self> {
        let bundle = ask.installed.clone()?;
        let properties = offered(ask.package(), &bundle.name, catalogs);
        let has = Installed::new(ask.name().to_owned(), ask.package().to_owned(), bundle, properties);
        let protected = ask.rules.settings.dependencies == DependencyMode::Check;
        Some(Self { ask, has, protected })
    }

    /// Extension of the cluster. If its object is deleted but a revision remains, it has no constraints.
    fn of_cluster(
        has: Installed,
        object: Option<&ClusterExtension>,
        rules: &RuleArgs,
    ) -> Result<Self, Failure> {
        // An extension without valid request cannot be changed, but is still installed.
        let asked = object.and_then(|object| Ask::of_extension(object, rules).ok());
        let mut ask = asked.map_or_else(|| Ask::plain(&has.package, rules), Ok)?;
        ask.extension = Some(has.extension.clone());
        ask.installed = Some(has.bundle.clone());
        let protected = object.is_some_and(|object| ask.rules.protect(object));
        Ok(Self { ask, has, protected })
    }

    fn for_solving(&self, served: &ServedApis, catalogs: &Catalogs) -> InstalledExtension {
        let Self { ask, has: Installed { extension, bundle, package, properties, .. }, .. } = self;
        // A revision records all properties only if dependencies are checked. For a plan, the catalogs provide the
        // rest.
        let offered = offered(ask.package(), &bundle.name, catalogs);
        let properties = properties.iter().cloned().chain(offered).collect();
        let has = Installed::new(extension.clone(), package.clone(), bundle.clone(), properties);
        let counts = has.requirements.iter().filter(|one| ask.rules.counts(one.property_type()));
        InstalledExtension {
            extension: has.extension.clone(),
            wish: wish(ask, catalogs),
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
pub(super) fn split_with(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('@').ok_or_else(|| {
        Failure::usage(format!("--with {}: expected PACKAGE@VERSION, such as etcd@0.9.4", quote(text)))
    })
}

fn read_kind(text: &str) -> Result<Gvk, Failure> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, kind) = match parts[..] {
        [group, version, kind] => (group, version, kind),
        [version, kind] => ("", version, kind),
        _ => {
            return Err(Failure::usage(format!(
                "--served {}: expected GROUP/VERSION/KIND, such as monitoring.coreos.com/v1/ServiceMonitor",
                quote(text)
            )));
        }
    };
    Ok(Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
}
