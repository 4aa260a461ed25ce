//! All bundles that a plan can contain, with the APIs they provide, their requirements and the order of preference.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use olm_resolve::{
    AvailableProviders, Catalog, DependencyMode, Fate, Gvk, Installed, Offer, PackageIndex, Provider,
    Request, Requirement, RequirementVerdict, ResolveError, Rules, explain, resolve,
};

use crate::channels::ranks;
use crate::conflict::SolveError;
use crate::demands::{Demanded, demands};
use crate::input::{InstalledExtension, PackageConstraints, SolverInput, SourceCatalog};

/// Index of a bundle.
pub(crate) type Id = usize;

/// Bundle that is installed or offered by a catalog.
pub(crate) struct Bundle<'q> {
    pub(crate) package: &'q str,
    pub(crate) name: &'q str,
    /// Version as in the status of an extension. Empty if it cannot be read.
    pub(crate) version: String,
    pub(crate) provider: Provider,
    /// Indexes of its requirements.
    pub(crate) needs: Vec<usize>,
    pub(crate) source: Source<'q>,
    /// Reason for which it cannot be chosen although it exists.
    pub(crate) excluded: Option<String>,
}

/// Origin of a bundle.
pub(crate) enum Source<'q> {
    Installed(&'q InstalledExtension),
    Offered { catalog: &'q SourceCatalog, offer: &'q Offer, channel: Option<&'q str>, rank: Rank<'q> },
}

/// Order within a catalog (docs/design/additions.md#order-of-preference): default channel first, package, channel,
/// distance from the head.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank<'q> {
    not_default: bool,
    package: &'q str,
    /// Bundles without a channel are last.
    no_channel: bool,
    channel: &'q str,
    position: usize,
}

impl<'q> Rank<'q> {
    /// Rank of a bundle from its place in [`ranks`].
    fn new(package: &'q str, index: &PackageIndex, place: Option<(&'q str, usize)>) -> Self {
        let (channel, position) = place.unwrap_or_default();
        let no_channel = place.is_none();
        let not_default = no_channel || channel != index.default_channel();
        Self { not_default, package, no_channel, channel, position }
    }
}

/// Requirement of bundles.
pub(crate) struct Need {
    pub(crate) requirement: Requirement,
    /// Served kind that meets it without any bundle.
    pub(crate) external: Option<String>,
    met_by: OnceCell<Vec<Id>>,
    eligible: OnceCell<Vec<Id>>,
}

/// Package that must be installed after the plan.
pub(crate) struct Demand<'q> {
    pub(crate) constraints: &'q PackageConstraints,
    pub(crate) requested: bool,
    pub(crate) installed: Option<&'q InstalledExtension>,
    /// Bundles that the constraints admit, best first.
    pub(crate) candidates: Vec<Id>,
}

/// All candidates and requirements, in an order that is independent of the order of the inputs.
#[derive(Default)]
pub(crate) struct Universe<'q> {
    pub(crate) bundles: Vec<Bundle<'q>>,
    pub(crate) needs: Vec<Need>,
    pub(crate) packages: BTreeMap<&'q str, Vec<Id>>,
    /// Kinds that bundles of more than one package provide, each with a number.
    pub(crate) contested: BTreeMap<Gvk, usize>,
    /// Requested packages first, then installed ones, each sorted by name.
    pub(crate) demands: Vec<Demand<'q>>,
}

impl<'q> Universe<'q> {
    /// # Errors
    /// Constraints are unreadable, or a package has two.
    pub(crate) fn new(input: &'q SolverInput<'q>) -> Result<Self, SolveError> {
        let mut builder = Builder::new(input);
        for demanded in demands(input)? {
            builder.demand(&demanded)?;
        }
        builder.rest();
        Ok(builder.finish())
    }

    /// Bundles that meet a need, including those that cannot be chosen.
    pub(crate) fn met_by(&self, need: usize) -> &[Id] {
        let Some(need) = self.needs.get(need) else { return &[] };
        need.met_by.get_or_init(|| {
            let meets = |id: &Id| need.requirement.is_met_by(&self.bundles[*id].provider);
            (0..self.bundles.len()).filter(meets).collect()
        })
    }

    /// Bundles that can be chosen to meet a need, in no order of preference.
    pub(crate) fn eligible(&self, need: usize) -> &[Id] {
        let Some(cell) = self.needs.get(need).map(|need| &need.eligible) else { return &[] };
        cell.get_or_init(|| {
            self.met_by(need).iter().copied().filter(|id| self.bundles[*id].excluded.is_none()).collect()
        })
    }

