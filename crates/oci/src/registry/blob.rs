//! Downloads blobs into files, and asks whether a registry would hand one out.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::RANGE;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::client::{Client, Source, Wanted};
use super::error::RegistryError;
use super::exchange::Reply;
use super::retry::Backoff;
use crate::digest::Digest;
use crate::reference::Reference;
use crate::spec::Descriptor;

/// Receives the number of bytes of the blob that have arrived so far.
pub type Progress<'a> = &'a (dyn Fn(&Descriptor, u64) + Send + Sync);

/// Chunks between the network and the disk.
const QUEUE: usize = 32;

impl Client {
    /// Downloads all of these blobs, three at a time. Two entries with the same path are one download. If one fails, the
    /// files that are complete are removed.
    pub async fn fetch_blobs(
        &self,
        reference: &Reference,
        blobs: &[(Descriptor, PathBuf)],
        progress: Progress<'_>,
    ) -> Result<(), RegistryError> {
        let by_path: BTreeMap<_, _> = blobs.iter().map(|(blob, path)| (path.as_path(), blob)).collect();
        let mut downloads: FuturesUnordered<_> = by_path
            .into_iter()
            .map(async |(path, blob)| {
                self.fetch_blob(reference, blob, path, progress).await?;
                Ok(Unfinished { path: Some(path) })
            })
            .collect();
        let mut complete = Vec::new();
        while let Some(file) = downloads.next().await {
            complete.push(file?);
        }
        complete.into_iter().for_each(Unfinished::finish);
        Ok(())
    }

