//! Checks a workspace's quota before something is made, and reserves the resources while it is being made.
//!
//! Without the reservation, two simultaneous requests would both get the last free place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use sandling_engine::store::StoreError;

use super::bucket::{Bucket, Rate, Wait};
use super::quota::{Quota, QuotaRefused, Resource, Resources, check};
use super::share::{OtherHomes, Share};
use crate::store::Store;
use crate::workspaces::{WorkspaceError, WorkspaceName};

#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error(transparent)]
    Refused(#[from] QuotaRefused),
    #[error("there is no workspace {0}")]
    NoWorkspace(WorkspaceName),
    /// Nothing was made, and the same request may be sent again.
    #[error("other nodes use the workspace's quota at the same time; try again")]
    Contended,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Admits new sandboxes, volumes and snapshots to the workspaces of a home.
pub struct Admission {
    pub(super) store: Arc<Store>,
    pending: Mutex<Pending>,
    pub(super) others: OnceLock<Arc<dyn OtherHomes>>,
}

/// What is being made, by workspace.
#[derive(Debug, Default)]
pub(super) struct Pending(HashMap<WorkspaceName, InProgress>);

#[derive(Debug)]
pub(super) struct InProgress {
    reserved: Resources,
    /// The part of it that the other homes may still refuse.
    not_agreed: Resources,
    reservations: u64,
    creates: Bucket,
    share: Share,
}

impl Pending {
    /// How many reservations a workspace holds.
    pub(super) fn reservations(&self, workspace: &WorkspaceName) -> u64 {
        self.0.get(workspace).map_or(0, |own| own.reservations)
    }

    pub(super) fn forget(&mut self, workspace: &WorkspaceName) {
        self.0.remove(workspace);
    }

    pub(super) fn of(&mut self, workspace: &WorkspaceName, now: Instant) -> &mut InProgress {
        self.0.entry(workspace.clone()).or_insert_with(|| InProgress {
            reserved: Resources::default(),
            not_agreed: Resources::default(),
            reservations: 0,
            creates: Bucket::full(now),
            share: Share::new(now),
        })
    }
}

impl InProgress {
    pub(super) fn reserved(&self) -> Resources {
        self.reserved
    }

    pub(super) fn agreed_reservations(&self) -> Resources {
        self.reserved - self.not_agreed
    }

    pub(super) fn share(&mut self) -> &mut Share {
        &mut self.share
    }

    fn reserve(
        &mut self,
        quota: &Quota,
        in_use: Resources,
        requested: &Resources,
        now: Instant,
    ) -> Result<(), QuotaRefused> {
        check(quota, &(in_use + self.reserved), requested)?;
        // Last, so that a request that is refused for another reason does not count against the rate.
        if let Some(per_minute) = quota.creates_per_minute {
            let rate = Rate::per_minute(per_minute);
            self.creates.take(now, requested.sandboxes, rate).map_err(|wait| QuotaRefused {
                what: Resource::CreatesPerMinute,
                limit: per_minute.into(),
                used: self.creates.taken(now, rate),
                wanted: requested.sandboxes,
                retry_after: match wait {
                    Wait::For(wait) => Some(wait),
                    Wait::Never => None,
                },
            })?;
        }
        self.reserved = self.reserved + *requested;
        self.reservations += 1;
        Ok(())
    }
}

/// Resources that are set aside. Drop this once they show up as in use, or when the create has failed.
#[must_use = "dropping the reservation frees the resources at once"]
pub struct Reservation {
    admission: Arc<Admission>,
    workspace: WorkspaceName,
    held: Resources,
    /// Whether the other homes know of it, if there are any.
    is_agreed: bool,
}

impl Reservation {
    pub(super) fn workspace(&self) -> &WorkspaceName {
        &self.workspace
    }

    pub(super) fn held(&self) -> &Resources {
        &self.held
    }

    pub(super) fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    pub(super) fn agree(&mut self) {
        if let Some(own) = self.admission.lock().0.get_mut(&self.workspace) {
            own.not_agreed = own.not_agreed - self.held;
        }
        self.is_agreed = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(own) = self.admission.lock().0.get_mut(&self.workspace) {
            own.reserved = own.reserved - self.held;
            if !self.is_agreed {
                own.not_agreed = own.not_agreed - self.held;
            }
            own.reservations = own.reservations.saturating_sub(1);
        }
    }
}

impl Admission {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store, pending: Mutex::default(), others: OnceLock::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves resources before anything is made. The rate limit counts `requested.sandboxes`. If other homes share the quota,
    /// [`Admission::agree`] must follow.
    ///
    /// `in_use` sums up what the workspace has. It is called while admission is locked, so it must not call this.
    pub fn admit(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        requested: &Resources,
        in_use: impl FnOnce() -> Resources,
    ) -> Result<Reservation, AdmitError> {
        let now = Instant::now();
        let mut pending = self.lock();
        if self.store.workspace(workspace)?.is_none() {
            return Err(AdmitError::NoWorkspace(workspace.clone()));
        }
        let mut quota = self.quota(workspace)?;
        let is_agreed = self.others.get().is_none();
        if !is_agreed {
            // All homes together count the creates.
            quota.creates_per_minute = None;
        }
        let own = pending.of(workspace, now);
        own.reserve(&quota, in_use(), requested, now)?;
        if !is_agreed {
            own.not_agreed = own.not_agreed + *requested;
        }
        Ok(Reservation { admission: self.clone(), workspace: workspace.clone(), held: *requested, is_agreed })
    }

    pub fn quota(&self, workspace: &WorkspaceName) -> Result<Quota, StoreError> {
        Ok(self.store.quota(workspace)?.unwrap_or_default())
    }

    /// Sets the quota that other homes have, or the default.
    pub(crate) fn adopt_quota(&self, workspace: &WorkspaceName, quota: Option<&Quota>) -> Result<(), StoreError> {
        let mut pending = self.lock();
        pending.of(workspace, Instant::now()).share().give_up();
        match quota {
            Some(quota) => self.store.set_quota(workspace, quota).map(drop),
            None => self.store.remove_quota(workspace),
        }
    }

    /// Applies from the next request on; a workspace keeps what it already has.
    pub fn change_quota(
        &self,
        workspace: &WorkspaceName,
        change: impl FnOnce(&mut Quota),
    ) -> Result<(), WorkspaceError> {
        // Two changes of different limits at once must both last.
        let mut pending = self.lock();
        pending.of(workspace, Instant::now()).share().give_up();
        let mut quota = self.quota(workspace)?;
        change(&mut quota);
        let found = self.store.set_quota(workspace, &quota)?;
        found.then_some(()).ok_or_else(|| WorkspaceError::NotFound(workspace.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::admission::DEFAULT_QUOTA;
    use crate::fixture::{Fixture, workspace};

    const ONE: Resources = Resources { sandboxes: 1, vcpus: 2, memory_mib: 512, disk_mib: 1024 };

    fn refused(answer: Result<Reservation, AdmitError>) -> QuotaRefused {
        match answer {
            Err(AdmitError::Refused(refused)) => refused,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("was admitted"),
        }
    }

    #[test]
    fn simultaneous_requests_do_not_exceed_the_quota() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.admission.change_quota(&default, |quota| quota.sandboxes = Some(10)).unwrap();
        let (in_use, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let count = || Resources { sandboxes: in_use.load(Ordering::SeqCst), ..Resources::default() };
                    if let Ok(reservation) = fixture.admission.admit(&default, &ONE, count) {
                        admitted.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        in_use.fetch_add(1, Ordering::SeqCst);
                        drop(reservation);
                    }
                });
            }
        });
        let admitted = admitted.load(Ordering::SeqCst);
        // For a moment a sandbox counts as reserved and as in use, so fewer than 10 may be admitted, but never more.
        assert!((1..=10).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_failed_create_frees_its_reservation() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.admission.change_quota(&default, |quota| quota.vcpus = Some(2)).unwrap();
        let first = fixture.admission.admit(&default, &ONE, Resources::default).unwrap();
        assert_eq!(refused(fixture.admission.admit(&default, &ONE, Resources::default)).what, Resource::Vcpus);
        drop(first);
        assert!(fixture.admission.admit(&default, &ONE, Resources::default).is_ok());
    }

    #[test]
    fn only_a_rate_refusal_says_when_to_retry() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        fixture.admission.change_quota(&default, |quota| quota.creates_per_minute = Some(1)).unwrap();
        drop(fixture.admission.admit(&default, &ONE, Resources::default).unwrap());
        let rate = refused(fixture.admission.admit(&default, &ONE, Resources::default));
        assert_eq!(rate.what, Resource::CreatesPerMinute);
        assert!(rate.retry_after.is_some_and(|wait| !wait.is_zero() && wait.as_secs() <= 60));
        let full = Resources { sandboxes: 200, ..Resources::default() };
        assert_eq!(refused(fixture.admission.admit(&default, &ONE, || full)).retry_after, None);
        let tree = Resources { sandboxes: 2, ..Resources::default() };
        assert_eq!(refused(fixture.admission.admit(&default, &tree, Resources::default)).retry_after, None);
    }

    #[test]
    fn workspaces_have_separate_quotas() {
        let fixture = Fixture::new();
        let (default, other) = (WorkspaceName::default(), workspace("other"));
        fixture.workspaces.create(&other).unwrap();
        for name in [&default, &other] {
            let quota = Quota { sandboxes: Some(1), creates_per_minute: Some(1), ..DEFAULT_QUOTA };
            fixture.admission.change_quota(name, |now| *now = quota).unwrap();
        }
        let _kept = fixture.admission.admit(&default, &ONE, Resources::default).unwrap();
        assert!(fixture.admission.admit(&other, &ONE, Resources::default).is_ok());
    }

    #[test]
    fn a_quota_is_stored_with_its_missing_limits() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        assert_eq!(fixture.admission.quota(&default).unwrap(), DEFAULT_QUOTA);
        let quota = Quota { sandboxes: None, disk_mib: Some(u32::MAX), ..DEFAULT_QUOTA };
        fixture.admission.change_quota(&default, |now| *now = quota).unwrap();
        assert_eq!(fixture.admission.quota(&default).unwrap(), quota);
        let nowhere = fixture.admission.change_quota(&workspace("nowhere"), |now| *now = quota);
        assert!(matches!(nowhere, Err(WorkspaceError::NotFound(_))));
    }
}
