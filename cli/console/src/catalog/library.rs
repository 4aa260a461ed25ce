//! Catalogs of the console. Their content is read once per digest.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use olm_api::ClusterCatalog;
use olm_catalog_server::http::route::name_problems;
use olm_cli_catalog::{default_name, named};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection, Source};
use olm_request::served_image;
use olm_version::quote;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::content::{Collector, Content};
use crate::app::{App, Console};
use crate::visitor::Visitor;

/// Catalogs of the console.
pub(crate) struct Library {
    access: Arc<Access>,
    /// Directories and images: name and source.
    sources: Vec<(String, String)>,
    /// ClusterCatalogs: each a name, or `None` for all.
    of_cluster: Vec<Option<String>>,
    contents: Mutex<BTreeMap<String, Slot>>,
}

/// Content of a catalog in one state.
struct Slot {
    digest: String,
    /// Locked while the catalog is read.
    content: Arc<Mutex<Option<Arc<Content>>>>,
}

/// Catalog of the console.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Content, or the reason for which it cannot be shown.
    pub(crate) content: Result<Arc<Content>, String>,
}

impl Library {
    /// Catalogs as given on the command line.
    ///
    /// # Errors
    /// A source is invalid, or two have the same name.
    pub(crate) fn new(sources: &[String], access: Access) -> Result<Self, CliError> {
        let mut library = Self {
            access: Arc::new(access),
            sources: Vec::new(),
            of_cluster: Vec::new(),
            contents: Mutex::default(),
        };
        for text in sources {
            let (given, source) = named(text);
            let parsed = Source::parse(source)?;
            if let Source::Cluster(name) = parsed {
                library.of_cluster.push(name);
                continue;
            }
            let name = given.map(str::to_owned).or_else(|| default_name(&parsed)).unwrap_or_default();
            if let Some(problem) = name_problems(&name).first() {
                let why =
                    format!("specify NAME={source}: the name {} of the catalog {problem}", quote(&name));
                return Err(CliError::usage(why));
            }
            if library.sources.iter().any(|(known, _)| *known == name) {
                let why = format!("two catalogs have the name {name}: specify NAME={source}");
                return Err(CliError::usage(why));
            }
            library.sources.push((name, source.to_owned()));
        }
        Ok(library)
    }

    /// Flags for access to the sources.
    ///
    /// In the cluster they connect without credentials: pages use those of the [`Visitor`].
    pub(crate) fn flags(&self) -> &Arc<Access> {
        &self.access
    }

    /// Reports whether a catalog or a flag names a cluster.
    pub(crate) fn needs_cluster(&self) -> bool {
        !self.of_cluster.is_empty() || self.access.cluster.is_given()
    }

    /// Reads all catalogs in the background, so that the first page need not wait for them.
    pub(crate) fn preload(&self, console: &App) {
        let console = Arc::clone(console);
        tokio::spawn(async move {
            if let Some(visitor) = Visitor::of_process(&console, String::new()) {
                // Pages report errors.
                let _ = console.library.catalogs(&console, &visitor).await;
            }
        });
    }

