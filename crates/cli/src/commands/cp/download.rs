//! Copies from a sandbox to this machine.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;

use super::PARALLEL_FILES;
use super::archive;
use super::local::{self, NewFile};
use super::progress::Progress;
use super::remote::{Remote, name};
use crate::client::{ClientError, Entry};
use crate::outcome;

pub async fn download(remote: &Remote<'_>, source: &str, destination: &Path) -> anyhow::Result<()> {
    let source = remote.absolute(source).await?;
    let Some(found) = remote.find(&source).await? else { bail!("{source} does not exist in the sandbox") };
    let target = target(&source, destination)?;
    match (found.is_dir, destination == Path::new("-")) {
        (true, true) => bail!("{source} is a directory and cannot be written to stdout; copy it to a path"),
        (true, false) => tree(remote, &source, &found, &target).await,
        (false, true) => stdout(remote, &source).await,
        (false, false) => file(remote, &source, &found, &target).await,
    }
}

/// The path of the copy.
fn target(source: &str, destination: &Path) -> anyhow::Result<PathBuf> {
    let wants_directory = destination.as_os_str().as_encoded_bytes().ends_with(b"/");
    if wants_directory && !destination.exists() {
        fs::create_dir_all(destination).map_err(|error| local::unwritable(destination, error))?;
    }
    match name(source) {
        Some(name) if destination.is_dir() => local::below(destination, name),
        _ => Ok(destination.to_owned()),
    }
}

async fn stdout(remote: &Remote<'_>, source: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout();
    receive(remote, source, &Progress::new(None), |bytes| stdout.write_all(bytes).map_err(outcome::stdout_error))
        .await?;
    stdout.flush().map_err(outcome::stdout_error)
}

async fn file(remote: &Remote<'_>, source: &str, found: &Entry, target: &Path) -> anyhow::Result<()> {
    let progress = Progress::new(Some(found.size));
    progress.file(source);
    match fs::metadata(target) {
        // Write to a device or pipe directly instead of replacing it with a file.
        Ok(there) if !there.is_file() => {
            let mut device = fs::File::options().write(true).open(target);
            receive(remote, source, &progress, |bytes| {
                let written = device.as_mut().map_err(|error| io::Error::from(error.kind()));
                written.and_then(|device| device.write_all(bytes)).map_err(|error| local::unwritable(target, error))
            })
            .await?;
        }
        _ => receive_file(remote, source, found, target, &progress).await?,
    }
    progress.done();
    Ok(())
}

async fn receive_file(
    remote: &Remote<'_>,
    source: &str,
    found: &Entry,
    target: &Path,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut file = NewFile::beside(target)?;
    receive(remote, source, progress, |bytes| file.write(bytes)).await?;
    file.finish(mode(found))
}

/// Streams a file's bytes to `take`.
async fn receive(
    remote: &Remote<'_>,
    source: &str,
    progress: &Progress,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut body = remote.read(source).await.with_context(|| source.to_owned())?;
    while let Some(frame) = body.frame().await {
        // A transfer that breaks off must not produce a truncated file.
        let frame = frame.map_err(ClientError::broken).with_context(|| source.to_owned())?;
        if let Some(bytes) = frame.data_ref() {
            progress.add(bytes.len());
            take(bytes)?;
        }
    }
    Ok(())
}

async fn tree(remote: &Remote<'_>, source: &str, found: &Entry, target: &Path) -> anyhow::Result<()> {
    // The target itself may be a symbolic link of the user; entries below it may not.
    if !target.is_dir() {
        local::directory(target, mode(found))?;
    }
    let received = Progress::new(None);
    if archive::receive(remote, source, target, &received).await? {
        received.done();
        return Ok(());
    }
    let entries = remote.walk(source).await?;
    let progress = Progress::new(Some(entries.iter().filter(|entry| entry.mode == "f").map(|entry| entry.size).sum()));
    let (mut files, mut links) = (Vec::new(), Vec::new());
    for entry in &entries {
        let path = local::below(target, relative(source, &entry.path))?;
        match (entry.mode.as_str(), &entry.target) {
            ("d", _) => local::directory(&path, mode(entry))?,
            ("f", _) => files.push((entry, path)),
            ("l", Some(points_to)) => links.push((path, points_to)),
            _ => progress.note(&format!("skipped {}: not a file, directory or symbolic link", entry.path)),
        }
    }
    let receiving = futures_util::stream::iter(&files).map(|(entry, path)| {
        progress.file(&entry.path);
        receive_file(remote, &entry.path, entry, path, &progress)
    });
    receiving.buffer_unordered(PARALLEL_FILES).try_collect::<()>().await?;
    for (path, points_to) in links {
        local::link(&path, points_to)?;
    }
    progress.done();
    Ok(())
}

/// The part of a path below `directory`, or an empty string if it is not below.
fn relative<'a>(directory: &str, path: &'a str) -> &'a str {
    let top = directory.trim_end_matches("/.").trim_end_matches('/');
    path.strip_prefix(top).and_then(|below| below.strip_prefix("/./").or(below.strip_prefix('/'))).unwrap_or_default()
}

fn mode(entry: &Entry) -> u32 {
    u32::from_str_radix(&entry.permissions, 8).unwrap_or(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_requested_directory() {
        assert_eq!(relative("/a/b", "/a/b/c/d"), "c/d");
        assert_eq!(relative("/a/b/.", "/a/b/./c"), "c");
        assert_eq!(relative("/", "/c"), "c");
        assert_eq!(relative("/a/b", "/a/bc"), "");
        assert_eq!(relative("/a/b", "/elsewhere"), "");
    }
}
