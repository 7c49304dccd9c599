//! Which bytes are stored, and that they come back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use tempfile::TempDir;

use super::super::{
    Blobs, CHUNK, Chunk, FetchFile, PackedFiles, PeerChunks, Scope, StoreError, StoreLocation, UploadFile,
};
use super::world::{NoPeers, World, noise};

/// A node that answers everything with the same bytes.
struct Peer(Vec<u8>);

impl PeerChunks for Peer {
    fn chunk<'a>(&'a self, _: &'a str, _: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { Some(self.0.clone()) })
    }
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
