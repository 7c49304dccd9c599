//! The version of what is stored as JSON, and fields that this version does not know; docs/formats.md has the rules.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Part of everything that is stored as JSON: its version, of which this program knows `KNOWN` and all before it, and the
/// fields that a newer program added, which are kept when it is written again. [`rewrite`](super::rewrite::rewrite) keeps
/// those of nested objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format<const KNOWN: u32> {
    #[serde(default)]
    version: Version<KNOWN>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// Absent, it is 1. A higher one than `KNOWN` is refused: the other fields may mean something else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Version<const KNOWN: u32>;

impl<const KNOWN: u32> Serialize for Version<KNOWN> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(KNOWN)
    }
}

impl<'de, const KNOWN: u32> Deserialize<'de> for Version<KNOWN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            found if found <= KNOWN => Ok(Self),
            found => {
                Err(D::Error::custom(format!("a newer Sandling wrote it (version {found}, this one knows {KNOWN})")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        name: String,
        #[serde(flatten)]
        format: Format<2>,
    }

    fn again(text: &str) -> Result<String, serde_json::Error> {
        serde_json::to_string(&serde_json::from_str::<Row>(text)?)
    }

    #[test]
    fn a_row_without_a_version_is_read_and_gets_one() {
        assert_eq!(again(r#"{"name":"a"}"#).unwrap(), r#"{"name":"a","version":2}"#);
    }

    #[test]
    fn fields_of_a_newer_program_are_kept() {
        let text = r#"{"name":"a","version":2,"colour":{"red":1}}"#;
        assert_eq!(again(text).unwrap(), text);
    }

    #[test]
    fn a_newer_version_is_refused() {
        let refused = again(r#"{"name":"a","version":3}"#).unwrap_err().to_string();
        assert!(refused.contains("version 3, this one knows 2"), "{refused}");
    }
}
