//! Cases of resolution: one package of the large catalog, the size of its cache, and many extensions of several
//! catalogs of which one changes.
//!
//! The images of the bundles do not exist. An extension therefore reports the chosen bundle, and no installation
//! affects the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::{ClusterExtension, conditions};
use olm_fbc::PackageContent;
use olm_resolve::{Catalog, Indexing, Installed, PackageIndex, Request, Rules, UpgradePolicy, resolve};
use serde_json::{Deserializer, Value, json};

use crate::ResolveArguments;
use crate::content::{Files, LARGE, PACKAGE, Shape, generate};
use crate::process::{PATIENCE, Server, memory, processor_time};
use crate::setup::{Catalogd, Setup};
use crate::table::{Table, Target, Unit};

/// Size of the catalogs in addition to the large one.
const SMALLER: Shape = Shape { packages: 30, bundles: 300 };
const SMALLER_CATALOGS: u64 = 4;
/// Number of extensions per catalog.
const EXTENSIONS: usize = 20;
/// Number of warm resolutions of one package.
const ROUNDS: u32 = 2000;
/// Version of the bundle that the update adds.
const NEWER: &str = "9.0.0";
const LOOK: Duration = Duration::from_millis(10);

/// Measures all cases.
pub(crate) async fn measure(arguments: &ResolveArguments) -> Result<Table> {
    let mut table = Table::default();
    let large = generate(LARGE, arguments.seed)?;
    warm(&mut table, &large)?;

    let setup = Setup::start(None).await?;
    let _catalogd = Catalogd::start(&setup, &arguments.servers.catalogd, arguments.servers.log).await?;
    let mut catalogs = vec![("large".to_owned(), on_registry(large, &setup))];
    for number in 1..=SMALLER_CATALOGS {
        let mut files = generate(SMALLER, arguments.seed + number)?;
        files.retain(|path, _| !path.starts_with(PACKAGE));
        catalogs.push((format!("smaller-{number}"), on_registry(files, &setup)));
    }
    for (name, files) in &catalogs {
        let digest = setup.push(name, "v1", files)?;
        setup.serve(name, "v1", &digest).await?;
    }
    let packages = packages(&catalogs)?;
    let mut bench = Bench {
        extensions: Api::all(setup.client()),
        controller: setup.spawn_controller(&arguments.servers)?,
        setup,
        table,
    };
    bench.cache(&packages).await?;
    bench.update(&catalogs, &packages).await?;
    bench.table.remarks.push(
        "Catalogd, registry, etcd and kube-apiserver share this machine with operator-controller.".to_owned(),
    );
    Ok(bench.table)
}

/// Measures the resolution of one package of the large catalog in memory.
fn warm(table: &mut Table, large: &Files) -> Result<()> {
    let file =
        large.get(&format!("{PACKAGE}/catalog.json")).context("the generated catalog lacks a package")?;
    let lines: Vec<String> = documents(file)?.iter().map(Value::to_string).collect();
    let content = PackageContent::from_metas(PACKAGE, lines.iter().map(String::as_bytes))?;
    let index = std::sync::Arc::new(PackageIndex::new(&content, Indexing::default()));
    let bundles = index.offers().count();
    let catalogs = [Catalog { name: "large".to_owned(), priority: 0, package: Ok(Some(index)) }];
    let name = format!("{PACKAGE}.v0.40.0");
    let request = Request {
        package: PACKAGE,
        channels: &[],
        version: Some(">=0.1.0 <1.0.0"),
        policy: UpgradePolicy::CatalogProvided,
        installed: Some(Installed { name: &name, version: "0.40.0", release: None }),
        rules: Rules::default(),
    };
    let started = Instant::now();
    for _ in 0..ROUNDS {
        let resolved = std::hint::black_box(resolve(std::hint::black_box(&request), &catalogs));
        ensure!(
            resolved.is_ok_and(|resolved| resolved.bundle.ends_with("v0.41.0")),
            "another bundle is chosen"
        );
    }
    let took = started.elapsed().as_secs_f64() * 1e3 / f64::from(ROUNDS);
    let note = format!("{bundles} bundles, one installed, a range");
    table.add("large: one package, warm", took, Unit::Milliseconds, None, Target::Limit(1.0), note);
    Ok(())
}

