//! Budget of one query. Catalogs and queries are untrusted: neither may exhaust the memory of the server or run for
//! long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextResolve, ResolveInfo};
use async_graphql::{QueryPathSegment, ServerError, ServerResult, Value, async_trait};

/// Size budget of a response in bytes. Each value is charged with the cost of creating it.
pub const MAX_RESPONSE: usize = 64 << 20;
/// Cost of a value in the response.
const VALUE: usize = 64;
/// Cost of a list element, since all elements are under construction at the same time.
pub(crate) const ELEMENT: usize = 512;

/// Remaining budget of one query.
#[derive(Debug)]
pub(crate) struct Meter {
    deadline: Instant,
    left: AtomicUsize,
    stopped: OnceLock<&'static str>,
}

impl Meter {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, left: AtomicUsize::new(MAX_RESPONSE), stopped: OnceLock::new() }
    }

    /// Deducts `bytes`.
    ///
    /// # Errors
    /// The budget or the time is exhausted. From then on the whole query has failed.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), String> {
        let stop = |why| Err((*self.stopped.get_or_init(|| why)).to_owned());
        if let Some(why) = self.stopped() {
            return Err(why.to_owned());
        }
        if Instant::now() >= self.deadline {
            return stop("context deadline exceeded");
        }
        let take = |left: usize| left.checked_sub(bytes);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => stop("query result exceeds maximum size of 64 MiB"),
        }
    }

    /// Reason for which the query was stopped, if it was.
    pub(crate) fn stopped(&self) -> Option<&'static str> {
        self.stopped.get().copied()
    }
}

/// Charges every resolved value, including those of introspection.
pub(crate) struct MeterExtension;

impl ExtensionFactory for MeterExtension {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self)
    }
}

#[async_trait::async_trait]
impl Extension for MeterExtension {
    async fn resolve(
        &self,
        ctx: &ExtensionContext<'_>,
        info: ResolveInfo<'_>,
        next: NextResolve<'_>,
    ) -> ServerResult<Option<Value>> {
        // Lists of objects were charged when they were created, but the library creates those of introspection.
        let is_element = matches!(info.path_node.segment, QueryPathSegment::Index(_));
        let cost = if is_element && info.is_for_introspection { ELEMENT } else { VALUE };
        let Ok(meter) = ctx.data::<Arc<Meter>>() else {
            return next.run(ctx, info).await;
        };
        meter.spend(cost).map_err(|why| ServerError::new(why, None))?;
        let is_for_introspection = info.is_for_introspection;
        let value = next.run(ctx, info).await?;
        if is_for_introspection && let Some(Value::String(text)) = &value {
            meter.spend(text.len()).map_err(|why| ServerError::new(why, None))?;
        }
        Ok(value)
    }
}
