//! The gate that every new sandbox goes through: quota first, and a place kept while it is being made.
//!
//! Without the kept place, two requests that look at the same moment would both see the last one free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sandling_engine::store::StoreError;

use super::bucket::{Bucket, Wait};
use super::quota::{Quota, QuotaRefused, Resource, Resources, check};
use crate::access::Access;
use crate::workspaces::{WorkspaceError, WorkspaceName};

#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error(transparent)]
    Refused(#[from] QuotaRefused),
    #[error("there is no workspace {0}")]
    NoWorkspace(WorkspaceName),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<Lanes>);

/// What is under way, by workspace.
#[derive(Debug, Default)]
pub(crate) struct Lanes(HashMap<WorkspaceName, Lane>);

#[derive(Debug)]
struct Lane {
    reserved: Resources,
    reservations: u64,
    bucket: Bucket,
}

impl Admission {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    /// How many reservations a workspace holds.
    pub(crate) fn under_way(&self, workspace: &WorkspaceName) -> u64 {
        self.0.get(workspace).map_or(0, |lane| lane.reservations)
    }

    pub(crate) fn forget(&mut self, workspace: &WorkspaceName) {
        self.0.remove(workspace);
    }

    fn lane(&mut self, workspace: &WorkspaceName, now: Instant) -> &mut Lane {
        self.0.entry(workspace.clone()).or_insert_with(|| Lane {
            reserved: Resources::default(),
            reservations: 0,
            bucket: Bucket::full(now),
        })
    }
}

impl Lane {
    fn reserve(
        &mut self,
        quota: &Quota,
        living: Resources,
        wish: &Resources,
        now: Instant,
    ) -> Result<(), QuotaRefused> {
        check(quota, &(living + self.reserved), wish)?;
        // Last, so that what is refused for another reason does not use up the rate.
        if let Some(per_minute) = quota.creates_per_minute {
            self.bucket.take(now, wish.sandboxes, per_minute).map_err(|wait| QuotaRefused {
                what: Resource::CreatesPerMinute,
                limit: per_minute.into(),
                used: self.bucket.taken(now, per_minute),
                wanted: wish.sandboxes,
                retry_after: match wait {
                    Wait::For(wait) => Some(wait),
                    Wait::Never => None,
                },
            })?;
        }
        self.reserved += *wish;
        self.reservations += 1;
        Ok(())
    }
}

/// A place that is kept. Drop it once what it was for is counted among the living, or has failed.
#[must_use = "the place is given up as soon as this is dropped"]
pub struct Reservation {
    access: Arc<Access>,
    workspace: WorkspaceName,
    held: Resources,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(lane) = self.access.admission.lock().0.get_mut(&self.workspace) {
            lane.reserved = lane.reserved - self.held;
            lane.reservations = lane.reservations.saturating_sub(1);
        }
    }
}

impl Access {
    /// Asks for room, before anything is made. The rate counts `wish.sandboxes`.
    ///
    /// `living` sums up what the workspace has; it is called under the gate's lock and must not come back here.
    pub fn admit(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        wish: &Resources,
        living: impl FnOnce() -> Resources,
    ) -> Result<Reservation, AdmitError> {
        let now = Instant::now();
        let mut gate = self.admission.lock();
        if self.store.workspace(workspace)?.is_none() {
            return Err(AdmitError::NoWorkspace(workspace.clone()));
        }
        let quota = self.quota(workspace)?;
        gate.lane(workspace, now).reserve(&quota, living(), wish, now)?;
        Ok(Reservation { access: self.clone(), workspace: workspace.clone(), held: *wish })
    }

    pub fn quota(&self, workspace: &WorkspaceName) -> Result<Quota, StoreError> {
        Ok(self.store.quota(workspace)?.unwrap_or_default())
    }

