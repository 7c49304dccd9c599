//! The store with a server that fails, is slow and lies.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Barrier, Semaphore};

use super::*;
use crate::clock::BootClock;
use crate::ledger::{Ledger, ModelLedger};
use crate::membership::Membership;
use crate::membership::tests::{member, register};
use crate::shared::SharedRecords;

/// What is wrong with the packs that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    Fails,
    NeverAnswers,
    Truncates,
    Corrupts,
    Swells,
    /// Answers with another pack.
    Swaps,
    /// Sends one byte in each of so many seconds.
    Trickles(u64),
}

struct Faulty {
    objects: InMemory,
    fault: Mutex<Fault>,
    puts: AtomicUsize,
    gets: AtomicUsize,
    /// How far the store's clock is behind that of the nodes.
    behind: Mutex<Duration>,
    /// How much longer ago than it says an object was written.
    aged: Mutex<HashMap<ObjectPath, Duration>>,
    /// Two that look for the same object at once both learn that there is none.
    meet: Mutex<Option<Arc<Barrier>>>,
    /// Whether it knows how to write an object only if there is none.
    creates: AtomicBool,
    /// Each deletion takes one of these.
    deletions: Arc<Semaphore>,
}

impl Faulty {
    fn new() -> Arc<Self> {
        let (puts, gets, behind, aged, meet) = Default::default();
        let deletions = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let fault = Mutex::new(Fault::Nothing);
        let (objects, creates) = (InMemory::new(), AtomicBool::new(true));
        Arc::new(Self { objects, fault, puts, gets, behind, aged, meet, creates, deletions })
    }

