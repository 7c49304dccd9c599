//! Files that a build will copy, kept until it has.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use sandling_engine::access::WorkspaceName;
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

/// Where the files of this hash are, or would be.
pub(super) fn path(app: &App, workspace: &str, hash: &str) -> Result<PathBuf, ApiError> {
    let name = WorkspaceName::parse(workspace).ok_or_else(|| ApiError::not_found("workspace"))?;
    check_hash(hash)?;
    let directory = app.engine.config().home.root().join(DIRECTORY);
    std::fs::create_dir_all(&directory).map_err(|error| ApiError::internal(&error))?;
    Ok(directory.join(format!("{name}.{hash}")))
}

pub(crate) fn has(app: &App, workspace: &str, hash: &str) -> Result<bool, ApiError> {
    let path = path(app, workspace, hash)?;
    if let Some(directory) = path.parent() {
        // What cannot be removed now is tried the next time.
        let _ = forget_old(directory);
    }
    Ok(path.exists())
}

/// Removes what was kept; several steps may have copied the same files.
pub(crate) fn forget(app: &App, workspace: &str, hash: &str) {
    if let Ok(path) = path(app, workspace, hash) {
        let _ = std::fs::remove_file(path);
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

fn forget_old(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)?.flatten() {
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if age > FORGOTTEN_AFTER {
            std::fs::remove_file(entry.path())?;
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
