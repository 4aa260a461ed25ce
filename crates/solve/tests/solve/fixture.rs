//! Compact notation of small solver inputs.
//!
//! A bundle is a line such as `app 2.0.0 @stable>1.0.0 +Bucket pkg:base:>=1.4.0_<2.0.0`: package and version, then
//! `@channel` with `>version` for `replaces` or `~range` for `skipRange`, `skips:version` for `skips` in the channels
//! named before, `+Kind` for a provided kind, `pkg:`, `gvk:` and `con:` for requirements, `default:channel`,
//! `deprecated`. `_` stands for a blank.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_fbc::{PackageContent, Property};
use olm_resolve::{Gvk, Indexing, PackageIndex, Provider, Requirement};
use olm_solve::{
    ChangePlan, InstalledExtension, PackageConstraints, SolveError, SolverInput, SourceCatalog, solve,
};
use serde_json::{Value, json};

#[derive(Debug, Clone, Default)]
pub(crate) struct Fixture {
    pub(crate) catalogs: Vec<SourceCatalog>,
    pub(crate) installed: Vec<InstalledExtension>,
    pub(crate) requested: Vec<PackageConstraints>,
    pub(crate) served: BTreeSet<Gvk>,
}

impl Fixture {
    pub(crate) fn catalog(mut self, name: &str, priority: i32, lines: &[&str]) -> Self {
        let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in lines {
            packages.entry(line.split(' ').next().unwrap()).or_default().push(line);
        }
        let index = |(name, lines): (&str, Vec<&str>)| (name.to_owned(), package(name, &lines));
        let packages = packages.into_iter().map(index).collect();
        self.catalogs.push(SourceCatalog { name: name.to_owned(), priority, packages });
        self
    }

    /// Adds an installed extension, named like its package.
    pub(crate) fn installed(mut self, line: &str) -> Self {
        let (package, version) = identity(line);
        let properties = properties(line);
        self.installed.push(InstalledExtension {
            extension: package.to_owned(),
            constraints: constraints(package),
            bundle: format!("{package}.v{version}"),
            version: version.to_owned(),
            release: None,
            provider: Provider::new(
                Some(package.to_owned()),
                format!("{package}.v{version}"),
                properties.clone(),
            ),
            requirements: Requirement::all(&properties),
        });
        self
    }

    /// Adds constraints: `app` or `app >=1.0.0`.
    pub(crate) fn wants(mut self, text: &str) -> Self {
        let (package, version) = text.split_once(' ').map_or((text, None), |(p, v)| (p, Some(v.to_owned())));
        self.requested.push(PackageConstraints { version, ..constraints(package) });
        self
    }

    pub(crate) fn serves(mut self, kind: &str) -> Self {
        self.served.insert(gvk(kind));
        self
    }

    pub(crate) fn input(&self) -> SolverInput<'_> {
        SolverInput {
            requested: self.requested.clone(),
            installed: self.installed.clone(),
            catalogs: &self.catalogs,
            served: self.served.clone(),
            deadline: Instant::now() + Duration::from_secs(60),
        }
    }

    pub(crate) fn solve(&self) -> Result<ChangePlan, SolveError> {
        solve(&self.input())
    }

    /// Short form of the plan: `app.v1.0.0@main; a.v2.0.0@main + b.v2.0.0@main`.
    pub(crate) fn plan(&self) -> String {
        let plan = self.solve().unwrap_or_else(|error| panic!("{error}"));
        let change = |c: &olm_solve::Change| format!("{}@{}", c.to.bundle, c.to.catalog);
        let step = |s: &olm_solve::ChangeStep| s.changes.iter().map(change).collect::<Vec<_>>().join(" + ");
        plan.steps.iter().map(step).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn conflict(&self) -> olm_solve::Conflict {
        match self.solve() {
            Err(SolveError::Conflict(conflict)) => *conflict,
            other => panic!("no conflict: {other:?}"),
        }
    }
}

pub(crate) fn constraints(package: &str) -> PackageConstraints {
    PackageConstraints { package: package.to_owned(), ..PackageConstraints::default() }
}

