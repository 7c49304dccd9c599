//! Writing and reading the audit log.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// How many bytes of a run's code, and how many of its output, are recorded.
pub const RECORDING_LIMIT: usize = 64 * 1024;
/// Longer texts of an entry are cut, because some of them come from the client.
const LONGEST_TEXT: usize = 256;
/// A workspace's entries are pruned after every so many new ones.
const PRUNE_EVERY: u32 = 500;
/// The most entries that one query returns.
const LARGEST_ANSWER: u32 = 10_000;

/// How much of the log is kept, for each workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRetention {
    pub entries: u32,
    /// For how many runs code and output are kept.
    pub recordings: u32,
    pub age: Duration,
}

impl Default for AuditRetention {
    fn default() -> Self {
        Self { entries: 100_000, recordings: 2_000, age: Duration::from_secs(365 * 24 * 3600) }
    }
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The prefix of the token.
    pub prefix: String,
    /// The name of the token.
    pub name: String,
}

impl Actor {
    /// Sandling itself, for example when a TTL ends a sandbox.
    pub fn engine() -> Self {
        Self { prefix: "engine".to_owned(), name: "engine".to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum AuditResult {
    Ok,
    /// The request was not allowed or not possible. Nothing changed.
    Refused {
        code: String,
    },
    /// The request was tried and failed.
    Error {
        code: String,
    },
}

impl AuditResult {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused { .. } => "refused",
            Self::Error { .. } => "error",
        }
    }

    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Ok => None,
            Self::Refused { code } | Self::Error { code } => Some(code),
        }
    }

    pub(crate) fn from_columns(result: &str, code: Option<String>) -> Option<Self> {
        match (result, code) {
            ("ok", None) => Some(Self::Ok),
            ("refused", Some(code)) => Some(Self::Refused { code }),
            ("error", Some(code)) => Some(Self::Error { code }),
            _ => None,
        }
    }
}

/// The code and the output of a run, up to [`RECORDING_LIMIT`] each. Neither is trusted: they come from a client and a
/// guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    pub code: String,
    /// How many bytes were cut off at the end.
    pub code_cut: u32,
    pub output: String,
    pub output_cut: u32,
}

impl Recording {
    pub fn new(code: &[u8], output: &[u8]) -> Self {
        let (code, code_cut) = cut(code);
        let (output, output_cut) = cut(output);
        Self { code, code_cut, output, output_cut }
    }
}

fn cut(bytes: &[u8]) -> (String, u32) {
    let mut end = bytes.len().min(RECORDING_LIMIT);
    // Do not cut a character in two. More than three continuation bytes in a row are not UTF-8 anyway.
    for _ in 0..3 {
        if bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
            end -= 1;
        }
    }
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), u32::try_from(bytes.len() - end).unwrap_or(u32::MAX))
}

#[derive(Debug, Clone)]
pub struct NewAudit<'a> {
    pub workspace: &'a WorkspaceName,
    pub actor: &'a Actor,
    /// `sandbox.create`, `token.revoke`, …
    pub action: &'a str,
    /// The id or name of the object that was changed.
    pub object: Option<&'a str>,
    pub result: AuditResult,
    pub request_id: &'a str,
    pub remote: Option<IpAddr>,
    pub recording: Option<Recording>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Increases from entry to entry, across all workspaces.
    pub number: i64,
    pub time: Timestamp,
    pub workspace: WorkspaceName,
    pub actor: Actor,
    pub action: String,
    pub object: Option<String>,
    #[serde(flatten)]
    pub result: AuditResult,
    pub request_id: String,
    pub remote: Option<String>,
    /// Whether [`AuditLog::recording`] has the code and output.
    pub recorded: bool,
}

#[derive(Debug, Clone)]
pub struct AuditQuery {
    /// If missing, the entries of all workspaces, including deleted ones. For operators.
    pub workspace: Option<WorkspaceName>,
    pub since: Option<Timestamp>,
    /// Only entries after this number, to continue where the last answer ended. If missing, the newest entries.
    pub after: Option<i64>,
    pub limit: u32,
}

/// How many entries each workspace has added since its entries were last pruned.
#[derive(Debug, Default)]
struct PruneCounters(Mutex<HashMap<WorkspaceName, u32>>);

