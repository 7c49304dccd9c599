//! Which packs a snapshot is made of, what it stands on, and what a host needs to restore it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::chunks::CHUNK;
use crate::digest::Digest;

const FORMAT: u32 = 1;
/// Three files of a template, and for each of 64 layers at most a few.
const MOST_FILES: usize = 512;
const LONGEST_NAME: usize = 200;
/// The largest disk that a sandbox can have, with what its format adds.
const LARGEST_FILE: u64 = (1 << 40) + (1 << 38);

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("it has format {0}, which this version of Sandling does not know; update this node")]
    Newer(u32),
    #[error("{0}")]
    Wrong(&'static str),
}

/// Who can read a pack, and which packs can be the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Files of templates, which many workspaces use.
    Templates,
    Workspace(String),
}

impl Scope {
    pub(super) fn as_text(&self) -> String {
        match self {
            Self::Templates => "templates".to_owned(),
            Self::Workspace(name) => format!("workspace/{name}"),
        }
    }
}

/// A part of a file: [`CHUNK`] bytes from a multiple of that, or the rest of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub at: u64,
    pub bytes: u32,
    /// Of the bytes themselves, by which those of another node are checked.
    pub digest: Digest,
    /// The name of the pack that has them.
    pub pack: Digest,
}

/// What no chunk covers is zeros.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub name: String,
    pub scope: Scope,
    pub bytes: u64,
    pub chunks: Vec<Chunk>,
}

impl StoredFile {
    /// A digest of the file's content that is known before the content.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes.to_le_bytes());
        for chunk in &self.chunks {
            hasher.update(&chunk.at.to_le_bytes()).update(chunk.digest.bytes());
        }
        hasher.finalize().into()
    }

    fn check(&self, workspace: &str) -> Result<(), ManifestError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !(1..=LONGEST_NAME).contains(&self.name.len()) || !self.name.chars().all(is_name) {
            return Err(ManifestError::Wrong("a file has a strange name"));
        }
        if self.bytes > LARGEST_FILE {
            return Err(ManifestError::Wrong("a file is larger than it can be"));
        }
        if matches!(&self.scope, Scope::Workspace(own) if own != workspace) {
            return Err(ManifestError::Wrong("a file belongs to another workspace"));
        }
        let mut end = 0;
        for chunk in &self.chunks {
            let rest = self.bytes.saturating_sub(chunk.at);
            let is_on_grid = chunk.at % CHUNK as u64 == 0 && chunk.at >= end;
            if !is_on_grid || chunk.bytes == 0 || u64::from(chunk.bytes) != rest.min(CHUNK as u64) {
                return Err(ManifestError::Wrong("a part of a file lies outside of it"));
            }
            end = chunk.at + u64::from(chunk.bytes);
        }
        Ok(())
    }
}

/// The template that a snapshot stands on. Its bake is among the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfTemplate {
    pub name: String,
    /// The digest of the template's image.
    pub image: String,
    /// The key of its bake.
    pub bake: String,
}

/// What must be the same where the snapshot is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOn {
    pub accelerator: String,
    pub cpu_model: String,
    pub device_model: u32,
    pub emulator: String,
}

impl MadeOn {
    /// A short text that is the same on all hosts that can restore the snapshot.
    pub fn fingerprint(&self) -> String {
        let Self { accelerator, cpu_model, device_model, emulator } = self;
        let text = format!("{accelerator}\n{cpu_model}\n{device_model}\n{emulator}");
        Digest::of(text.as_bytes()).to_string()[..16].to_owned()
    }
}

/// A snapshot as the store has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSnapshot {
    pub format: u32,
    pub snapshot: String,
    pub workspace: String,
    pub template: OfTemplate,
    pub made_on: MadeOn,
    /// What the engine says about the snapshot: that of an export, with the chain of its layers.
    pub export: Value,
    pub files: Vec<StoredFile>,
}

impl StoredSnapshot {
    pub fn new(
        [snapshot, workspace]: [String; 2],
        template: OfTemplate,
        made_on: MadeOn,
        export: Value,
        files: Vec<StoredFile>,
    ) -> Self {
        Self { format: FORMAT, snapshot, workspace, template, made_on, export, files }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest has only text and numbers")
    }

    /// Reads a manifest and checks what can be checked without its files.
    pub fn decode(text: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let Versioned { format } = serde_json::from_slice(text)?;
        if format != FORMAT {
            return Err(ManifestError::Newer(format));
        }
        let manifest: Self = serde_json::from_slice(text)?;
        if manifest.files.len() > MOST_FILES {
            return Err(ManifestError::Wrong("it has too many files"));
        }
        let names: BTreeSet<_> = manifest.files.iter().map(|file| &file.name).collect();
        if names.len() < manifest.files.len() {
            return Err(ManifestError::Wrong("two of its files have one name"));
        }
        manifest.files.iter().try_for_each(|file| file.check(&manifest.workspace))?;
        Ok(manifest)
    }

    /// The packs that it needs.
    pub fn packs(&self) -> impl Iterator<Item = &Digest> {
        self.files.iter().flat_map(|file| file.chunks.iter().map(|chunk| &chunk.pack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../tests/golden/v1/snapshot-manifest.json");

    #[test]
    fn a_manifest_of_the_first_version_is_read() {
        let manifest = StoredSnapshot::decode(GOLDEN.as_bytes()).unwrap();
        assert_eq!(manifest.workspace, "default");
        assert_eq!(manifest.packs().count(), 3);
        assert_eq!(StoredSnapshot::decode(&manifest.encode()).unwrap(), manifest);
    }

    #[test]
    fn a_wrong_manifest_is_refused() {
        let refused = |pointer: &str, value: Value| {
            let mut manifest: Value = serde_json::from_str(GOLDEN).unwrap();
            *manifest.pointer_mut(pointer).unwrap() = value;
            StoredSnapshot::decode(manifest.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert!(refused("/format", 2.into()).contains("format 2"));
        assert!(refused("/files/0/name", "a b".into()).contains("strange name"));
        assert!(refused("/files/0/name", "pages/2".into()).contains("one name"));
        assert!(refused("/files/0/scope", serde_json::json!({"workspace": "other"})).contains("another workspace"));
        assert!(refused("/files/0/bytes", u64::MAX.into()).contains("larger"));
        for (field, value) in [("at", 1u64), ("at", 2 * CHUNK as u64), ("bytes", 0), ("bytes", 1)] {
            assert!(refused(&format!("/files/1/chunks/0/{field}"), value.into()).contains("outside"), "{field}");
        }
        assert!(refused("/files/0/chunks/0/pack", "A".repeat(64).into()).contains("digest"));
        assert!(StoredSnapshot::decode(b"{}").is_err());
    }
}
