//! Making a snapshot of a machine that goes on.

mod process;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use sandling_network::Flow;
use sandling_vmm::machine::{Afterwards, FreezeError, Machine, MachineDir, MachineError};
use sandling_vmm::memory::{FreezeTimes, Frozen, MemoryMap, NewLayer};
use sandling_wire::new_private_directory;
use tokio::sync::oneshot;

use super::error::SnapshotError;
use super::files::Files;
use super::snapshots::Snapshots;
use super::unwritten::WritingSnapshot;
use super::waiting::WaitingSaves;
use crate::hashing::digest_of;
use crate::machine::PagesWritten;
use crate::model::{
    Digests, Kept, Part, SandboxInfo, SavedVolume, SnapshotId, SnapshotInfo, Standing, Sum, Sums, Visibility, top_name,
};
use crate::process_cache::guest_memory_of;

const STATE: &str = "state";

/// How long the steps took.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaveTimes {
    pub prepare: Duration,
    pub freeze: FreezeTimes,
    pub write: Duration,
}

/// A snapshot that machines can be started from while its pages are written. It has no digests yet.
pub(crate) struct Startable {
    pub(crate) snapshot: SnapshotInfo,
    pub(crate) times: SaveTimes,
    pub(crate) pages: PagesWritten,
}

/// A machine that is to be saved.
pub(crate) struct Save<'a> {
    pub(crate) snapshots: &'a Arc<Snapshots>,
    pub(crate) machine: &'a Machine,
    pub(crate) info: &'a SandboxInfo,
    /// What it is going to be called; the sandbox's row names it already.
    pub(crate) id: SnapshotId,
    pub(crate) name: Option<String>,
    pub(crate) visibility: Visibility,
    pub(crate) afterwards: Afterwards,
    pub(crate) kept: Kept,
    pub(crate) volumes: Vec<SavedVolume>,
    /// Set if nobody waits for it. Its process, which makes what is restored from it fast, is then stored at a low priority,
    /// and only if none of these saves waits meanwhile.
    pub(crate) behind: Option<WaitingSaves>,
    /// Whether it is to be there after the host itself has failed.
    pub(crate) lasting: bool,
}

/// A save whose machine goes on already, while its pages are still to be written.
pub(crate) struct Saving {
    snapshots: Arc<Snapshots>,
    /// Absent if only the disk is saved.
    frozen: Option<Result<Frozen, MachineError>>,
    taken: Result<(), SnapshotError>,
    info: SnapshotInfo,
    visibility: Visibility,
    files: Files,
    machine: MachineDir,
    behind: Option<WaitingSaves>,
    lasting: bool,
    /// What the machine stands on from now on, whatever becomes of the snapshot's memory.
    pub(crate) standing: Standing,
    times: SaveTimes,
}