pub(crate) fn gvk(kind: &str) -> Gvk {
    Gvk { group: "ex.io".to_owned(), version: "v1".to_owned(), kind: kind.to_owned() }
}

fn identity(line: &str) -> (&str, &str) {
    let mut words = line.split(' ');
    (words.next().unwrap(), words.next().unwrap())
}

fn properties(line: &str) -> Vec<Property> {
    let (package, version) = identity(line);
    let kind = |kind: &str| json!(gvk(kind));
    let mut found =
        vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
    for word in line.split(' ').skip(2) {
        let word = word.replace('_', " ");
        let property = if let Some(provided) = word.strip_prefix('+') {
            json!({"type": "olm.gvk", "value": kind(provided)})
        } else if let Some(required) = word.strip_prefix("pkg:") {
            let (package, range) = required.split_once(':').unwrap();
            json!({"type": "olm.package.required", "value": {"packageName": package, "versionRange": range}})
        } else if let Some(required) = word.strip_prefix("gvk:") {
            json!({"type": "olm.gvk.required", "value": kind(required)})
        } else if let Some(constraint) = word.strip_prefix("con:") {
            let value: Value = serde_json::from_str(constraint).unwrap();
            json!({"type": "olm.constraint", "value": value})
        } else {
            continue;
        };
        found.push(property);
    }
    let parse = |property: Value| Property {
        kind: property["type"].as_str().unwrap().to_owned(),
        value: serde_json::value::to_raw_value(&property["value"]).unwrap(),
    };
    found.into_iter().map(parse).collect()
}

fn package(name: &str, lines: &[&str]) -> Arc<PackageIndex> {
    let mut default_channel = String::new();
    let mut channels: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut deprecated = Vec::new();
    let mut metas = Vec::new();
    for line in lines {
        let (_, version) = identity(line);
        let bundle = format!("{name}.v{version}");
        for word in line.split(' ').skip(2) {
            if let Some(place) = word.strip_prefix('@') {
                let (channel, mut entry) = (place.split(['>', '~']).next().unwrap(), json!({"name": bundle}));
                if let Some((_, old)) = place.split_once('>') {
                    entry["replaces"] = json!(format!("{name}.v{old}"));
                }
                if let Some((_, range)) = place.split_once('~') {
                    entry["skipRange"] = json!(range.replace('_', " "));
                    entry.as_object_mut().unwrap().remove("replaces");
                }
                channels.entry(channel.to_owned()).or_default().push(entry);
            } else if let Some(old) = word.strip_prefix("skips:") {
                let own = channels.values_mut().flatten().filter(|entry| entry["name"] == bundle);
                own.for_each(|entry| entry["skips"] = json!([format!("{name}.v{old}")]));
            } else if let Some(channel) = word.strip_prefix("default:") {
                channel.clone_into(&mut default_channel);
            } else if word == "deprecated" {
                deprecated
                    .push(json!({"reference": {"schema": "olm.bundle", "name": bundle}, "message": "old"}));
            }
        }
        let properties: Vec<_> =
            properties(line).iter().map(|p| json!({"type": p.kind, "value": p.value})).collect();
        let image = format!("registry.example/{name}:{version}");
        metas.push(json!({"schema": "olm.bundle", "package": name, "name": bundle, "image": image, "properties": properties}));
    }
    metas.push(json!({"schema": "olm.package", "name": name, "defaultChannel": default_channel}));
    for (channel, entries) in channels {
        metas.push(json!({"schema": "olm.channel", "package": name, "name": channel, "entries": entries}));
    }
    if !deprecated.is_empty() {
        metas.push(json!({"schema": "olm.deprecations", "package": name, "entries": deprecated}));
    }
    let texts: Vec<Vec<u8>> = metas.iter().map(|meta| serde_json::to_vec(meta).unwrap()).collect();
    let content = PackageContent::from_metas(name, texts.iter().map(Vec::as_slice)).unwrap();
    Arc::new(PackageIndex::new(&content, Indexing { properties: true, ..Indexing::default() }))
}
