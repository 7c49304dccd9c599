//! The cache of one engine: which processes it has, and which it trusts.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::{MachineConfig, MachineDir};
use sandling_vmm::memory::{Frozen, MemoryMap};
use sandling_vmm::process_cache::{CachedProcess, ProcessCache as HostCache};

use super::fallback::{Fallback, FallbackCounters};
use super::stored::{self, CapturedPages, StoredProcess};

/// A process that was silent this often, without an answer in between, is not resumed any more.
const MOST_STRIKES: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct ProcessCache {
    /// Absent if the cache is disabled, or if the processor itself runs the guests.
    host: Option<HostCache>,
    fallbacks: FallbackCounters,
    /// How often the process in a directory was silent since it last answered.
    strikes: Mutex<HashMap<PathBuf, u32>>,
}

impl ProcessCache {
    /// The cache of an engine with this home and this accelerator.
    pub(crate) fn open(home: &Path, accelerator: Accelerator) -> io::Result<Self> {
        if accelerator != Accelerator::Tcg {
            return Ok(Self::default());
        }
        Ok(Self { host: Some(HostCache::open(home, Path::new(MachineConfig::QEMU))?), ..Self::default() })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.host.is_some()
    }

    /// The process in this directory, or `None` if there is none.
    pub(crate) fn load(&self, dir: &Path) -> Result<Option<StoredProcess>, Fallback> {
        self.host.as_ref().map_or(Ok(None), |host| StoredProcess::load(dir, host))
    }

    /// A usable process beside a bake, for machines of its template.
    pub(crate) fn find(&self, bake: &Path) -> Option<StoredProcess> {
        let host = self.host.as_ref()?;
        stored::template_dirs(bake).find_map(|dir| StoredProcess::load(&dir, host).ok().flatten())
    }

    /// What the program of a jail needs to resume this process.
    pub(crate) fn process(&self, process: &StoredProcess) -> Option<CachedProcess> {
        Some(process.files(self.host.as_ref()?))
    }

    /// Stores the pages of a frozen machine's process in `dir`, on top of the process that the machine was resumed from.
    /// `layers` are files that were the machine's own: their inodes, and their names as layers. `None` if the cache is
    /// disabled. If `is_given_up` becomes true, this fails with [`io::ErrorKind::ResourceBusy`].
    pub(crate) fn capture(
        &self,
        dir: &Path,
        frozen: &Frozen,
        machine: &MachineDir,
        layers: &[(u64, String)],
        is_given_up: &dyn Fn() -> bool,
    ) -> io::Result<Option<CapturedPages>> {
        let Some(host) = &self.host else { return Ok(None) };
        let below = StoredProcess::of_machine(machine, host);
        stored::save_pages(dir, frozen, below.as_ref(), layers, is_given_up).map(Some)
    }

    /// Completes a captured process: from now on it can be resumed, over guest memory that was saved with this map. If
    /// the capture or this fails, its files are removed.
    pub(crate) fn finish(
        &self,
        dir: &Path,
        captured: io::Result<Option<CapturedPages>>,
        guest: &MemoryMap,
    ) -> io::Result<()> {
        let finished = captured.and_then(|captured| match (captured, &self.host) {
            (Some(captured), Some(host)) => stored::finish(dir, captured, guest, host),
            _ => Ok(()),
        });
        finished.inspect_err(|_| stored::remove(dir))
    }

    /// Whether there is a process in this directory, usable or not.
    pub(crate) fn has(&self, dir: &Path) -> bool {
        self.host.is_some() && stored::exists(dir)
    }

    /// Removes the process of a snapshot to make room, unless machines need its files. Returns whether there was one.
    pub(crate) fn evict(&self, dir: &Path) -> bool {
        self.host.is_some() && stored::evict(dir)
    }

    /// Stores the process of a template's stopped machine, which was restored from the bake alone, beside the bake.
    pub(crate) fn save_template(&self, bake: &Path, disk: &Path, frozen: &Frozen) -> io::Result<()> {
        self.host.as_ref().map_or(Ok(()), |host| stored::save_template(bake, disk, frozen, host))
    }

    /// Removes the processes beside a bake that no machine of this boot can use.
    pub(crate) fn sweep(&self, bake: &Path) {
        if let Some(host) = &self.host {
            stored::sweep(bake, host);
        }
    }

    pub(crate) fn fell_back(&self, reason: Fallback) {
        self.fallbacks.add(reason);
    }

    /// How often machines were restored without their cached process.
    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = (Fallback, u64)> {
        self.fallbacks.all()
    }

    /// Forgets earlier strikes against a process, because it answered.
    pub(crate) fn answered(&self, process: &StoredProcess) {
        self.strikes().remove(process.dir());
    }

    /// Decides whether a process that could not be used is tried again. Its machine was then restored from device state,
    /// so nothing else is wrong. A process that failed always fails; one that was silent may have met a busy host.
    pub(crate) fn blame(&self, process: &StoredProcess, reason: Fallback) {
        let strikes = match reason {
            Fallback::Silent => {
                let mut all = self.strikes();
                let strikes = all.entry(process.dir().to_owned()).or_default();
                *strikes += 1;
                *strikes
            }
            _ => MOST_STRIKES,
        };
        if strikes >= MOST_STRIKES {
            tracing::warn!(dir = %process.dir().display(), reason = reason.name(), "a cached process is distrusted");
            self.strikes().remove(process.dir());
            process.distrust();
        }
    }

    fn strikes(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, u32>> {
        self.strikes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distrusted_when_it_fails_once_or_is_silent_three_times_in_a_row() {
        let (dir, host) = stored::tests::example();
        let cache = ProcessCache { host: Some(host), ..ProcessCache::default() };
        let process = cache.load(dir.path()).unwrap().unwrap();
        cache.blame(&process, Fallback::Silent);
        cache.blame(&process, Fallback::Silent);
        cache.answered(&process);
        cache.blame(&process, Fallback::Silent);
        cache.blame(&process, Fallback::Silent);
        assert!(process.is_whole());
        cache.blame(&process, Fallback::Silent);
        assert!(!process.is_whole() && cache.load(dir.path()).unwrap().is_none());

        let (dir, host) = stored::tests::example();
        let cache = ProcessCache { host: Some(host), ..ProcessCache::default() };
        let process = cache.load(dir.path()).unwrap().unwrap();
        cache.blame(&process, Fallback::Failed);
        assert!(!process.is_whole());
    }

    #[test]
    fn fallbacks_are_counted_by_reason() {
        let cache = ProcessCache::default();
        for reason in [Fallback::Silent, Fallback::Damaged, Fallback::Silent] {
            cache.fell_back(reason);
        }
        let counted: Vec<_> = cache.fallbacks().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(Fallback::Damaged, 1), (Fallback::Silent, 2)]);
    }
}
