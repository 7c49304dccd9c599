//! The manifests of snapshots in a fleet's store.

use sandling_fleet::store::{CHUNK, StoredSnapshot};

pub fn run(data: &[u8]) {
    let Ok(manifest) = StoredSnapshot::decode(data) else { return };
    for file in &manifest.files {
        for chunk in &file.chunks {
            assert!(chunk.at + u64::from(chunk.bytes) <= file.bytes && chunk.bytes as usize <= CHUNK);
        }
    }
    let again = StoredSnapshot::decode(&manifest.encode()).expect("a manifest that was read can be read again");
    assert_eq!(again, manifest);
}
