//! Files that a client uploads for the COPY steps of a build, stored until the build has copied them.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;

use super::start::Builds;
use super::steps::{PlanError, check_hash};
use crate::random;
use crate::workspaces::WorkspaceName;

/// An upload that sends nothing for so long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const LARGEST: u64 = 2 * 1024 * 1024 * 1024;
/// Uploads that no build has used for so long are deleted.
const UNUSED_FOR: Duration = Duration::from_secs(24 * 3600);
/// For so long after a client was told that its files are present, they are kept for its build.
const PROMISED_FOR: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("workspace not found")]
    NoWorkspace,
    #[error(transparent)]
    Hash(#[from] PlanError),
    #[error("the files of one step may have 2 GiB")]
    TooLarge,
    #[error("the body came too slowly")]
    TooSlow,
    #[error("the body ended too early")]
    CutShort,
    #[error("cannot store the uploaded files")]
    Io(#[from] io::Error),
}

pub(super) struct Uploads {
    directory: PathBuf,
    claims: Claims,
}

impl Uploads {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, claims: Claims::default() }
    }

    /// The path of the files with this hash, whether they exist or not.
    pub(super) fn path(&self, workspace: &str, hash: &str) -> Result<PathBuf, UploadError> {
        let name = WorkspaceName::parse(workspace).ok_or(UploadError::NoWorkspace)?;
        check_hash(hash)?;
        std::fs::create_dir_all(&self.directory)?;
        Ok(self.directory.join(format!("{name}.{hash}")))
    }

    /// Whether the files exist. If so, they are kept for a while, so that the client need not send them.
    pub(super) fn has(&self, workspace: &str, hash: &str) -> Result<bool, UploadError> {
        Ok(self.claims.promise(&self.path(workspace, hash)?))
    }

    /// Deletes files, unless another build needs them or a client was just told that they exist. Several steps may have
    /// copied the same files.
    pub(super) fn forget(&self, workspace: &str, hash: &str) {
        if let Ok(path) = self.path(workspace, hash) {
            self.claims.unless_needed(&path, || drop(std::fs::remove_file(&path)));
        }
    }

    /// Deletes files that no build has used for a day. Best effort: the next call tries again.
    pub(super) fn forget_unused(&self) {
        let _ = self.try_forget_unused();
    }

    fn try_forget_unused(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)?.flatten() {
            let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
            if age > UNUSED_FOR {
                let path = entry.path();
                self.claims.unless_needed(&path, || drop(std::fs::remove_file(&path)));
            }
        }
        Ok(())
    }

    /// Stores files as an archive, and returns a fresh hash for it.
    pub(super) async fn store_files(
        &self,
        workspace: &str,
        files: Vec<(String, Bytes)>,
    ) -> Result<String, UploadError> {
        let hash = random::hex::<32>();
        let path = self.path(workspace, &hash)?;
        tokio::task::spawn_blocking(move || archive(&path, &files)).await.map_err(io::Error::other)??;
        Ok(hash)
    }

    /// Stores an archive. It exists once this has returned, and not before.
    pub(super) async fn store<E>(
        &self,
        workspace: &str,
        hash: &str,
        body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), UploadError> {
        let path = self.path(workspace, hash)?;
        let partial = path.with_extension(format!("part-{}", random::hex::<8>()));
        let stored = match write(&partial, body).await {
            Ok(()) => tokio::fs::rename(&partial, &path).await.map_err(UploadError::from),
            Err(error) => Err(error),
        };
        if stored.is_err() {
            let _ = tokio::fs::remove_file(&partial).await;
        }
        stored
    }
}

fn archive(path: &Path, files: &[(String, Bytes)]) -> io::Result<()> {
    let mut archive = tar::Builder::new(std::fs::File::create_new(path)?);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_ref())?;
    }
    archive.into_inner()?.sync_data()
}

async fn write<E>(path: &Path, mut body: impl Stream<Item = Result<Bytes, E>> + Unpin) -> Result<(), UploadError> {
    let mut file = tokio::fs::File::create(path).await?;
    let mut written = 0;
    while let Some(bytes) = tokio::time::timeout(STALL_TIMEOUT, body.next()).await.map_err(|_| UploadError::TooSlow)? {
        let bytes = bytes.map_err(|_| UploadError::CutShort)?;
        written += bytes.len() as u64;
        if written > LARGEST {
            return Err(UploadError::TooLarge);
        }
        file.write_all(&bytes).await?;
    }
    Ok(file.flush().await?)
}