impl PruneCounters {
    fn is_due(&self, workspace: &WorkspaceName) -> bool {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry(workspace.clone()).or_default();
        *counter = (*counter + 1) % PRUNE_EVERY;
        *counter == 0
    }
}

/// The audit log of all workspaces of a home.
pub struct AuditLog {
    store: Arc<Store>,
    retention: AuditRetention,
    counters: PruneCounters,
}

impl AuditLog {
    /// Opens the log, and drops entries that are too old or too many.
    pub(crate) fn open(store: Arc<Store>, retention: AuditRetention) -> Result<Self, StoreError> {
        let now = Timestamp::now();
        for workspace in store.audited_workspaces()? {
            store.prune_audit(&workspace, &retention, now)?;
        }
        Ok(Self { store, retention, counters: PruneCounters::default() })
    }

    /// Adds an entry. If that fails, the failure goes to the server's log: the change has already been made.
    pub fn record(&self, entry: &NewAudit<'_>) {
        if let Err(error) = self.add(entry, Timestamp::now()) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot write to the audit log");
        }
    }

    /// Adds an entry and returns its number.
    fn add(&self, entry: &NewAudit<'_>, now: Timestamp) -> Result<i64, StoreError> {
        let (action, request_id) = (tame(entry.action), tame(entry.request_id));
        let object = entry.object.map(tame);
        let entry = NewAudit {
            action: &action,
            object: object.as_deref(),
            request_id: &request_id,
            recording: entry.recording.clone(),
            result: entry.result.clone(),
            ..*entry
        };
        let number = self.store.add_audit(&entry, now)?;
        if self.counters.is_due(entry.workspace)
            && let Err(error) = self.store.prune_audit(entry.workspace, &self.retention, now)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot prune the audit log");
        }
        Ok(number)
    }

    /// The entries that match, oldest first.
    pub fn entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        self.store.audit_entries(&AuditQuery { limit: query.limit.min(LARGEST_ANSWER), ..query.clone() })
    }

    /// The code and output that were recorded with an entry of this workspace.
    pub fn recording(&self, workspace: &WorkspaceName, number: i64) -> Result<Option<Recording>, StoreError> {
        self.store.audit_recording(workspace, number)
    }
}

