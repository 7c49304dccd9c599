//! Tests of the whole log, in a database.

use std::fs;
use std::io::BufReader;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;

use super::refusals::IN_FULL;
use super::*;
use crate::fixture::{Fixture, workspace};

fn new(name: &str, action: &str, recording: Option<Recording>) -> NewAudit {
    NewAudit {
        workspace: workspace(name),
        actor: Actor { prefix: "sdl_12345678".to_owned(), name: "ci".to_owned() },
        action: action.to_owned(),
        object: Some("o-1".to_owned()),
        result: AuditResult::Ok,
        request_id: "r-1".to_owned(),
        remote: Some("127.0.0.1".parse().unwrap()),
        recording,
    }
}

fn refused(name: &str, action: &str) -> NewAudit {
    NewAudit { result: AuditResult::Refused { code: "forbidden".to_owned() }, ..new(name, action, None) }
}

fn add(fixture: &Fixture, name: &str, action: &str, recording: Option<Recording>) {
    fixture.audit.record(new(name, action, recording), None);
}

fn query(name: Option<&str>, limit: u32) -> AuditQuery {
    AuditQuery { workspace: name.map(workspace), since: None, after: None, limit }
}

fn actions(fixture: &Fixture, query: &AuditQuery) -> Vec<String> {
    fixture.audit.entries(query).unwrap().into_iter().map(|entry| entry.action).collect()
}

fn keeping(entries: u32, recordings: u32) -> Fixture {
    let retention = AuditRetention { entries, recordings, ..AuditRetention::default() };
    Fixture::new().with_audit(AuditSettings { retention, ..AuditSettings::default() })
}

fn required() -> AuditSettings {
    AuditSettings { policy: AuditPolicy::Required, ..AuditSettings::default() }
}

/// Another connection to the database, for what the log itself never does.
fn database(fixture: &Fixture) -> Connection {
    Connection::open(fixture.home.store()).unwrap()
}

fn tamper(fixture: &Fixture, sql: &str) {
    let script = format!("DROP TRIGGER IF EXISTS audit_is_append_only; {sql}");
    database(fixture).execute_batch(&script).unwrap();
}

/// Makes every write to the log fail until the returned function is called.
fn break_store(fixture: &Fixture) -> impl FnOnce() + use<> {
    let connection = database(fixture);
    let stop = "BEGIN SELECT RAISE(ABORT, 'broken for a test'); END;";
    let script = format!(
        "CREATE TRIGGER broken_1 BEFORE INSERT ON audit {stop} CREATE TRIGGER broken_2 BEFORE INSERT ON audit_intents \
         {stop}"
    );
    connection.execute_batch(&script).unwrap();
    move || connection.execute_batch("DROP TRIGGER broken_1; DROP TRIGGER broken_2;").unwrap()
}

fn first_break(fixture: &Fixture) -> Option<(AuditKind, i64, BreakCause)> {
    let reports = fixture.audit.verify(None).unwrap();
    reports.into_iter().find_map(|report| report.broken.map(|found| (report.kind, found.number, found.cause)))
}

fn filled() -> Fixture {
    let fixture = Fixture::new();
    for number in 1..=5 {
        add(&fixture, "default", &number.to_string(), Some(Recording::new(b"code", b"output")));
    }
    assert_eq!(first_break(&fixture), None);
    fixture
}

#[test]
fn the_newest_entries_come_oldest_first_and_a_reader_continues_after_them() {
    let fixture = Fixture::new();
    for action in ["1", "2", "3"] {
        add(&fixture, "default", action, None);
    }
    assert_eq!(actions(&fixture, &query(None, 2)), ["2", "3"]);
    let after = |after| AuditQuery { after: Some(after), ..query(None, 1) };
    assert_eq!(actions(&fixture, &after(0)), ["1"]);
    assert_eq!(actions(&fixture, &after(1)), ["2"]);
    assert_eq!(actions(&fixture, &after(3)), [""; 0]);
}

#[test]
fn a_query_can_start_at_a_time() {
    let fixture = Fixture::new();
    let moment = Timestamp::now();
    fixture.audit.record_at(new("default", "before", None), moment - Duration::from_secs(10));
    fixture.audit.record_at(new("default", "at", None), moment);
    let since = AuditQuery { since: Some(moment), ..query(None, 10) };
    assert_eq!(actions(&fixture, &since), ["at"]);
}