    /// Bundles that can be chosen to meet a need of `requirer`, best first
    /// (docs/design/additions.md#order-of-preference): installed, not deprecated, same catalog, higher priority,
    /// catalog name, then by [`Rank`].
    pub(crate) fn candidates(&self, need: usize, requirer: Id) -> Vec<Id> {
        let mut found = self.eligible(need).to_vec();
        let home = self.bundles.get(requirer).and_then(Bundle::catalog).map(|catalog| &catalog.name);
        found.sort_by_key(|id| {
            let bundle = &self.bundles[*id];
            match &bundle.source {
                Source::Installed(_) => (false, false, false, Reverse(0), "", None, *id),
                Source::Offered { catalog, offer, rank, .. } => {
                    let away = Some(&catalog.name) != home;
                    let priority = Reverse(catalog.priority);
                    (true, offer.deprecated(), away, priority, catalog.name.as_str(), Some(rank), *id)
                }
            }
        });
        found
    }

    /// `true` if the user requests the package.
    pub(crate) fn is_requested(&self, package: &str) -> bool {
        self.demands.iter().any(|demand| demand.requested && demand.constraints.package == package)
    }

    /// Kind that both bundles provide, if they belong to different packages.
    pub(crate) fn clash(&self, a: Id, b: Id) -> Option<&Gvk> {
        let (a, b) = (&self.bundles[a], &self.bundles[b]);
        a.provider.gvks().find(|gvk| a.package != b.package && b.provider.gvks().any(|other| other == *gvk))
    }
}

impl<'q> Bundle<'q> {
    pub(crate) fn catalog(&self) -> Option<&'q SourceCatalog> {
        match self.source {
            Source::Installed(_) => None,
            Source::Offered { catalog, .. } => Some(catalog),
        }
    }

    pub(crate) fn is_installed(&self) -> bool {
        matches!(self.source, Source::Installed(_))
    }
}

struct Builder<'q> {
    catalogs: Vec<&'q SourceCatalog>,
    external: AvailableProviders,
    known_needs: HashMap<(String, String), usize>,
    universe: Universe<'q>,
}

impl<'q> Builder<'q> {
    fn new(input: &'q SolverInput<'q>) -> Self {
        let mut catalogs: Vec<_> = input.catalogs.iter().collect();
        catalogs.sort_by_key(|catalog| (Reverse(catalog.priority), &catalog.name));
        let mut served = input.served.clone();
        // Kinds of extensions are added and removed with their bundles.
        for gvk in input.installed.iter().flat_map(|extension| extension.provider.gvks()) {
            served.remove(gvk);
        }
        // Of a package that is installed more than once, all but the first by name only meet requirements.
        let mut extensions: Vec<_> = input.installed.iter().collect();
        extensions.sort_by_key(|one| (&one.constraints.package, &one.extension));
        let twins = extensions.windows(2).filter_map(|pair| match pair {
            [one, twin] if one.constraints.package == twin.constraints.package => Some(twin.provider.clone()),
            _ => None,
        });
        Self {
            catalogs,
            external: AvailableProviders { providers: twins.collect(), served },
            known_needs: HashMap::new(),
            universe: Universe::default(),
        }
    }

    fn add(&mut self, bundle: Bundle<'q>) -> Id {
        let id = self.universe.bundles.len();
        self.universe.packages.entry(bundle.package).or_default().push(id);
        self.universe.bundles.push(bundle);
        id
    }

    fn need(&mut self, requirement: Requirement) -> usize {
        let external = match requirement.verdict(&self.external) {
            RequirementVerdict::Met { by, .. } => Some(by),
            RequirementVerdict::Unmet { .. } | RequirementVerdict::Invalid(_) => None,
        };
        self.universe.needs.push(Need {
            requirement,
            external,
            met_by: OnceCell::new(),
            eligible: OnceCell::new(),
        });
        self.universe.needs.len() - 1
    }

