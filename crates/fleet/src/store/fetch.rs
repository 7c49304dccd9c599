//! Reading files from other nodes or from the store.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::blobs::{Blobs, Kind};
use super::chunks::write_chunk;
use super::error::StoreError;
use super::manifest::{Chunk, StoredFile};
use super::packs::PackKey;
use crate::digest::Digest;

/// Chunks that are under way at the same time. Each takes up to three times its size of memory.
const AT_ONCE: usize = 8;

/// Other nodes that may have a snapshot's files.
pub trait PeerChunks: Sync {
    /// The bytes of a part of a file, which may be wrong. `None` if no other node has them.
    fn chunk<'a>(&'a self, file: &'a str, chunk: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>>;
}

/// A file and where it is written.
#[derive(Debug, Clone)]
pub struct FetchFile<'a> {
    pub file: &'a StoredFile,
    pub to: PathBuf,
}

/// A file that is being written.
struct Target {
    file: Arc<File>,
    path: PathBuf,
    key: Arc<PackKey>,
}

impl Blobs {
    /// Writes files, which must not exist yet. Each part comes from another node if one has it, or else from the store. A
    /// part that is not what the manifest says is never written.
    pub async fn fetch(&self, files: &[FetchFile<'_>], peers: &impl PeerChunks) -> Result<(), StoreError> {
        let mut parts = Vec::new();
        for FetchFile { file, to } in files {
            let opened = create(to, file.bytes).map_err(|source| StoreError::File { path: to.clone(), source })?;
            let key = Arc::new(self.key(&file.scope));
            let target = Arc::new(Target { file: Arc::new(opened), path: to.clone(), key });
            parts.extend(file.chunks.iter().map(|chunk| (target.clone(), file.name.clone(), chunk.clone())));
        }
        let writing = stream::iter(parts).map(|(target, name, chunk)| async move {
            let bytes = match peers.chunk(&name, &chunk).await.filter(|bytes| is_right(bytes, &chunk)) {
                Some(bytes) => bytes,
                None => self.chunk(&target, &chunk).await?,
            };
            let (file, path, at) = (target.file.clone(), target.path.clone(), chunk.at);
            let written = tokio::task::spawn_blocking(move || write_chunk(&file, at, &bytes)).await;
            let written = written.map_err(io::Error::other).and_then(|written| written);
            written.map_err(|source| StoreError::File { path, source })
        });
        writing.buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    /// A part from the store.
    async fn chunk(&self, target: &Target, chunk: &Chunk) -> Result<Vec<u8>, StoreError> {
        let pack = self.get(Kind::Pack, &chunk.pack).await?;
        let (key, most) = (target.key.clone(), chunk.bytes as usize);
        let unpacked = tokio::task::spawn_blocking(move || key.unpack(&pack, most)).await;
        let unpacked = unpacked.unwrap_or(Err("the work was cut off"));
        let unpacked = unpacked.and_then(|bytes| match is_right(&bytes, chunk) {
            true => Ok(bytes),
            false => Err("its content is not what the snapshot's manifest says"),
        });
        let what = format!("pack {}", chunk.pack);
        unpacked.map_err(|why| StoreError::Damaged { store: self.shown().to_owned(), what, why })
    }
}

fn is_right(bytes: &[u8], chunk: &Chunk) -> bool {
    bytes.len() == chunk.bytes as usize && Digest::of(bytes) == chunk.digest
}

fn create(path: &Path, length: u64) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_len(length)?;
    Ok(file)
}
