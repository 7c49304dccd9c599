//! Limits how many requests each token sends, and how many it has open at once.
//!
//! The limits are those of the token's workspace. They hold for everything: reads, uploads, streams and sockets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandling_engine::store::StoreError;

use crate::admission::{Admission, Bucket, Rate, Wait};
use crate::workspaces::WorkspaceName;

/// A token may send the requests of this time at once.
const BURST: Duration = Duration::from_secs(4);
/// How long a quota is used before it is read again.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Above this many holders, those without a recent request are forgotten.
const MOST_HOLDERS: usize = 4096;

pub struct RequestLimiter {
    admission: Arc<Admission>,
    holders: Mutex<HashMap<String, Holder>>,
}

/// One token.
struct Holder {
    requests: Bucket,
    open: u32,
    limits: RequestLimits,
    read_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct RequestLimits {
    per_second: Option<u32>,
    open: Option<u32>,
}

/// A request that a token may not send now. The same request may be sent again.
#[derive(Debug, thiserror::Error)]
pub enum RequestRefused {
    #[error(
        "this token sends too many requests: its limit is {per_second} per second; retry after {} s",
        retry_after.as_secs_f64().ceil()
    )]
    Rate { per_second: u32, retry_after: Duration },
    #[error("this token has {limit} requests, streams and sockets open, which is its limit; close some and retry")]
    Concurrent { limit: u32 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that is open until this is dropped.
#[must_use = "dropping the permit ends the request"]
pub struct RequestPermit {
    limiter: Arc<RequestLimiter>,
    holder: String,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some(holder) = self.limiter.lock().get_mut(&self.holder) {
            holder.open = holder.open.saturating_sub(1);
        }
    }
}

impl RequestLimiter {
    pub(crate) fn new(admission: Arc<Admission>) -> Self {
        Self { admission, holders: Mutex::default() }
    }

    /// Counts a request of `holder`, a token of this workspace.
    pub fn admit(self: &Arc<Self>, workspace: &WorkspaceName, holder: &str) -> Result<RequestPermit, RequestRefused> {
        self.admit_at(workspace, holder, Instant::now())
    }

    fn admit_at(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        holder: &str,
        now: Instant,
    ) -> Result<RequestPermit, RequestRefused> {
        let fresh = |known: &Holder| now.saturating_duration_since(known.read_at) < READ_EVERY;
        let known = self.lock().get(holder).filter(|known| fresh(known)).map(|known| known.limits);
        let limits = match known {
            Some(limits) => limits,
            None => self.read(workspace)?,
        };
        let mut holders = self.lock();
        if holders.len() >= MOST_HOLDERS && !holders.contains_key(holder) {
            let used = |known: &Holder| now.saturating_duration_since(known.read_at) < BURST + READ_EVERY;
            holders.retain(|_, known| known.open > 0 || used(known));
        }
        let own = holders.entry(holder.to_owned()).or_insert_with(|| Holder {
            requests: Bucket::full(now),
            open: 0,
            limits,
            read_at: now,
        });
        if known.is_none() {
            (own.limits, own.read_at) = (limits, now);
        }
        own.admit(now)?;
        Ok(RequestPermit { limiter: self.clone(), holder: holder.to_owned() })
    }

    fn read(&self, workspace: &WorkspaceName) -> Result<RequestLimits, StoreError> {
        let quota = self.admission.quota(workspace)?;
        Ok(RequestLimits { per_second: quota.requests_per_second, open: quota.open_requests })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    fn admit(&mut self, now: Instant) -> Result<(), RequestRefused> {
        if let Some(limit) = self.limits.open.filter(|limit| self.open >= *limit) {
            return Err(RequestRefused::Concurrent { limit });
        }
        if let Some(per_second) = self.limits.per_second {
            let most = per_second.saturating_mul(BURST.as_secs() as u32);
            self.requests.take(now, 1, Rate { count: most, period: BURST }).map_err(|wait| RequestRefused::Rate {
                per_second,
                retry_after: match wait {
                    Wait::For(wait) => wait,
                    // The limit is 0, until an operator changes it.
                    Wait::Never => Duration::from_secs(60),
                },
            })?;
        }
        self.open += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{DEFAULT_QUOTA, Quota};
    use crate::fixture::Fixture;

    fn limiter(fixture: &Fixture, per_second: Option<u32>, open: Option<u32>) -> Arc<RequestLimiter> {
        let quota = Quota { requests_per_second: per_second, open_requests: open, ..DEFAULT_QUOTA };
        fixture.admission.change_quota(&WorkspaceName::default(), |now| *now = quota).unwrap();
        Arc::new(RequestLimiter::new(fixture.admission.clone()))
    }

    #[test]
    fn a_token_may_send_a_burst_and_then_its_rate() {
        let fixture = Fixture::new();
        let (limiter, workspace, start) = (limiter(&fixture, Some(5), None), WorkspaceName::default(), Instant::now());
        let sent = |holder: &str, after: f64| {
            let now = start + Duration::from_secs_f64(after);
            (0..100).take_while(|_| limiter.admit_at(&workspace, holder, now).is_ok()).count()
        };
        assert_eq!(sent("a", 0.0), 20);
        let refused = limiter.admit_at(&workspace, "a", start).err().unwrap();
        assert!(refused.to_string().contains("5 per second; retry after 1 s"), "{refused}");
        assert_eq!(sent("a", 1.0), 5);
        assert_eq!(sent("b", 1.0), 20, "another token has its own rate");
    }

    #[test]
    fn a_token_may_have_so_many_requests_open_and_no_more() {
        let fixture = Fixture::new();
        let (limiter, workspace) = (limiter(&fixture, None, Some(2)), WorkspaceName::default());
        let first = limiter.admit(&workspace, "a").unwrap();
        let _second = limiter.admit(&workspace, "a").unwrap();
        assert!(matches!(limiter.admit(&workspace, "a"), Err(RequestRefused::Concurrent { limit: 2 })));
        drop(first);
        assert!(limiter.admit(&workspace, "a").is_ok());
    }

    #[test]
    fn a_changed_quota_applies_within_a_second() {
        let fixture = Fixture::new();
        let (limiter, workspace, start) = (limiter(&fixture, Some(0), None), WorkspaceName::default(), Instant::now());
        assert!(limiter.admit_at(&workspace, "a", start).is_err());
        fixture.admission.change_quota(&workspace, |now| *now = DEFAULT_QUOTA).unwrap();
        assert!(limiter.admit_at(&workspace, "a", start + READ_EVERY).is_ok());
    }

    #[test]
    fn tokens_without_recent_requests_are_forgotten() {
        let fixture = Fixture::new();
        let (limiter, workspace, start) = (limiter(&fixture, Some(5), None), WorkspaceName::default(), Instant::now());
        let _open = limiter.admit_at(&workspace, "open", start).unwrap();
        for number in 0..MOST_HOLDERS {
            drop(limiter.admit_at(&workspace, &number.to_string(), start).unwrap());
        }
        drop(limiter.admit_at(&workspace, "new", start + 2 * BURST).unwrap());
        let holders = limiter.lock();
        assert_eq!(holders.len(), 2);
        assert_eq!(holders["open"].open, 1);
    }
}