    /// Adds the bundles of a demanded package, with the resolver's verdict on each.
    fn demand(&mut self, demanded: &Demanded<'q>) -> Result<(), SolveError> {
        let Demanded { constraints, installed, ref twins, requested } = *demanded;
        let request = request(constraints, installed);
        let selected = |catalog: &&&'q SourceCatalog| {
            constraints.catalogs.as_ref().is_none_or(|c| c.contains(&catalog.name))
        };
        let asked: Vec<&'q SourceCatalog> = self.catalogs.iter().filter(selected).copied().collect();
        let answers: Vec<Catalog> =
            asked.iter().map(|catalog| answer(catalog, &constraints.package)).collect();
        if let Err(error @ (ResolveError::Version { .. } | ResolveError::Installed { .. })) =
            resolve(&request, &answers)
        {
            return Err(SolveError::Constraints {
                package: constraints.package.clone(),
                fault: Box::new(error),
            });
        }
        let stay = installed.map(|extension| self.add_installed(extension, twins));
        let unchanged = (!twins.is_empty()).then(|| {
            let names: Vec<&str> =
                installed.iter().chain(twins).map(|extension| extension.extension.as_str()).collect();
            format!("the package is installed more than once, by {}, and not changed", names.join(" and "))
        });
        let mut sound = Vec::new();
        let mut deprecated = Vec::new();
        let mut offered = false;
        for (catalog, explained) in asked.iter().zip(explain(&request, &answers).catalogs) {
            let Some((name, package)) = catalog.packages.get_key_value(&constraints.package) else {
                continue;
            };
            let ranks = ranks(package);
            for ((offer, verdict), place) in package.offers().zip(explained.bundles).zip(ranks) {
                let same = installed.is_some_and(|i| is_same(i, offer));
                let excluded =
                    unchanged.clone().or_else(|| (!is_admitted(verdict.fate)).then_some(verdict.why));
                let admitted = excluded.is_none() && offer.version().is_ok();
                offered |= same;
                let id = if same {
                    stay
                } else {
                    let rank = Rank::new(name, package, place);
                    let channel = channel(&request, package, offer, place);
                    let ignored = &constraints.ignored_requirements;
                    Some(self.add_offer(catalog, offer, rank, channel, excluded, ignored))
                };
                let list = if offer.deprecated() { &mut deprecated } else { &mut sound };
                list.extend(id.filter(|id| admitted && !list.contains(id)));
            }
        }
        let mut candidates: Vec<Id> = sound;
        let further: Vec<Id> = deprecated.into_iter().filter(|id| !candidates.contains(id)).collect();
        candidates.extend(further);
        self.place_installed(
            stay.filter(|_| !(requested && offered)),
            constraints,
            requested,
            &mut candidates,
        );
        self.universe.demands.push(Demand { constraints, requested, installed, candidates });
        Ok(())
    }

    /// Inserts the installed bundle. An extension that is not requested keeps its bundle if possible. A requested one
    /// that no catalog offers keeps its bundle if no other is possible and its constraints admit the bundle.
    fn place_installed(
        &self,
        stay: Option<Id>,
        constraints: &PackageConstraints,
        requested: bool,
        candidates: &mut Vec<Id>,
    ) {
        let Some(stay) = stay else { return };
        if !requested {
            candidates.retain(|id| *id != stay);
            candidates.insert(0, stay);
        } else if !candidates.contains(&stay) {
            let range = constraints.version.as_deref().filter(|text| !text.is_empty());
            let constraint = range.and_then(|text| olm_version::Constraint::parse(text).ok());
            let version = self.universe.bundles[stay].provider.version().map(|v| v.version().clone());
            if constraint.is_none_or(|c| version.is_some_and(|version| c.matches(&version))) {
                candidates.push(stay);
            }
        }
    }

    /// Adds the installed bundle, which stands for its twins, too: their requirements must remain met.
    fn add_installed(&mut self, extension: &'q InstalledExtension, twins: &[&InstalledExtension]) -> Id {
        let all = [extension].into_iter().chain(twins.iter().copied());
        let requirements = all.flat_map(|extension| &extension.requirements);
        let needs = requirements.map(|requirement| self.need(requirement.clone())).collect();
        self.add(Bundle {
            package: &extension.constraints.package,
            name: &extension.bundle,
            version: extension.version.clone(),
            provider: extension.provider.clone(),
            needs,
            source: Source::Installed(extension),
            excluded: None,
        })
    }

    fn add_offer(
        &mut self,
        catalog: &'q SourceCatalog,
        offer: &'q Offer,
        rank: Rank<'q>,
        channel: Option<&'q str>,
        excluded: Option<String>,
        ignored_requirements: &[String],
    ) -> Id {
        let mut needs = Vec::new();
        for property in offer.properties() {
            if ignored_requirements.contains(&property.kind) {
                continue;
            }
            let key = (property.kind.clone(), property.value.get().to_owned());
            if let Some(known) = self.known_needs.get(&key) {
                needs.push(*known);
            } else if let Some(requirement) = Requirement::parse(property) {
                let need = self.need(requirement);
                self.known_needs.insert(key, need);
                needs.push(need);
            }
        }
        let version = offer.version();
        self.add(Bundle {
            package: rank.package,
            name: offer.name(),
            version: version.map(|version| version.shown(false).0).unwrap_or_default(),
            provider: Provider::new(None, offer.name().to_owned(), offer.properties().to_vec()),
            needs,
            excluded: excluded.or_else(|| version.err().map(str::to_owned)),
            source: Source::Offered { catalog, offer, channel, rank },
        })
    }

    /// Adds the packages without constraints.
    fn rest(&mut self) {
        let asked: Vec<&str> =
            self.universe.demands.iter().map(|demand| demand.constraints.package.as_str()).collect();
        for catalog in self.catalogs.clone() {
            for (name, package) in &catalog.packages {
                if asked.contains(&name.as_str()) {
                    continue;
                }
                for (offer, place) in package.offers().zip(ranks(package)) {
                    let channel = place.map(|(channel, _)| channel);
                    self.add_offer(catalog, offer, Rank::new(name, package, place), channel, None, &[]);
                }
            }
        }
    }

    fn finish(mut self) -> Universe<'q> {
        let mut providers: BTreeMap<&Gvk, Vec<&str>> = BTreeMap::new();
        for bundle in &self.universe.bundles {
            for gvk in bundle.provider.gvks() {
                let packages = providers.entry(gvk).or_default();
                if !packages.contains(&bundle.package) {
                    packages.push(bundle.package);
                }
            }
        }
        let contested = providers.into_iter().filter(|(_, packages)| packages.len() > 1);
        let numbered = contested.enumerate().map(|(number, (gvk, _))| (gvk.clone(), number)).collect();
        self.universe.contested = numbered;
        self.universe
    }
}