    /// All catalogs with their content, by name.
    ///
    /// # Errors
    /// The API server does not list its catalogs.
    pub(crate) async fn catalogs(
        &self,
        console: &Console,
        visitor: &Visitor,
    ) -> Result<Vec<Listed>, CliError> {
        let mut listed = Vec::new();
        for (name, source) in &self.sources {
            let content = self.local(name, source, &console.session).await;
            listed.push(Listed { name: name.clone(), content: content.map_err(|error| error.to_string()) });
        }
        if let Some(cluster) = visitor.cluster().filter(|_| !self.of_cluster.is_empty()) {
            for catalog in cluster.catalogs(&console.session).await? {
                let name = catalog.name_any();
                if self.shows(&name) {
                    let content = self.served(&catalog, cluster, console, visitor).await;
                    listed.push(Listed { name, content: content.map_err(|error| error.to_string()) });
                }
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let mut contents = self.contents.lock().await;
        contents.retain(|name, _| listed.iter().any(|catalog| catalog.name == *name));
        Ok(listed)
    }

    /// Content of the catalog `name`.
    ///
    /// # Errors
    /// There is no such catalog, or it cannot be read.
    pub(crate) async fn content(
        &self,
        name: &str,
        console: &Console,
        visitor: &Visitor,
    ) -> Result<Arc<Content>, CliError> {
        if let Some((name, source)) = self.sources.iter().find(|(known, _)| known == name) {
            return self.local(name, source, &console.session).await;
        }
        let unknown = || CliError::no_candidate(format!("there is no catalog {}", quote(name)));
        let cluster = visitor.cluster().filter(|_| self.shows(name)).ok_or_else(unknown)?;
        let catalog = cluster.catalog(name, &console.session).await?.ok_or_else(unknown)?;
        self.served(&catalog, cluster, console, visitor).await
    }

    /// Reports whether the catalog `name` is a ClusterCatalog.
    pub(crate) fn is_of_cluster(&self, name: &str) -> bool {
        self.shows(name) && self.sources.iter().all(|(known, _)| known != name)
    }

    /// Reports whether the console shows the ClusterCatalog `name`. The name may come from the path of a request, and
    /// becomes part of the path of a call to the API server.
    fn shows(&self, name: &str) -> bool {
        name_problems(name).is_empty()
            && self.of_cluster.iter().any(|wanted| wanted.as_deref().is_none_or(|wanted| wanted == name))
    }

    /// Content of a directory or image, which is read once.
    async fn local(&self, name: &str, source: &str, session: &Session) -> Result<Arc<Content>, CliError> {
        let (access, catalog, source) = (Arc::clone(&self.access), name.to_owned(), source.to_owned());
        let session = session.in_background();
        let read = move || {
            let mut collector = Collector::new(&catalog)?;
            let mut sink = |_: &str, meta| collector.add(meta);
            Handle::current().block_on(access.read(&source, &session, &mut sink))?;
            collector.finish()
        };
        self.cached(name, String::new(), read).await
    }

    /// Content of a ClusterCatalog.
    async fn served(
        &self,
        catalog: &ClusterCatalog,
        cluster: &Arc<ClusterConnection>,
        console: &Console,
        visitor: &Visitor,
    ) -> Result<Arc<Content>, CliError> {
        visitor.check_catalog(&catalog.name_any(), console).await?;
        let digest = served_image(catalog).map_err(CliError::operational)?.to_owned();
        let (cluster, name, session) =
            (Arc::clone(cluster), catalog.name_any(), console.session.in_background());
        let read = move || {
            let mut collector = Collector::new(&name)?;
            let mut sink = |_: &str, meta| collector.add(meta);
            Handle::current().block_on(cluster.read(&name, &session, &mut sink))?;
            collector.finish()
        };
        self.cached(&catalog.name_any(), digest, read).await
    }

    /// Content of `name` at `digest`. Concurrent calls read it once. A failure is not kept.
    async fn cached(
        &self,
        name: &str,
        digest: String,
        read: impl FnOnce() -> Result<Content, CliError> + Send + 'static,
    ) -> Result<Arc<Content>, CliError> {
        let content = {
            let mut contents = self.contents.lock().await;
            let slot = contents.entry(name.to_owned()).or_insert_with(|| Slot::new(&digest));
            if slot.digest != digest {
                *slot = Slot::new(&digest);
            }
            Arc::clone(&slot.content)
        };
        let mut kept = content.lock_owned().await;
        if let Some(content) = &*kept {
            return Ok(Arc::clone(content));
        }
        // The read continues after a disconnect of the request. Its lock prevents another one.
        let read = move || -> Result<_, CliError> {
            let content = Arc::new(read()?);
            *kept = Some(Arc::clone(&content));
            Ok(content)
        };
        let task = tokio::task::spawn_blocking(read).await;
        task.map_err(|_| CliError::operational("reading the catalog ended early"))?
    }
}

impl Slot {
    fn new(digest: &str) -> Self {
        Self { digest: digest.to_owned(), content: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        access: Access,
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn read_continues_after_disconnect_and_serves_the_next_request() {
        let library = Library::new(&[], Line::parse_from(["console"]).access).unwrap();
        let (started, mut has_started) = tokio::sync::mpsc::channel(1);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let read = move || {
            started.blocking_send(()).unwrap();
            // Ends when the sender is dropped.
            let _ = released.recv();
            Collector::new("hub")?.finish()
        };
        tokio::select! {
            _ = library.cached("hub", String::new(), read) => panic!("the read ended early"),
            _ = has_started.recv() => {}
        }
        drop(release);
        let again = || Err(CliError::operational("read again"));
        library.cached("hub", String::new(), again).await.unwrap();
    }

    #[test]
    fn invalid_name_is_no_catalog_of_the_cluster() {
        let access = Line::parse_from(["console"]).access;
        let library = Library::new(&["cluster".to_owned()], access).unwrap();
        assert!(library.is_of_cluster("hub") && library.is_of_cluster("hub.example"));
        for name in ["", ".", "..", "../secrets", "a/b", "a%2Fb", "a?b", "a#b", "A", "a\n"] {
            assert!(!library.shows(name) && !library.is_of_cluster(name), "{name:?}");
        }
    }
}
