//! Copies from this machine into a sandbox.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures_util::{Stream, StreamExt, TryStreamExt};
use hyper::body::Bytes;
use tokio::fs::File;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;
use walkdir::WalkDir;

use super::PARALLEL_FILES;
use super::archive::{self, Upload};
use super::progress::Progress;
use super::remote::{Remote, join, name};
use crate::outcome::Failure;

const CHUNK_SIZE: usize = 256 * 1024;

pub async fn upload(remote: &Remote<'_>, source: &Path, destination: &str) -> anyhow::Result<()> {
    let destination = remote.absolute(destination).await?;
    if source == Path::new("-") {
        return stdin(remote, &destination).await;
    }
    let metadata = fs::metadata(source).with_context(|| format!("cannot copy {}", source.display()))?;
    let target = target(remote, source, &metadata, destination).await?;
    let mut plan = Plan::default();
    if metadata.is_dir() {
        plan.add_tree(source, &target)?;
    } else {
        plan.add_file(source, &metadata, target.clone());
    }
    let progress = Progress::new(Some(plan.bytes));
    for path in &plan.skipped {
        progress.note(&format!("skipped {}: not a file, directory or symbolic link", path.display()));
    }
    if !metadata.is_dir() || !archive::send(remote, &target, plan.entries(&target), &progress).await? {
        plan.run(remote, &progress).await?;
    }
    progress.done();
    Ok(())
}

async fn stdin(remote: &Remote<'_>, destination: &str) -> anyhow::Result<()> {
    if remote.find(destination).await?.is_some_and(|there| there.is_dir) {
        bail!("{destination} is a directory in the sandbox; add a file name");
    }
    let progress = Progress::new(None);
    progress.file(destination);
    remote.write(destination, None, chunks(tokio::io::stdin(), progress.clone())).await?;
    progress.done();
    Ok(())
}

/// The path of the copy.
async fn target(
    remote: &Remote<'_>,
    source: &Path,
    metadata: &Metadata,
    destination: String,
) -> anyhow::Result<String> {
    let there = remote.find(&destination).await?;
    let into = destination.ends_with('/') || there.as_ref().is_some_and(|there| there.is_dir);
    if metadata.is_dir() && there.is_some_and(|there| !there.is_dir) {
        bail!("cannot copy the directory {} over the file {destination} in the sandbox", source.display());
    }
    match source.to_str().map(name) {
        None => bail!("cannot copy {}: its path is not UTF-8", source.display()),
        Some(Some(name)) if into => Ok(join(&destination, name)),
        Some(_) => Ok(destination),
    }
}

/// What to create in the sandbox, in this order.
#[derive(Default)]
struct Plan {
    directories: Vec<(String, u32)>,
    files: Vec<FileUpload>,
    links: Vec<(String, String)>,
    skipped: Vec<PathBuf>,
    bytes: u64,
}

struct FileUpload {
    source: PathBuf,
    target: String,
    mode: u32,
}

impl FileUpload {
    async fn send(&self, remote: &Remote<'_>, progress: &Progress) -> anyhow::Result<()> {
        progress.file(&self.target);
        let unreadable = |error| Failure::new(format!("cannot read {}", self.source.display()), error);
        let file = File::open(&self.source).await.map_err(unreadable)?;
        let sent = remote.write(&self.target, Some(self.mode), chunks(file, progress.clone())).await;
        sent.with_context(|| self.target.clone())
    }
}

impl Plan {
    fn add_tree(&mut self, source: &Path, target: &str) -> anyhow::Result<()> {
        // The trailing slash resolves a link to a directory.
        for entry in WalkDir::new(source.join("")).sort_by_file_name() {
            let entry = entry.context("cannot read the directory")?;
            let path = entry.path();
            let below = path.strip_prefix(source).context("a directory entry is outside the directory")?;
            let Some(below) = below.to_str() else {
                bail!("cannot copy {}: its path is not UTF-8", path.display());
            };
            let target = if below.is_empty() { target.to_owned() } else { join(target, below) };
            let metadata = entry.metadata().with_context(|| format!("cannot read {}", path.display()))?;
            self.add(path, &metadata, target)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, metadata: &Metadata, target: String) -> anyhow::Result<()> {
        if metadata.is_dir() {
            self.directories.push((target, metadata.permissions().mode() & 0o7777));
        } else if metadata.is_file() {
            self.add_file(path, metadata, target);
        } else if metadata.is_symlink() {
            let points_to = fs::read_link(path).with_context(|| format!("cannot read {}", path.display()))?;
            let Some(points_to) = points_to.to_str() else {
                bail!("cannot copy the link {}: its target is not UTF-8", path.display());
            };
            self.links.push((points_to.to_owned(), target));
        } else {
            self.skipped.push(path.to_owned());
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, metadata: &Metadata, target: String) {
        self.files.push(FileUpload { source: path.to_owned(), target, mode: metadata.permissions().mode() & 0o7777 });
        self.bytes += metadata.len();
    }

    /// The entries of an archive that is unpacked into `target`.
    fn entries(&self, target: &str) -> Vec<Upload> {
        let name = |path: &str| match path.strip_prefix(target).unwrap_or(path).trim_matches('/') {
            "" => ".".to_owned(),
            below => below.to_owned(),
        };
        let directories =
            self.directories.iter().map(|(path, mode)| Upload::Directory { name: name(path), mode: *mode });
        let files = self.files.iter().map(|file| Upload::File {
            name: name(&file.target),
            mode: file.mode,
            source: file.source.clone(),
        });
        let links = self.links.iter().map(|(target, path)| Upload::Link { name: name(path), target: target.clone() });
        directories.chain(files).chain(links).collect()
    }

    /// Copies everything file by file.
    async fn run(self, remote: &Remote<'_>, progress: &Progress) -> anyhow::Result<()> {
        for (path, mode) in &self.directories {
            remote.make_dir(path, *mode).await.with_context(|| path.clone())?;
        }
        let files = futures_util::stream::iter(&self.files).map(|file| file.send(remote, progress));
        files.buffer_unordered(PARALLEL_FILES).try_collect::<()>().await?;
        if !self.links.is_empty() {
            remote.link(&self.links).await?;
        }
        Ok(())
    }
}

/// Reads the source in chunks.
fn chunks(
    source: impl AsyncRead + Send + 'static,
    progress: Progress,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let chunks = ReaderStream::with_capacity(source, CHUNK_SIZE);
    chunks.inspect(move |chunk| progress.add(chunk.as_ref().map_or(0, Bytes::len)))
}
