//! A store on a faulty server, and what is put there.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::json;
use tempfile::TempDir;

use super::super::{
    Blobs, Chunk, Digest, FetchFile, MadeOn, OfTemplate, PackedFiles, PeerChunks, Scope, StoreError, StoredFile,
    StoredSnapshot, UploadFile,
};
use super::faulty::Faulty;
use crate::clock::BootClock;
use crate::ledger::ModelLedger;
use crate::membership::Membership;
use crate::membership::tests::{member, register};
use crate::shared::SharedRecords;

pub(super) struct NoPeers;

impl PeerChunks for NoPeers {
    fn chunk<'a>(&'a self, _: &'a str, _: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { None })
    }
}

pub(super) struct World {
    pub(super) store: Arc<Faulty>,
    pub(super) blobs: Blobs,
    pub(super) dir: TempDir,
    pub(super) packed: PackedFiles,
}

impl World {
    pub(super) fn new() -> Self {
        let store = Faulty::new();
        let dir = TempDir::new().unwrap();
        let packed = PackedFiles::new(dir.path().join("packed"));
        Self { blobs: Blobs::new(store.clone(), "s3://test", b"secret"), store, dir, packed }
    }

    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> UploadFile {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let content = Some(Digest::of(bytes).to_string());
        UploadFile { name: name.to_owned(), scope: Scope::Workspace("team".to_owned()), path, content }
    }

    pub(super) async fn fetch(&self, file: &StoredFile, peers: &impl PeerChunks) -> (PathBuf, Result<(), StoreError>) {
        let to = self.dir.path().join(format!("fetched-{}", fastrand::u64(..)));
        let fetched = self.blobs.fetch(&[FetchFile { file, to: to.clone() }], peers).await;
        (to, fetched)
    }
}

/// Bytes that cannot be compressed.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    noise
}

pub(super) fn manifest(files: Vec<StoredFile>) -> StoredSnapshot {
    let template = OfTemplate { name: "base".to_owned(), image: "1".repeat(64), bake: "key".to_owned() };
    let [accelerator, cpu_model, emulator] = ["tcg", "max", "QEMU"].map(str::to_owned);
    let made_on = MadeOn { accelerator, cpu_model, device_model: 1, emulator };
    StoredSnapshot::new(["1".to_owned(), "team".to_owned()], template, made_on, json!({}), files)
}

pub(super) fn fleet() -> (ModelLedger, SharedRecords) {
    (ModelLedger::default(), SharedRecords::new(b"secret"))
}

pub(super) async fn joined<'a>(name: &str, ledger: &'a ModelLedger) -> Membership<&'a ModelLedger, BootClock> {
    let node = member(name, ledger);
    register(&node).await;
    node
}