    /// Downloads a blob into a new file, and verifies size and digest. A broken connection continues where it stopped.
    /// After an error, or if this future is dropped, the file does not exist.
    pub async fn fetch_blob(
        &self,
        reference: &Reference,
        blob: &Descriptor,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), RegistryError> {
        let _turn = self.downloads.acquire().await.expect("nobody closes the semaphore");
        let mut sources = self.sources(reference).into_iter().peekable();
        loop {
            let source = sources.next().expect("the last source returns");
            match self.fetch_from(&source, blob, path, progress).await {
                Err(error) if sources.peek().is_none() || matches!(error, RegistryError::Write { .. }) => {
                    return Err(error);
                }
                Err(_) => continue,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn fetch_from(
        &self,
        source: &Source,
        blob: &Descriptor,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), RegistryError> {
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = created.map_err(|error| RegistryError::Write { digest: blob.digest.clone(), error })?;
        let unfinished = Unfinished { path: Some(path) };
        self.fetch_into(source, blob, file, progress).await?;
        unfinished.finish();
        Ok(())
    }

    pub(super) async fn fetch_into(
        &self,
        source: &Source,
        blob: &Descriptor,
        file: File,
        progress: Progress<'_>,
    ) -> Result<(), RegistryError> {
        let (chunks, receiver) = mpsc::channel(QUEUE);
        let writer = tokio::task::spawn_blocking(move || write_and_hash(file, receiver));
        let mut download = Download { blob, received: 0, host: source.registry.clone(), chunks, progress };
        let outcome = self.download(source, &mut download).await;
        let host = download.host.clone();
        drop(download);
        // The writer's error is the cause if the download failed because the writer had ended.
        let found = writer.await.expect("the writer does not panic");
        let found = found.map_err(|error| RegistryError::Write { digest: blob.digest.clone(), error })?;
        outcome?;
        if found != blob.digest {
            return Err(RegistryError::WrongDigest { host, expected: blob.digest.clone(), found });
        }
        Ok(())
    }

    async fn download(&self, source: &Source, download: &mut Download<'_>) -> Result<(), RegistryError> {
        let timeouts = &self.options.timeouts;
        let seconds = download.blob.size / timeouts.slowest_bytes_per_second.max(1);
        let limit = timeouts.document.saturating_add(Duration::from_secs(seconds));
        let started = Instant::now();
        let mut backoff = Backoff::new(timeouts);
        loop {
            let attempt = self.attempt(source, download);
            let left = limit.saturating_sub(started.elapsed());
            match tokio::time::timeout(left, attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => backoff.pause(error).await?,
                Err(_) => {
                    let (host, received) = (download.host.clone(), download.received);
                    return Err(RegistryError::TooSlow { host, received, size: download.blob.size, after: limit });
                }
            };
        }
    }

    /// Asks for the bytes that are missing.
    async fn attempt(&self, source: &Source, download: &mut Download<'_>) -> Result<(), RegistryError> {
        let mut headers = Vec::new();
        if download.received > 0 {
            headers.push((RANGE, format!("bytes={}-", download.received)));
        }
        let wanted = Wanted::Blob(&download.blob.digest);
        let reply = self.request(source, Method::GET, wanted, &headers).await?;
        download.host = reply.sender.host.clone();
        download.receive(reply).await
    }

    /// Whether the registry, or a mirror of it, would hand out this blob for this client's credentials.
    ///
    /// This proves something about this registry only. A tenant can run a registry that claims to have any blob, so a
    /// stored layer may be handed out only to a tenant that names the registry and repository it was fetched from.
    pub async fn may_read(&self, reference: &Reference, blob: &Descriptor) -> Result<(), RegistryError> {
        let mut sources = self.sources(reference).into_iter().peekable();
        loop {
            let source = sources.next().expect("the last source returns");
            match self.may_read_from(&source, blob).await {
                Err(_) if sources.peek().is_some() => continue,
                done => return done,
            }
        }
    }

    async fn may_read_from(&self, source: &Source, blob: &Descriptor) -> Result<(), RegistryError> {
        let mut backoff = Backoff::new(&self.options.timeouts);
        loop {
            let wanted = Wanted::Blob(&blob.digest);
            let head = self.request(source, Method::HEAD, wanted, &[]).await;
            // Storage behind the registry may refuse HEAD, because its links are signed for GET.
            let reply = match head {
                Err(error) if is_refused_by_storage(&error) => {
                    let first_byte = [(RANGE, "bytes=0-0".to_owned())];
                    self.request(source, Method::GET, wanted, &first_byte).await
                }
                head => head,
            };
            match reply {
                Ok(reply) => return check_length(&reply, blob),
                Err(error) => backoff.pause(error).await?,
            };
        }
    }
}

fn is_refused_by_storage(error: &RegistryError) -> bool {
    matches!(
        error,
        RegistryError::ServerError { status: 401 | 403 | 501, .. } | RegistryError::Strange { status: 400 | 405, .. }
    )
}

/// A complete answer must have the blob's size.
fn check_length(reply: &Reply, blob: &Descriptor) -> Result<(), RegistryError> {
    match reply.length() {
        Some(received) if reply.status.as_u16() == 200 && received != blob.size => Err(RegistryError::WrongSize {
            host: reply.sender.host.clone(),
            what: blob.digest.to_string(),
            received,
            expected: blob.size,
        }),
        _ => Ok(()),
    }
}

struct Download<'a> {
    blob: &'a Descriptor,
    received: u64,
    host: String,
    chunks: mpsc::Sender<Bytes>,
    progress: Progress<'a>,
}

impl Download<'_> {
    async fn receive(&mut self, mut reply: Reply) -> Result<(), RegistryError> {
        // A server that ignores the range sends everything again. The digest shows whether it is the same.
        let mut skipped = match reply.status.as_u16() {
            206 if self.starts_where_asked(&reply) => 0,
            206 => return Err(self.wrong_size(reply.length().unwrap_or_default())),
            _ => self.received,
        };
        let missing = self.blob.size - self.received + skipped;
        if let Some(length) = reply.length().filter(|length| *length != missing) {
            return Err(self.wrong_size(length.saturating_add(self.received - skipped)));
        }
        loop {
            let mut bytes = match reply.body.chunk().await {
                Ok(Some(bytes)) => bytes,
                // The digest shows that nothing is missing, even if the connection breaks now.
                Err(error) if self.received < self.blob.size => return Err(error),
                Ok(None) | Err(_) => break,
            };
            let skip = skipped.min(bytes.len() as u64);
            skipped -= skip;
            let bytes = bytes.split_off(skip as usize);
            let received = self.received + bytes.len() as u64;
            if received > self.blob.size {
                return Err(self.wrong_size(received));
            }
            self.received = received;
            if !bytes.is_empty() && self.chunks.send(bytes).await.is_err() {
                let why = "the file cannot be written".to_owned();
                return Err(RegistryError::Strange { host: self.host.clone(), status: 200, message: why });
            }
            (self.progress)(self.blob, self.received);
        }
        if self.received == self.blob.size { Ok(()) } else { Err(self.wrong_size(self.received)) }
    }

    fn starts_where_asked(&self, reply: &Reply) -> bool {
        let start = reply.header("content-range").and_then(|range| range.strip_prefix("bytes "));
        let start = start.and_then(|range| range.split_once('-')).map(|(start, _)| start.trim().parse());
        start == Some(Ok(self.received))
    }

    fn wrong_size(&self, received: u64) -> RegistryError {
        RegistryError::WrongSize {
            host: self.host.clone(),
            what: self.blob.digest.to_string(),
            received,
            expected: self.blob.size,
        }
    }
}

/// Runs on its own thread, so that hashing and the disk do not hold up the network.
fn write_and_hash(mut file: File, mut chunks: mpsc::Receiver<Bytes>) -> std::io::Result<Digest> {
    let mut hasher = Sha256::new();
    while let Some(bytes) = chunks.blocking_recv() {
        file.write_all(&bytes)?;
        hasher.update(&bytes);
    }
    Ok(Digest::finish(hasher))
}

/// Removes the file unless the download finishes.
struct Unfinished<'a> {
    path: Option<&'a Path>,
}

impl Unfinished<'_> {
    fn finish(mut self) {
        self.path = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}
