//! Keeps a reserve of the host's disk free: a sandbox that writes more than its reservation stands still while the host is
//! short of space, so that the others can go on.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sandling_vmm::machine::MachineDir;

use super::instance::Engine;
use crate::disk_space::{DiskHold, DiskSpace, reservation_mib};
use crate::model::{SandboxId, State};
use crate::sandbox::{CreateError, Sandbox};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// With so much free space beside the reserve, it lasts for some time.
const PLENTY_MIB: u64 = 8192;
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// Writers go on when so much is free beside the reserve.
const ENOUGH_MIB: u64 = 64;
/// A sandbox that writes less between two looks is not the one that fills the disk.
const LEAST_GROWTH: u64 = 1 << 20;

/// How much each sandbox had written at the last look.
type Written = HashMap<SandboxId, u64>;

/// Watches the disk until the engine is gone.
pub(super) fn watch(engine: &Arc<Engine>) {
    let engine = Arc::downgrade(engine);
    tokio::spawn(async move {
        let mut written = Written::new();
        while let Some(pause) = look(&engine, &mut written) {
            tokio::time::sleep(pause).await;
        }
    });
}

fn look(engine: &Weak<Engine>, written: &mut Written) -> Option<Duration> {
    let engine = engine.upgrade()?;
    let space: &DiskSpace = &engine.parts.disk;
    let Some((free_mib, reserve_mib)) = space.free_and_reserve() else { return Some(LOOK_SELDOM) };
    if free_mib >= reserve_mib + ENOUGH_MIB {
        space.let_all_go_on();
    }
    if free_mib >= reserve_mib + PLENTY_MIB {
        written.clear();
        return Some(LOOK_SELDOM);
    }
    let now: Vec<_> = engine.running().map(|sandbox| (engine.written_bytes(&sandbox), sandbox)).collect();
    if free_mib < reserve_mib {
        let writers = now.iter().filter(|(bytes, sandbox)| {
            let reserved = reservation_mib(sandbox.info.disk_mib) << 20;
            let grew = written.get(sandbox.id()).map_or(0, |before| bytes.saturating_sub(*before));
            *bytes > reserved && grew >= LEAST_GROWTH
        });
        let writers: Vec<_> = writers.map(|(_, sandbox)| sandbox.id().clone()).collect();
        if !writers.is_empty() {
            tracing::warn!(?writers, free_mib, reserve_mib, "the host is short of disk space; stopping the writers");
            space.stop(writers);
        }
    }
    *written = now.into_iter().map(|(bytes, sandbox)| (sandbox.id().clone(), bytes)).collect();
    Some(LOOK_EVERY)
}

impl Engine {
    fn running(&self) -> impl Iterator<Item = Arc<Sandbox>> {
        self.registry.living().into_iter().filter(|sandbox| sandbox.phase.borrow().state() == State::Running)
    }

    /// Reserves the disk space of sandboxes that are about to be made.
    pub(super) fn reserve_disk(&self, disk_mib: u32, count: usize) -> Result<DiskHold, CreateError> {
        self.reserve_space(reservation_mib(disk_mib) * count as u64)
    }

    /// Whether so much can be written to the host's disk.
    pub fn check_space(&self, mib: u64) -> Result<(), CreateError> {
        self.reserve_space(mib).map(drop)
    }

    pub(super) fn reserve_space(&self, needed_mib: u64) -> Result<DiskHold, CreateError> {
        let living = self.registry.living();
        let with_machine = |sandbox: &&Arc<Sandbox>| sandbox.phase.borrow().live().is_ok();
        let with_machine: Vec<_> = living.iter().filter(with_machine).collect();
        let reserved = |sandbox: &Arc<Sandbox>| reservation_mib(sandbox.info.disk_mib);
        let all = with_machine.iter().map(|sandbox| reserved(sandbox)).sum();
        let unwritten = || {
            let rest = |sandbox: &&Arc<Sandbox>| reserved(sandbox).saturating_sub(self.written_bytes(sandbox) >> 20);
            with_machine.iter().map(rest).sum()
        };
        let held = self.parts.disk.admit(needed_mib, all, unwritten);
        held.map_err(|short| CreateError::NoSpace { needed_mib: short.needed_mib, available_mib: short.available_mib })
    }

    /// What a sandbox has written to its disk since its last save, and to its volumes.
    fn written_bytes(&self, sandbox: &Sandbox) -> u64 {
        let dir = MachineDir::new(self.parts.machines.factory.sandboxes.join(sandbox.id().as_str())).files();
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let volumes = sandbox.info.volumes.iter().filter(|volume| !volume.read_only);
        let volumes = volumes.map(|volume| self.parts.volumes.file(&volume.volume));
        files.chain(volumes).filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.blocks() * 512).sum()
    }
}
