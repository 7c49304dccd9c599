//! Operations on a running machine's disk, from inside the jail.

use std::time::Duration;

use sandling_vmm::machine::{Machine, Start};
use serde_json::json;

use crate::fixture::*;

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_larger_disk_is_seen_by_the_guest() {
    let (machine, mut guest) = running("resize").await;
    assert_eq!(guest.ask("sectors").await, (DISK_BYTES / 512).to_string());
    machine.resize_disk(2 * DISK_BYTES).await.unwrap();
    let larger = (2 * DISK_BYTES / 512).to_string();
    for _ in 0..200 {
        if guest.ask("sectors").await == larger {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(guest.ask("sectors").await, larger);
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_disk_is_frozen_under_a_new_overlay_and_the_machine_saved_again() {
    let (machine, mut guest) = running("snapshot").await;
    assert_eq!(guest.ask("write before").await, "written");
    machine.stop().await.unwrap();
    machine.save_state("again.state").await.unwrap();
    let snapshot = json!({ "device": "disk", "snapshot-file": "/vm/next.qcow2", "format": "qcow2" });
    machine.qmp().execute("blockdev-snapshot-sync", snapshot, LIMIT).await.unwrap();
    machine.cont().await.unwrap();
    assert_eq!(guest.ask("write after").await, "written");
    assert_eq!(guest.ask("read").await, "after");
    let files = machine.dir().files();
    assert!(std::fs::metadata(files.join("again.state")).unwrap().len() > 10_000);
    assert!(files.join("next.qcow2").exists());
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_volume_is_plugged_in_and_out() {
    let (machine, mut guest) = running("volume").await;
    let volume = machine.dir().files().join("volume.raw");
    std::fs::File::create(&volume).unwrap().set_len(8 << 20).unwrap();
    std::fs::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let file = json!({ "driver": "file", "filename": "/vm/volume.raw" });
    let node = json!({ "driver": "raw", "node-name": "volume", "file": file });
    let device = json!({ "driver": "scsi-hd", "bus": "scsi.0", "drive": "volume", "id": "plugged" });
    let qmp = machine.qmp();
    qmp.execute("blockdev-add", node, LIMIT).await.unwrap();
    qmp.execute("device_add", device, LIMIT).await.unwrap();
    assert_eq!(guest.ask("echo with a volume").await, "with a volume");
    qmp.execute("device_del", json!({ "id": "plugged" }), LIMIT).await.unwrap();
    machine.end().await.unwrap();
}

/// The disks that QEMU has, by their names.
async fn plugged(machine: &Machine) -> usize {
    let blocks = machine.qmp().execute("query-block", json!({}), LIMIT).await.unwrap();
    blocks.as_array().unwrap().len()
}

/// A file that its reader cannot change, as a machine gets it, and what keeps it.
fn read_only_file() -> (tempfile::NamedTempFile, std::fs::File) {
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(8192).unwrap();
    let file = std::fs::File::open(named.path()).unwrap();
    (named, file)
}

#[tokio::test]
async fn a_lent_disk_is_taken_back_without_the_guest_and_a_second_one_waits_for_it() {
    let (machine, mut guest) = running("lent").await;
    let (_named, file) = read_only_file();
    let before = plugged(&machine).await;
    for _ in 0..2 {
        let lent = machine.lend(&file).await.unwrap();
        assert_eq!(plugged(&machine).await, before + 1);
        let second = tokio::time::timeout(Duration::from_millis(100), machine.lend(&file)).await;
        assert!(second.is_err(), "one at a time");
        // A guest that stands still cannot keep it.
        machine.stop().await.unwrap();
        machine.take_back(lent).await.unwrap();
        machine.cont().await.unwrap();
        assert_eq!(plugged(&machine).await, before);
    }
    assert_eq!(guest.ask("echo without it").await, "without it");
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_disk_that_a_dead_caller_had_lent_is_gone_when_the_machine_is_adopted() {
    let (machine, _guest) = running("lent-and-left").await;
    let (_named, file) = read_only_file();
    let before = plugged(&machine).await;
    let lent = machine.lend(&file).await.unwrap();
    let dir = machine.dir().clone();
    drop((machine, lent));
    let machine = Machine::adopt(dir).await.unwrap().expect("it runs");
    assert_eq!(plugged(&machine).await, before);
    machine.end().await.unwrap();
}

#[tokio::test]
async fn a_state_file_with_a_path_as_its_name_is_refused() {
    let machine = Machine::restore(restore_config("plain-name").await).await.unwrap();
    for name in ["", "../state", "a/b", ".hidden"] {
        assert!(machine.save_state(name).await.is_err(), "{name:?}");
    }
    machine.save_state("state").await.unwrap();
    let dir = machine.dir().clone();
    machine.end().await.unwrap();
    let saved = dir.files().join("state");
    let mut config = restore_config("plain-name-restored").await;
    config.start = Start::Restore { memory: base_memory(), state: saved, cached: None };
    let machine = Machine::restore(config).await.unwrap();
    machine.cont().await.unwrap();
    assert_eq!(Guest::connect(&machine).await.ask("echo from its own state").await, "from its own state");
    machine.end().await.unwrap();
}