impl Save<'_> {
    /// The part for which the machine stands still.
    pub(crate) async fn freeze(self) -> Result<Saving, SnapshotError> {
        if let Some(restored) = &self.info.standing.restored {
            // What the machine has written is stored relative to that.
            self.snapshots.written(restored).await;
        }
        let snapshots = self.snapshots.dir.clone();
        let id = self.id.clone();
        let files = Files::new(&snapshots, &id);
        new_private_directory(files.dir())?;
        let frozen = self.freeze_into(&id, &files).await;
        if let Err(SnapshotError::Files(_) | SnapshotError::Disk(_) | SnapshotError::Freeze(FreezeError::Before(_))) =
            &frozen
        {
            let _ = fs::remove_dir_all(files.dir());
        }
        frozen
    }

    async fn freeze_into(self, id: &SnapshotId, files: &Files) -> Result<Saving, SnapshotError> {
        let begun = Instant::now();
        let standing = &self.info.standing;
        let top = top_name(id);
        let own = self.machine.dir().files();
        self.prepare_overlay(id, files, &own.join(&top)).await?;
        let prepare = begun.elapsed();
        let memory_bytes = u64::from(self.info.memory_mib) << 20;
        let mut disk = standing.disk.clone();
        disk.push(id.clone());
        let info = self.describe(id.clone(), disk.clone());
        let frozen = match self.kept {
            Kept::Everything => {
                match self.machine.freeze(STATE, &top, memory_bytes, self.afterwards, self.copies(files)).await {
                    Ok(frozen) => Some(Ok(frozen)),
                    // The disk has moved on; only the memory is missing.
                    Err(FreezeError::After(error)) => Some(Err(error)),
                    Err(error) => return Err(error.into()),
                }
            }
            Kept::Disk => {
                let moved = self.machine.stop_over(&top).await;
                if self.afterwards == Afterwards::Running {
                    // If it does not go on, the sandbox's task notices and ends it.
                    let _ = self.machine.cont().await;
                }
                moved.map_err(FreezeError::Before)?;
                None
            }
        };
        let freeze = frozen.iter().flatten().map(|frozen| frozen.times).next().unwrap_or_default();
        // At once: the machine stands on this layer from now on, even if the rest is never written.
        let mut taken = take(&own.join(standing.top()), &files.disk());
        if self.kept == Kept::Everything {
            taken = taken.and_then(|()| take(&own.join(STATE), &files.state()));
        }
        let moving = standing.moving.clone().filter(|_| taken.is_err());
        let after = Standing { disk, top: Some(top), moving, ..standing.clone() };
        Ok(Saving {
            snapshots: self.snapshots.clone(),
            frozen,
            taken,
            info,
            visibility: self.visibility,
            files: files.clone(),
            machine: self.machine.dir().clone(),
            behind: self.behind,
            lasting: self.lasting,
            standing: after,
            times: SaveTimes { prepare, freeze, ..SaveTimes::default() },
        })
    }

    /// What is on its volumes, as far as that is to be kept.
    fn copies(&self, files: &Files) -> Vec<(PathBuf, PathBuf)> {
        let copied = self.volumes.iter().filter(|volume| volume.copied);
        copied.map(|saved| (self.snapshots.volumes.file(&saved.was.volume), files.volume(saved.was.slot))).collect()
    }

    /// An empty disk over the one that is about to become a layer: one for the machine, one to copy for others.
    async fn prepare_overlay(&self, id: &SnapshotId, files: &Files, top: &Path) -> Result<(), SnapshotError> {
        let overlay = self.snapshots.overlays.over(id, self.info.disk_mib).await?;
        fs::write(files.overlay(), &overlay)?;
        fs::write(top, &overlay)?;
        let owner = fs::symlink_metadata(self.machine.dir().files().join(self.info.standing.top()))?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(top, Some(owner.uid()), Some(owner.gid()))?;
        }
        Ok(fs::set_permissions(top, owner.permissions())?)
    }

    fn describe(&self, id: SnapshotId, disk: Vec<SnapshotId>) -> SnapshotInfo {
        let info = self.info;
        SnapshotInfo {
            id,
            workspace: info.workspace.clone(),
            name: self.name.clone(),
            sandbox: info.id.clone(),
            template: info.template.clone(),
            image: info.image.parse().unwrap_or_else(|_| sandling_image::ContentId::of(b"")),
            bake: info.bake.clone(),
            vcpus: info.vcpus,
            memory_mib: info.memory_mib,
            disk_mib: info.disk_mib,
            pids: info.pids,
            created_at: jiff::Timestamp::now(),
            labels: info.labels.clone(),
            settings: info.settings.clone(),
            parent: info.standing.saved.clone().or_else(|| info.standing.restored.clone()),
            memory: Vec::new(),
            disk,
            base: info.standing.base.clone(),
            memory_bytes: 0,
            disk_bytes: 0,
            digests: Digests { pages: String::new(), map: String::new(), state: String::new(), disk: String::new() },
            sums: Sums::default(),
            synced: false,
            volumes: self.volumes.clone(),
            connections: Vec::new(),
            digest: String::new(),
            format: Default::default(),
        }
    }
}

impl Saving {
    /// Notes the connections that its guest had shortly before, and shortly after it was frozen.
    pub(crate) fn had(&mut self, before: Vec<Flow>, after: Vec<Flow>) {
        let new: Vec<_> = after.into_iter().filter(|flow| !before.contains(flow)).collect();
        self.info.connections = before.into_iter().chain(new).collect();
    }

