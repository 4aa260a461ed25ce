//! Catalog sources: a directory, an image, or catalogd in a cluster. All of them yield the same objects.

mod catalogd;
mod cluster;
mod directory;
mod image;
mod installed;
mod kinds;
mod pins;
mod platform;

use std::path::PathBuf;
use std::sync::Arc;

use olm_fbc::{Duplicates, Meta};
use olm_version::quote;

pub use cluster::{ClusterArgs, ClusterConnection};
pub use directory::DirectoryFolder;
pub use image::{ImageArgs, tagged_reference, temporary_directory};
pub use kinds::{ApiKind, Crd, OwnedKind, listed, of_extensions, owner};

use crate::classic_kinds;
use crate::error::CliError;
use crate::output::printable;
use crate::progress::say;
use crate::session::Session;

/// Catalog source as given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Local directory.
    Directory(PathBuf),
    /// Image in a registry.
    Image(olm_oci::Reference),
    /// One ClusterCatalog by name, or all served ones.
    Cluster(Option<String>),
}

impl Source {
    /// Parses `text`: `cluster`, `cluster/NAME`, the path of an existing directory, or an image reference. The folder
    /// `cluster` is `./cluster`.
    ///
    /// # Errors
    /// It is none of these. For an object of classic OLM the message names its v1 equivalent.
    pub fn parse(text: &str) -> Result<Self, CliError> {
        // First, so that the content of the working directory changes no meaning.
        if text == "cluster" {
            return Ok(Self::Cluster(None));
        }
        if let Some(name) = text.strip_prefix("cluster/").filter(|rest| !rest.contains([':', '@', '/'])) {
            return Ok(Self::Cluster(Some(name.to_owned())));
        }
        let instead = "the catalog directory that it was built from, or the image that `catalog push` pushed";
        if let Some(path) = local_directory(text, instead)? {
            return Ok(Self::Directory(path));
        }
        text.parse().map(Self::Image).map_err(|error: olm_oci::ReferenceError| {
            CliError::usage(format!(
                "SOURCE {} is not an existing directory, an image reference such as \
                 registry.example.com/team/catalog:v1, cluster, or cluster/NAME: {error}",
                quote(text)
            ))
        })
    }
}

/// [`Source::parse`] for a command that needs a single catalog.
///
/// # Errors
/// Those of [`Source::parse`], or `text` is `cluster`.
pub fn one_catalog(text: &str) -> Result<Source, CliError> {
    match Source::parse(text)? {
        Source::Cluster(None) => {
            let hint = "cluster is all catalogs of the cluster: choose one, such as cluster/NAME";
            Err(CliError::usage(hint))
        }
        source => Ok(source),
    }
}

/// Path `text` of an existing directory. `None` if nothing exists there.
///
/// # Errors
/// A file exists there, or an image layout, which the user replaces by `instead`. For an object of classic OLM the
/// message names its v1 equivalent.
pub(crate) fn local_directory(text: &str, instead: &str) -> Result<Option<PathBuf>, CliError> {
    let path = PathBuf::from(text);
    if olm_pack::is_layout(&path) {
        return Err(CliError::usage(format!("{} is an OCI image layout: use {instead}", quote(text))));
    }
    if path.exists() && !path.is_dir() {
        let hint = classic_kinds::hint_for_file(&path).map(|hint| format!("\n{hint}")).unwrap_or_default();
        return Err(CliError::usage(format!("{} is not a directory{hint}", quote(text))));
    }
    Ok(path.is_dir().then_some(path))
}

/// Catalog source, with the flags for access.
#[derive(Debug, clap::Args)]
pub struct SourceArgs {
    /// A directory, an image reference, cluster/NAME, or cluster for all catalogs of the cluster
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Flags for access to the source.
    #[command(flatten)]
    pub access: Access,
}

/// Flags for access to all kinds of sources.
#[derive(Debug, Clone, clap::Args)]
pub struct Access {
    /// Flags for images.
    #[command(flatten)]
    pub images: ImageArgs,
    /// Flags for the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl Access {
    /// The same flags with this connection to the cluster.
    pub fn connected_to(&self, cluster: &Arc<ClusterConnection>) -> Self {
        Self { images: self.images.clone(), cluster: self.cluster.connected_to(cluster) }
    }

    /// Reads every object of `source` into `sink`, with the name of its catalog: that of the ClusterCatalog, else the
    /// source as given.
    ///
    /// # Errors
    /// Errors of the source and of `sink`.
    pub async fn read(&self, source: &str, session: &Session, sink: &mut Sink<'_>) -> Result<(), CliError> {
        self.read_parsed(&Source::parse(source)?, source, session, sink).await
    }

    /// [`Self::read`] for a command that changes no choice by the order of the objects: objects that occur twice are a
    /// warning.
    ///
    /// # Errors
    /// Errors of the source and of `sink`.
    pub async fn read_with_duplicates(
        &self,
        source: &str,
        session: &Session,
        sink: &mut Sink<'_>,
    ) -> Result<(), CliError> {
        let mut warnings = Vec::new();
        let parsed = Source::parse(source)?;
        let mut duplicates = Duplicates::default();
        let mut pass = |catalog: &str, meta: Meta| {
            warnings.extend(duplicates.add(&meta).err());
            sink(catalog, meta)
        };
        match &parsed {
            Source::Cluster(_) => self.read_parsed(&parsed, source, session, &mut pass).await?,
            Source::Directory(root) => {
                read_folder(source, &DirectoryFolder::open(root)?, session, &mut pass)?;
            }
            Source::Image(reference) => {
                let content = self.images.pull(reference, olm_oci::catalog_folder, session).await?;
                read_folder(source, &DirectoryFolder::open(content.path())?, session, &mut pass)?;
            }
        }
        warnings.iter().for_each(|warning| say(&format!("warning: {source}: {}", printable(warning))));
        Ok(())
    }