    /// Makes all objects that there are older.
    async fn age_all(&self, by: Duration) {
        let all: Vec<_> = self.objects.list(None).collect().await;
        self.aged.lock().unwrap().extend(all.into_iter().map(|found| (found.unwrap().location, by)));
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified -= *self.behind.lock().unwrap();
        meta.last_modified -= self.aged.lock().unwrap().get(&meta.location).copied().unwrap_or_default();
        meta
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    async fn wait(&self) -> Result<Fault> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Fault::NeverAnswers => std::future::pending().await,
            Fault::Fails => Err(object_store::Error::Generic { store: "faulty", source: "500".into() }),
            _ => Ok(fault),
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &ObjectPath, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.wait().await?;
        self.puts.fetch_add(usize::from(at.as_ref() != "clock"), Ordering::SeqCst);
        if options.mode == PutMode::Create && !self.creates.load(Ordering::SeqCst) {
            let (operation, implementer) = ("create".to_owned(), "faulty".to_owned());
            return Err(object_store::Error::NotImplemented { operation, implementer });
        }
        let put = self.objects.put_opts(at, payload, options).await?;
        self.aged.lock().unwrap().remove(at);
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        at: &ObjectPath,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        let fault = self.wait().await?;
        let is_head = options.head;
        let found = self.objects.get_opts(at, options).await;
        let meet = self.meet.lock().unwrap().clone();
        let is_missing = found.is_err();
        if let Some(meet) = meet.filter(|_| is_missing) {
            meet.wait().await;
        }
        let mut found = found?;
        found.meta = self.dated(found.meta);
        if is_head || !at.as_ref().starts_with("packs") {
            return Ok(found);
        }
        self.gets.fetch_add(1, Ordering::SeqCst);
        let meta = found.meta.clone();
        let range = found.range.clone();
        let attributes = found.attributes.clone();
        let mut bytes = found.bytes().await?.to_vec();
        match fault {
            Fault::Truncates => bytes.truncate(bytes.len() / 2),
            Fault::Corrupts => bytes[40] ^= 1,
            Fault::Swells => bytes.resize(CHUNK * 2, 0),
            Fault::Swaps => bytes = b"another pack".to_vec(),
            _ => {}
        }
        let parts = match fault {
            Fault::Trickles(_) => bytes.chunks(1).map(Bytes::copy_from_slice).collect(),
            _ => vec![Bytes::from(bytes)],
        };
        let slowly = futures_util::stream::iter(parts).then(move |part| async move {
            if let Fault::Trickles(seconds) = fault {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            Ok(part)
        });
        let payload = GetResultPayload::Stream(slowly.boxed());
        found = GetResult { payload, meta, range, attributes, extensions: Default::default() };
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        let deletions = self.deletions.clone();
        let held = locations.then(move |at| {
            let deletions = deletions.clone();
            async move {
                deletions.acquire().await.unwrap().forget();
                at
            }
        });
        self.objects.delete_stream(held.boxed())
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed: Vec<_> = futures_util::FutureExt::now_or_never(self.objects.list(prefix).collect()).unwrap();
        let dated: Vec<_> = listed.into_iter().map(|found: Result<_>| found.map(|meta| self.dated(meta))).collect();
        futures_util::stream::iter(dated).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

struct NoPeers;

impl PeerChunks for NoPeers {
    fn chunk<'a>(&'a self, _: &'a str, _: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { None })
    }
}

/// A node that answers everything with the same bytes.
struct Peer(Vec<u8>);

impl PeerChunks for Peer {
    fn chunk<'a>(&'a self, _: &'a str, _: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { Some(self.0.clone()) })
    }
}

struct World {
    store: Arc<Faulty>,
    blobs: Blobs,
    dir: TempDir,
    packed: PackedFiles,
}

impl World {
    fn new() -> Self {
        let store = Faulty::new();
        let dir = TempDir::new().unwrap();
        let packed = PackedFiles::new(dir.path().join("packed"));
        Self { blobs: Blobs::new(store.clone(), "s3://test", b"secret"), store, dir, packed }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> UploadFile {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let content = Some(Digest::of(bytes).to_string());
        UploadFile { name: name.to_owned(), scope: Scope::Workspace("team".to_owned()), path, content }
    }

    async fn fetch(
        &self,
        file: &StoredFile,
        peers: &impl PeerChunks,
    ) -> (PathBuf, std::result::Result<(), StoreError>) {
        let to = self.dir.path().join(format!("fetched-{}", fastrand::u64(..)));
        let fetched = self.blobs.fetch(&[FetchFile { file, to: to.clone() }], peers).await;
        (to, fetched)
    }
}

/// Bytes that cannot be compressed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    fastrand::Rng::with_seed(7).fill(&mut noise);
    noise
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_and_is_stored_once() {
    let world = World::new();
    let mut bytes = noise(CHUNK + 100_000);
    bytes.extend(vec![0; 2 * CHUNK]);
    bytes.extend(b"the end");
    let file = world.file("pages", &bytes);
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(stored.chunks.len(), 3, "zeros take no space");
    let (fetched, done) = world.fetch(&stored, &NoPeers).await;
    done.unwrap();
    assert!(same(&fetched, &file.path));

    let puts = world.store.puts.load(Ordering::SeqCst);
    let again =
        world.blobs.upload(&UploadFile { name: "again".to_owned(), ..file.clone() }, &world.packed).await.unwrap();
    let unknown = PackedFiles::new(world.dir.path().join("nothing"));
    let anew = world.blobs.upload(&file, &unknown).await.unwrap();
    assert_eq!((&again.chunks, &anew.chunks), (&stored.chunks, &stored.chunks));
    assert_eq!(world.store.puts.load(Ordering::SeqCst), puts, "the store had everything");
    let other = UploadFile { scope: Scope::Workspace("other".to_owned()), ..file };
    world.blobs.upload(&other, &world.packed).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::SeqCst), 2 * puts, "workspaces share nothing");
}

