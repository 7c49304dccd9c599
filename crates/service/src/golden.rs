//! Reads the tables that version 1 wrote: every later version must, see docs/formats.md.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use sandling_engine::owner::Owner;

use crate::idempotency::rows::{KeyClaim, RequestState};
use crate::store::Store;
use crate::{
    AuditEntry, AuditLog, AuditQuery, AuditResult, AuditRetention, AuditSettings, BodyHash, NewAudit, Scope, Stage,
    WorkspaceName, tokens, verify_copy,
};

fn text(name: &str) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/v1");
    std::fs::read_to_string(golden.join(name)).unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sandling.db");
    Connection::open(&path).unwrap().execute_batch(&text("store.sql")).unwrap();
    let store = Store::open(&path).unwrap();
    (dir, store)
}

fn workspace(name: &str) -> WorkspaceName {
    WorkspaceName::parse(name).unwrap()
}

#[test]
fn tokens_workspaces_and_quotas_are_read() {
    let (_dir, store) = store();
    let workspaces: Vec<_> =
        store.workspaces().unwrap().into_iter().map(|one| (one.name.to_string(), one.record_runs)).collect();
    assert_eq!(workspaces, [("default".to_owned(), true), ("team".to_owned(), false)]);
    let scopes =
        |name| store.tokens_of(&workspace(name)).unwrap().into_iter().map(|token| token.scope).collect::<Vec<_>>();
    assert_eq!(scopes("default"), [Scope::Operator, Scope::Read, Scope::Run]);
    assert_eq!(scopes("team"), [Scope::Admin]);
    let ids = text("ids");
    let secret = ids.lines().find_map(|line| line.strip_prefix("read_token=")).unwrap();
    let token = store.token(&secret[.."sdl_12345678".len()]).unwrap().unwrap();
    assert_eq!((token.info.name.as_str(), token.hash), ("reader", tokens::hash(secret)));
    let quota = store.quota(&workspace("team")).unwrap().unwrap();
    assert_eq!((quota.sandboxes, quota.memory_mib), (Some(20), None));
}

#[test]
fn the_audit_log_is_read_with_its_recordings() {
    let (_dir, store) = store();
    let query = AuditQuery { workspace: None, since: None, after: Some(0), limit: 1000 };
    let entries = store.audit_entries(&query).unwrap();
    let written = text("store.sql").lines().filter(|line| line.starts_with("INSERT INTO audit VALUES")).count();
    assert_eq!(entries.len(), written);
    let run = entries.iter().find(|entry| entry.recorded).unwrap();
    let recording = store.audit_recording(&workspace("default"), run.number).unwrap().unwrap();
    assert!(recording.code.contains("in the volume"), "{recording:?}");
}

/// Another program computed the hashes of the file from the description in docs/formats.md.
#[test]
fn a_copy_of_the_audit_log_verifies() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/audit.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let chains = verify_copy(text.as_bytes()).unwrap();
    let found: Vec<_> =
        chains.iter().map(|chain| (chain.workspace.as_str(), chain.entries, chain.head.0, &chain.broken)).collect();
    assert_eq!(found, [("default", 3, 53, &None), ("team", 1, 52, &None), ("team", 2, 51, &None)]);
    for line in text.lines() {
        let entry: AuditEntry = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&entry).unwrap(), line, "the same bytes are written today");
    }
}

#[test]
fn the_chains_begin_after_entries_of_older_versions() {
    let (dir, store) = store();
    let path = dir.path().join("sandling.db");
    let owner = Arc::new(Owner::new(dir.path()).unwrap());
    let retention = AuditRetention { age: Duration::MAX, ..AuditRetention::default() };
    let settings = AuditSettings { retention, ..AuditSettings::default() };
    let audit = AuditLog::open(Arc::new(store), owner, settings).unwrap();
    let old: Vec<_> = audit.verify(None).unwrap().iter().map(|chain| (chain.entries, chain.without_hash)).collect();
    assert_eq!(old, [(0, 46), (0, 1)]);
    let query = AuditQuery { workspace: None, since: None, after: None, limit: 1 };
    let last = audit.entries(&query).unwrap().remove(0);
    let entry = NewAudit {
        workspace: last.workspace.clone(),
        actor: last.actor,
        action: "sandbox.delete".to_owned(),
        object: None,
        result: AuditResult::Ok,
        request_id: "r-1".to_owned(),
        remote: None,
        recording: None,
    };
    audit.record(entry, None);
    let chains = audit.verify(Some(&last.workspace)).unwrap();
    assert_eq!((chains[0].entries, chains[0].without_hash, &chains[0].broken), (1, 1, &None));
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("DROP TRIGGER audit_is_append_only; UPDATE audit SET actor_name = 'x'").unwrap();
    assert!(audit.verify(Some(&last.workspace)).unwrap()[0].broken.is_some());
}

#[test]
fn answers_builds_and_previews_are_read() {
    let (_dir, store) = store();
    let claim = KeyClaim { workspace: "default".to_owned(), key: "golden".to_owned(), owner: "me".to_owned() };
    let found = store.claim_key(&claim, "POST /v1/sandboxes", &BodyHash::of(b""), Timestamp::now()).unwrap().unwrap();
    assert_eq!((found.state, found.status, found.answer.is_some()), (RequestState::Done, 201, true));
    let (build, _) = store.builds().unwrap().remove(0);
    assert!(matches!(build.ended, Some(Stage::Done { bytes: 21_274_624, .. })), "{build:?}");
    assert!(store.has_preview("default", "f924caa0e927e6a6").unwrap());
}
