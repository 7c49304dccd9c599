//! A workspace's limits, and the pure check against them.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A workspace's limits. A missing one means that there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    pub sandboxes: Option<u32>,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    pub disk_mib: Option<u32>,
    pub creates_per_minute: Option<u32>,
    /// Of each token. A token may send those of some seconds at once.
    pub requests_per_second: Option<u32>,
    /// Requests, streams and sockets that each token may have open at once.
    pub open_requests: Option<u32>,
}

/// The quota of a workspace for which none was set. It is more than one host can carry, but stops a loop that creates
/// without destroying. Memory and disk count as configured, although shared and unwritten pages cost less. Snapshots
/// count as stored.
pub const DEFAULT_QUOTA: Quota = Quota {
    sandboxes: Some(200),
    vcpus: Some(800),
    memory_mib: Some(256 * 1024),
    disk_mib: Some(2 * 1024 * 1024),
    creates_per_minute: Some(6000),
    requests_per_second: Some(500),
    open_requests: Some(1000),
};

impl Default for Quota {
    fn default() -> Self {
        DEFAULT_QUOTA
    }
}

/// Amounts of what quotas limit: in use, or requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub sandboxes: u64,
    pub vcpus: u64,
    pub memory_mib: u64,
    pub disk_mib: u64,
}

impl Resources {
    fn each(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            sandboxes: f(self.sandboxes, other.sandboxes),
            vcpus: f(self.vcpus, other.vcpus),
            memory_mib: f(self.memory_mib, other.memory_mib),
            disk_mib: f(self.disk_mib, other.disk_mib),
        }
    }
}

impl Resources {
    pub(super) fn times(self, count: u64) -> Self {
        self.each(Self::default(), |amount, _| amount.saturating_mul(count))
    }

    pub(super) fn max(self, other: Self) -> Self {
        self.each(other, u64::max)
    }

    /// Whether this is at most `limit` where `wanted` asks for something.
    pub(super) fn fits_where_wanted(&self, limit: Self, wanted: &Self) -> bool {
        let fits = |own: u64, limit: u64, wanted: u64| wanted == 0 || own <= limit;
        fits(self.sandboxes, limit.sandboxes, wanted.sandboxes)
            && fits(self.vcpus, limit.vcpus, wanted.vcpus)
            && fits(self.memory_mib, limit.memory_mib, wanted.memory_mib)
            && fits(self.disk_mib, limit.disk_mib, wanted.disk_mib)
    }
}

impl Quota {
    /// How often something fits beside what is used.
    pub(super) fn room_for(&self, used: &Resources, wanted: &Resources) -> u64 {
        let rules = [
            (self.sandboxes, used.sandboxes, wanted.sandboxes),
            (self.vcpus, used.vcpus, wanted.vcpus),
            (self.memory_mib, used.memory_mib, wanted.memory_mib),
            (self.disk_mib, used.disk_mib, wanted.disk_mib),
        ];
        let room = |(limit, used, wanted): (Option<u32>, u64, u64)| {
            let limit = limit.filter(|_| wanted > 0)?;
            Some(u64::from(limit).saturating_sub(used) / wanted)
        };
        rules.into_iter().filter_map(room).min().unwrap_or(u64::MAX)
    }
}

impl Add for Resources {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }
}

impl Sub for Resources {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }
}

/// The limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Sandboxes,
    Vcpus,
    MemoryMib,
    DiskMib,
    CreatesPerMinute,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandboxes",
            Self::Vcpus => "vCPUs",
            Self::MemoryMib => "MiB of memory",
            Self::DiskMib => "MiB of disk",
            Self::CreatesPerMinute => "creates per minute",
        })
    }
}

/// A request that would exceed the quota. Nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("max {what} reached: the limit is {limit}, {used} in use, {wanted} more asked for")]
pub struct QuotaRefused {
    pub what: Resource,
    pub limit: u64,
    pub used: u64,
    pub wanted: u64,
    /// When to retry. Missing if waiting does not help.
    pub retry_after: Option<Duration>,
}

