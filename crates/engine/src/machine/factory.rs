//! Restoring machines from templates and snapshots.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandling_vmm::boundary::DiskRate;
use sandling_vmm::jail::JailConfig;
use sandling_vmm::machine::{self, Disk, Hardware, Machine, MachineConfig, MachineDir};
use tracing::Instrument;

use super::bake::BOOT_WITHIN;
use super::command_line::command_line;
use super::error::MakeError;
use super::jail::jail;
use super::ready::{ENGINE_FILE, Live, ReadyMachine};
use super::source::{Kernel, Source, Start};
use crate::link::Link;
use crate::model::SandboxId;
use crate::process_cache::{Fallback, ProcessCache};
use crate::trace::step;

/// A restored guest that has not answered within this time never will.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A guest of a cached process answers in milliseconds. After this time it is faster to restore another machine.
const CACHED_ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Restores machines for one engine.
#[derive(Debug, Clone)]
pub(crate) struct MachineFactory {
    pub(crate) sandboxes: PathBuf,
    pub(crate) engine: String,
    pub(crate) launcher: PathBuf,
    /// The library that is preloaded into QEMU, so that its memory can be saved.
    pub(crate) library: PathBuf,
    pub(crate) process_cache: Arc<ProcessCache>,
    /// How fast each machine may use the host's disk.
    pub(crate) disk_rate: DiskRate,
    pub(crate) node_tag: Option<u32>,
}

impl MachineFactory {
    /// Restores a machine. When this returns, it runs and its guest has answered.
    pub(crate) async fn restore(&self, source: &Source) -> Result<ReadyMachine, MakeError> {
        self.restore_as(SandboxId::fresh_on(self.node_tag), source).await
    }

    /// The same under a given id. If a cached process fails, the machine is restored from device state.
    pub(crate) async fn restore_as(&self, id: SandboxId, source: &Source) -> Result<ReadyMachine, MakeError> {
        let cold = Source { cached: Ok(None), ..source.clone() };
        let (reason, error) = match &source.cached {
            _ if self.process_cache.is_enabled() && !source.plugs.is_empty() => (Fallback::Volumes, None),
            Err(reason) => (*reason, None),
            Ok(None) => return self.start_as(id, &cold).await,
            Ok(Some(cached)) => match self.start_as(id.clone(), &source.resumed(cached)).await {
                Err(error @ (MakeError::Machine(_) | MakeError::Socket(_) | MakeError::Guest(_))) => {
                    (error.fallback(), Some((error, cached)))
                }
                Ok(made) => {
                    self.process_cache.answered(&cached.process);
                    return Ok(made);
                }
                Err(error) => return Err(error),
            },
        };
        self.process_cache.fell_back(reason);
        tracing::warn!(
            %id,
            reason = reason.name(),
            error = error.as_ref().map(|(error, _)| error as &dyn std::error::Error),
            "a cached process was not resumed; the machine is restored from device state"
        );
        let mut made = self.start_as(id, &cold).await?;
        made.fallback = Some(reason);
        if let Some((_, cached)) = error {
            self.process_cache.blame(&cached.process, reason);
        }
        Ok(made)
    }

    async fn start_as(&self, id: SandboxId, source: &Source) -> Result<ReadyMachine, MakeError> {
        if let Some(pages) = source.unwritten.clone().filter(|_| source.cached().is_none())
            && !pages.wait().await
        {
            return Err(MakeError::Unwritten);
        }
        let dir = self.sandboxes.join(id.as_str());
        let directory = step!("machine.files").in_scope(|| self.directory(&dir, source));
        if let Err(error) = directory {
            let _ = fs::remove_dir_all(&dir);
            return Err(MakeError::Directory(error));
        }
        match self.start(&dir, source).await {
            Ok(live) => Ok(ReadyMachine { id, live: Some(live), dir, fallback: None }),
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                Err(error)
            }
        }
    }

    fn directory(&self, dir: &Path, source: &Source) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        fs::DirBuilder::new().mode(0o700).create(dir)?;
        fs::write(dir.join(ENGINE_FILE), &self.engine)?;
        let machine = MachineDir::new(dir);
        machine.create()?;
        if let Some(cached) = source.cached() {
            cached.process.mark(dir)?;
        }
        let disk = machine.files().join(&source.disk_name);
        fs::copy(&source.overlay, &disk)?;
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o600))
    }

    async fn start(&self, dir: &Path, source: &Source) -> Result<Live, MakeError> {
        let memory = source.memory.clone();
        let start = match &source.start {
            Start::DeviceState(state) => machine::Start::Restore {
                memory,
                state: state.clone(),
                cached: source.cached().and_then(|cached| self.process_cache.process(&cached.process)),
            },
            Start::Kernel(Kernel { kernel, initrd }) => machine::Start::Boot {
                kernel: kernel.clone(),
                initrd: initrd.clone(),
                command_line: command_line(&source.hardware).await,
                over: Some(memory),
            },
        };
        let config = MachineConfig {
            dir: MachineDir::new(dir),
            hardware: source.hardware.clone(),
            start,
            disk: Disk { overlay: source.disk_name.clone(), backing: source.layers.clone() },
            jail: self.jail(&source.hardware, source.disk_mib, source.volume_mib),
            qemu: MachineConfig::QEMU.into(),
            deadline_ms: None,
            plugs: source.plugs.clone(),
        };
        let machine = match &source.start {
            Start::DeviceState(_) => Machine::restore(config).await?,
            Start::Kernel(_) => Machine::boot(config).await?,
        };
        let limit = match (&source.start, source.cached()) {
            (Start::Kernel(_), _) => BOOT_WITHIN,
            (_, Some(_)) if source.unwritten.is_none() => CACHED_ANSWER_WITHIN,
            _ => ANSWER_WITHIN,
        };
        match self.greet(&machine, limit).await {
            Ok(link) => Ok(Live { machine, link }),
            Err(error) => {
                // The first error counts; a machine that does not end is found at the next start.
                let _ = machine.end().await;
                Err(error)
            }
        }
    }

    /// The jail of a machine of this size.
    pub(super) fn jail(&self, hardware: &Hardware, disk_mib: u32, volume_mib: u32) -> JailConfig {
        jail(&self.launcher, hardware, disk_mib, volume_mib, self.disk_rate)
    }

    /// Lets a machine run and opens a link to its guest.
    pub(super) async fn greet(&self, machine: &Machine, limit: Duration) -> Result<Link, MakeError> {
        let resuming = async {
            let greeting = Link::greet(machine.connect_control().await?).await.map_err(MakeError::Socket)?;
            machine.cont().await?;
            Ok::<_, MakeError>(greeting)
        };
        let greeting = resuming.instrument(step!("machine.resume")).await?;
        Ok(greeting.answered_before(had_time(machine, limit)).instrument(step!("machine.answer")).await?)
    }
}

/// Completes when the machine has had this much time to run. The time in which other processes had the CPUs of a busy host
/// counts only from [`ANSWER_WITHIN`] on.
async fn had_time(machine: &Machine, limit: Duration) {
    let (begun, waited_before) = (Instant::now(), machine.waited_for_cpu());
    loop {
        let waited = machine.waited_for_cpu().saturating_sub(waited_before);
        let left = limit.max(ANSWER_WITHIN.min(limit + waited)).saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
