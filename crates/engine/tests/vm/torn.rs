//! Files of snapshots that are torn, and exports that were changed: refused, and the rest goes on.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandling_engine::{
    ChangeError, CreateError, CreateSpec, EndReason, ImportError, RestoreError, SnapshotId, SnapshotSpec,
};

use crate::harness::{TestEngine, engine, shell, spec};

fn file(engine: &TestEngine, snapshot: &SnapshotId, name: &str) -> PathBuf {
    engine.home.path().join("snapshots").join(snapshot.as_str()).join(name)
}

/// Does something to a file that must never change, and undoes it when it is dropped.
struct Tampered {
    path: PathBuf,
    whole: Vec<u8>,
}

impl Tampered {
    fn with(path: PathBuf, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let whole = fs::read(&path).unwrap();
        let mut torn = whole.clone();
        change(&mut torn);
        overwrite(&path, &torn);
        Self { path, whole }
    }

    fn torn(path: PathBuf) -> Self {
        Self::with(path, |bytes| bytes.truncate(bytes.len() / 2))
    }

    fn flipped(path: PathBuf) -> Self {
        Self::with(path, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        })
    }
}

impl Drop for Tampered {
    fn drop(&mut self) {
        overwrite(&self.path, &self.whole);
    }
}

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    OpenOptions::new().write(true).truncate(true).open(path).unwrap().write_all(bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o444)).unwrap();
}

#[tokio::test]
async fn a_snapshot_with_a_torn_layer_is_refused_however_deep_that_is() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let mut saved = Vec::new();
    for number in 0..3 {
        shell(&sandbox, &format!("echo {number} >> /root/file; sync")).await;
        saved.push(engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap().0);
    }
    let last = &saved[2];
    let from_last = || CreateSpec { from_snapshot: Some(last.id.clone()), ..spec("base") };
    for layer in &saved {
        for (name, what) in [("pages", "pages"), ("disk.qcow2", "disk")] {
            let tampered = Tampered::torn(file(&engine, &layer.id, name));
            let refused = engine.engine.create(from_last()).await.err();
            let named = |error: &CreateError| matches!(error, CreateError::Restore(RestoreError::Damaged(part)) if *part == what);
            assert!(refused.as_ref().is_some_and(named), "{name} of {}: {refused:?}", layer.id);
            drop(tampered);
            // What cannot be told from its size is told when all of it is read anyway.
            let _tampered = Tampered::flipped(file(&engine, &layer.id, name));
            let exported = engine.engine.snapshots().export(last, &mut Vec::new());
            assert!(exported.is_err(), "{name} of {} is carried away", layer.id);
        }
    }
    let begun = engine.engine.create(from_last()).await.unwrap();
    assert_eq!(shell(&begun, "cat /root/file").await.stdout, "0\n1\n2\n");
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "0\n1\n2\n");
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_whose_image_is_torn_sleeps_on_until_it_is_whole() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    shell(&sandbox, "echo one > /root/file").await;
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    shell(&sandbox, "echo two >> /root/file").await;
    sandbox.hibernate().await.unwrap();
    let standing = sandbox.info().standing;
    let mut layers = standing.disk.clone();
    layers.extend(standing.restored.clone());
    for layer in layers {
        for name in ["pages", "disk.qcow2", "map", "state"] {
            // Of the image before, only the layers are still needed.
            if Some(&layer) != standing.restored.as_ref() && matches!(name, "map" | "state") {
                continue;
            }
            let _tampered = Tampered::torn(file(&engine, &layer, name));
            let refused = sandbox.wake().await;
            assert!(matches!(refused, Err(ChangeError::Wake(CreateError::Restore(_)))), "{name}: {refused:?}");
            assert!(sandbox.hibernates());
        }
    }
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "one\ntwo\n");
    sandbox.end(EndReason::Requested).await.unwrap();
    engine.close().await;
}

const MAGIC: &[u8] = b"sandling-snapshot 1\n";

/// An export whose manifest says something else.
fn altered(exported: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut plain = Vec::new();
    zstd::Decoder::new(&exported[MAGIC.len()..]).unwrap().read_to_end(&mut plain).unwrap();
    let length = u32::from_le_bytes(plain[..4].try_into().unwrap()) as usize;
    let mut manifest: serde_json::Value = serde_json::from_slice(&plain[4..4 + length]).unwrap();
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    let mut out = MAGIC.to_vec();
    let mut stream = zstd::Encoder::new(&mut out, 1).unwrap();
    stream.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
    stream.write_all(&text).unwrap();
    stream.write_all(&plain[4 + length..]).unwrap();
    stream.finish().unwrap();
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_from_another_machine_or_of_another_snapshot_is_refused() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    let (snapshot, _) = engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
    sandbox.end(EndReason::Requested).await.unwrap();
    let mut exported = Vec::new();
    engine.engine.snapshots().export(&snapshot, &mut exported).unwrap();
    let import = |bytes: Vec<u8>| {
        tokio::task::block_in_place(|| engine.engine.snapshots().import("default", None, bytes.as_slice()))
    };
    for (field, other, what) in [
        ("accelerator", serde_json::json!("kvm9"), "the accelerator"),
        ("cpu_model", serde_json::json!("another"), "the CPU model"),
        ("device_model", serde_json::json!(9999), "the device model"),
        ("emulator", serde_json::json!("QEMU 99"), "the emulator"),
    ] {
        let refused = import(altered(&exported, |manifest| manifest["made_on"][field] = other));
        assert!(matches!(&refused, Err(ImportError::OtherHost { what: told, .. }) if *told == what), "{refused:?}");
    }
    let refused = import(altered(&exported, |manifest| manifest["snapshot"]["bake"] = "0".repeat(64).into()));
    assert!(matches!(refused, Err(ImportError::OtherVersion)), "{refused:?}");
    let refused = import(altered(&exported, |manifest| manifest["snapshot"]["labels"]["a"] = "b".into()));
    assert!(matches!(refused, Err(ImportError::Damaged(_))), "{refused:?}");
    assert_eq!(engine.engine.snapshots().list("default").unwrap().len(), 1);
    import(exported).unwrap();
    engine.close().await;
}
