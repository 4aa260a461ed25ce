//! Selection of a part of a catalog, for `prune` and `mirror`, and the files of the smaller catalog
//! (docs/design/cli.md#smaller-catalogs).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::names::is_label;
use olm_cli_core::output::counted;
use olm_cli_core::progress::say;
use olm_fbc::{
    Bundle, Entry, EntryKind, Folder, Form, LoadLimits, Meta, PackageSubset, SCHEMA_BUNDLE, SmallerCatalog,
    Subset, SubsetError, ValidationReport, subset, validate_folder,
};
use olm_resolve::{Gvk, Provider, Requirement};
use olm_version::{Range, quote};

use super::package::missing;
use crate::validate::finding_line;

/// Flags that select a part of a catalog.
#[derive(Debug, Default, Args)]
pub(super) struct SelectionArgs {
    /// Keep this package, and of it the versions in RANGE, such as 'my-operator@>=1.2.0 <2.0.0'; may be given several
    /// times
    #[arg(long = "package", value_name = "NAME[@RANGE]", help_heading = "Selection")]
    packages: Vec<String>,
    /// Keep this channel of a package; may be given several times
    #[arg(long = "channel", value_name = "PACKAGE/CHANNEL", help_heading = "Selection")]
    channels: Vec<String>,
    /// Keep only the head of each channel, which is the highest version if there are several
    #[arg(long, help_heading = "Selection")]
    heads: bool,
    /// Also keep the packages that the kept bundles require, with all versions
    #[arg(long, help_heading = "Selection")]
    with_dependencies: bool,
    /// Default channel of a package whose default channel is dropped; may be given several times
    #[arg(long = "default-channel", value_name = "PACKAGE=CHANNEL", help_heading = "Selection")]
    default_channels: Vec<String>,
}

impl SelectionArgs {
    /// `true` if the whole catalog is selected.
    pub(super) fn is_everything(&self) -> bool {
        // Everything has its dependencies.
        let Self { packages, channels, heads, default_channels, with_dependencies: _ } = self;
        packages.is_empty() && channels.is_empty() && !heads && default_channels.is_empty()
    }

    /// Parses the flags.
    ///
    /// # Errors
    /// A value is not of its form.
    fn parse(&self) -> Result<Subset, CliError> {
        let wrong =
            |flag: &str, value: &str, why: &str| CliError::usage(format!("--{flag} {}: {why}", quote(value)));
        let mut selection = Subset::default();
        let mut whole = BTreeSet::new();
        for value in &self.packages {
            let (name, range) = value.split_once('@').map_or((value.as_str(), None), |(n, r)| (n, Some(r)));
            if name.is_empty() {
                return Err(wrong("package", value, "expected NAME or NAME@RANGE"));
            }
            let package = selection.packages.entry(name.to_owned()).or_default();
            match range {
                None => {
                    whole.insert(name);
                }
                Some(text) => {
                    let range = Range::parse(text).map_err(|error| {
                        let why = format!("expected a range such as '>=1.2.0 <2.0.0' after @: {error}");
                        wrong("package", value, &why)
                    })?;
                    package.ranges.push((text.to_owned(), range));
                }
            }
        }
        let is_both = |(name, _): &(&String, &olm_fbc::PackageSubset)| whole.contains(name.as_str());
        let mut ranged = selection.packages.iter().filter(|(_, package)| !package.ranges.is_empty());
        if let Some((name, _)) = ranged.find(is_both) {
            return Err(wrong("package", name, "given both with and without a range"));
        }
        for value in &self.channels {
            let parts =
                value.split_once('/').filter(|(package, name)| !package.is_empty() && !name.is_empty());
            let (package, channel) =
                parts.ok_or_else(|| wrong("channel", value, "expected PACKAGE/CHANNEL"))?;
            selection.packages.entry(package.to_owned()).or_default().channels.insert(channel.to_owned());
        }
        for value in &self.default_channels {
            let parts =
                value.split_once('=').filter(|(package, name)| !package.is_empty() && !name.is_empty());
            let (package, channel) =
                parts.ok_or_else(|| wrong("default-channel", value, "expected PACKAGE=CHANNEL"))?;
            if selection.default_channels.insert(package.to_owned(), channel.to_owned()).is_some() {
                return Err(wrong("default-channel", value, "given twice for the package"));
            }
        }
        selection.packages.values_mut().for_each(|package| package.heads = self.heads);
        Ok(selection)
    }