/// Shortens a text and replaces control characters, which could do harm in a terminal.
fn tame(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control) {
        return text.into();
    }
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, workspace};

    fn add(fixture: &Fixture, name: &str, action: &str, recording: Option<Recording>) -> i64 {
        add_at(fixture, name, action, recording, Timestamp::now())
    }

    fn add_at(fixture: &Fixture, name: &str, action: &str, recording: Option<Recording>, now: Timestamp) -> i64 {
        let entry = NewAudit {
            workspace: &workspace(name),
            actor: &Actor { prefix: "sdl_12345678".to_owned(), name: "ci".to_owned() },
            action,
            object: Some("o-1"),
            result: AuditResult::Refused { code: "quota_exceeded".to_owned() },
            request_id: "r-1",
            remote: Some(IpAddr::from([127, 0, 0, 1])),
            recording,
        };
        fixture.audit.add(&entry, now).unwrap()
    }

    fn query(name: Option<&str>, limit: u32) -> AuditQuery {
        AuditQuery { workspace: name.map(workspace), since: None, after: None, limit }
    }

    fn actions(fixture: &Fixture, query: &AuditQuery) -> Vec<String> {
        fixture.audit.entries(query).unwrap().into_iter().map(|entry| entry.action).collect()
    }

    fn keeping(entries: u32, recordings: u32) -> Fixture {
        Fixture::new().with_retention(AuditRetention { entries, recordings, ..Default::default() })
    }

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let fixture = Fixture::new();
        let number = add(&fixture, "default", "sandbox.create", None);
        let entry = fixture.audit.entries(&query(Some("default"), 10)).unwrap().remove(0);
        assert_eq!(entry.number, number);
        let json = serde_json::to_value(&entry).unwrap();
        assert_eq!(json["result"], "refused");
        assert_eq!(json["code"], "quota_exceeded");
        assert_eq!(json["actor"]["prefix"], "sdl_12345678");
        assert_eq!((json["object"].as_str(), json["remote"].as_str()), (Some("o-1"), Some("127.0.0.1")));
        assert_eq!(serde_json::from_value::<AuditEntry>(json).unwrap(), entry);
    }

    #[test]
    fn a_query_without_a_number_gives_the_newest_entries() {
        let fixture = Fixture::new();
        let numbers: Vec<_> = ["a", "b", "c", "d"].map(|action| add(&fixture, "default", action, None)).into();
        assert_eq!(actions(&fixture, &query(Some("default"), 2)), ["c", "d"]);
        let next = AuditQuery { after: Some(numbers[0]), ..query(Some("default"), 2) };
        assert_eq!(actions(&fixture, &next), ["b", "c"]);
    }

    #[test]
    fn since_is_inclusive() {
        let fixture = Fixture::new();
        let moment = Timestamp::from_second(1_900_000_000).unwrap();
        add_at(&fixture, "default", "before", None, moment - Duration::from_millis(1));
        add_at(&fixture, "default", "at", None, moment);
        let since = AuditQuery { since: Some(moment), ..query(None, 10) };
        assert_eq!(actions(&fixture, &since), ["at"]);
    }

    #[test]
    fn a_workspace_sees_its_own_entries_only() {
        let fixture = Fixture::new();
        let recording = Some(Recording::new(b"print(1)", b"1"));
        let number = add(&fixture, "team-a", "a", recording.clone());
        add(&fixture, "team-b", "b", None);
        assert_eq!(actions(&fixture, &query(Some("team-a"), 10)), ["a"]);
        assert_eq!(actions(&fixture, &query(Some("default"), 10)), [""; 0]);
        assert_eq!(actions(&fixture, &query(None, 10)), ["a", "b"]);
        assert_eq!(fixture.audit.recording(&workspace("team-a"), number).unwrap(), recording);
        assert_eq!(fixture.audit.recording(&workspace("team-b"), number).unwrap(), None);
    }

    #[test]
    fn pruning_drops_the_oldest_entries_of_one_workspace_only() {
        let fixture = keeping(5, 2);
        add(&fixture, "quiet", "kept", None);
        for number in 0..PRUNE_EVERY {
            add(&fixture, "noisy", &number.to_string(), Some(Recording::new(b"c", b"o")));
        }
        let log = fixture.audit.entries(&query(Some("noisy"), 1000)).unwrap();
        let kept: Vec<_> = log.iter().map(|entry| (entry.action.as_str(), entry.recorded)).collect();
        assert_eq!(kept, [("495", false), ("496", false), ("497", false), ("498", true), ("499", true)]);
        assert_eq!(actions(&fixture, &query(Some("quiet"), 10)), ["kept"]);
    }

    #[test]
    fn the_next_start_drops_old_entries() {
        let fixture = Fixture::new();
        let too_old = Timestamp::now() - AuditRetention::default().age - Duration::from_secs(1);
        add_at(&fixture, "default", "old", Some(Recording::new(b"", b"")), too_old);
        add(&fixture, "default", "new", None);
        let left = fixture.another_process().audit.entries(&query(None, 10)).unwrap();
        assert_eq!(left.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["new"]);
    }

    #[test]
    fn an_entry_cannot_be_changed() {
        let fixture = Fixture::new();
        add(&fixture, "default", "token.revoke", None);
        let connection = rusqlite::Connection::open(fixture.home.store()).unwrap();
        let refused = connection.execute("UPDATE audit SET actor_name = 'somebody else'", []).unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{refused}");
    }

    #[test]
    fn a_recording_is_cut_between_characters_and_counts_the_bytes_cut() {
        let code = format!("a{}", "ü".repeat(RECORDING_LIMIT / 2));
        let recording = Recording::new(code.as_bytes(), &[0xff; RECORDING_LIMIT + 10]);
        assert_eq!(recording.code.len(), RECORDING_LIMIT - 1);
        assert_eq!(recording.code_cut, 2);
        assert!(!recording.code.contains('\u{fffd}'));
        assert_eq!(recording.output_cut, 10);
        let continuation_bytes = Recording::new(&[0x80; RECORDING_LIMIT + 10], b"");
        assert_eq!(continuation_bytes.code_cut, 13);
    }

    #[test]
    fn texts_from_clients_are_shortened_and_have_no_control_characters() {
        assert_eq!(tame("sandbox.create"), "sandbox.create");
        assert_eq!(tame("a\x1b[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(tame(&"ü".repeat(1000)).chars().count(), LONGEST_TEXT);
    }
}