#[test]
fn a_workspace_sees_its_own_entries_only() {
    let fixture = Fixture::new();
    let recording = Some(Recording::new(b"print(1)", b"1"));
    add(&fixture, "team-a", "a", recording.clone());
    add(&fixture, "team-b", "b", None);
    assert_eq!(actions(&fixture, &query(Some("team-a"), 10)), ["a"]);
    assert_eq!(actions(&fixture, &query(Some("default"), 10)), [""; 0]);
    assert_eq!(actions(&fixture, &query(None, 10)), ["a", "b"]);
    assert_eq!(fixture.audit.recording(&workspace("team-a"), 1).unwrap(), recording);
    assert_eq!(fixture.audit.recording(&workspace("team-b"), 1).unwrap(), None);
}

#[test]
fn pruning_drops_the_oldest_entries_of_one_workspace_only() {
    let fixture = keeping(5, 2);
    add(&fixture, "quiet", "kept", None);
    for number in 0..500 {
        add(&fixture, "noisy", &number.to_string(), Some(Recording::new(b"c", b"o")));
    }
    let log = fixture.audit.entries(&query(Some("noisy"), 1000)).unwrap();
    let kept: Vec<_> = log.iter().map(|entry| (entry.action.as_str(), entry.recorded)).collect();
    assert_eq!(kept, [("495", false), ("496", false), ("497", false), ("498", true), ("499", true)]);
    assert_eq!(actions(&fixture, &query(Some("quiet"), 10)), ["kept"]);
    assert_eq!(first_break(&fixture), None, "the chain continues from what was pruned");
    let noisy = &fixture.audit.verify(Some(&workspace("noisy"))).unwrap()[0];
    assert_eq!((noisy.entries, noisy.anchor.0, noisy.head.0), (5, 496, 501));
}

#[test]
fn the_next_start_drops_old_entries() {
    let fixture = Fixture::new();
    let too_old = Timestamp::now() - AuditRetention::default().age - Duration::from_secs(1);
    fixture.audit.record_at(new("default", "old", Some(Recording::new(b"", b""))), too_old);
    add(&fixture, "default", "new", None);
    let next = fixture.another_process();
    assert_eq!(actions(&next, &query(None, 10)), ["new"]);
    assert_eq!(first_break(&next), None);
}

#[test]
fn refusals_are_summed_up_and_never_push_out_changes() {
    let retention = AuditRetention { entries: 5, refusals: 20, ..AuditRetention::default() };
    let fixture = Fixture::new().with_audit(AuditSettings { retention, ..AuditSettings::default() });
    for number in 0..5 {
        add(&fixture, "default", &number.to_string(), None);
    }
    for _ in 0..2000 {
        fixture.audit.record(refused("default", "sandbox.create"), None);
    }
    // A client could also vary the action, which is bounded by the number of refusals that are kept.
    for number in 0..2000 {
        fixture.audit.record(refused("default", &format!("action.{number}")), None);
    }
    fixture.audit.flush();
    let log = fixture.audit.entries(&query(None, 10_000)).unwrap();
    let of_kind = |kind| log.iter().filter(|entry| entry.kind == kind).collect::<Vec<_>>();
    assert_eq!(of_kind(AuditKind::Change).len(), 5);
    assert!(of_kind(AuditKind::Refusal).len() < 20 + 500, "pruned every 500 entries");
    let summary = of_kind(AuditKind::Refusal).into_iter().find(|entry| entry.count > 1).unwrap();
    assert_eq!((summary.action.as_str(), summary.count), ("sandbox.create", 2000 - IN_FULL));
    assert_eq!(first_break(&fixture), None);
}

#[test]
fn an_entry_cannot_be_changed() {
    let fixture = filled();
    let refused = database(&fixture).execute("UPDATE audit SET actor_name = 'somebody else'", []).unwrap_err();
    assert!(refused.to_string().contains("append-only"), "{refused}");
}

#[test]
fn a_changed_entry_breaks_its_chain() {
    for column in ["actor_name", "actor_prefix", "action", "object", "request_id", "remote", "time_ms", "count"] {
        let fixture = filled();
        tamper(&fixture, &format!("UPDATE audit SET {column} = 9 WHERE number = 3"));
        assert_eq!(first_break(&fixture), Some((AuditKind::Change, 3, BreakCause::Changed)), "{column}");
    }
    let fixture = filled();
    tamper(&fixture, "UPDATE audit SET result = 'nonsense' WHERE number = 3");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 3, BreakCause::Changed)));
    let fixture = filled();
    tamper(&fixture, "UPDATE audit SET version = NULL, previous = NULL, hash = NULL WHERE number = 3");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 3, BreakCause::NoHash)));
}