struct Bench {
    extensions: Api<ClusterExtension>,
    controller: Server,
    setup: Setup,
    table: Table,
}

impl Bench {
    /// Measures the memory of the cache for one package of the large catalog.
    async fn cache(&mut self, packages: &BTreeMap<String, Vec<String>>) -> Result<()> {
        // Installing an extension of a different catalog first warms up the process.
        let first = packages.values().next_back().and_then(|packages| packages.last());
        self.install("warm", first.context("no package")?).await?;
        self.until(&["warm".to_owned()], |_| true).await?;
        let before = memory(self.controller.pid(), "RssAnon")?;
        let started = Instant::now();
        self.install("one", PACKAGE).await?;
        self.until(&["one".to_owned()], |_| true).await?;
        let took = started.elapsed().as_secs_f64();
        let grown = memory(self.controller.pid(), "RssAnon")? - before;
        let note =
            format!("growth of RssAnon from {before:.0} MB; the extension was resolved after {took:.3} s");
        let case = "large: memory for one package";
        self.table.add(case, grown, Unit::Megabytes, None, Target::Limit(10.0), note);
        Ok(())
    }

    /// Measures many extensions while one catalog changes.
    async fn update(
        &mut self,
        catalogs: &[(String, Files)],
        packages: &BTreeMap<String, Vec<String>>,
    ) -> Result<()> {
        let mut names = BTreeMap::new();
        for (catalog, packages) in packages {
            for (number, package) in packages.iter().enumerate() {
                let name = format!("{catalog}-{number}");
                self.install(&name, package).await?;
                names.entry(catalog.as_str()).or_insert_with(Vec::new).push(name);
            }
        }
        let all: Vec<String> = names.values().flatten().cloned().collect();
        let started = Instant::now();
        self.until(&all, |_| true).await?;
        let resolved_after = started.elapsed().as_secs_f64();

        let (changed, files) = catalogs.last().context("no catalog")?;
        let digest = self.setup.push(changed, "v2", &with_newer(files)?)?;
        let before = self.stored(changed);
        let used = processor_time(self.controller.pid())?;
        self.setup.serve(changed, "v2", &digest).await?;
        let served = Instant::now();
        let theirs = names.get(changed.as_str()).context("no extension of the catalog")?;
        self.until(theirs, |message| message.contains(NEWER)).await?;
        let took = served.elapsed().as_secs_f64();
        let used = processor_time(self.controller.pid())? - used;
        let note = format!(
            "{} extensions of {changed} name the newer bundle; {used:.2} s of processor for all {}; at first all were resolved \
             after {resolved_after:.2} s; RssAnon {:.0} MB",
            theirs.len(),
            all.len(),
            memory(self.controller.pid(), "RssAnon")?
        );
        self.table.add("update: Serving to resolved", took, Unit::Seconds, None, Target::Limit(5.0), note);
        let after = self.stored(changed);
        let again = after.difference(&before).count() as f64;
        let note = format!("of {} files of catalogs that did not change", before.len());
        self.table.add("update: fetched without need", again, Unit::Count, None, Target::Limit(0.0), note);
        Ok(())
    }