/// Whether the request fits beside what is in use. A workspace whose quota was lowered keeps what it has, and may still
/// request resources that it does not have too much of.
pub fn check(quota: &Quota, used: &Resources, requested: &Resources) -> Result<(), QuotaRefused> {
    let rules = [
        (Resource::Sandboxes, quota.sandboxes, used.sandboxes, requested.sandboxes),
        (Resource::Vcpus, quota.vcpus, used.vcpus, requested.vcpus),
        (Resource::MemoryMib, quota.memory_mib, used.memory_mib, requested.memory_mib),
        (Resource::DiskMib, quota.disk_mib, used.disk_mib, requested.disk_mib),
    ];
    for (what, limit, used, wanted) in rules {
        let Some(limit) = limit.map(u64::from) else { continue };
        if wanted > 0 && used.saturating_add(wanted) > limit {
            return Err(QuotaRefused { what, limit, used, wanted, retry_after: None });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNLIMITED: Quota = Quota {
        sandboxes: None,
        vcpus: None,
        memory_mib: None,
        disk_mib: None,
        creates_per_minute: None,
        requests_per_second: None,
        open_requests: None,
    };

    fn any_limit() -> impl Strategy<Value = Option<u32>> {
        prop_oneof![Just(None), (0u32..50).prop_map(Some), any::<u32>().prop_map(Some)]
    }

    prop_compose! {
        fn any_quota()(
            sandboxes in any_limit(), vcpus in any_limit(), memory_mib in any_limit(), disk_mib in any_limit(),
        ) -> Quota {
            Quota { sandboxes, vcpus, memory_mib, disk_mib, ..UNLIMITED }
        }
    }

    prop_compose! {
        fn any_resources()(
            sandboxes in 0u64..60, vcpus in 0u64..60, memory_mib in prop_oneof![0u64..60, any::<u64>()],
            disk_mib in prop_oneof![0u64..60, any::<u64>()],
        ) -> Resources {
            Resources { sandboxes, vcpus, memory_mib, disk_mib }
        }
    }

    fn fits(limit: Option<u32>, used: u64) -> bool {
        limit.is_none_or(|limit| used <= u64::from(limit))
    }

    fn within(quota: &Quota, used: &Resources) -> bool {
        fits(quota.sandboxes, used.sandboxes)
            && fits(quota.vcpus, used.vcpus)
            && fits(quota.memory_mib, used.memory_mib)
            && fits(quota.disk_mib, used.disk_mib)
    }

    #[test]
    fn the_refusal_names_the_limit_as_clients_expect() {
        let quota = Quota { sandboxes: Some(2), ..UNLIMITED };
        let (used, requested) =
            (Resources { sandboxes: 2, ..Default::default() }, Resources { sandboxes: 1, ..Default::default() });
        let refused = check(&quota, &used, &requested).unwrap_err();
        assert_eq!(refused.what, Resource::Sandboxes);
        assert_eq!(refused.retry_after, None);
        assert!(refused.to_string().starts_with("max sandboxes reached"), "{refused}");
    }

    #[test]
    fn a_workspace_over_a_lowered_quota_may_request_other_resources() {
        let quota = Quota { memory_mib: Some(10), ..UNLIMITED };
        let used = Resources { memory_mib: 100, ..Default::default() };
        assert!(check(&quota, &used, &Resources { disk_mib: 5, ..Default::default() }).is_ok());
        assert!(check(&quota, &used, &Resources { memory_mib: 1, ..Default::default() }).is_err());
    }

    proptest! {
        #[test]
        fn usage_never_exceeds_the_quota(
            quota in any_quota(), requests in proptest::collection::vec(any_resources(), 0..40),
        ) {
            let mut used = Resources::default();
            for requested in requests {
                if check(&quota, &used, &requested).is_ok() {
                    used = used + requested;
                }
                prop_assert!(within(&quota, &used), "{used:?} over {quota:?}");
            }
        }

        #[test]
        fn a_request_is_refused_only_if_it_does_not_fit(quota in any_quota(), used in any_resources(), requested in any_resources()) {
            let answer = check(&quota, &used, &requested);
            if within(&quota, &(used + requested)) {
                prop_assert_eq!(&answer, &Ok(()));
            }
            if let Err(refused) = answer {
                prop_assert!(refused.wanted > 0);
                prop_assert!(refused.used.saturating_add(refused.wanted) > refused.limit);
                prop_assert_eq!(refused.retry_after, None);
            }
        }

        #[test]
        fn a_smaller_request_is_admitted_where_a_larger_one_is(
            quota in any_quota(), used in any_resources(), requested in any_resources(), less in any_resources(),
        ) {
            let smaller = requested - less;
            if check(&quota, &used, &requested).is_ok() {
                prop_assert_eq!(check(&quota, &used, &smaller), Ok(()));
            }
        }

        #[test]
        fn without_limits_everything_is_admitted(used in any_resources(), requested in any_resources()) {
            prop_assert_eq!(check(&UNLIMITED, &used, &requested), Ok(()));
        }
    }
}
