//! A quota that several homes share, as the nodes of a fleet do.
//!
//! No home counts for all. A home that wants more first says so: from then on, the others see its claim. Only then does it ask
//! them for theirs, and uses the rest. So of two homes that want the last place at once, at most one gets it. If both would
//! refuse because of each other, one has priority, and the other one asks again.
//!
//! A home claims more than it needs while much is left, so most creates ask nobody. Near the limit, homes give up what they
//! have claimed and do not use.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::admit::{Admission, AdmitError, Reservation};
use super::quota::{Quota, QuotaRefused, Resource, Resources, check};
use crate::workspaces::WorkspaceName;

/// How much more than it needs a home claims at most.
const LARGEST_BATCH: u64 = 63;
/// A claim that was not used for so long is given up.
const IDLE: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
/// How often a home asks before it refuses, if others ask at the same time.
const ATTEMPTS: u32 = 8;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a home has of a workspace's quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub resources: Resources,
    /// In the last minute.
    pub creates: u64,
}

/// What a home says about a workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    pub used: Resources,
    /// At least what is used.
    pub agreed: Claim,
    /// What it is about to agree with the others.
    pub wanted: Option<Claim>,
    /// How long ago the first create of the last minute was.
    pub first_create_ms: Option<u64>,
}

/// What another home says.
#[derive(Debug, Clone, Copy)]
pub struct OtherClaim {
    /// Whether its wish goes before that of this home.
    pub has_priority: bool,
    pub claimed: Claimed,
}

pub type Asking<'a> = Pin<Box<dyn Future<Output = Vec<OtherClaim>> + Send + 'a>>;

/// The other homes that share the quotas of this one.
pub trait OtherHomes: Send + Sync {
    /// Asks all of them. With `recall`, they first give up what they do not use.
    fn ask<'a>(&'a self, workspace: &'a WorkspaceName, recall: bool) -> Asking<'a>;
}