    pub(crate) fn id(&self) -> &SnapshotId {
        &self.info.id
    }

    /// The part behind the running machine. When this returns, the snapshot is whole and written down.
    ///
    /// `started` gets the snapshot as soon as machines can be started from it. It gets nothing if the machine's process
    /// is not cached, because such a machine needs all pages at once.
    pub(crate) async fn write(
        self,
        started: Option<oneshot::Sender<Startable>>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let files = self.files.clone();
        let writing = move || self.write_blocking(started).inspect_err(|_| files.leave_only_the_disk());
        tokio::task::spawn_blocking(writing).await.unwrap_or(Err(SnapshotError::CutOff))
    }

    fn write_blocking(
        mut self,
        started: Option<oneshot::Sender<Startable>>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let begun = Instant::now();
        std::mem::replace(&mut self.taken, Ok(()))?;
        self.info.disk_bytes = fs::metadata(self.files.disk())?.len();
        // Nothing changes it any more.
        fs::set_permissions(self.files.overlay(), fs::Permissions::from_mode(0o444))?;
        let (writing, cached_bytes) = match self.frozen.take().transpose() {
            Ok(Some(frozen)) => self.write_memory(&frozen, started, begun)?,
            Ok(None) => (None, 0),
            Err(error) => return Err(SnapshotError::Freeze(FreezeError::After(error))),
        };
        self.info.digests.disk = digest_of(&self.files.disk())?;
        let snapshots = self.snapshots.dir.clone();
        let parent = self.parent()?;
        self.info.sums = self.sums(&snapshots, parent.as_ref())?;
        self.info.digest = self.info.computed_digest();
        if self.lasting {
            // What is acknowledged survives the host.
            self.sync(&snapshots, parent.as_ref())?;
            self.info.synced = true;
        }
        self.snapshots.store.insert_snapshot(&self.info, self.visibility, cached_bytes)?;
        if let Some(writing) = writing {
            writing.done();
        }
        self.times.write = begun.elapsed();
        Ok((self.info, self.times))
    }

    /// Writes the pages, and notes their digests and that of the device state. Returns the size of the cached process, too.
    fn write_memory(
        &mut self,
        frozen: &Frozen,
        started: Option<oneshot::Sender<Startable>>,
        begun: Instant,
    ) -> Result<(Option<WritingSnapshot>, u64), SnapshotError> {
        let files = self.files.clone();
        let mut info = self.info.clone();
        let mut pages = File::create(files.pages())?;
        let done = std::thread::scope(|scope| {
            let (tell, selected) = mpsc::channel();
            let caching = scope.spawn(|| self.cache_process(frozen, selected));
            let (layer, below) = self.select(frozen)?;
            info.memory_bytes = layer.bytes;
            info.memory = if layer.layers == 1 { Vec::new() } else { below };
            info.memory.push(info.id.clone());
            info.digests.map = self.write_map(&layer.map)?;
            reserve(&pages, layer.bytes)?;
            let writing = started.is_some().then(|| self.snapshots.begin_writing(&info)).transpose()?;
            let start = started.zip(writing.as_ref()).map(|(started, writing)| {
                let times = SaveTimes { write: begun.elapsed(), ..self.times };
                (started, Startable { snapshot: info.clone(), times, pages: writing.written() })
            });
            // If the other thread has failed, nothing is started early.
            let _ = tell.send((layer.map.clone(), start));
            frozen.store(&layer, &mut pages)?;
            Ok::<_, SnapshotError>((writing, caching.join().unwrap_or_default()))
        })?;
        self.info = info;
        frozen.release();
        // Read again, because children may wait for the pages, but for no digest.
        self.info.digests.pages = digest_of(&files.pages())?;
        self.info.digests.state = digest_of(&files.state())?;
        Ok(done)
    }

