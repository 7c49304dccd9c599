//! Files that a client uploads for the COPY steps of a build, stored until the build has copied them.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sandling_engine::Engine;
use sandling_wire::private_directory;
use tokio::io::AsyncWriteExt;

use super::dockerfile::DockerIgnore;
use super::steps::{PlanError, check_hash};
use crate::admission::{AdmitError, Reservation};
use crate::random;
use crate::sandboxes::Sandboxes;
use crate::stored_uploads;
use crate::workspaces::WorkspaceName;

/// An upload that sends nothing for so long is given up.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const LARGEST: u64 = 2 * 1024 * 1024 * 1024;
/// How many uploads a workspace may have.
const MOST_FILES: usize = 1000;
/// The room for an upload is reserved in steps, because its size is not known.
const STEP_MIB: u64 = 16;
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
    #[error("the workspace has {MOST_FILES} uploads; use them in builds, or wait a day until the server deletes them")]
    TooMany,
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Space(#[from] sandling_engine::CreateError),
    #[error("cannot store the uploaded files")]
    Io(#[from] io::Error),
}

/// The uploaded files of all workspaces of a home.
pub struct Uploads {
    engine: Arc<Engine>,
    sandboxes: Arc<Sandboxes>,
    directory: PathBuf,
    claims: Claims,
}

impl Uploads {
    pub(super) fn new(engine: Arc<Engine>, sandboxes: Arc<Sandboxes>) -> Self {
        let directory = engine.config().home.uploads();
        Self { engine, sandboxes, directory, claims: Claims::default() }
    }

    /// Reserves room in the workspace's quota and on the host's disk. What is stored already counts as used.
    async fn reserve(&self, workspace: &WorkspaceName, mib: u64) -> Result<Reservation, UploadError> {
        if stored_uploads::stored(&self.directory, workspace).files >= MOST_FILES {
            return Err(UploadError::TooMany);
        }
        self.engine.check_space(mib)?;
        Ok(self.sandboxes.reserve_disk(workspace, mib).await?)
    }

    /// The path of the files with this hash, whether they exist or not.
    pub(super) fn path(&self, workspace: &str, hash: &str) -> Result<PathBuf, UploadError> {
        let name = WorkspaceName::parse(workspace).ok_or(UploadError::NoWorkspace)?;
        check_hash(hash)?;
        private_directory(&self.directory)?;
        Ok(self.directory.join(format!("{}{hash}", stored_uploads::prefix(&name))))
    }

    /// Whether the files exist. If so, they are kept for a while, so that the client need not send them.
    pub fn has(&self, workspace: &str, hash: &str) -> Result<bool, UploadError> {
        Ok(self.claims.promise(&self.path(workspace, hash)?))
    }

    /// Opens the files for another node that needs them. `None` if they do not exist.
    pub fn open(&self, workspace: &str, hash: &str) -> Option<std::fs::File> {
        std::fs::File::open(self.path(workspace, hash).ok()?).ok()
    }

    /// Deletes files, unless another build needs them or a client was just told that they exist. Several steps may have
    /// copied the same files.
    pub fn forget(&self, workspace: &str, hash: &str) {
        if let Ok(path) = self.path(workspace, hash) {
            self.claims.unless_needed(&path, || drop(std::fs::remove_file(&path)));
        }
    }

    /// Deletes files that no build has used for a day. Best effort: the next call tries again.
    pub fn forget_unused(&self) {
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

    /// Stores files as an archive, and returns a fresh hash for it. What their `.dockerignore` names is left out.
    pub async fn store_files(&self, workspace: &str, mut files: Vec<(String, Bytes)>) -> Result<String, UploadError> {
        let ignore = files.iter().find(|(name, _)| name == ".dockerignore");
        let ignore = ignore.map(|(_, text)| DockerIgnore::parse(&String::from_utf8_lossy(text)));
        files.retain(|(name, _)| !ignore.as_ref().is_some_and(|ignore| ignore.ignores(name)));
        let hash = random::hex::<32>();
        let path = self.path(workspace, &hash)?;
        let name = WorkspaceName::parse(workspace).ok_or(UploadError::NoWorkspace)?;
        let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        let _room = self.reserve(&name, (bytes as u64).div_ceil(1 << 20).max(1)).await?;
        tokio::task::spawn_blocking(move || archive(&path, &files)).await.map_err(io::Error::other)??;
        Ok(hash)
    }

    /// Stores an archive. It exists once this has returned, and not before.
    pub async fn store<E>(
        &self,
        workspace: &str,
        hash: &str,
        body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), UploadError> {
        let path = self.path(workspace, hash)?;
        let partial = Partial(path.with_extension(format!("part-{}", random::hex::<8>())));
        let name = WorkspaceName::parse(workspace).ok_or(UploadError::NoWorkspace)?;
        write(&partial.0, body, || self.reserve(&name, STEP_MIB)).await?;
        Ok(tokio::fs::rename(&partial.0, &path).await?)
    }
}

/// The file of an upload until it is complete. It is also removed if its request is dropped in between.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // A complete one has its own name by now.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Creates a file that only its owner can read.
fn private_file(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn archive(path: &Path, files: &[(String, Bytes)]) -> io::Result<()> {
    let mut archive = tar::Builder::new(private_file(path)?);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_ref())?;
    }
    archive.into_inner()?.sync_data()
}

/// Writes a body to a file. `reserve` reserves room for the next step of it; what is in the file counts already.
async fn write<E, R, F: Future<Output = Result<R, UploadError>>>(
    path: &Path,
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    reserve: impl Fn() -> F,
) -> Result<(), UploadError> {
    let mut room = reserve().await?;
    let mut file = tokio::fs::File::from_std(private_file(path)?);
    let (mut written, mut reserved) = (0, STEP_MIB << 20);
    while let Some(bytes) = tokio::time::timeout(STALL_TIMEOUT, body.next()).await.map_err(|_| UploadError::TooSlow)? {
        let bytes = bytes.map_err(|_| UploadError::CutShort)?;
        written += bytes.len() as u64;
        if written > LARGEST {
            return Err(UploadError::TooLarge);
        }
        if written > reserved {
            file.flush().await?;
            drop(room);
            room = reserve().await?;
            reserved = written - bytes.len() as u64 + (STEP_MIB << 20);
        }
        file.write_all(&bytes).await?;
    }
    file.flush().await?;
    drop(room);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upload_stops_when_there_is_no_more_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("team.part");
        let left = std::cell::Cell::new(3);
        let reserve = || async {
            match left.get() {
                0 => Err(UploadError::TooMany),
                more => {
                    left.set(more - 1);
                    Ok(())
                }
            }
        };
        let chunk = Bytes::from(vec![0; 1 << 20]);
        let chunks = |count| futures_util::stream::iter(vec![Ok::<_, ()>(chunk.clone()); count]);
        write(&path, chunks(48), reserve).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        left.set(3);
        let refused = write(&path, chunks(200), reserve).await;
        assert!(matches!(refused, Err(UploadError::TooMany)), "{refused:?}");
        assert!(std::fs::metadata(&path).unwrap().len() <= (3 * STEP_MIB) << 20);
        let team = WorkspaceName::parse("team").unwrap();
        std::fs::write(dir.path().join("team2.file"), "another workspace's").unwrap();
        assert_eq!(stored_uploads::stored(dir.path(), &team).files, 1);
    }

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