    async fn install(&self, name: &str, package: &str) -> Result<()> {
        let extension = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": {"packageName": package}}},
        });
        let extension = serde_json::from_value(extension)?;
        self.extensions.create(&PostParams::default(), &extension).await?;
        Ok(())
    }

    /// Waits until all of `names` report the chosen bundle, in a message that satisfies `holds`.
    async fn until(&mut self, names: &[String], holds: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.controller.check()?;
            let all = self.extensions.list(&ListParams::default()).await?;
            let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            let mut last = String::new();
            for extension in &all {
                let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
                let progressing = conditions.and_then(|all| conditions::find(all, "Progressing"));
                let message = progressing.map_or("", |condition| condition.message.as_str());
                let name = extension.metadata.name.as_deref().unwrap_or_default();
                if message.starts_with("error for resolved bundle") && holds(message) {
                    missing.remove(name);
                } else if missing.contains(name) {
                    last = format!("{name}: {message}");
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{} extensions are not resolved, such as {last}",
                missing.len()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stored files of all catalogs except for `changed`, with size and time.
    fn stored(&self, changed: &str) -> BTreeSet<(std::path::PathBuf, u64, Option<SystemTime>)> {
        let mut files = BTreeSet::new();
        let mut folders = vec![self.setup.package_cache()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path == self.setup.package_cache().join(changed) {
                    continue;
                }
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(path),
                    Ok(metadata) => drop(files.insert((path, metadata.len(), metadata.modified().ok()))),
                    Err(_) => {}
                }
            }
        }
        files
    }
}

/// Replaces the registry of the catalog's images by the setup's, which does not have them.
fn on_registry(files: Files, setup: &Setup) -> Files {
    let missing = format!("\"{}/missing/", setup.registry.host());
    let rewritten = |(path, bytes): (String, Vec<u8>)| {
        (path, String::from_utf8_lossy(&bytes).replace("\"registry.example/", &missing).into_bytes())
    };
    files.into_iter().map(rewritten).collect()
}

/// Packages of each catalog that are in no other catalog.
fn packages(catalogs: &[(String, Files)]) -> Result<BTreeMap<String, Vec<String>>> {
    let folder = |path: &String| Path::new(path).parent().map(|parent| parent.display().to_string());
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for name in catalogs.iter().flat_map(|(_, files)| files.keys().filter_map(folder)) {
        *count.entry(name).or_default() += 1;
    }
    catalogs
        .iter()
        .map(|(catalog, files)| {
            let only = |name: &String| count.get(name) == Some(&1) && name != PACKAGE;
            let names: Vec<String> = files.keys().filter_map(folder).filter(only).take(EXTENSIONS).collect();
            ensure!(names.len() == EXTENSIONS, "{catalog} has too few packages of its own");
            Ok((catalog.clone(), names))
        })
        .collect()
}

fn documents(file: &[u8]) -> Result<Vec<Value>> {
    Ok(Deserializer::from_slice(file).into_iter::<Value>().collect::<Result<_, _>>()?)
}

/// Adds one bundle to each package of the catalog, at the head of its channel.
fn with_newer(files: &Files) -> Result<Files> {
    let newer = |(path, file): (&String, &Vec<u8>)| {
        let mut documents = documents(file)?;
        let mut bundle = documents
            .iter()
            .rev()
            .find(|document| document["schema"] == "olm.bundle")
            .context("a package without bundles")?
            .clone();
        let name = format!("{}.v{NEWER}", bundle["package"].as_str().unwrap_or_default());
        for document in documents.iter_mut().filter(|document| document["schema"] == "olm.channel") {
            if let Some(entries) = document["entries"].as_array_mut() {
                entries.push(json!({"name": name, "replaces": bundle["name"]}));
            }
        }
        bundle["name"] = name.into();
        for property in bundle["properties"].as_array_mut().into_iter().flatten() {
            if property["type"] == "olm.package" {
                property["value"]["version"] = NEWER.into();
            }
        }
        documents.push(bundle);
        let text: String = documents.iter().map(|document| format!("{document}\n")).collect();
        Ok((path.clone(), text.into_bytes()))
    };
    files.iter().map(newer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_catalog_adds_one_bundle_to_each_package() {
        let files = generate(SMALLER, 3).unwrap();
        let newer = with_newer(&files).unwrap();
        for (path, file) in &files {
            let (before, after) = (documents(file).unwrap(), documents(&newer[path]).unwrap());
            assert_eq!(after.len(), before.len() + 1, "{path}");
            let last = after.last().unwrap();
            assert!(last["name"].as_str().unwrap().ends_with(".v9.0.0"));
            let channel = after.iter().find(|one| one["schema"] == "olm.channel").unwrap();
            assert_eq!(channel["entries"].as_array().unwrap().last().unwrap()["name"], last["name"]);
        }
    }
}