    /// Selects the pages to store, and the snapshots whose layers they are stored over.
    fn select(&self, frozen: &Frozen) -> Result<(NewLayer, Vec<SnapshotId>), SnapshotError> {
        // What it is compared with is what it was last saved as, or restored from.
        let Some(parent) = self.parent()? else {
            // What it had from its template's layer has to be stored with it, as a whole: that layer does not outlive the
            // host's boot.
            return Ok((frozen.select_whole(&guest_memory_of(&self.machine)?)?, Vec::new()));
        };
        let snapshots = &self.snapshots.dir;
        let map = MemoryMap::decode(&fs::read(Files::new(snapshots, &parent.id).map())?)?;
        let layers = parent.memory.iter().map(|id| File::open(Files::new(snapshots, id).pages()));
        let layers = layers.collect::<io::Result<Vec<_>>>()?;
        Ok((frozen.select(&map, &layers)?, parent.memory))
    }

    /// Writes the map, returns its digest, and lets machines, which run as other users, read the files.
    fn write_map(&self, map: &MemoryMap) -> io::Result<String> {
        let (files, map) = (&self.files, map.encode());
        fs::write(files.map(), &map)?;
        for file in [files.pages(), files.map()] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o444))?;
        }
        Ok(blake3::hash(&map).to_hex().to_string())
    }

    fn parent(&self) -> Result<Option<SnapshotInfo>, SnapshotError> {
        let Some(parent) = &self.info.parent else { return Ok(None) };
        let (info, _) = self.snapshots.store.snapshot(parent)?.ok_or(SnapshotError::Unknown)?;
        Ok(Some(info))
    }

    /// What all layers are: its own as it has just written them, those below as they were written.
    fn sums(&self, snapshots: &Path, parent: Option<&SnapshotInfo>) -> Result<Sums, SnapshotError> {
        let of = |part: Part| {
            let layers = part.layers(&self.info).iter();
            layers.map(|id| self.sum(snapshots, parent, part, id)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Sums { memory: of(Part::Memory)?, disk: of(Part::Disk)? })
    }

    fn sum(
        &self,
        snapshots: &Path,
        parent: Option<&SnapshotInfo>,
        part: Part,
        id: &SnapshotId,
    ) -> Result<Sum, SnapshotError> {
        let known = if *id == self.info.id { Some(&self.info) } else { parent };
        if let Some(sum) = known.and_then(|known| known.sum(part, id)) {
            return Ok(sum);
        }
        if let Some(sum) = self.snapshots.store.snapshot(id)?.and_then(|(info, _)| info.sum(part, id)) {
            return Ok(sum);
        }
        // The layer of a save that failed.
        let path = Files::new(snapshots, id).layer(part);
        Ok(Sum { bytes: fs::metadata(&path)?.len(), digest: digest_of(&path)? })
    }

    /// Waits until everything that it is restored from is on the disk. Its process is not: no other boot of the host
    /// could use it.
    fn sync(&self, snapshots: &Path, parent: Option<&SnapshotInfo>) -> io::Result<()> {
        let below = parent.filter(|parent| parent.synced);
        let is_new = |id: &&SnapshotId| !below.is_some_and(|below| below.stands_on().any(|known| known == *id));
        let own = &self.files;
        let mut paths = vec![own.overlay()];
        if self.info.has_memory() {
            paths.extend([own.map(), own.state()]);
        }
        for part in [Part::Memory, Part::Disk] {
            let layers = part.layers(&self.info).iter().filter(is_new);
            paths.extend(layers.map(|id| Files::new(snapshots, id).layer(part)));
        }
        paths.extend(self.info.volumes.iter().filter(|saved| saved.copied).map(|saved| own.volume(saved.was.slot)));
        for path in &paths {
            File::open(path)?.sync_data()?;
        }
        let dirs: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).chain([snapshots]).collect();
        dirs.into_iter().try_for_each(|dir| File::open(dir)?.sync_all())
    }
}

/// Makes sure that the disk has room for the pages before machines are started that need them. The file does not grow: what
/// is behind its end is not written yet. On a file system that cannot reserve space, a full disk is noticed later.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes.max(1)) {
        Err(error) if [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT].contains(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Takes a file out of a machine's directory and makes it unchangeable. No link is followed.
pub(super) fn take(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    fs::rename(from, to)?;
    if !fs::symlink_metadata(to)?.is_file() {
        let _ = fs::remove_file(to);
        return Err(SnapshotError::Hostile);
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(to, Some(0), Some(0))?;
    }
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o444))?)
}
