//! Opens sessions for a reference: mirrors in order, each with its certificates and login
//! (docs/design/images.md#registry-configuration, docs/design/images.md#pull-secrets).

use std::path::Path;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::budget::RequestBudget;
use crate::client::Clients;
use crate::credentials::in_file;
use crate::registries::{Registries, Source};
use crate::request_error::RequestError;
use crate::session::Session;
use crate::{Config, CredentialSource, Credentials, Login, Reference};

/// Opens sessions with registries. All configuration files are read at each use.
pub(crate) struct Sources {
    clients: Clients,
    config: Arc<Config>,
}

impl Sources {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { clients: Clients::new(Arc::clone(&config)), config }
    }

    /// Result of `ask` for the first source that succeeds. Each source but the last has one attempt for each
    /// request, and a share of the remaining time.
    pub(crate) async fn first<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        reference: &Reference,
        selector: &str,
        budget: &RequestBudget,
        ask: impl Fn(Session, Source) -> F,
    ) -> Result<T, RequestError> {
        let registries = Registries::load(&self.config.paths).map_err(RequestError::fatal)?;
        let mut sources = registries.sources(reference).map_err(RequestError::fatal)?;
        let Some(original) = sources.pop() else {
            return Err(RequestError::fatal("no source is configured"));
        };
        let mut failed = Vec::new();
        let mirrors = sources.len();
        for (behind, source) in (1..=mirrors).rev().zip(sources) {
            let share = budget.deadline.saturating_duration_since(Instant::now()) / (behind as u32 + 1);
            let mut budget = budget.clone();
            budget.deadline = Instant::now() + share;
            budget.retry.attempts = 1;
            let name = source.reference.to_string();
            let asked = timeout_at(budget.deadline, self.ask(source, selector, &budget, &ask)).await;
            let late = |_| Err(RequestError::transient(format!("not done within {} s", share.as_secs_f32())));
            match asked.unwrap_or_else(late) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::debug!(mirror = name, %error, "mirror failed, trying the next source");
                    failed.push(format!("[{name}: {error}]"));
                }
            }
        }
        let name = original.reference.to_string();
        self.ask(original, selector, budget, &ask).await.map_err(|error| match failed.as_slice() {
            [] => error,
            failed => error.within(&format!("(Mirrors also failed: {}): {name}", failed.join(" "))),
        })
    }

    async fn ask<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        source: Source,
        selector: &str,
        budget: &RequestBudget,
        ask: &impl Fn(Session, Source) -> F,
    ) -> Result<T, RequestError> {
        let reference = &source.reference;
        let client = self.clients.client(reference.host(), source.insecure).map_err(RequestError::fatal)?;
        let login = self.login(reference).map_err(RequestError::fatal)?;
        let session = Session::open(client, &source, login, budget.clone()).await;
        let fetching = format!("fetching manifest {selector} in {}", reference.name());
        ask(session.map_err(|error| error.within(&fetching))?, source).await
    }

    /// Session for pushes to the repository of `reference`. Mirrors and other locations of it are not used.
    pub(crate) async fn target(
        &self,
        reference: &Reference,
        budget: RequestBudget,
    ) -> Result<Session, RequestError> {
        let registries = Registries::load(&self.config.paths).map_err(RequestError::fatal)?;
        let sources = registries.sources(reference).map_err(RequestError::fatal)?;
        let insecure = sources.iter().any(|source| source.insecure && source.reference == *reference);
        let source = Source { reference: reference.clone(), insecure };
        let client = self.clients.client(reference.host(), insecure).map_err(RequestError::fatal)?;
        let login = self.login(reference).map_err(RequestError::fatal)?;
        Session::open_for_push(client, &source, login, budget).await
    }

    /// Login from the configured credentials if there are any, otherwise from the first file on this machine that
    /// has one.
    fn login(&self, reference: &Reference) -> Result<Option<Login>, String> {
        let (host, path) = (reference.host(), reference.path());
        let find = |credentials: &Credentials, file: &Path| {
            let login = credentials.lookup(host, path).map_err(|error| in_file(file, &error))?.cloned();
            if login.is_none() && credentials.names_helper(host) {
                tracing::warn!(registry = host, "skipped credential helper, using registry without login");
            }
            Ok(login)
        };
        match &self.config.credentials {
            CredentialSource::Memory(memory) => {
                let credentials = memory.borrow();
                if credentials.count() > 0 {
                    return find(&credentials, Path::new("pull secrets"));
                }
            }
            CredentialSource::File(own) => {
                if let Some(credentials) = Credentials::read(own)? {
                    return find(&credentials, own);
                }
            }
            CredentialSource::AuthFiles => {}
        }
        for file in &self.config.paths.auth_files {
            let Some(credentials) = Credentials::read(file)? else { continue };
            if let Some(login) = find(&credentials, file)? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }
}
