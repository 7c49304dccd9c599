//! Checks the chains of the audit log, in the database or in a copy of its entries.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use rusqlite::{Connection, OpenFlags};
use sandling_engine::store::StoreError;

use super::chain::{self, BreakCause, ChainBreak, Follower};
use super::entry::{AuditEntry, AuditKind, Digest};
use super::rows::{self, ChainRow};
use crate::workspaces::WorkspaceName;

/// What was found in one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainReport {
    pub workspace: WorkspaceName,
    pub kind: AuditKind,
    /// How many entries with a hash there are.
    pub entries: u64,
    /// How many entries have no hash, because a version before the chains wrote them.
    pub without_hash: u64,
    /// The entry before the first one that was checked, and its hash.
    pub anchor: (i64, Digest),
    /// The newest entry and its hash.
    pub head: (i64, Digest),
    pub broken: Option<ChainBreak>,
}

/// Verifies all chains of a database, or those of one workspace, as they are at one moment.
pub(super) fn verify(path: &str, workspace: Option<&WorkspaceName>) -> Result<Vec<ChainReport>, StoreError> {
    // A connection of its own: a long log must not keep other requests waiting.
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let transaction = connection.transaction()?;
    let chains = rows::chains(&transaction)?.into_iter();
    let wanted = chains.filter(|chain| workspace.is_none_or(|workspace| chain.workspace == *workspace));
    let mut reports: Vec<_> =
        wanted.map(|chain| verify_chain(&transaction, &chain)).collect::<Result<_, StoreError>>()?;
    for (name, kind) in rows::without_chain(&transaction)? {
        let name = WorkspaceName::parse(&name).unwrap_or_default();
        if workspace.is_none_or(|workspace| name == *workspace) {
            reports.push(report_without_chain(name, &kind));
        }
    }
    Ok(reports)
}

fn report_without_chain(workspace: WorkspaceName, kind: &str) -> ChainReport {
    ChainReport {
        workspace,
        kind: AuditKind::parse(kind).unwrap_or(AuditKind::Change),
        entries: 0,
        without_hash: 0,
        anchor: (0, Digest::ZERO),
        head: (0, Digest::ZERO),
        broken: Some(ChainBreak { number: 0, cause: BreakCause::NoChain }),
    }
}

fn verify_chain(connection: &Connection, chain: &ChainRow) -> Result<ChainReport, StoreError> {
    let (mut entries, mut without_hash, mut last) = (0, 0, chain.anchor);
    // Pruning has deleted the entry that did not fit.
    let pruned_break = chain.broken.map(|number| ChainBreak { number, cause: BreakCause::Changed });
    let mut broken = pruned_break;
    let mut follower = Follower { last: chain.anchor.1 };
    rows::for_each_entry(connection, chain, (0, i64::MAX), |entry| {
        let is_old = |entry: &AuditEntry| entry.link.is_none() && entry.number <= chain.anchor.0;
        if entry.as_ref().is_ok_and(is_old) {
            without_hash += 1;
            return Ok(());
        }
        entries += 1;
        if broken.is_none() {
            broken = follower.follow(entry.as_ref().map_err(|number| *number)).err();
        }
        let Ok(entry) = entry else { return Ok(()) };
        if broken.is_none() && recording_changed(connection, &entry)? {
            broken = Some(ChainBreak { number: entry.number, cause: BreakCause::RecordingChanged });
        }
        last = (entry.number, follower.last);
        Ok(())
    })?;
    if broken.is_none() && last != chain.head {
        broken = Some(ChainBreak { number: chain.head.0, cause: BreakCause::EndMissing });
    }
    Ok(ChainReport {
        workspace: chain.workspace.clone(),
        kind: chain.kind,
        entries,
        without_hash,
        anchor: chain.anchor,
        head: chain.head,
        broken,
    })
}

/// A recording may be gone, since fewer of them are kept than entries, but it may not differ.
fn recording_changed(connection: &Connection, entry: &AuditEntry) -> Result<bool, StoreError> {
    if !entry.recorded {
        return Ok(false);
    }
    let recording = rows::find_recording(connection, entry.number)?;
    Ok(recording.is_some_and(|recording| Some(chain::recording_digest(&recording)) != entry.recording))
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    #[error("line {line} is not an entry of an audit log")]
    NotAnEntry { line: usize, source: serde_json::Error },
}

/// Verifies a copy that `serve --audit-file` wrote. The copy may begin anywhere in a chain, and entries may repeat.
pub fn verify_copy(lines: impl BufRead) -> Result<Vec<ChainReport>, CopyError> {
    let mut reports: BTreeMap<(WorkspaceName, AuditKind), ChainReport> = BTreeMap::new();
    let mut seen: BTreeMap<i64, Option<Digest>> = BTreeMap::new();
    for (index, line) in lines.lines().enumerate() {
        let line = line?;
        // Other lines of a server's standard output.
        if !line.starts_with('{') {
            continue;
        }
        let entry: AuditEntry =
            serde_json::from_str(&line).map_err(|source| CopyError::NotAnEntry { line: index + 1, source })?;
        let hash = entry.link.map(|link| link.hash);
        // The same entry again: the server was stopped after it wrote the line and before it noted that it had.
        if seen.insert(entry.number, hash).is_some_and(|before| before == hash) {
            continue;
        }
        let start = || {
            let anchor = (entry.number - 1, entry.link.map_or(Digest::ZERO, |link| link.previous));
            ChainReport {
                workspace: entry.workspace.clone(),
                kind: entry.kind,
                entries: 0,
                without_hash: 0,
                anchor,
                head: anchor,
                broken: None,
            }
        };
        let report = reports.entry((entry.workspace.clone(), entry.kind)).or_insert_with(start);
        take_copied(report, &entry);
    }
    Ok(reports.into_values().collect())
}

fn take_copied(report: &mut ChainReport, entry: &AuditEntry) {
    if entry.link.is_none() && report.entries == 0 {
        report.without_hash += 1;
        report.head.0 = entry.number;
        return;
    }
    let mut follower = Follower { last: report.head.1 };
    report.entries += 1;
    if report.broken.is_none() {
        report.broken = follower.follow(Ok(entry)).err();
    }
    report.head = (entry.number, entry.link.map_or(report.head.1, |link| link.hash));
}