#[tokio::test]
async fn a_pack_that_the_store_has_lost_is_sent_again() {
    let world = World::new();
    let file = world.file("pages", b"some pages");
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    let lost: Vec<_> = world.store.list(Some(&ObjectPath::from("packs"))).collect().await;
    for object in lost {
        world.blobs.delete(&object.unwrap().location).await.unwrap();
    }
    let (_, missing) = world.fetch(&stored, &NoPeers).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })));
    world.blobs.upload(&file, &world.packed).await.unwrap();
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn what_a_hostile_store_answers_is_never_written() {
    let world = World::new();
    let file = world.file("pages", &noise(50_000));
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    for (fault, why) in [
        (Fault::Truncates, "not those that its name says"),
        (Fault::Corrupts, "not those that its name says"),
        (Fault::Swaps, "not those that its name says"),
        (Fault::Swells, "larger than it can be"),
        (Fault::Fails, "does not answer, or refuses"),
    ] {
        world.store.set(fault);
        let (to, fetched) = world.fetch(&stored, &NoPeers).await;
        let error = fetched.unwrap_err().to_string();
        assert!(error.contains(why), "{fault:?}: {error}");
        assert!(fs::read(&to).unwrap().iter().all(|byte| *byte == 0), "{fault:?}");
    }
    world.store.set(Fault::Nothing);
    // A pack that is genuine and belongs elsewhere.
    let mut mixed = stored.clone();
    mixed.chunks[0].digest = Digest::of(b"other bytes");
    let error = world.fetch(&mixed, &NoPeers).await.1.unwrap_err().to_string();
    assert!(error.contains("not what the snapshot's manifest says"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_given_up() {
    let world = World::new();
    let file = world.file("pages", b"some pages");
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    world.store.set(Fault::NeverAnswers);
    assert!(matches!(world.fetch(&stored, &NoPeers).await.1, Err(StoreError::TimedOut { .. })));
    assert!(matches!(world.blobs.check().await, Err(StoreError::TimedOut { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_pack_may_come_slowly_as_long_as_it_comes() {
    let world = World::new();
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    world.store.set(Fault::Trickles(10));
    world.fetch(&stored, &NoPeers).await.1.unwrap();
    for too_slow in [100, 130] {
        world.store.set(Fault::Trickles(too_slow));
        assert!(matches!(world.fetch(&stored, &NoPeers).await.1, Err(StoreError::TimedOut { .. })), "{too_slow}");
    }
}

#[tokio::test]
async fn peers_are_asked_first_and_not_trusted() {
    let world = World::new();
    let bytes = noise(50_000);
    let stored = world.blobs.upload(&world.file("pages", &bytes), &world.packed).await.unwrap();
    world.fetch(&stored, &Peer(bytes.clone())).await.1.unwrap();
    assert_eq!(world.store.gets.load(Ordering::SeqCst), 0);
    for wrong in [noise(40_000), vec![1; 50_000], Vec::new()] {
        let (fetched, done) = world.fetch(&stored, &Peer(wrong)).await;
        done.unwrap();
        assert!(fs::read(fetched).unwrap() == bytes, "the store's bytes");
    }
    assert_eq!(world.store.gets.load(Ordering::SeqCst), 3);
}

fn manifest(files: Vec<StoredFile>) -> StoredSnapshot {
    let template = OfTemplate { name: "base".to_owned(), image: "1".repeat(64), bake: "key".to_owned() };
    let [accelerator, cpu_model, emulator] = ["tcg", "max", "QEMU"].map(str::to_owned);
    let made_on = MadeOn { accelerator, cpu_model, device_model: 1, emulator };
    StoredSnapshot::new(["1".to_owned(), "team".to_owned()], template, made_on, json!({}), files)
}

#[tokio::test]
async fn a_manifest_is_read_only_by_its_fleet_and_for_its_workspace() {
    let world = World::new();
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    let written = manifest(vec![stored]);
    let name = world.blobs.put_manifest(&written).await.unwrap();
    assert_eq!(world.blobs.manifest("team", &name).await.unwrap(), written);
    assert!(matches!(world.blobs.manifest("other", &name).await, Err(StoreError::Damaged { .. })));
    let other_fleet = Blobs::new(world.store.clone(), "s3://test", b"other");
    assert!(matches!(other_fleet.manifest("team", &name).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn a_store_has_one_fleet() {
    let world = World::new();
    world.blobs.check().await.unwrap();
    world.blobs.check().await.unwrap();
    let other_fleet = Blobs::new(world.store.clone(), "s3://test", b"other");
    let error = other_fleet.check().await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)) && error.to_string().contains("prefix"), "{error}");
    let stored = world.blobs.upload(&world.file("pages", b"some pages"), &world.packed).await.unwrap();
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let swept = sweep(&other_fleet, Duration::ZERO, &SnapshotRecords { membership: &node, shared: &shared }).await;
    assert!(matches!(swept, Err(SweepError::Store(StoreError::Foreign(_)))));
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn two_fleets_that_start_at_once_do_not_both_get_a_store() {
    let store = Faulty::new();
    *store.meet.lock().unwrap() = Some(Arc::new(Barrier::new(2)));
    let [one, other] = [b"one", b"two"].map(|secret| Blobs::new(store.clone(), "s3://test", secret));
    let (first, second) = tokio::join!(one.check(), other.check());
    *store.meet.lock().unwrap() = None;
    let (owner, refused) = if first.is_ok() { (&one, second) } else { (&other, first) };
    assert!(matches!(refused, Err(StoreError::Foreign(_))), "{refused:?}");
    owner.check().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_create_only_what_is_absent_is_a_store_nevertheless() {
    let store = Faulty::new();
    store.creates.store(false, Ordering::SeqCst);
    let [one, other] = [b"one", b"two"].map(|secret| Blobs::new(store.clone(), "s3://test", secret));
    one.check().await.unwrap();
    assert!(matches!(other.check().await, Err(StoreError::Foreign(_))));
}

fn fleet() -> (ModelLedger, SharedRecords) {
    (ModelLedger::default(), SharedRecords::new(b"secret"))
}

async fn joined<'a>(name: &str, ledger: &'a ModelLedger) -> Membership<&'a ModelLedger, BootClock> {
    let node = member(name, ledger);
    register(&node).await;
    node
}

fn record(manifest: Digest) -> SnapshotRecord {
    SnapshotRecord::new("a", manifest, String::new(), String::new())
}

#[tokio::test]
async fn a_sweep_removes_only_old_objects_that_no_snapshot_needs() {
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let records = SnapshotRecords { membership: &node, shared: &shared };
    let world = World::new();
    let kept = world.blobs.upload(&world.file("kept", b"kept pages"), &world.packed).await.unwrap();
    let kept = world.blobs.put_manifest(&manifest(vec![kept])).await.unwrap();
    let garbage = world.blobs.upload(&world.file("garbage", b"other pages"), &world.packed).await.unwrap();
    let deleted = world.blobs.put_manifest(&manifest(vec![garbage.clone()])).await.unwrap();
    assert!(records.put("team", "1", None, &record(kept)).await.unwrap());
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default(), "all are new");
    assert!(records.put("team", "2", None, &record(Digest::of(b"lost"))).await.unwrap());
    assert!(sweep(&world.blobs, Duration::ZERO, &records).await.is_err(), "a manifest that is missing");
    assert!(records.remove("team", "2", "a").await.unwrap());
    assert_eq!(sweep(&world.blobs, Duration::ZERO, &records).await.unwrap().objects, 2);
    assert!(world.blobs.manifest("team", &deleted).await.is_err());
    assert!(world.fetch(&garbage, &NoPeers).await.1.is_err());
    let manifest = world.blobs.manifest("team", &kept).await.unwrap();
    world.fetch(&manifest.files[0], &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn an_upload_that_a_sweep_overtakes_looks_for_its_packs_again() {
    let (ledger, shared) = fleet();
    let (uploader, sweeper) = (joined("a", &ledger).await, joined("b", &ledger).await);
    let [on_a, on_b] = [&uploader, &sweeper].map(|membership| SnapshotRecords { membership, shared: &shared });
    let world = World::new();
    let file = world.file("pages", b"some pages");
    world.blobs.upload(&file, &world.packed).await.unwrap();
    world.store.age_all(GRACE * 2).await;

    // The sweep has seen that the pack is garbage, and its deletion is on its way when the upload writes the pack again.
    world.store.deletions.forget_permits(Semaphore::MAX_PERMITS);
    let before = on_a.sweeps_before().await.unwrap();
    let sweeping = sweep(&world.blobs, GRACE, &on_b);
    let uploading = async {
        while ledger_is_quiet(&on_a).await {
            tokio::task::yield_now().await;
        }
        let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
        world.store.deletions.add_permits(1);
        stored
    };
    let (swept, stored) = tokio::join!(sweeping, uploading);
    assert_eq!(swept.unwrap().objects, 1);
    assert!(world.fetch(&stored, &NoPeers).await.1.is_err(), "the pack that was just written is lost");
    let name = world.blobs.put_manifest(&manifest(vec![stored])).await.unwrap();
    let overtaken = on_a.put_uploaded("team", "1", None, &record(name), before).await.unwrap();
    assert_eq!(overtaken, Uploaded::SweptMeanwhile);
    assert_eq!(on_a.get("team", "1").await.unwrap(), None);

    let before = on_a.sweeps_before().await.unwrap();
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    let done = on_a.put_uploaded("team", "1", None, &record(name), before).await.unwrap();
    assert_eq!(done, Uploaded::Durable);
    world.fetch(&stored, &NoPeers).await.1.unwrap();

    // Whatever is old, the sweep sees the record.
    world.store.age_all(GRACE * 2).await;
    assert_eq!(sweep(&world.blobs, GRACE, &on_b).await.unwrap(), Swept::default());
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

/// Whether no sweep removes anything now.
async fn ledger_is_quiet(records: &SnapshotRecords<'_, &ModelLedger, BootClock>) -> bool {
    futures_util::FutureExt::now_or_never(records.sweeps_before()).is_some()
}

#[tokio::test]
async fn the_mark_of_a_sweep_whose_node_died_goes_with_its_lease() {
    let (ledger, shared) = fleet();
    let (a, b) = (joined("a", &ledger).await, joined("b", &ledger).await);
    let [on_a, on_b] = [&a, &b].map(|membership| SnapshotRecords { membership, shared: &shared });
    on_b.begin_sweep().await.unwrap().unwrap();
    assert_eq!(on_a.begin_sweep().await.unwrap(), None, "one at a time");
    assert!(!ledger_is_quiet(&on_a).await);
    ledger.revoke(b.lease().unwrap()).await.unwrap();
    let before = on_a.sweeps_before().await.unwrap();
    assert!(on_a.begin_sweep().await.unwrap().is_some());
    let late = on_a.put_uploaded("team", "1", None, &record(Digest::of(b"manifest")), before).await.unwrap();
    assert_eq!(late, Uploaded::SweptMeanwhile);
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_sweeps_nothing_that_is_new() {
    let (ledger, shared) = fleet();
    let node = joined("a", &ledger).await;
    let records = SnapshotRecords { membership: &node, shared: &shared };
    let world = World::new();
    // The node's clock is two days ahead.
    *world.store.behind.lock().unwrap() = GRACE * 2;
    let file = world.file("pages", b"some pages");
    let stored = world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default());
    let puts = world.store.puts.load(Ordering::SeqCst);
    world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::SeqCst), puts, "the pack is new");
    world.store.age_all(GRACE * 2).await;
    world.blobs.upload(&file, &world.packed).await.unwrap();
    assert_eq!(world.store.puts.load(Ordering::SeqCst), puts + 1, "the pack was old");
    assert_eq!(sweep(&world.blobs, GRACE, &records).await.unwrap(), Swept::default());
    world.fetch(&stored, &NoPeers).await.1.unwrap();
}

#[tokio::test]
async fn a_shared_directory_is_a_store() {
    let (shared, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let location = StoreLocation::new(shared.path().to_str().unwrap(), None, None).unwrap();
    let blobs = Blobs::open(&location, b"secret").unwrap();
    blobs.check().await.unwrap();
    let path = dir.path().join("sparse");
    let sparse = File::create(&path).unwrap();
    sparse.set_len(3 * CHUNK as u64).unwrap();
    sparse.write_all_at(b"middle", CHUNK as u64 + 5).unwrap();
    let file = UploadFile { name: "sparse".to_owned(), scope: Scope::Templates, path, content: None };
    let stored = blobs.upload(&file, &PackedFiles::new(dir.path().join("packed"))).await.unwrap();
    assert_eq!(stored.chunks.len(), 1);
    let to = dir.path().join("fetched");
    blobs.fetch(&[FetchFile { file: &stored, to: to.clone() }], &NoPeers).await.unwrap();
    assert!(same(&to, &file.path));
}
