//! Asks the host's name servers for one sandbox, within its limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::resolver::{ResolveError, Resolved, Resolver};
use crate::event::Failure;
use crate::limits::Limits;
use crate::name::HostName;
use crate::rate::Bucket;

/// Queries that wait for the host's name servers at the same time.
const WAITING: usize = 32;
/// How long the host's name servers may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// Asks the host's name servers for one sandbox, within its limits.
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolver>,
    queries: Mutex<Bucket>,
    new_names: Mutex<Bucket>,
    waiting: Semaphore,
}

/// Why a lookup gave no answer.
pub(crate) enum LookupError {
    /// The sandbox exceeds its limits.
    TooMany,
    Failed(Failure),
}

impl Lookups {
    pub fn new(resolver: Arc<dyn Resolver>, limits: &Limits) -> Lookups {
        let (queries, names) = rates(limits);
        Lookups {
            resolver,
            queries: Mutex::new(Bucket::new(queries.0, queries.1)),
            new_names: Mutex::new(Bucket::new(names.0, names.1)),
            waiting: Semaphore::new(WAITING),
        }
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: &Limits) {
        let (queries, names) = rates(limits);
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).change(queries.0, queries.1);
        self.new_names.lock().unwrap_or_else(PoisonError::into_inner).change(names.0, names.1);
    }

    /// Whether the rate limit allows another query now.
    pub fn admits_query(&self) -> bool {
        take(&self.queries)
    }

    /// Resolves a name that is not in the cache.
    pub async fn resolve(&self, name: &HostName) -> Result<Resolved, LookupError> {
        if !take(&self.new_names) {
            return Err(LookupError::TooMany);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(LookupError::TooMany);
        };
        let failure = match timeout(PATIENCE, self.resolver.resolve(name)).await {
            Ok(Ok(resolved)) => return Ok(resolved),
            Ok(Err(ResolveError::NoSuchName)) => Failure::NoSuchName,
            Ok(Err(ResolveError::Failed(error))) => {
                tracing::debug!(%name, %error, "the host's name servers failed");
                Failure::NoAnswer
            }
            Err(_) => Failure::TimedOut,
        };
        Err(LookupError::Failed(failure))
    }
}

/// The rate and the burst of queries, and of names that are not in the cache.
fn rates(limits: &Limits) -> ((f64, f64), (f64, f64)) {
    let queries = f64::from(limits.dns_queries_per_second);
    let names = f64::from(limits.dns_new_names_per_minute);
    ((queries, queries * 4.0), (names / 60.0, names))
}

fn take(bucket: &Mutex<Bucket>) -> bool {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).take(1.0)
}