#[test]
fn a_removed_or_moved_entry_breaks_its_chain() {
    let fixture = filled();
    tamper(&fixture, "DELETE FROM audit WHERE number = 3");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 4, BreakCause::NotLinked)));
    let fixture = filled();
    tamper(&fixture, "DELETE FROM audit WHERE number = 1");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 2, BreakCause::NotLinked)));
    let fixture = filled();
    tamper(&fixture, "DELETE FROM audit WHERE number > 3");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 5, BreakCause::EndMissing)));
    let fixture = filled();
    tamper(&fixture, "UPDATE audit SET kind = 'refusal' WHERE number = 3");
    let broken: Vec<_> = fixture.audit.verify(None).unwrap().into_iter().filter_map(|report| report.broken).collect();
    let causes: Vec<_> = broken.into_iter().map(|found| found.cause).collect();
    assert_eq!(causes, [BreakCause::NotLinked, BreakCause::NoChain]);
}

#[test]
fn a_changed_recording_breaks_the_chain() {
    let fixture = filled();
    tamper(&fixture, "UPDATE audit_recordings SET output = 'other' WHERE number = 2");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 2, BreakCause::RecordingChanged)));
}

#[test]
fn pruning_remembers_that_a_chain_was_broken() {
    let fixture = keeping(5, 5);
    add(&fixture, "default", "first", None);
    add(&fixture, "default", "second", None);
    tamper(&fixture, "UPDATE audit SET actor_name = 'somebody else' WHERE number = 2");
    for number in 0..500 {
        add(&fixture, "default", &number.to_string(), None);
    }
    assert_eq!(fixture.audit.verify(None).unwrap()[0].entries, 7, "the entry is gone");
    assert_eq!(first_break(&fixture), Some((AuditKind::Change, 2, BreakCause::Changed)));
}

#[test]
fn entries_wait_while_the_database_cannot_be_written() {
    let fixture = filled();
    let mend = break_store(&fixture);
    add(&fixture, "default", "first to wait", None);
    add(&fixture, "default", "second to wait", None);
    assert!(fixture.audit.failures() >= 2);
    assert_eq!(fixture.audit.entries(&query(None, 10)).unwrap().len(), 5);
    mend();
    add(&fixture, "default", "after", None);
    assert_eq!(actions(&fixture, &query(None, 3)), ["first to wait", "second to wait", "after"]);
    assert_eq!(first_break(&fixture), None);
}

#[test]
fn entries_that_cannot_wait_are_counted() {
    let fixture = Fixture::new();
    let mend = break_store(&fixture);
    for number in 0..1003 {
        add(&fixture, "default", &number.to_string(), None);
    }
    mend();
    fixture.audit.flush();
    let log = fixture.audit.entries(&query(None, 10_000)).unwrap();
    assert_eq!(log.len(), 1001);
    assert_eq!((log[1000].action.as_str(), log[1000].count), ("audit.lost", 3));
}

#[test]
fn what_cannot_be_audited_is_refused_if_the_operator_wants_it() {
    let fixture = Fixture::new();
    let mend = break_store(&fixture);
    assert!(matches!(fixture.audit.begin(new("default", "sandbox.create", None)), Ok(None)), "the default");
    let fixture = fixture.with_audit(required());
    assert!(matches!(fixture.audit.begin(new("default", "sandbox.create", None)), Err(AuditUnavailable::Store(_))));
    mend();
    let begun = fixture.audit.begin(new("default", "sandbox.create", None)).unwrap();
    assert!(begun.is_some());
    assert_eq!(actions(&fixture, &query(None, 10)), [""; 0]);
    fixture.audit.record(new("default", "sandbox.create", None), begun);
    assert_eq!(actions(&fixture, &query(None, 10)), ["sandbox.create"]);
    assert_eq!(fixture.store.intents().unwrap().len(), 0);
}

#[test]
fn an_action_of_a_server_that_died_is_in_the_log_after_the_next_start() {
    let fixture = Fixture::new().with_audit(required());
    fixture.audit.begin(new("default", "sandbox.create", None)).unwrap();
    assert_eq!(actions(&fixture.another_process(), &query(None, 10)), [""; 0], "its server is alive");
    let fixture = fixture.restart();
    let log = fixture.audit.entries(&query(None, 10)).unwrap();
    assert_eq!(log[0].result, AuditResult::Error { code: "interrupted".to_owned() });
    assert_eq!(fixture.store.intents().unwrap().len(), 0);
}

