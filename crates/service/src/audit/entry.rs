//! What the audit log holds: entries, and recordings of runs.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::workspaces::WorkspaceName;

/// How many bytes of a run's code, and how many of its output, are recorded.
pub const RECORDING_LIMIT: usize = 64 * 1024;
/// Longer texts of an entry are cut, because some of them come from the client.
const LONGEST_TEXT: usize = 256;

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

/// Which of a workspace's two logs an entry is in. They are kept and chained separately, so that refused requests never
/// push out what really happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// Something was done or tried.
    Change,
    /// A request was refused. Nothing changed.
    Refusal,
}

impl AuditKind {
    pub const ALL: [Self; 2] = [Self::Change, Self::Refusal];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Refusal => "refusal",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// An action, before it has a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAudit {
    pub workspace: WorkspaceName,
    pub actor: Actor,
    /// `sandbox.create`, `token.revoke`, …
    pub action: String,
    /// The id or name of the object that was changed.
    pub object: Option<String>,
    #[serde(flatten)]
    pub result: AuditResult,
    pub request_id: String,
    pub remote: Option<IpAddr>,
    #[serde(skip)]
    pub recording: Option<Recording>,
}

impl NewAudit {
    pub(super) fn kind(&self) -> AuditKind {
        match self.result {
            AuditResult::Refused { .. } => AuditKind::Refusal,
            AuditResult::Ok | AuditResult::Error { .. } => AuditKind::Change,
        }
    }

    pub(super) fn tamed(mut self) -> Self {
        for text in [&mut self.action, &mut self.request_id].into_iter().chain(&mut self.object) {
            if let Cow::Owned(tamed) = tame(text) {
                *text = tamed;
            }
        }
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Increases from entry to entry, across all workspaces.
    pub number: i64,
    pub time: Timestamp,
    pub workspace: WorkspaceName,
    pub kind: AuditKind,
    pub actor: Actor,
    pub action: String,
    pub object: Option<String>,
    #[serde(flatten)]
    pub result: AuditResult,
    pub request_id: String,
    pub remote: Option<String>,
    /// How many requests the entry stands for: more than one if it sums up refusals.
    pub count: u32,
    /// The digest of the recorded code and output, which outlives the recording.
    pub recording: Option<Digest>,
    /// Whether [`AuditLog::recording`](super::AuditLog::recording) still has the code and output.
    pub recorded: bool,
    /// Missing from entries of versions that did not chain them.
    pub link: Option<Link>,
}

/// What ties an entry to the one before it in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Which bytes are hashed, see [`chain`](super::chain).
    pub version: u32,
    pub previous: Digest,
    pub hash: Digest,
}

/// A BLAKE3 digest, written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What stands before the first entry of a chain.
    pub const ZERO: Self = Self([0; 32]);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = blake3::HexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes()))
    }
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

/// Shortens a text and replaces control characters, which could do harm in a terminal.
pub(super) fn tame(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control) {
        return text.into();
    }
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
