//! Writing files to the store.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;

use super::blobs::{Blobs, Kind};
use super::chunks::{chunks_with_data, read_chunk};
use super::clock::StoreTime;
use super::error::StoreError;
use super::manifest::{Chunk, Scope, StoredFile};
use super::packed_files::PackedFiles;
use super::packs::PackKey;
use super::sweep::GRACE;
use crate::digest::Digest;

/// Chunks that are compressed and sent at the same time. Uploads run behind the work of sandboxes.
const AT_ONCE: usize = 3;

/// A file of a snapshot on its way to the store.
#[derive(Debug, Clone)]
pub struct UploadFile {
    pub name: String,
    pub scope: Scope,
    pub path: PathBuf,
    /// Names the file's bytes, if that is known without reading them.
    pub content: Option<String>,
}

impl Blobs {
    /// Stores a file. What the store has already is not sent again.
    pub async fn upload(&self, file: &UploadFile, packed: &PackedFiles) -> Result<StoredFile, StoreError> {
        let known = file.content.as_ref().and_then(|content| packed.get(&file.scope, content));
        if let Some(known) = known
            && self.has_all(&known.chunks).await?
        {
            return Ok(StoredFile { name: file.name.clone(), ..known });
        }
        let failed = |source: io::Error| StoreError::File { path: file.path.clone(), source };
        let opened = Arc::new(File::open(&file.path).map_err(failed)?);
        let bytes = opened.metadata().map_err(failed)?.len();
        let offsets = chunks_with_data(&opened).map_err(failed)?;
        let key = Arc::new(self.key(&file.scope));
        let sending = stream::iter(offsets).map(|at| {
            let (opened, key) = (opened.clone(), key.clone());
            async move { self.send(opened, &file.path, key, bytes, at).await }
        });
        let chunks: Vec<Option<Chunk>> = sending.buffered(AT_ONCE).try_collect().await?;
        let chunks = chunks.into_iter().flatten().collect();
        let stored = StoredFile { name: file.name.clone(), scope: file.scope.clone(), bytes, chunks };
        if let Some(content) = &file.content {
            packed.put(content, &stored);
        }
        Ok(stored)
    }

    /// Nothing for a chunk of zeros.
    async fn send(
        &self,
        file: Arc<File>,
        path: &std::path::Path,
        key: Arc<PackKey>,
        length: u64,
        at: u64,
    ) -> Result<Option<Chunk>, StoreError> {
        let packing = tokio::task::spawn_blocking(move || {
            let bytes = read_chunk(&file, length, at)?;
            if bytes.iter().all(|byte| *byte == 0) {
                return Ok::<_, io::Error>(None);
            }
            let pack = key.pack(&bytes).ok_or_else(|| io::Error::other("it cannot be compressed"))?;
            Ok(Some((Digest::of(&bytes), bytes.len() as u32, pack)))
        });
        let packed = packing.await.map_err(io::Error::other).and_then(|packed| packed);
        let packed = packed.map_err(|source| StoreError::File { path: path.to_owned(), source })?;
        let Some((digest, bytes, pack)) = packed else { return Ok(None) };
        let chunk = Chunk { at, bytes, digest, pack: pack.name };
        let found = self.head(Kind::Pack, &pack.name).await?;
        let now = self.time().await?;
        if !found.is_some_and(|found| found.size == pack.bytes.len() as u64 && is_fresh(&found, now)) {
            self.put(Kind::Pack, pack).await?;
        }
        Ok(Some(chunk))
    }

    /// Whether the store has all packs of a file, and none is old.
    async fn has_all(&self, chunks: &[Chunk]) -> Result<bool, StoreError> {
        let packs: Vec<_> = chunks.iter().map(|chunk| chunk.pack).collect();
        let heads = stream::iter(packs).map(|pack| async move { self.head(Kind::Pack, &pack).await });
        let heads = heads.buffer_unordered(AT_ONCE);
        let now = self.time().await?;
        let is_here = |found: Option<ObjectMeta>| found.is_some_and(|found| is_fresh(&found, now));
        heads.try_fold(true, |all, found| async move { Ok(all && is_here(found)) }).await
    }
}

/// An old pack may be garbage that the next sweep removes. It is written again, so that the upload does not have to look for
/// it again after the sweep.
fn is_fresh(found: &ObjectMeta, now: StoreTime) -> bool {
    now.age(found) < GRACE / 2
}