/// Request to the resolver for the bundles that the constraints admit.
fn request<'q>(
    constraints: &'q PackageConstraints,
    installed: Option<&'q InstalledExtension>,
) -> Request<'q> {
    Request {
        package: &constraints.package,
        channels: &constraints.channels,
        version: constraints.version.as_deref(),
        policy: constraints.policy,
        installed: installed.map(|i| Installed {
            name: &i.bundle,
            version: &i.version,
            release: i.release.as_deref(),
        }),
        rules: Rules {
            dependencies: DependencyMode::Report,
            upgrade_scope: constraints.upgrade_scope,
            exclude_skipped: constraints.exclude_skipped,
            ..Rules::default()
        },
    }
}

/// Channel to name for a bundle: among those that the request considers, one with an upgrade edge to it, the preferred
/// one first.
fn channel<'q>(
    request: &Request<'_>,
    package: &PackageIndex,
    offer: &'q Offer,
    place: Option<(&'q str, usize)>,
) -> Option<&'q str> {
    let counts =
        |channel: &&str| request.channels.is_empty() || request.channels.iter().any(|named| named == channel);
    let mut channels: Vec<&'q str> = offer.channels().filter(counts).collect();
    channels.sort_by_key(|channel| (*channel != package.default_channel(), *channel));
    let origin = request.installed.and_then(|installed| installed.origin().ok());
    let led: Vec<String> = origin.map_or_else(Vec::new, |origin| {
        offer.edges_from(&origin, request.channels).map(|edge| edge.channel.to_owned()).collect()
    });
    let by_edge = channels.iter().find(|channel| led.iter().any(|edge| edge == *channel));
    let preferred = place.map(|(channel, _)| channel).filter(counts);
    by_edge.copied().or(preferred).or_else(|| channels.first().copied())
}

fn answer(catalog: &SourceCatalog, package: &str) -> Catalog {
    Catalog {
        name: catalog.name.clone(),
        priority: catalog.priority,
        package: Ok(catalog.packages.get(package).map(Arc::clone)),
    }
}

/// `true` if an offer equals the installed bundle.
fn is_same(installed: &InstalledExtension, offer: &Offer) -> bool {
    let version = olm_version::VersionRelease::parse(&installed.version, installed.release.as_deref());
    offer.name() == installed.bundle && offer.version().ok() == version.as_ref().ok()
}

/// `true` if the request itself admits a bundle. The solver decides between candidates.
fn is_admitted(fate: Fate) -> bool {
    matches!(
        fate,
        Fate::Chosen
            | Fate::Preference
            | Fate::Deprecated
            | Fate::Priority
            | Fate::Tie
            | Fate::DependencyProperty
            | Fate::Undecided
    )
}
