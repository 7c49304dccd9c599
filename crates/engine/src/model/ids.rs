//! Ids, each of a type of its own.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Defines an id that is stored and shown as text.
macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub(crate) fn fresh() -> Self {
                Self(uuid::Uuid::new_v4().to_string())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// A sandbox's id: a UUID, parsed once at the edge.
    SandboxId
}

id! {
    /// A snapshot's id. It is chosen before the snapshot's content is known, because the disk on top of it names it.
    SnapshotId
}

id! {
    /// A volume's id: a UUID.
    VolumeId
}

id! {
    #[derive(Default)]
    /// A secret's id. It stays when the value is replaced. A secret that is stored under the same name after a removal has
    /// another id, so sandboxes that had the removed one do not have it. Secrets that are older than ids have the default.
    SecretId
}

impl SandboxId {
    /// An id that carries the tag of the node that creates it. Without a node, all of it is random.
    pub(crate) fn fresh_on(node: Option<u32>) -> Self {
        let Some(tag) = node else { return Self::fresh() };
        let mut bytes = uuid::Uuid::new_v4().into_bytes();
        bytes[12..].copy_from_slice(&tag.to_be_bytes());
        Self(uuid::Uuid::from_bytes(bytes).to_string())
    }

    /// The tag of the node that created the sandbox. An id that was made outside a fleet has a random one.
    pub fn node_tag(&self) -> u32 {
        let id = uuid::Uuid::parse_str(&self.0).unwrap_or_default();
        u32::from_be_bytes([12, 13, 14, 15].map(|at: usize| id.as_bytes()[at]))
    }

    /// Reads an id, with its dashes or without any: some clients allow none.
    pub fn parse(text: &str) -> Option<Self> {
        let known = matches!(text.len(), 36 | 32);
        uuid::Uuid::parse_str(text).ok().filter(|_| known).map(|id| Self(id.to_string()))
    }

    /// Whether it is an id, and can be part of a path. One that was deserialized can be any text.
    pub(crate) fn is_well_formed(&self) -> bool {
        Self::parse(&self.0).as_ref() == Some(self)
    }

    /// The id without its dashes.
    pub fn compact(&self) -> String {
        self.0.replace('-', "")
    }
}

impl SnapshotId {
    /// The same for the same content.
    pub(crate) fn of(content: &str) -> Self {
        let digest = blake3::hash(content.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string())
    }

    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::parse_str(text).ok().filter(|_| text.len() == 36).map(|id| Self(id.to_string()))
    }

    /// Whether it is an id, and can be part of a path. One that was deserialized can be any text.
    pub(crate) fn is_well_formed(&self) -> bool {
        Self::parse(&self.0).as_ref() == Some(self)
    }
}

impl VolumeId {
    pub(crate) fn file(&self, volumes: &Path) -> PathBuf {
        volumes.join(format!("{}.img", self.0))
    }
}

impl From<String> for SecretId {
    fn from(text: String) -> Self {
        Self(text)
    }
}