/// Which uploads are still needed.
#[derive(Default)]
struct Claims(Mutex<HashMap<PathBuf, Claim>>);

#[derive(Default)]
struct Claim {
    builds: usize,
    /// When a client was told that it need not send the files.
    promised: Option<Instant>,
}

impl Claim {
    fn is_needed(&self) -> bool {
        self.builds > 0 || self.promised.is_some_and(|at| at.elapsed() < PROMISED_FOR)
    }
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, HashMap<PathBuf, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promise(&self, path: &Path) -> bool {
        let mut all = self.all();
        let exists = path.exists();
        if exists {
            all.entry(path.to_owned()).or_default().promised = Some(Instant::now());
        }
        exists
    }

    /// Claims a file for a build that has started.
    fn claim(&self, path: &Path) {
        let mut all = self.all();
        let claim = all.entry(path.to_owned()).or_default();
        claim.builds += 1;
        claim.promised = None;
    }

    fn release(&self, path: &Path) {
        if let Some(claim) = self.all().get_mut(path) {
            claim.builds = claim.builds.saturating_sub(1);
        }
    }

    fn unless_needed(&self, path: &Path, then: impl FnOnce()) {
        let mut all = self.all();
        if !all.get(path).is_some_and(Claim::is_needed) {
            all.remove(path);
            then();
        }
    }
}

/// Keeps files for a build. Dropping it deletes those that nothing else needs.
pub(super) struct ClaimedFiles {
    uploads: Arc<Uploads>,
    workspace: String,
    hashes: Vec<String>,
}

impl ClaimedFiles {
    pub(super) fn new(uploads: &Arc<Uploads>, workspace: &str, hashes: Vec<String>) -> Self {
        let claimed = Self { uploads: uploads.clone(), workspace: workspace.to_owned(), hashes };
        claimed.each(Claims::claim);
        claimed
    }

    fn each(&self, act: impl Fn(&Claims, &Path)) {
        let paths = self.hashes.iter().filter_map(|hash| self.uploads.path(&self.workspace, hash).ok());
        paths.for_each(|path| act(&self.uploads.claims, &path));
    }
}

impl Drop for ClaimedFiles {
    fn drop(&mut self) {
        self.each(Claims::release);
        self.hashes.iter().for_each(|hash| self.uploads.forget(&self.workspace, hash));
    }
}

/// The uploads as the API uses them.
impl Builds {
    /// Whether the files exist. If so, they are kept for a while, so that the client need not send them.
    pub fn has_files(&self, workspace: &str, hash: &str) -> Result<bool, UploadError> {
        self.uploads.has(workspace, hash)
    }

    /// Stores an archive of files under a hash.
    pub async fn store_archive<E>(
        &self,
        workspace: &str,
        hash: &str,
        body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), UploadError> {
        self.uploads.store(workspace, hash, body).await
    }

    /// Stores files, and returns a fresh hash for them.
    pub async fn store_files(&self, workspace: &str, files: Vec<(String, Bytes)>) -> Result<String, UploadError> {
        self.uploads.store_files(workspace, files).await
    }

    /// Deletes files that no build needs.
    pub fn forget_files(&self, workspace: &str, hash: &str) {
        self.uploads.forget(workspace, hash);
    }

    /// Deletes files that no build has used for a day.
    pub fn forget_unused_files(&self) {
        self.uploads.forget_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_while_a_build_or_a_client_relies_on_them() {
        let claims = Claims::default();
        let deleted = |path: &Path| {
            let mut deleted = false;
            claims.unless_needed(path, || deleted = true);
            deleted
        };
        let path = Path::new("/");
        claims.claim(path);
        claims.claim(path);
        claims.release(path);
        assert!(!deleted(path), "another build needs it");
        assert!(claims.promise(path));
        claims.release(path);
        assert!(!deleted(path), "a client was told that it exists");
        claims.claim(path);
        claims.release(path);
        assert!(deleted(path) && claims.all().is_empty());
        assert!(!claims.promise(Path::new("/no/such/file")) && claims.all().is_empty());
    }
}