    /// Holds from the next request on; what there is stays.
    pub fn set_quota(&self, workspace: &WorkspaceName, quota: &Quota) -> Result<(), WorkspaceError> {
        let found = self.store.set_quota(workspace, quota)?;
        found.then_some(()).ok_or_else(|| WorkspaceError::NotFound(workspace.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::DEFAULT_QUOTA;
    use crate::access::tests::{Fixture, workspace};

    const ONE: Resources = Resources { sandboxes: 1, vcpus: 2, memory_mib: 512, disk_mib: 1024 };

    fn refused(answer: Result<Reservation, AdmitError>) -> QuotaRefused {
        match answer {
            Err(AdmitError::Refused(refused)) => refused,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("was admitted"),
        }
    }

    #[test]
    fn simultaneous_requests_do_not_share_the_last_place() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.access.set_quota(&default, &Quota { sandboxes: Some(10), ..DEFAULT_QUOTA }).unwrap();
        let (living, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let count = || Resources { sandboxes: living.load(Ordering::SeqCst), ..Resources::default() };
                    if let Ok(reservation) = fixture.access.admit(&default, &ONE, count) {
                        admitted.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        living.fetch_add(1, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        let admitted = admitted.load(Ordering::SeqCst);
        // A place is counted twice for a moment, never not at all: fewer may be admitted, more may not.
        assert!((1..=10).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_place_is_free_again_when_the_create_failed() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.access.set_quota(&default, &Quota { vcpus: Some(2), ..DEFAULT_QUOTA }).unwrap();
        let first = fixture.access.admit(&default, &ONE, Resources::default).unwrap();
        assert_eq!(refused(fixture.access.admit(&default, &ONE, Resources::default)).what, Resource::Vcpus);
        drop(first);
        assert!(fixture.access.admit(&default, &ONE, Resources::default).is_ok());
    }

    #[test]
    fn a_rate_refusal_says_when_to_come_back_and_a_full_house_does_not() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.access.set_quota(&default, &Quota { creates_per_minute: Some(1), ..DEFAULT_QUOTA }).unwrap();
        drop(fixture.access.admit(&default, &ONE, Resources::default).unwrap());
        let rate = refused(fixture.access.admit(&default, &ONE, Resources::default));
        assert_eq!(rate.what, Resource::CreatesPerMinute);
        assert!(rate.retry_after.is_some_and(|wait| !wait.is_zero() && wait.as_secs() <= 60));
        let full = Resources { sandboxes: 200, ..Resources::default() };
        assert_eq!(refused(fixture.access.admit(&default, &ONE, || full)).retry_after, None);
        let tree = Resources { sandboxes: 2, ..Resources::default() };
        assert_eq!(refused(fixture.access.admit(&default, &tree, Resources::default)).retry_after, None);
    }

    #[test]
    fn workspaces_do_not_use_up_each_others_quota() {
        let fixture = Fixture::new();
        let (default, other) = (WorkspaceName::default(), workspace("other"));
        fixture.access.create_workspace(&other).unwrap();
        for name in [&default, &other] {
            let quota = Quota { sandboxes: Some(1), creates_per_minute: Some(1), ..DEFAULT_QUOTA };
            fixture.access.set_quota(name, &quota).unwrap();
        }
        let _kept = fixture.access.admit(&default, &ONE, Resources::default).unwrap();
        assert!(fixture.access.admit(&other, &ONE, Resources::default).is_ok());
    }

    #[test]
    fn a_quota_is_kept_with_its_missing_limits() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        assert_eq!(fixture.access.quota(&default).unwrap(), DEFAULT_QUOTA);
        let quota = Quota { sandboxes: None, disk_mib: Some(u32::MAX), ..DEFAULT_QUOTA };
        fixture.access.set_quota(&default, &quota).unwrap();
        assert_eq!(fixture.access.quota(&default).unwrap(), quota);
        let nowhere = fixture.access.set_quota(&workspace("nowhere"), &quota);
        assert!(matches!(nowhere, Err(WorkspaceError::NotFound(_))));
    }
}
