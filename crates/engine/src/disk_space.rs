//! The disk space of the host: what is promised to sandboxes, and which sandboxes stand still because it is short.
//!
//! Disks are sparse files, so the sum of their sizes may exceed the host's disk. Every sandbox has a reservation: a small
//! share of its disk, and all of it beyond [`SPARSE_MIB`]. A sandbox is created only if its reservation fits beside what
//! the others have not yet written of theirs. While less than the reserve is free, a sandbox that goes on writing beyond
//! its reservation stands still, and the others continue.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::host::{Space, disk_space};
use crate::model::SandboxId;

/// Of a larger disk, the part beyond this is reserved. The built-in templates have disks of this size.
const SPARSE_MIB: u64 = 4096;
/// What every sandbox may write without anybody else in mind.
const SHARE_MIB: u64 = 32;
/// The reserve is one hundredth of the host's disk, within these limits.
const LEAST_RESERVE_MIB: u64 = 64;
const MOST_RESERVE_MIB: u64 = 1024;

/// How much of a disk of this size is reserved.
pub(crate) fn reservation_mib(disk_mib: u32) -> u64 {
    let disk_mib = u64::from(disk_mib);
    disk_mib.min(SHARE_MIB) + disk_mib.saturating_sub(SPARSE_MIB)
}

/// There is too little space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) needed_mib: u64,
    /// What is free beside the reserve and the reservations.
    pub(crate) available_mib: u64,
}

pub(crate) struct DiskSpace {
    dir: PathBuf,
    measure: fn(&Path) -> Option<Space>,
    /// The reservations of what is being made.
    pending_mib: Mutex<u64>,
    standing_still: watch::Sender<BTreeSet<SandboxId>>,
}

/// Space for what is being made. Drop this once it counts as made.
#[must_use = "dropping it frees the space at once"]
pub(crate) struct DiskHold {
    space: Arc<DiskSpace>,
    mib: u64,
}

impl Drop for DiskHold {
    fn drop(&mut self) {
        *self.space.pending() -= self.mib;
    }
}

impl DiskSpace {
    pub(crate) fn new(dir: PathBuf) -> Arc<Self> {
        Self::measured_by(dir, disk_space)
    }

    fn measured_by(dir: PathBuf, measure: fn(&Path) -> Option<Space>) -> Arc<Self> {
        Arc::new(Self { dir, measure, pending_mib: Mutex::default(), standing_still: watch::Sender::default() })
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, u64> {
        self.pending_mib.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is free and what must stay free, in MiB; `None` where the system does not report it.
    pub(crate) fn free_and_reserve(&self) -> Option<(u64, u64)> {
        let space = (self.measure)(&self.dir)?;
        Some((space.available_mib, (space.total_mib / 100).clamp(LEAST_RESERVE_MIB, MOST_RESERVE_MIB)))
    }

    /// Reserves space for something new. `unwritten_mib` sums up what the sandboxes that live have not yet written of
    /// their reservations; `reserved_mib` is the same for sandboxes that have written nothing, and quicker to find out.
    pub(crate) fn admit(
        self: &Arc<Self>,
        needed_mib: u64,
        reserved_mib: u64,
        unwritten_mib: impl FnOnce() -> u64,
    ) -> Result<DiskHold, Shortage> {
        let mut pending = self.pending();
        if let Some((free_mib, reserve_mib)) = self.free_and_reserve() {
            let beside = |promised: u64| free_mib.saturating_sub(reserve_mib + *pending + promised);
            if beside(reserved_mib) < needed_mib {
                let available_mib = beside(unwritten_mib());
                if available_mib < needed_mib {
                    return Err(Shortage { needed_mib, available_mib });
                }
            }
        }
        *pending += needed_mib;
        Ok(DiskHold { space: self.clone(), mib: needed_mib })
    }

    /// The sandboxes that must stand still.
    pub(crate) fn standing_still(&self) -> watch::Receiver<BTreeSet<SandboxId>> {
        self.standing_still.subscribe()
    }

    pub(crate) fn stop(&self, writers: impl IntoIterator<Item = SandboxId>) {
        self.standing_still.send_modify(|all| all.extend(writers));
    }

    pub(crate) fn let_all_go_on(&self) {
        self.standing_still.send_if_modified(|all| !std::mem::take(all).is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_free(measure: fn(&Path) -> Option<Space>) -> Arc<DiskSpace> {
        DiskSpace::measured_by(PathBuf::new(), measure)
    }

    #[test]
    fn a_disk_larger_than_the_free_space_is_refused() {
        let space = with_free(|_| Some(Space { available_mib: 507, total_mib: 10_000 }));
        let refused = space.admit(reservation_mib(1_048_576), 0, || 0).err();
        assert_eq!(refused, Some(Shortage { needed_mib: 1_044_512, available_mib: 407 }));
        assert!(space.admit(reservation_mib(4096), 0, || 0).is_ok());
    }

    #[test]
    fn what_others_have_not_written_yet_is_not_given_twice() {
        let space = with_free(|_| Some(Space { available_mib: 10_100, total_mib: 10_100 }));
        let large = reservation_mib(4096 + 6000);
        let first = space.admit(large, 0, || 0).unwrap();
        assert!(space.admit(large, 0, || 0).is_err(), "the first is being made");
        drop(first);
        assert!(space.admit(large, large, || large).is_err(), "the first lives");
        assert!(space.admit(large, large, || large - 4000).is_ok(), "the first has written some of it");
        assert!(space.admit(large, 0, || 0).is_ok(), "the first has ended");
        assert_eq!(*space.pending(), 0);
    }

    #[test]
    fn four_hundred_usual_sandboxes_need_little() {
        let reserved = 400 * reservation_mib(4096);
        assert!(reserved < 13 * 1024, "{reserved} MiB");
    }
}
