//! Files that a build will copy, kept until it has.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use sandling_service::WorkspaceName;
use tokio::io::AsyncWriteExt;

use super::steps::check_hash;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::too_slow;

const DIRECTORY: &str = "uploads";
const STILL_FOR: Duration = Duration::from_secs(60);
const LARGEST: u64 = 2 * 1024 * 1024 * 1024;
/// What no build came for.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Within this, a client that was told that its files are here begins its build.
const PROMISED_FOR: Duration = Duration::from_secs(15 * 60);

/// Where the files of this hash are, or would be.
pub(super) fn path(app: &App, workspace: &str, hash: &str) -> Result<PathBuf, ApiError> {
    let name = WorkspaceName::parse(workspace).ok_or_else(|| ApiError::not_found("workspace"))?;
    check_hash(hash)?;
    let directory = app.engine.config().home.root().join(DIRECTORY);
    std::fs::create_dir_all(&directory).map_err(|error| ApiError::internal(&error))?;
    Ok(directory.join(format!("{name}.{hash}")))
}

pub(crate) fn has(app: &App, workspace: &str, hash: &str) -> Result<bool, ApiError> {
    Ok(app.builds.claims.promise(&path(app, workspace, hash)?))
}

/// Removes what was kept, unless another build wants it or somebody was told a moment ago that it is there. Several
/// steps may have copied the same files.
pub(crate) fn forget(app: &App, workspace: &str, hash: &str) {
    if let Ok(path) = path(app, workspace, hash) {
        app.builds.claims.unless_wanted(&path, || drop(std::fs::remove_file(&path)));
    }
}

/// Removes what no build came for in a day.
pub(crate) fn forget_old(app: &App) {
    // What cannot be removed now is tried the next time.
    let _ = forget_old_of(app, &app.engine.config().home.root().join(DIRECTORY));
}

/// Who wants what was uploaded.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<PathBuf, Claim>>);

#[derive(Default)]
struct Claim {
    builds: usize,
    /// When a client was told that it need not send it.
    promised: Option<Instant>,
}

impl Claim {
    fn is_wanted(&self) -> bool {
        self.builds > 0 || self.promised.is_some_and(|at| at.elapsed() < PROMISED_FOR)
    }
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, HashMap<PathBuf, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is there, and will be when the client that asks comes back.
    fn promise(&self, path: &Path) -> bool {
        let mut all = self.all();
        let is_there = path.exists();
        if is_there {
            all.entry(path.to_owned()).or_default().promised = Some(Instant::now());
        }
        is_there
    }

    /// A build that has begun wants it.
    fn want(&self, path: &Path) {
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

    fn unless_wanted(&self, path: &Path, then: impl FnOnce()) {
        let mut all = self.all();
        if !all.get(path).is_some_and(Claim::is_wanted) {
            all.remove(path);
            then();
        }
    }
}

/// Keeps the files of these hashes for a build until this is dropped; then nothing does, unless others want them, too.
pub(super) struct Wanted {
    app: Arc<App>,
    workspace: String,
    hashes: Vec<String>,
}

impl Wanted {
    pub(super) fn new(app: &Arc<App>, workspace: &str, hashes: Vec<String>) -> Self {
        let wanted = Self { app: app.clone(), workspace: workspace.to_owned(), hashes };
        wanted.each(Claims::want);
        wanted
    }

    fn each(&self, act: impl Fn(&Claims, &Path)) {
        let paths = self.hashes.iter().filter_map(|hash| path(&self.app, &self.workspace, hash).ok());
        paths.for_each(|path| act(&self.app.builds.claims, &path));
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.each(Claims::release);
        self.hashes.iter().for_each(|hash| forget(&self.app, &self.workspace, hash));
    }
}

/// Keeps files as an archive, and returns its hash, which no other has.
pub(crate) async fn keep_files(app: &App, workspace: &str, files: Vec<(String, Bytes)>) -> Result<String, ApiError> {
    let hash = crate::random::hex::<32>();
    let path = path(app, workspace, &hash)?;
    let written = tokio::task::spawn_blocking(move || archive(&path, &files));
    written.await.map_err(|error| ApiError::internal(&error))?.map_err(failed)?;
    Ok(hash)
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

fn failed(error: io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", "the server's disk is full")
        }
        _ => ApiError::internal(&error),
    }
}

fn forget_old_of(app: &App, directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)?.flatten() {
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if age > FORGOTTEN_AFTER {
            let path = entry.path();
            app.builds.claims.unless_wanted(&path, || drop(std::fs::remove_file(&path)));
        }
    }
    Ok(())
}

/// Keeps an archive. It is there when this returns, and not before.
pub(crate) async fn keep(app: &App, workspace: &str, hash: &str, mut body: Body) -> Result<(), ApiError> {
    let path = path(app, workspace, hash)?;
    let beside = path.with_extension(format!("part-{}", crate::random::hex::<8>()));
    let written = write(&beside, &mut body).await;
    let placed = match written {
        Ok(()) => tokio::fs::rename(&beside, &path).await.map_err(|error| ApiError::internal(&error)),
        Err(error) => Err(error),
    };
    if placed.is_err() {
        let _ = tokio::fs::remove_file(&beside).await;
    }
    placed
}

async fn write(path: &Path, body: &mut Body) -> Result<(), ApiError> {
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut taken = 0;
    loop {
        let frame = tokio::time::timeout(STILL_FOR, body.frame()).await.map_err(|_| too_slow())?;
        match frame {
            None => break,
            Some(Err(_)) => return Err(ApiError::bad_request("the body ended too early")),
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                taken += bytes.len() as u64;
                if taken > LARGEST {
                    let message = "the files of one step may have 2 GiB";
                    return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
                }
                file.write_all(&bytes).await.map_err(failed)?;
            }
        }
    }
    file.flush().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_while_a_build_wants_them_or_somebody_relies_on_them() {
        let claims = Claims::default();
        let goes = |path: &Path| {
            let mut gone = false;
            claims.unless_wanted(path, || gone = true);
            gone
        };
        let path = Path::new("/");
        claims.want(path);
        claims.want(path);
        claims.release(path);
        assert!(!goes(path), "another build wants it");
        assert!(claims.promise(path));
        claims.release(path);
        assert!(!goes(path), "a client was told that it is there");
        claims.want(path);
        claims.release(path);
        assert!(goes(path) && claims.all().is_empty());
        assert!(!claims.promise(Path::new("/no/such/file")) && claims.all().is_empty());
    }
}