    /// Reduces the catalog `source`, and checks the result as `validate` does.
    ///
    /// # Errors
    /// A selected part does not exist, or the rest is not a valid catalog.
    pub(super) fn apply(&self, source: &str, metas: Vec<Meta>) -> Result<SmallerCatalog, CliError> {
        let mut selection = self.parse()?;
        let names: BTreeSet<String> =
            metas.iter().map(|meta| meta.owner().to_owned()).filter(|name| !name.is_empty()).collect();
        if self.heads && selection.packages.is_empty() {
            let heads = PackageSubset { heads: true, ..PackageSubset::default() };
            selection.packages = names.iter().map(|name| (name.clone(), heads.clone())).collect();
        }
        let refused = |error: SubsetError| match error {
            SubsetError::NoPackage(name) => CliError::no_candidate(missing(source, &name, &names)),
            SubsetError::Nothing { .. } => CliError::no_candidate(format!("{source}: {error}")),
            SubsetError::DefaultChannel { ref package, .. } => CliError::usage(format!(
                "{source}: {error}, such as with --default-channel {package}=CHANNEL"
            )),
            SubsetError::Graph { .. } => CliError::findings(format!("{source}: {error}")),
            SubsetError::Object { .. } => CliError::at(source, error),
        };
        if !self.with_dependencies || selection.packages.is_empty() {
            return subset(metas, &selection).map_err(refused);
        }
        let requirements = Requirements::of(&metas).map_err(|error| CliError::at(source, error))?;
        loop {
            let smaller = subset(metas.clone(), &selection).map_err(refused)?;
            let required = requirements.missing(&smaller);
            if required.is_empty() {
                requirements.unmet(&smaller).iter().for_each(|line| say(&format!("warning: {line}")));
                return Ok(smaller);
            }
            selection
                .packages
                .extend(required.into_iter().map(|name| (name.to_owned(), PackageSubset::default())));
        }
    }
}

/// Bundles of a whole catalog, as far as they require or provide something.
#[derive(Default)]
struct Requirements {
    /// Requirements by package and bundle.
    required: BTreeMap<(String, String), Vec<Requirement>>,
    /// Bundles with what they provide, by package and name.
    bundles: BTreeMap<(String, String), Provider>,
    /// Packages that provide a kind.
    providers: BTreeMap<Gvk, BTreeSet<String>>,
    packages: BTreeSet<String>,
}

impl Requirements {
    fn of(metas: &[Meta]) -> Result<Self, serde_json::Error> {
        let packages = metas.iter().map(|meta| meta.owner().to_owned()).collect();
        let mut all = Self { packages, ..Self::default() };
        for meta in metas.iter().filter(|meta| meta.schema == SCHEMA_BUNDLE) {
            let bundle: Bundle = serde_json::from_slice(&meta.blob)?;
            let required = Requirement::all(&bundle.properties);
            let provider = Provider::new(None, bundle.name.clone(), bundle.properties);
            for gvk in provider.gvks() {
                all.providers.entry(gvk.clone()).or_default().insert(bundle.package.clone());
            }
            let key = (bundle.package, bundle.name);
            all.bundles.insert(key.clone(), provider);
            all.required.insert(key, required);
        }
        Ok(all)
    }

    /// Dropped packages that kept bundles mention, or that provide a kind that no kept package provides.
    fn missing(&self, smaller: &SmallerCatalog) -> BTreeSet<&str> {
        let kept: BTreeSet<&str> = smaller.packages.iter().map(|package| package.name.as_str()).collect();
        let mut missing = BTreeSet::new();
        let required = kept_bundles(smaller).filter_map(|bundle| self.required.get(&bundle));
        for requirement in required.flatten() {
            let mentioned = requirement.mentioned_packages().filter_map(|name| self.packages.get(name));
            missing.extend(mentioned.map(String::as_str));
            let providers = requirement.mentioned_gvks().filter_map(|gvk| self.providers.get(gvk));
            let absent =
                providers.filter(|packages| !packages.iter().any(|name| kept.contains(name.as_str())));
            missing.extend(absent.flatten().map(String::as_str));
        }
        missing.retain(|name: &&str| !kept.contains::<str>(name));
        missing
    }

    /// Requirements of kept bundles that no kept bundle meets, as lines.
    fn unmet(&self, smaller: &SmallerCatalog) -> Vec<String> {
        let providers: Vec<&Provider> =
            kept_bundles(smaller).filter_map(|bundle| self.bundles.get(&bundle)).collect();
        let mut lines = Vec::new();
        for bundle in kept_bundles(smaller) {
            let required = self.required.get(&bundle).into_iter().flatten();
            for requirement in
                required.filter(|required| !providers.iter().any(|kept| required.is_met_by(kept)))
            {
                let (package, name) = (quote(&bundle.0), quote(&bundle.1));
                lines.push(format!("package {package}, bundle {name}: no kept bundle meets: {requirement}"));
            }
        }
        lines
    }
}