/// This home's share of a workspace's quota.
#[derive(Debug)]
pub(super) struct Share {
    /// Up to here, the others know.
    agreed: Resources,
    /// Creates that the others count already.
    spare_creates: u64,
    used_at: Instant,
    wanted: Option<Claim>,
    /// How often another home with priority has asked during a round.
    overruled: u64,
    creates: RecentCreates,
    /// How much more to claim next time.
    batch: u64,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A question to the others.
struct Round {
    own: Resources,
    requested: Resources,
    creates: u64,
    batch: u64,
    overruled: u64,
}

enum Outcome {
    Agreed,
    Refused(QuotaRefused),
    /// With less, or when the others have made up their minds.
    Again(Option<QuotaRefused>),
}

impl Share {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            agreed: Resources::default(),
            spare_creates: 0,
            used_at: now,
            wanted: None,
            overruled: 0,
            creates: RecentCreates::default(),
            batch: 0,
            turn: Arc::default(),
        }
    }

    pub(super) fn give_up(&mut self) {
        (self.agreed, self.spare_creates, self.batch) = (Resources::default(), 0, 0);
    }

    /// Uses what is agreed. False if it does not suffice.
    fn use_agreed(&mut self, own: Resources, requested: &Resources, counts_creates: bool, now: Instant) -> bool {
        let creates = if counts_creates { requested.sandboxes } else { 0 };
        let is_agreed = own.fits_where_wanted(self.agreed, requested) && creates <= self.spare_creates;
        if !is_agreed || now.saturating_duration_since(self.used_at) > IDLE {
            return false;
        }
        self.spare_creates -= creates;
        self.creates.add(now, requested.sandboxes);
        self.used_at = now;
        true
    }

    fn begin(&mut self, own: Resources, requested: Resources, is_first: bool, now: Instant) -> Round {
        if !is_first {
            self.give_up();
        }
        let (batch, creates) = (self.batch, requested.sandboxes);
        let resources = (own + requested.times(batch)).max(self.agreed);
        let creates_wanted = self.creates.count(now) + self.spare_creates + creates * (1 + batch);
        self.wanted = Some(Claim { resources, creates: creates_wanted });
        Round { own, requested, creates, batch, overruled: self.overruled }
    }

    fn end(&mut self, round: &Round, quota: &Quota, others: &[OtherClaim], now: Instant) -> Outcome {
        self.wanted = None;
        if self.overruled != round.overruled {
            return Outcome::Again(None);
        }
        let counted = |other: &OtherClaim| match other.claimed.wanted.filter(|_| other.has_priority) {
            Some(wanted) => other.claimed.agreed.max(wanted),
            None => other.claimed.agreed,
        };
        let sum = others.iter().map(counted).fold(Claim::default(), Claim::plus);
        let used = sum.resources + (round.own - round.requested);
        let wanted = round.requested.times(1 + round.batch);
        let checked =
            check(quota, &used, &wanted).and_then(|()| self.check_rate(round, quota, sum.creates, others, now));
        if let Err(refused) = checked {
            self.batch = 0;
            let may_change = others.iter().any(|other| other.has_priority && other.claimed.wanted.is_some());
            return if may_change || round.batch > 0 {
                Outcome::Again(Some(refused))
            } else {
                Outcome::Refused(refused)
            };
        }
        self.agreed = self.agreed.max(round.own + round.requested.times(round.batch));
        self.spare_creates += round.creates * round.batch;
        self.creates.add(now, round.creates);
        self.used_at = now;
        let room = quota.room_for(&(used + wanted), &round.requested);
        let creates = sum.creates + self.creates.count(now) + self.spare_creates;
        let room_for_creates = quota.creates_per_minute.filter(|_| round.creates > 0);
        let room_for_creates = room_for_creates.map(|limit| u64::from(limit).saturating_sub(creates) / round.creates);
        let room = room.min(room_for_creates.unwrap_or(u64::MAX));
        self.batch = (room / (2 * (others.len() as u64 + 1))).min(LARGEST_BATCH);
        Outcome::Agreed
    }

    fn check_rate(
        &mut self,
        round: &Round,
        quota: &Quota,
        elsewhere: u64,
        others: &[OtherClaim],
        now: Instant,
    ) -> Result<(), QuotaRefused> {
        let Some(limit) = quota.creates_per_minute.map(u64::from).filter(|_| round.creates > 0) else { return Ok(()) };
        let used = elsewhere + self.creates.count(now) + self.spare_creates;
        if used + round.creates * (1 + round.batch) <= limit {
            return Ok(());
        }
        let others = others.iter().filter_map(|other| other.claimed.first_create_ms).map(Duration::from_millis);
        let oldest = others.chain(self.creates.oldest(now)).max().unwrap_or_default();
        let wait = MINUTE.saturating_sub(oldest).max(Duration::from_secs(1));
        Err(QuotaRefused {
            what: Resource::CreatesPerMinute,
            limit,
            used,
            wanted: round.creates,
            retry_after: (round.creates <= limit).then_some(wait),
        })
    }

    /// `settled` is what this home uses or has agreed to make.
    fn claimed(&mut self, settled: Resources, used: Resources, now: Instant) -> Claimed {
        let agreed =
            Claim { resources: settled.max(self.agreed), creates: self.creates.count(now) + self.spare_creates };
        let first_create_ms = self.creates.oldest(now).map(|ago| ago.as_millis() as u64);
        Claimed { used, agreed, wanted: self.wanted, first_create_ms }
    }
}

impl Claim {
    fn max(self, other: Self) -> Self {
        Self { resources: self.resources.max(other.resources), creates: self.creates.max(other.creates) }
    }

    fn plus(self, other: Self) -> Self {
        Self { resources: self.resources + other.resources, creates: self.creates.saturating_add(other.creates) }
    }
}

/// The creates of the last minute, by second.
#[derive(Debug, Default)]
struct RecentCreates(VecDeque<(Instant, u64)>);

impl RecentCreates {
    fn add(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        match self.0.back_mut() {
            Some((at, counted)) if now.saturating_duration_since(*at) < Duration::from_secs(1) => *counted += count,
            _ => self.0.push_back((now, count)),
        }
    }

    fn count(&mut self, now: Instant) -> u64 {
        while self.0.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= MINUTE) {
            self.0.pop_front();
        }
        self.0.iter().map(|(_, count)| count).sum()
    }

    fn oldest(&self, now: Instant) -> Option<Duration> {
        self.0.front().map(|(at, _)| now.saturating_duration_since(*at))
    }
}

