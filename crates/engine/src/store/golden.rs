//! Reads the store that version 1 wrote: every later version must, see docs/formats.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use super::Store;
use crate::Home;
use crate::model::{Cause, SnapshotId, Visibility};

/// The golden files of the first version.
fn v1(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(v1(name)).unwrap()
}

/// A home with the store in it, and the database as it was before this version opened it.
fn home() -> (tempfile::TempDir, Home, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    let untouched = Connection::open_in_memory().unwrap();
    for connection in [&untouched, &Connection::open(home.store()).unwrap()] {
        connection.execute_batch(&text("store.sql")).unwrap();
    }
    (dir, home, untouched)
}

fn ids() -> BTreeMap<String, String> {
    let text = text("ids");
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, id)| (name.to_owned(), id.replace('\\', "").trim().to_owned())).collect()
}

fn details(connection: &Connection, sql: &str) -> BTreeMap<String, Value> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).unwrap();
    rows.map(|row| row.unwrap()).map(|(id, detail)| (id, serde_json::from_str(&detail).unwrap())).collect()
}

/// Whether everything that was written is still there when it is written again.
#[track_caller]
fn assert_kept(written: &Value, again: &Value, changed: &[&str]) {
    for (field, value) in written.as_object().unwrap().iter().filter(|(field, _)| !changed.contains(&field.as_str())) {
        match again.get(field) {
            Some(again) if value.is_object() => assert_kept(value, again, &[]),
            again => assert_eq!(again, Some(value), "{field}"),
        }
    }
}

#[test]
fn every_sandbox_is_read_with_all_that_its_row_says() {
    let (_dir, home, untouched) = home();
    let store = Store::open(&home.store()).unwrap();
    let written = details(&untouched, "SELECT id, detail FROM sandboxes WHERE state <> 'ended'");
    let read = store.living_sandboxes().unwrap().complete().unwrap();
    assert_eq!(read.len(), written.len());
    for row in &read {
        assert_kept(&written[&row.id], &serde_json::to_value(&row.info).unwrap(), &["labels", "metadata"]);
    }
    let forks = read.iter().filter_map(|row| row.info.fork.as_ref());
    let mut places: Vec<_> = forks.map(|place| (place.tree.as_str(), place.index)).collect();
    places.sort();
    assert_eq!(places, ["f2332373-2d29-464a-8628-47df3e5c8888"; 2].into_iter().zip(0..).collect::<Vec<_>>());
    assert!(read.iter().all(|row| row.info.metadata.keys().all(|name| !name.starts_with("fork_"))));
    let open = read.iter().find(|row| row.info.settings.public_ports).unwrap();
    assert_eq!(open.info.settings.process.user.as_deref(), Some("nobody"));
    assert!(read.iter().all(|row| row.info.labels.keys().all(|name| !name.starts_with("e2b."))));
    let (ended, why) = store.ended_sandbox(&ids()["ended"]).unwrap().unwrap();
    assert_eq!((ended.template.as_str(), why.as_str()), ("base", "it was asked to end"));
    assert_eq!(store.events("team", Some(&ids()["team"]), None, 10).unwrap()[0].kind, "created");
}

#[test]
fn a_timeline_is_read_with_its_checkpoints() {
    let (_dir, home, _) = home();
    let rows = Store::open(&home.store()).unwrap().living_sandboxes().unwrap();
    let timeline = rows.readable.into_iter().find(|row| row.id == ids()["timeline"]).unwrap().info.timeline;
    let causes: Vec<_> = timeline.checkpoints().iter().map(|one| (one.number, one.cause)).collect();
    let exec = |number| (number, Cause::Exec);
    assert_eq!(causes, [exec(1), exec(2), (3, Cause::Request), exec(4), (5, Cause::Rewind)]);
    assert_eq!((timeline.keep, timeline.current), (Some(5), Some(3)));
    assert_eq!(timeline.find("two").unwrap().number, 3);
}

#[test]
fn every_snapshot_and_what_stands_on_it_is_read() {
    let (_dir, home, untouched) = home();
    let store = Store::open(&home.store()).unwrap();
    let written = details(&untouched, "SELECT id, detail FROM snapshots");
    let read = store.all_snapshots().unwrap().unwrap();
    assert_eq!(read.len(), written.len());
    for (info, _) in &read {
        assert_kept(&written[info.id.as_str()], &serde_json::to_value(info).unwrap(), &["labels"]);
        assert_eq!(info.computed_digest(), info.digest, "an upgrade must not change what a digest is of");
    }
    let golden = store.snapshot_template("default", "golden").unwrap().unwrap();
    assert_eq!(golden.snapshot.as_str(), ids()["snapshot"]);
    let (info, listed) = store.snapshot(&SnapshotId::parse(&ids()["snapshot"]).unwrap()).unwrap().unwrap();
    assert_eq!((info.name.as_deref(), listed), (Some("before"), Visibility::Listed));
}

#[test]
fn every_volume_and_its_holder_is_read() {
    let (_dir, home, untouched) = home();
    let store = Store::open(&home.store()).unwrap();
    let written = details(&untouched, "SELECT id, detail FROM volumes");
    let read = store.volumes().unwrap();
    assert_eq!(read.len(), written.len());
    for info in &read {
        assert_kept(&written[info.id.as_str()], &serde_json::to_value(info).unwrap(), &[]);
    }
    let data = store.volume_named("default", "data").unwrap().unwrap();
    let uses = store.volume_uses().unwrap();
    let holder = uses.iter().find(|held| held.volume == data.id.as_str()).unwrap();
    assert_eq!((&holder.holder, holder.writes), (&ids()["running"], true));
}

#[test]
fn authorities_and_network_defaults_are_read() {
    let (_dir, home, untouched) = home();
    let store = Store::open(&home.store()).unwrap();
    assert!(store.authority(&ids()["running"]).unwrap().is_some());
    let written =
        details(&untouched, "SELECT workspace || '/' || template, detail FROM network_defaults ORDER BY template");
    for template in ["", "base"] {
        let default = store.network_default("default", template).unwrap().unwrap();
        assert_kept(&written[&format!("default/{template}")], &serde_json::to_value(&default).unwrap(), &[]);
    }
}
