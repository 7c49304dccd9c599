//! Directories as one tar stream. The guest's tar packs and unpacks it, so thousands of files take one request.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::mpsc;

use super::local::{self, NewFile};
use super::progress::Progress;
use super::remote::Remote;
use crate::client::ClientError;
use crate::outcome::Failure;

const CHUNK_SIZE: usize = 256 * 1024;
/// Chunks between the thread that reads or writes files and the connection.
const QUEUED_CHUNKS: usize = 8;

/// An entry of an upload. Names are relative to the directory that it is unpacked into; the directory itself is `.`.
pub enum Upload {
    Directory { name: String, mode: u32 },
    File { name: String, mode: u32, source: PathBuf },
    Link { name: String, target: String },
}

/// Sends entries as a tar. Returns false if the sandbox has no tar, and nothing was copied.
pub async fn send(
    remote: &Remote<'_>,
    directory: &str,
    entries: Vec<Upload>,
    progress: &Progress,
) -> anyhow::Result<bool> {
    let (sender, mut chunks) = mpsc::channel(QUEUED_CHUNKS);
    let progress = progress.clone();
    let packing = tokio::task::spawn_blocking(move || {
        let mut out = ChunkWriter { sender, chunk: Vec::new() };
        let packed = pack(&mut out, entries, &progress);
        // The receiver gets the error as the end of the body, so that a part does not look like the whole.
        match packed.and_then(|()| Ok(out.flush()?)) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = out.sender.blocking_send(Err(io::Error::other("the archive is not complete")));
                Err(error)
            }
        }
    });
    let frames = futures_util::stream::poll_fn(move |context| chunks.poll_recv(context));
    let frames = frames.map(|chunk: io::Result<Bytes>| chunk.map(Frame::data));
    let sent = remote.write_archive(directory, StreamBody::new(frames).boxed_unsync()).await;
    let packed = packing.await.map_err(io::Error::other)?;
    match (sent, packed) {
        (Err(error), _) if error.is_unsupported() => Ok(false),
        // The server's answer says more than the broken pipe that it causes here.
        (Err(error @ ClientError::Refused { .. }), _) => Err(error).with_context(|| directory.to_owned()),
        (_, Err(error)) => Err(error),
        (Err(error), Ok(())) => Err(error).with_context(|| directory.to_owned()),
        (Ok(()), Ok(())) => Ok(true),
    }
}

fn pack(out: &mut ChunkWriter, entries: Vec<Upload>, progress: &Progress) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(out);
    let now = jiff::Timestamp::now().as_second().max(0).unsigned_abs();
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(now);
        match entry {
            Upload::Directory { name, mode } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(mode);
                header.set_size(0);
                archive.append_data(&mut header, format!("{name}/"), io::empty())?;
            }
            Upload::File { name, mode, source } => {
                progress.file(&name);
                let unreadable = |error| Failure::new(format!("cannot read {}", source.display()), error);
                let file = std::fs::File::open(&source).map_err(unreadable)?;
                let size = file.metadata().map_err(unreadable)?.len();
                header.set_mode(mode);
                header.set_size(size);
                // A file that grows meanwhile is cut, and one that shrinks fails below.
                let mut content = Counted { file: file.take(size), progress, read: 0 };
                archive.append_data(&mut header, &name, &mut content)?;
                if content.read != size {
                    anyhow::bail!("{} became shorter while it was copied; copy it again", source.display());
                }
            }
            Upload::Link { name, target } => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                archive.append_link(&mut header, &name, &target)?;
            }
        }
    }
    Ok(archive.finish()?)
}

/// A file whose bytes are counted.
struct Counted<'a> {
    file: io::Take<std::fs::File>,
    progress: &'a Progress,
    read: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress.add(count);
        self.read += count as u64;
        Ok(count)
    }
}

/// Collects small writes into chunks for the connection.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    chunk: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_SIZE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.sender.blocking_send(Ok(chunk.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Writes a directory of the sandbox below `target`. Returns false if the sandbox has no tar, and nothing was copied.
pub async fn receive(remote: &Remote<'_>, directory: &str, target: &Path, progress: &Progress) -> anyhow::Result<bool> {
    let body = match remote.read_archive(directory).await {
        Err(error) if error.is_unsupported() => return Ok(false),
        body => body.with_context(|| directory.to_owned())?,
    };
    let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
    let (target, shown) = (target.to_owned(), progress.clone());
    let unpacking =
        tokio::task::spawn_blocking(move || unpack(ChunkReader { chunks, rest: Bytes::new() }, &target, &shown));
    let forwarded = forward(body, sender).await;
    unpacking.await.map_err(io::Error::other)??;
    forwarded.with_context(|| directory.to_owned())?;
    Ok(true)
}