    /// [`Self::read`] of a source whose kind is known, such as an image that the cluster names.
    async fn read_parsed(
        &self,
        source: &Source,
        name: &str,
        session: &Session,
        sink: &mut Sink<'_>,
    ) -> Result<(), CliError> {
        match source {
            Source::Directory(root) => read_single(name, &DirectoryFolder::open(root)?, session, sink),
            Source::Image(reference) => {
                let content = self.images.pull(reference, olm_oci::catalog_folder, session).await?;
                read_single(name, &DirectoryFolder::open(content.path())?, session, sink)
            }
            Source::Cluster(name) => {
                let cluster = self.cluster.connect().await?;
                for catalog in cluster.served(name.as_deref(), session).await? {
                    cluster.read(&catalog, session, sink).await?;
                }
                Ok(())
            }
        }
    }

    /// All objects of a single catalog.
    ///
    /// # Errors
    /// `source` is more than one catalog, or cannot be read.
    pub async fn read_one(&self, source: &str, session: &Session) -> Result<Vec<Meta>, CliError> {
        self.metas(&one_catalog(source)?, source, session).await
    }

    /// All objects of a source whose kind is known, such as an image that the cluster names.
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn metas(&self, source: &Source, name: &str, session: &Session) -> Result<Vec<Meta>, CliError> {
        let mut metas = Vec::new();
        let mut keep = |_: &str, meta: Meta| {
            metas.push(meta);
            Ok(())
        };
        self.read_parsed(source, name, session, &mut keep).await?;
        Ok(metas)
    }
}

/// Callback for the objects of a catalog, one at a time, with the catalog's name.
pub(crate) type Sink<'a> = dyn FnMut(&str, Meta) -> Result<(), CliError> + Send + 'a;

/// [`read_folder`] of a catalog in which no package, channel or bundle occurs twice: a reader would show one of them
/// only, or mix both.
fn read_single(
    catalog: &str,
    folder: &DirectoryFolder,
    session: &Session,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let mut duplicates = Duplicates::default();
    read_folder(catalog, folder, session, &mut |name, meta| {
        duplicates.add(&meta).map_err(|fault| {
            let advice = "all files below a directory are one catalog: remove one of the two, or choose one of its \
                          subdirectories";
            CliError::at(catalog, format!("{fault}; {advice}"))
        })?;
        sink(name, meta)
    })
}

fn read_folder(
    catalog: &str,
    folder: &DirectoryFolder,
    session: &Session,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let step = session.progress.step(format!("reading {catalog}"));
    let mut count = 0_usize;
    let mut pass = |meta: Meta| {
        session.check()?;
        count += 1;
        step.update(format!("reading {catalog}: {count} objects"));
        let place = format!("{catalog}: {}", meta.origin);
        accept(catalog, &place, meta, sink)
    };
    let (mut is_refused, mut warnings) = (false, Vec::new());
    let read = olm_fbc::load_authored::<CliError>(folder, &olm_fbc::LoadLimits::default(), &mut |meta| {
        warnings.extend(olm_fbc::repeated_key_warnings(&meta).map(|finding| finding.to_string()));
        pass(meta).inspect_err(|_| is_refused = true)
    });
    warnings.iter().for_each(|warning| say(&format!("warning: {catalog}: {}", printable(warning))));
    read.map_err(|failure| match is_refused {
        true => failure,
        false => CliError::at(catalog, format!("{failure}\nrun `validate` for all errors of the catalog")),
    })
}

/// Passes `meta`, which was read from `place`, to `sink`, unless it cannot be part of a catalog.
fn accept(catalog: &str, place: &str, meta: Meta, sink: &mut Sink<'_>) -> Result<(), CliError> {
    if meta.schema.is_empty() {
        let hint = classic_kinds::hint(&meta.blob).map(|hint| format!("\n{hint}")).unwrap_or_default();
        let shown = String::from_utf8_lossy(&meta.blob);
        let shown: String = shown.trim_end().chars().take(200).collect();
        return Err(CliError::operational(format!(
            "{place}: an object has no schema: '{}'{hint}",
            printable(&shown)
        )));
    }
    sink(catalog, meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_kind_follows_from_text() {
        for (text, expected) in [
            ("src", Ok(Source::Directory("src".into()))),
            ("cluster", Ok(Source::Cluster(None))),
            ("cluster/operatorhubio", Ok(Source::Cluster(Some("operatorhubio".to_owned())))),
            ("r.example/cat:v1", Ok(Source::Image("r.example/cat:v1".parse().unwrap()))),
            ("Cargo.toml", Err("\"Cargo.toml\" is not a directory")),
            (
                "./nowhere",
                Err(
                    "SOURCE \"./nowhere\" is not an existing directory, an image reference such as registry.example.com/team/catalog:v1, cluster, or cluster/NAME: error parsing image \
                     reference \"./nowhere\": invalid reference format",
                ),
            ),
        ] {
            let parsed = Source::parse(text).map_err(|failure| {
                assert_eq!(failure.exit_code(), 2);
                failure.to_string()
            });
            assert_eq!(parsed, expected.map_err(str::to_owned), "{text}");
        }
    }
}
