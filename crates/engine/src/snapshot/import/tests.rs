use std::time::Duration;

use sandling_wire::Home;
use serde_json::json;

use super::*;
use crate::parts::tests::parts;

const GOLDEN: &str = include_str!("../../../tests/golden/v1/export.json");
const PAGE: u64 = 4096;

fn refusal(export: &[u8]) -> Option<String> {
    let work = tempfile::tempdir().unwrap();
    read_export(&mut &*export, work.path()).err().map(|error| error.to_string())
}

/// A small export with one page of memory in a layer, and this map.
fn export(map: &[Extent]) -> Vec<u8> {
    let map = MemoryMap::default().under(map).encode();
    let (pages, disk, state) = (vec![1_u8; PAGE as usize], vec![2_u8; 512], vec![3_u8]);
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let mut manifest: Value = serde_json::from_str(GOLDEN).unwrap();
    let snapshot = &mut manifest["snapshot"];
    (snapshot["memory_mib"], snapshot["disk_mib"]) = (256.into(), 1.into());
    (snapshot["memory_bytes"], snapshot["disk_bytes"]) = (pages.len().into(), disk.len().into());
    snapshot["digests"] =
        json!({ "map": digest(&map), "state": digest(&state), "pages": digest(&pages), "disk": digest(&disk) });
    snapshot["sums"] = json!({
        "memory": [{ "bytes": pages.len(), "digest": digest(&pages) }],
        "disk": [{ "bytes": disk.len(), "digest": digest(&disk) }],
    });
    let files = [map, state, vec![4], pages, disk, Vec::new(), Vec::new(), Vec::new()];
    let sizes = files.iter().map(|file| file.len() as u64).take(5).chain([256 << 20, 512, 512]);
    for (entry, bytes) in manifest["files"].as_array_mut().unwrap().iter_mut().zip(sizes) {
        entry["bytes"] = bytes.into();
    }
    let text = manifest.to_string().into_bytes();
    let mut all = blake3::Hasher::new();
    all.update(&text);
    let mut export = [&(text.len() as u32).to_le_bytes()[..], &text].concat();
    for file in &files {
        let mut part = Vec::new();
        if !file.is_empty() {
            part = [&[0; 8][..], &(file.len() as u32).to_le_bytes(), file].concat();
        }
        part.extend([0; 12]);
        let digest = blake3::hash(&part);
        all.update(digest.as_bytes());
        export.extend(part);
        export.extend(digest.as_bytes());
    }
    export.extend(all.finalize().as_bytes());
    export
}

#[test]
fn a_whole_export_is_read() {
    assert_eq!(refusal(&export(&[Extent { guest: PAGE, bytes: PAGE, layer: 0, at: 0 }])), None);
    assert_eq!(refusal(&export(&[])), None);
}

#[test]
fn a_map_that_names_other_memory_is_refused() {
    let right = Extent { guest: 0, bytes: PAGE, layer: 0, at: 0 };
    for wrong in [
        Extent { layer: 1, ..right },
        Extent { layer: u64::MAX, ..right },
        Extent { at: PAGE, ..right },
        Extent { bytes: 2 * PAGE, ..right },
        Extent { guest: 256 << 20, ..right },
    ] {
        let refusal = refusal(&export(&[wrong])).unwrap();
        assert!(refusal.contains("map of memory does not fit"), "{wrong:?}: {refusal}");
    }
}

#[test]
fn a_manifest_that_is_no_object_is_refused() {
    for text in ["[]", "7", "null", "\"\"", "{}", "{\"snapshot\":[]}"] {
        let export = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        assert!(refusal(&export).unwrap().contains("manifest cannot be read"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_waits_for_a_sweep_that_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let snapshots = parts(&Home::new(dir.path().to_owned())).snapshots.clone();
    let manifest = parse_manifest(serde_json::from_str(GOLDEN).unwrap()).unwrap();
    let work = WorkDir::create(&snapshots.dir).unwrap();
    for number in 0..manifest.files.len() {
        fs::write(work.path().join(number.to_string()), number.to_string()).unwrap();
    }
    let sweeping = snapshots.sweeping.lock().await;
    let importer = snapshots.clone();
    let mut importing = tokio::task::spawn_blocking(move || {
        let import = Import { manifest: &manifest, work: work.path() };
        import.settle(&importer, Settling::new(SnapshotId::fresh(), "default", None, None))
    });
    let early = tokio::time::timeout(Duration::from_secs(1), &mut importing).await;
    assert!(early.is_err(), "the sweep may be about to remove a layer that the import has found here");
    drop(sweeping);
    let imported = importing.await.unwrap().unwrap();
    assert!(snapshots.find("default", &imported.id).unwrap().is_some());
}