/// Package and name of each kept bundle.
fn kept_bundles(smaller: &SmallerCatalog) -> impl Iterator<Item = (String, String)> {
    let packages = smaller.packages.iter();
    packages.flat_map(|package| package.bundles.iter().map(|bundle| (package.name.clone(), bundle.clone())))
}

/// Files of a catalog by path: one for each package, in a folder of its name, and one for objects without package.
///
/// # Errors
/// The name of a package cannot be that of a folder, or the catalog has errors that the whole one, with the report
/// `before`, does not have. They are printed.
pub(super) fn catalog_files(
    source: &str,
    metas: Vec<Meta>,
    form: Form,
    before: &ValidationReport,
) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
    let mut packages: BTreeMap<String, Vec<Meta>> = BTreeMap::new();
    for meta in metas {
        packages.entry(meta.owner().to_owned()).or_default().push(meta);
    }
    let name = match form {
        Form::Json => "catalog.json",
        Form::Yaml => "index.yaml",
    };
    let mut files = MemoryFolder::default();
    for (package, metas) in packages {
        if !package.is_empty() && !is_label(&package) {
            let why = format!("package {} is not a DNS label", quote(&package));
            return Err(CliError::at(source, why));
        }
        let path = if package.is_empty() { name.to_owned() } else { format!("{package}/{name}") };
        let mut text = Vec::new();
        olm_fbc::write(metas, form, &mut text).map_err(CliError::operational)?;
        files.0.insert(path, text);
    }
    let report = validate_folder(&files, &LoadLimits::default(), false);
    let added = report.errors_since(before);
    if !added.is_empty() {
        added.iter().for_each(|finding| say(&finding_line(finding)));
        say(&format!("{source}: the selected part has {} more", counted(added.len(), "error")));
        return Err(CliError::Findings);
    }
    if !report.is_valid() {
        let what = counted(report.errors().count(), "error");
        say(&format!(
            "warning: {source}: the selected part has {what} of the catalog; `validate` lists them"
        ));
    }
    Ok(files.0)
}

/// Catalog folder in memory, with at most one level of folders.
#[derive(Default)]
struct MemoryFolder(BTreeMap<String, Vec<u8>>);

impl Folder for MemoryFolder {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let below = self.0.keys().filter_map(|path| Path::new(path).strip_prefix(directory).ok());
        let mut names = BTreeMap::new();
        for path in below {
            let mut parts = path.iter();
            if let Some(name) = parts.next() {
                let kind = if parts.next().is_some() { EntryKind::Directory } else { EntryKind::File };
                names.insert(name.to_owned(), kind);
            }
        }
        Ok(names.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        let content = file.to_str().and_then(|path| self.0.get(path));
        content
            .map(|content| Box::new(content.as_slice()) as Box<dyn Read>)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(packages: &[&str], channels: &[&str], default_channels: &[&str]) -> SelectionArgs {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        SelectionArgs {
            packages: own(packages),
            channels: own(channels),
            heads: false,
            with_dependencies: false,
            default_channels: own(default_channels),
        }
    }

    #[test]
    fn selection_flags_are_parsed() {
        let selection = args(&["a", "b@>=1.0.0 <2.0.0", "b@3.x"], &["b/stable", "c/fast"], &["b=stable"])
            .parse()
            .unwrap();
        assert_eq!(selection.packages.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(selection.packages["b"].ranges.len(), 2);
        assert_eq!(selection.packages["b"].channels, BTreeSet::from(["stable".to_owned()]));
        assert_eq!(selection.default_channels["b"], "stable");
        assert!(SelectionArgs::default().is_everything());
    }

    #[test]
    fn invalid_selection_flag_is_named_with_its_form() {
        for (given, expected) in [
            (args(&["@1.x"], &[], &[]), "--package \"@1.x\": expected NAME or NAME@RANGE"),
            (
                args(&["a@what"], &[], &[]),
                "--package \"a@what\": expected a range such as '>=1.2.0 <2.0.0' after @: ",
            ),
            (args(&["a", "a@1.x"], &[], &[]), "--package \"a\": given both with and without a range"),
            (args(&[], &["a"], &[]), "--channel \"a\": expected PACKAGE/CHANNEL"),
            (args(&[], &[], &["a"]), "--default-channel \"a\": expected PACKAGE=CHANNEL"),
            (args(&[], &[], &["a=b", "a=c"]), "--default-channel \"a=c\": given twice for the package"),
        ] {
            let error = given.parse().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }
}