async fn forward(mut body: Incoming, sender: mpsc::Sender<Bytes>) -> Result<(), ClientError> {
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(ClientError::broken)?.into_data() else { continue };
        if sender.send(bytes).await.is_err() {
            // Unpacking has failed or is complete.
            break;
        }
    }
    Ok(())
}

/// Names and links are untrusted; `local` keeps them below the target.
fn unpack(source: ChunkReader, target: &Path, progress: &Progress) -> anyhow::Result<()> {
    let mut links = Vec::new();
    for entry in tar::Archive::new(source).entries().context("cannot read the archive")? {
        let mut entry = entry.context("the archive broke off")?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = name.trim_start_matches("./").trim_end_matches('/').to_owned();
        if name.is_empty() || name == "." {
            continue;
        }
        let (path, mode) = (local::below(target, &name)?, entry.header().mode().unwrap_or(0o644));
        progress.file(&name);
        match entry.header().entry_type() {
            tar::EntryType::Directory => local::directory(&path, mode)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mut file = NewFile::beside(&path)?;
                let mut buffer = vec![0; CHUNK_SIZE.min(usize::try_from(entry.size()).unwrap_or(CHUNK_SIZE).max(1))];
                loop {
                    let count = entry.read(&mut buffer).context("the archive broke off")?;
                    if count == 0 {
                        break;
                    }
                    progress.add(count);
                    file.write(&buffer[..count])?;
                }
                file.finish(mode)?;
            }
            tar::EntryType::Link => {
                // A hard link to a file earlier in the archive becomes a copy.
                let first = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
                let first = local::below(target, first.unwrap_or_default().trim_start_matches("./"))?;
                if std::fs::symlink_metadata(&first).is_ok_and(|there| there.is_file()) {
                    let mut file = NewFile::beside(&path)?;
                    file.write(&std::fs::read(&first).map_err(|error| local::unwritable(&path, error))?)?;
                    file.finish(mode)?;
                }
            }
            tar::EntryType::Symlink => {
                let points_to = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
                links.push((path, points_to.unwrap_or_default()));
            }
            _ => progress.note(&format!("skipped {name}: not a file, directory or symbolic link")),
        }
    }
    // Last, so that nothing is written through a link from the sandbox.
    for (path, points_to) in links {
        local::link(&path, &points_to)?;
    }
    Ok(())
}

/// Reads what the connection brings.
struct ChunkReader {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = chunk,
                None => return Ok(0),
            }
        }
        let taken = self.rest.split_to(self.rest.len().min(buffer.len()));
        buffer[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_packed_is_unpacked() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        std::fs::write(&source, vec![7; 600_000]).unwrap();
        let long = format!("deep/{}", "name".repeat(40));
        let entries = vec![
            Upload::Directory { name: ".".to_owned(), mode: 0o755 },
            Upload::Directory { name: "deep".to_owned(), mode: 0o755 },
            Upload::File { name: long.clone(), mode: 0o755, source },
            Upload::Link { name: "link".to_owned(), target: "deep".to_owned() },
        ];
        let (sender, mut chunks) = mpsc::channel(1000);
        let progress = Progress::new(None);
        let packing = progress.clone();
        tokio::task::spawn_blocking(move || {
            let mut out = ChunkWriter { sender, chunk: Vec::new() };
            pack(&mut out, entries, &packing).unwrap();
            out.flush().unwrap();
        })
        .await
        .unwrap();
        let (sender, received) = mpsc::channel(1000);
        while let Some(chunk) = chunks.recv().await {
            sender.send(chunk.unwrap()).await.unwrap();
        }
        drop(sender);
        let target = directory.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let into = target.clone();
        let reader = ChunkReader { chunks: received, rest: Bytes::new() };
        tokio::task::spawn_blocking(move || unpack(reader, &into, &progress)).await.unwrap().unwrap();
        assert_eq!(std::fs::read(target.join(&long)).unwrap(), vec![7; 600_000]);
        assert_eq!(std::fs::read_link(target.join("link")).unwrap(), Path::new("deep"));
    }
}