/// Takes back what a home wants if the question is abandoned.
struct Wish<'a> {
    admission: &'a Admission,
    workspace: &'a WorkspaceName,
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        self.admission.with_share(self.workspace, |share| share.wanted = None);
    }
}

impl Admission {
    /// Shares all quotas with other homes from now on.
    pub fn share_with(&self, others: Arc<dyn OtherHomes>) {
        // There is one set of them.
        let _ = self.others.set(others);
    }

    /// Agrees with the other homes that a reservation fits. `in_use` sums up what the workspace has here. It is called while
    /// admission is locked, so it must not call this.
    pub(crate) async fn agree(
        &self,
        reservation: &mut Reservation,
        in_use: impl Fn() -> Resources,
    ) -> Result<(), AdmitError> {
        let Some(others) = self.others.get().filter(|_| !reservation.is_agreed()) else { return Ok(()) };
        let (workspace, requested) = (reservation.workspace().clone(), *reservation.held());
        let turn = self.with_share(&workspace, |share| share.turn.clone());
        let _turn = turn.lock().await;
        let mut refused = None;
        for attempt in 0..ATTEMPTS {
            let quota = self.quota(&workspace)?;
            let now = Instant::now();
            let begun = self.with_own(&workspace, &in_use, |share, own| {
                let is_agreed = share.use_agreed(own, &requested, quota.creates_per_minute.is_some(), now);
                (!is_agreed).then(|| share.begin(own, requested, attempt == 0, now))
            });
            let Some(round) = begun else {
                reservation.agree();
                return Ok(());
            };
            let wish = Wish { admission: self, workspace: &workspace };
            let answers = others.ask(&workspace, attempt > 0).await;
            let outcome = self.with_share(&workspace, |share| share.end(&round, &quota, &answers, Instant::now()));
            drop(wish);
            match outcome {
                Outcome::Agreed => {
                    reservation.agree();
                    return Ok(());
                }
                // The others have not given up what they do not use.
                Outcome::Refused(why) if attempt == 0 => refused = Some(why),
                Outcome::Refused(why) => return Err(why.into()),
                Outcome::Again(why) => {
                    refused = why.or(refused);
                    tokio::time::sleep(ASK_AGAIN_AFTER * attempt).await;
                }
            }
        }
        Err(refused.map_or(AdmitError::Contended, AdmitError::Refused))
    }

    /// What this home says about a workspace to another one, which may have priority.
    pub fn claimed(
        &self,
        workspace: &WorkspaceName,
        recall: bool,
        asker_has_priority: bool,
        in_use: impl Fn() -> Resources,
    ) -> Claimed {
        let now = Instant::now();
        let mut pending = self.lock();
        let used = in_use();
        let own = pending.of(workspace, now);
        let settled = used + own.agreed_reservations();
        let share = own.share();
        if recall || now.saturating_duration_since(share.used_at) > IDLE {
            share.give_up();
        }
        if asker_has_priority && share.wanted.is_some() {
            share.overruled += 1;
        }
        share.claimed(settled, used, now)
    }

    /// What all other homes use.
    pub(crate) async fn used_elsewhere(&self, workspace: &WorkspaceName) -> Resources {
        match self.others.get() {
            Some(others) => {
                let answers = others.ask(workspace, false).await.into_iter();
                answers.map(|answer| answer.claimed.used).fold(Resources::default(), std::ops::Add::add)
            }
            None => Resources::default(),
        }
    }

    fn with_share<T>(&self, workspace: &WorkspaceName, act: impl FnOnce(&mut Share) -> T) -> T {
        act(self.lock().of(workspace, Instant::now()).share())
    }

    /// With what the workspace uses here and has reserved.
    fn with_own<T>(
        &self,
        workspace: &WorkspaceName,
        in_use: &impl Fn() -> Resources,
        act: impl FnOnce(&mut Share, Resources) -> T,
    ) -> T {
        let mut pending = self.lock();
        let used = in_use();
        let own = pending.of(workspace, Instant::now());
        let all = used + own.reserved();
        act(own.share(), all)
    }
}

#[cfg(test)]
mod tests;
