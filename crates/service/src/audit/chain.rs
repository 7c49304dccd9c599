//! The hash chain of the audit log: each entry's hash covers the entry and the hash before it.
//!
//! Each workspace has two chains, one of changes and one of refusals. An entry that is changed, removed or inserted
//! breaks its chain. The hashes have no key, so somebody who can write to the database can compute all of them again;
//! a copy of the entries on another host shows that, too. docs/formats.md describes the bytes that are hashed.

use super::entry::{AuditEntry, Digest, Link, Recording};

/// The version of the hashed bytes.
pub(super) const VERSION: u32 = 1;
const TAG: &[u8] = b"sandling audit 1\n";

/// Where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    /// The entry at which the break shows.
    pub number: i64,
    pub cause: BreakCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BreakCause {
    #[error("the entry was changed after it was written")]
    Changed,
    #[error("entries before it were removed or inserted")]
    NotLinked,
    #[error("the entry has no hash")]
    NoHash,
    #[error("its hash is of version {0}, which this version of Sandling does not know")]
    UnknownVersion(u32),
    #[error("the newest entries were removed: this was the last one")]
    EndMissing,
    #[error("the database does not say where its chain begins and ends")]
    NoChain,
    #[error("the recorded code or output was changed")]
    RecordingChanged,
}

/// Links an entry to the one before it.
pub(super) fn link(previous: Digest, entry: &AuditEntry) -> Link {
    Link { version: VERSION, previous, hash: hash(previous, entry) }
}

/// The hash of an entry, over bytes that are spelled out here.
fn hash(previous: Digest, entry: &AuditEntry) -> Digest {
    let mut bytes = Bytes(TAG.to_vec());
    bytes.0.extend(previous.0);
    bytes.0.extend(entry.number.to_le_bytes());
    bytes.0.extend(entry.time.as_millisecond().to_le_bytes());
    bytes.0.extend(entry.count.to_le_bytes());
    let texts = [
        Some(entry.workspace.as_str()),
        Some(entry.kind.as_str()),
        Some(entry.actor.prefix.as_str()),
        Some(entry.actor.name.as_str()),
        Some(entry.action.as_str()),
        entry.object.as_deref(),
        Some(entry.result.as_str()),
        entry.result.code(),
        Some(entry.request_id.as_str()),
        entry.remote.as_deref(),
    ];
    texts.into_iter().for_each(|text| bytes.part(text.map(str::as_bytes)));
    bytes.part(entry.recording.as_ref().map(|digest| digest.0.as_slice()));
    Digest(*blake3::hash(&bytes.0).as_bytes())
}

/// The digest of a recording.
pub(super) fn recording_digest(recording: &Recording) -> Digest {
    let mut bytes = Bytes(Vec::new());
    bytes.part(Some(recording.code.as_bytes()));
    bytes.0.extend(recording.code_cut.to_le_bytes());
    bytes.part(Some(recording.output.as_bytes()));
    bytes.0.extend(recording.output_cut.to_le_bytes());
    Digest(*blake3::hash(&bytes.0).as_bytes())
}

struct Bytes(Vec<u8>);

impl Bytes {
    /// A zero byte if the part is absent; otherwise a one, the part's length and its bytes.
    fn part(&mut self, part: Option<&[u8]>) {
        self.0.push(part.is_some().into());
        if let Some(part) = part {
            self.0.extend((part.len() as u64).to_le_bytes());
            self.0.extend(part);
        }
    }
}

/// Follows one chain from entry to entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follower {
    /// The hash that the next entry must name.
    pub(super) last: Digest,
}

impl Follower {
    /// Takes the next entry, or the number of one that cannot be read.
    pub(super) fn follow(&mut self, entry: Result<&AuditEntry, i64>) -> Result<(), ChainBreak> {
        let entry = entry.map_err(|number| ChainBreak { number, cause: BreakCause::Changed })?;
        let broken = |cause| Err(ChainBreak { number: entry.number, cause });
        let Some(found) = entry.link else { return broken(BreakCause::NoHash) };
        if found.version != VERSION {
            return broken(BreakCause::UnknownVersion(found.version));
        }
        if found.hash != hash(found.previous, entry) {
            return broken(BreakCause::Changed);
        }
        if found.previous != self.last {
            return broken(BreakCause::NotLinked);
        }
        self.last = found.hash;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::{Actor, AuditKind, AuditResult};
    use crate::fixture::workspace;

    fn entry() -> AuditEntry {
        AuditEntry {
            number: 7,
            time: jiff::Timestamp::from_millisecond(1_794_845_484_720).unwrap(),
            workspace: workspace("team"),
            kind: AuditKind::Refusal,
            actor: Actor { prefix: "sdl_12345678".to_owned(), name: "ci".to_owned() },
            action: "sandbox.create".to_owned(),
            object: None,
            result: AuditResult::Refused { code: "quota_exceeded".to_owned() },
            request_id: "r-1".to_owned(),
            remote: Some("127.0.0.1".to_owned()),
            count: 3,
            recording: None,
            recorded: false,
            link: None,
        }
    }

    /// The hashed bytes are a format: entries of this version must verify in every later one.
    #[test]
    fn the_hash_of_an_entry_stays_the_same() {
        assert_eq!(hash(Digest::ZERO, &entry()).to_string(), GOLDEN_HASH);
        let recording = Recording::new(b"print(1)", b"1\n");
        assert_eq!(recording_digest(&recording).to_string(), GOLDEN_RECORDING);
    }

    const GOLDEN_HASH: &str = "31accfbfb6a24cd3a35f10b5835229af5ddfdec52407ab1c4299d435ce56395e";
    const GOLDEN_RECORDING: &str = "a15b410a778e5a7b23a260db993f21663f7b55afeecbac771d800300c1bcd89f";

    #[test]
    fn every_field_of_an_entry_is_hashed() {
        let original = hash(Digest::ZERO, &entry());
        let changes: [fn(&mut AuditEntry); 12] = [
            |entry| entry.number = 8,
            |entry| entry.time = jiff::Timestamp::UNIX_EPOCH,
            |entry| entry.workspace = workspace("other"),
            |entry| entry.kind = AuditKind::Change,
            |entry| entry.actor.prefix = "x".to_owned(),
            |entry| entry.actor.name = String::new(),
            |entry| entry.action = "x".to_owned(),
            |entry| entry.object = Some(String::new()),
            |entry| entry.result = AuditResult::Error { code: "quota_exceeded".to_owned() },
            |entry| entry.request_id = "r-2".to_owned(),
            |entry| entry.remote = None,
            |entry| entry.count = 4,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = entry();
            change(&mut changed);
            assert_ne!(hash(Digest::ZERO, &changed), original, "change {index}");
        }
        let recorded = AuditEntry { recording: Some(Digest::ZERO), ..entry() };
        assert_ne!(hash(Digest::ZERO, &recorded), original);
        assert_ne!(hash(Digest([1; 32]), &entry()), original);
    }

    #[test]
    fn text_that_moves_between_fields_changes_the_hash() {
        let one = AuditEntry { action: "ab".to_owned(), object: Some("c".to_owned()), ..entry() };
        let other = AuditEntry { action: "a".to_owned(), object: Some("bc".to_owned()), ..entry() };
        assert_ne!(hash(Digest::ZERO, &one), hash(Digest::ZERO, &other));
    }
}