#[test]
fn refusals_leave_no_intents_and_no_changes_behind() {
    let fixture = Fixture::new().with_audit(required());
    for _ in 0..50 {
        let begun = fixture.audit.begin(refused("default", "sandbox.create")).unwrap();
        fixture.audit.record(refused("default", "sandbox.create"), begun);
    }
    assert_eq!(fixture.store.intents().unwrap().len(), 0);
    let log = fixture.audit.entries(&query(None, 100)).unwrap();
    assert!(log.iter().all(|entry| entry.kind == AuditKind::Refusal) && log.len() == IN_FULL as usize);
}

#[test]
fn entries_are_copied_as_they_are_written_and_the_copy_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let target = Some(AuditTarget::File(path.clone()));
    let fixture = filled();
    let fixture = fixture.with_audit(AuditSettings { target: target.clone(), ..AuditSettings::default() });
    fixture.audit.record(refused("team", "sandbox.create"), None);
    fixture.audit.flush();
    let copied = fs::read_to_string(&path).unwrap();
    assert_eq!(copied.lines().count(), 6, "also what was written before");
    // A rotated file is opened again, and a restart continues where the last copy ended.
    fs::rename(&path, dir.path().join("audit.jsonl.1")).unwrap();
    add(&fixture, "default", "rotated", None);
    fixture.audit.flush();
    let fixture = fixture.restart().with_audit(AuditSettings { target, ..AuditSettings::default() });
    add(&fixture, "default", "restarted", None);
    fixture.audit.flush();
    let next = fs::read_to_string(&path).unwrap();
    assert_eq!(next.lines().count(), 2);
    let verified = |text: &str| verify_copy(BufReader::new(text.as_bytes())).unwrap();
    let whole = verified(&format!("listening\n{copied}{next}{next}"));
    assert_eq!(whole.iter().map(|chain| chain.entries).collect::<Vec<_>>(), [7, 1]);
    assert_eq!(whole.iter().find_map(|chain| chain.broken.clone()), None);
    let stored = fixture.audit.verify(None).unwrap();
    assert_eq!(stored[0].head, whole[0].head);
    assert_eq!(verified(&next).iter().find_map(|chain| chain.broken.clone()), None, "a copy may begin anywhere");
    let changed = verified(&copied.replacen("\"ci\"", "\"someone\"", 1))[0].broken.clone().unwrap();
    assert_eq!((changed.number, changed.cause), (1, BreakCause::Changed));
    let lines: Vec<_> = copied.lines().collect();
    let removed = verified(&[lines[0], lines[2]].join("\n"))[0].broken.clone().unwrap();
    assert_eq!((removed.number, removed.cause), (3, BreakCause::NotLinked));
}

/// Somebody who can write to the database can compute a whole chain again. A copy shows that.
#[test]
fn a_chain_that_was_computed_again_differs_from_the_copy() {
    let fixture = filled();
    let head = fixture.audit.verify(None).unwrap()[0].head;
    let script = "DELETE FROM audit; DELETE FROM audit_chains; DELETE FROM sqlite_sequence WHERE name = 'audit'";
    tamper(&fixture, script);
    for number in [1, 2, 3, 4, 6] {
        add(&fixture, "default", &number.to_string(), Some(Recording::new(b"code", b"output")));
    }
    assert_eq!(first_break(&fixture), None);
    let again = fixture.audit.verify(None).unwrap()[0].head;
    assert_eq!(again.0, head.0);
    assert_ne!(again.1, head.1);
}

#[test]
fn a_target_that_cannot_be_written_refuses_actions_if_the_operator_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("logs");
    fs::create_dir(&folder).unwrap();
    let target = Some(AuditTarget::File(folder.join("audit.jsonl")));
    let fixture = Fixture::new().with_audit(AuditSettings { target, ..required() });
    fs::remove_dir_all(&folder).unwrap();
    add(&fixture, "default", "1", None);
    fixture.audit.flush();
    let refused = fixture.audit.begin(new("default", "2", None));
    assert!(matches!(refused, Err(AuditUnavailable::NotCopied)), "{refused:?}");
    fs::create_dir(&folder).unwrap();
    fixture.audit.flush();
    assert!(fixture.audit.begin(new("default", "2", None)).unwrap().is_some());
    let missing = AuditTarget::File(dir.path().join("missing/audit.jsonl"));
    let settings = AuditSettings { target: Some(missing), ..AuditSettings::default() };
    let opened = AuditLog::open(fixture.store.clone(), fixture.owner.clone(), settings);
    assert!(matches!(opened, Err(AuditOpenError::Target(_))), "a mistake in the name shows at the start");
}
