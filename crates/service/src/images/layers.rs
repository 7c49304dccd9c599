//! The layers of images, each stored once by its digest. They are a cache: any of them can be removed at any time.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use sandling_oci::registry::Client;
use sandling_oci::{Descriptor, Digest, Reference};
use sandling_wire::private_directory;
use serde::{Deserialize, Serialize};

use super::error::ImageError;
use super::locks::Locks;
use crate::cache::{CacheEntry, CacheLimits, Freed, superfluous};
use crate::random;
use crate::stored_layers;
use crate::workspaces::WorkspaceName;

/// How much the layers of all workspaces may take.
const LIMITS: CacheLimits = CacheLimits { bytes: 32 << 30, entries: usize::MAX };
/// Unfinished files are written to all the time. One that is older was left by a process that died.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
/// The names of unfinished files begin with this.
const UNFINISHED: &str = "new-";

pub(super) struct Layers {
    dir: PathBuf,
    locks: Locks,
}

/// What is known about a stored layer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// The repositories that it was fetched from, like `docker.io/library/python`.
    sources: BTreeSet<String>,
}

/// A path for a file that is being written. The file is removed unless it was moved away.
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Layers {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, locks: Locks::default() }
    }

    /// A path for a new file in the same file system.
    pub(super) fn unfinished(&self) -> Result<Unfinished, ImageError> {
        private_directory(&self.dir).map_err(ImageError::File)?;
        self.sweep();
        Ok(Unfinished(self.dir.join(format!("{UNFINISHED}{}", random::uuid()))))
    }

    /// Opens a layer for a workspace. Fetches it, unless it is stored and its registry would hand it out to the workspace.
    pub(super) async fn ensure(
        &self,
        client: &Client,
        reference: &Reference,
        layer: &Descriptor,
        workspace: &WorkspaceName,
        progress: &(dyn Fn(&Descriptor, u64) + Send + Sync),
    ) -> Result<File, ImageError> {
        let source = reference.name();
        // By source: a slow registry must not hold up who gets the same layer from another one.
        let _turn = self.locks.acquire(&format!("{source} {}", layer.digest)).await;
        if let Some((file, record)) = self.find(&layer.digest, layer.size)
            && record.sources.contains(&source)
        {
            client.may_read(reference, layer).await?;
            let _ = file.set_modified(SystemTime::now());
            progress(layer, layer.size);
            return Ok(file);
        }
        let unfinished = self.unfinished()?;
        client.fetch_blob(reference, layer, unfinished.path(), progress).await?;
        self.publish(&unfinished, &layer.digest, source, workspace).map_err(ImageError::File)
    }

    fn layer(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }

    fn find(&self, digest: &Digest, size: u64) -> Option<(File, Record)> {
        let file = File::open(self.layer(digest)).ok()?;
        let is_whole = file.metadata().is_ok_and(|metadata| metadata.len() == size);
        let record = fs::read(self.record_path(digest)?).ok()?;
        is_whole.then_some((file, serde_json::from_slice(&record).ok()?))
    }

    /// The record of a layer, which names its workspace.
    fn record_path(&self, digest: &Digest) -> Option<PathBuf> {
        let prefix = format!("{}.", digest.hex());
        let entries = fs::read_dir(&self.dir).ok()?.flatten();
        let mut records = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
        records.next().map(|entry| entry.path())
    }

    fn publish(
        &self,
        unfinished: &Unfinished,
        digest: &Digest,
        source: String,
        workspace: &WorkspaceName,
    ) -> io::Result<File> {
        let record_path =
            self.record_path(digest).unwrap_or_else(|| self.dir.join(format!("{}.{workspace}", digest.hex())));
        let known = fs::read(&record_path).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let mut record = known.unwrap_or_default();
        record.sources.insert(source);
        let file = File::open(unfinished.path())?;
        fs::rename(unfinished.path(), self.layer(digest))?;
        let beside = Unfinished(self.dir.join(format!("{UNFINISHED}{}", random::uuid())));
        let mut text = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside.path())?;
        text.write_all(&serde_json::to_vec(&record)?)?;
        fs::rename(beside.path(), record_path)?;
        Ok(file)
    }

    /// Removes one layer, for example because it cannot be unpacked.
    pub(super) fn remove(&self, digest: &Digest) {
        if let Some(record) = self.record_path(digest) {
            let _ = fs::remove_file(record);
        }
        let _ = fs::remove_file(self.layer(digest));
    }

    /// Removes the layers that count against a workspace.
    pub(super) fn evict(&self, workspace: &WorkspaceName) -> Freed {
        let mut freed = Freed::default();
        for (layer, record) in stored_layers::of_workspace(&self.dir, workspace) {
            let bytes = fs::metadata(&layer).map_or(0, |layer| layer.len());
            let _ = fs::remove_file(record);
            let _ = fs::remove_file(layer);
            freed += Freed { layers: 1, bytes, ..Freed::default() };
        }
        freed
    }

    /// Removes the layers that were not used for weeks, and then those that were not used for longest, until the rest is
    /// within the limits.
    pub(super) fn trim(&self) -> Freed {
        self.trim_to(LIMITS)
    }

    fn trim_to(&self, limits: CacheLimits) -> Freed {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let layers = entries.filter_map(|entry| {
            let digest: Digest = format!("sha256:{}", entry.file_name().to_str()?).parse().ok()?;
            let metadata = entry.metadata().ok()?;
            let (bytes, used_at) = (metadata.len(), Timestamp::try_from(metadata.modified().ok()?).ok()?);
            Some(CacheEntry { item: (digest, bytes), bytes, used_at })
        });
        let mut freed = Freed::default();
        for (digest, bytes) in superfluous(layers.collect(), limits, Timestamp::now()) {
            self.remove(&digest);
            freed += Freed { layers: 1, bytes, ..Freed::default() };
        }
        freed
    }

    /// Removes unfinished files of processes that died.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            let age = written.and_then(|written| written.elapsed().ok()).unwrap_or_default();
            if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) && age > ABANDONED_AFTER {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::workspace;

    fn put(layers: &Layers, content: &[u8], source: &str, owner: &str) -> Digest {
        let (unfinished, digest) = (layers.unfinished().unwrap(), Digest::of(content));
        fs::write(unfinished.path(), content).unwrap();
        layers.publish(&unfinished, &digest, source.to_owned(), &workspace(owner)).unwrap();
        digest
    }

    #[test]
    fn a_layer_counts_against_its_first_workspace_and_remembers_all_its_sources() {
        let dir = tempfile::tempdir().unwrap();
        let layers = Layers::new(dir.path().join("layers"));
        let digest = put(&layers, b"layer", "a.example/x", "one");
        put(&layers, b"layer", "b.example/y", "two");
        let (_, record) = layers.find(&digest, 5).unwrap();
        assert_eq!(record.sources, BTreeSet::from(["a.example/x".to_owned(), "b.example/y".to_owned()]));
        assert_eq!(stored_layers::stored_bytes(&layers.dir, &workspace("one")), 5);
        assert_eq!(stored_layers::stored_bytes(&layers.dir, &workspace("two")), 0);
        assert!(layers.find(&digest, 6).is_none(), "a file of another size is not the layer");
        assert_eq!(layers.evict(&workspace("two")), Freed::default());
        assert_eq!(layers.evict(&workspace("one")), Freed { layers: 1, bytes: 5, ..Freed::default() });
        assert_eq!(fs::read_dir(&layers.dir).unwrap().count(), 0);
    }

    #[test]
    fn the_layers_that_were_used_last_stay() {
        let dir = tempfile::tempdir().unwrap();
        let layers = Layers::new(dir.path().join("layers"));
        let (old, new) = (put(&layers, b"old", "a/x", "one"), put(&layers, b"new", "a/x", "one"));
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::open(layers.layer(&old)).unwrap().set_modified(hour_ago).unwrap();
        let freed = layers.trim_to(CacheLimits { bytes: 3, entries: 2 });
        assert_eq!(freed, Freed { layers: 1, bytes: 3, ..Freed::default() });
        assert!(layers.find(&old, 3).is_none());
        assert!(layers.find(&new, 3).is_some());
    }

    #[test]
    fn an_unfinished_file_is_removed_with_its_owner_and_when_its_process_died() {
        let dir = tempfile::tempdir().unwrap();
        let layers = Layers::new(dir.path().join("layers"));
        let unfinished = layers.unfinished().unwrap();
        let path = unfinished.path().to_owned();
        fs::write(&path, "x").unwrap();
        drop(unfinished);
        assert!(!path.exists());
        let abandoned = layers.dir.join("new-abandoned");
        fs::write(&abandoned, "x").unwrap();
        drop(layers.unfinished().unwrap());
        assert!(abandoned.exists(), "another process may be writing it");
        let long_ago = SystemTime::now() - ABANDONED_AFTER - Duration::from_secs(1);
        File::open(&abandoned).unwrap().set_modified(long_ago).unwrap();
        drop(layers.unfinished().unwrap());
        assert!(!abandoned.exists());
    }
}
