//! The names of templates and the ids of images.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The conversions of a text that `FromStr` checks.
macro_rules! checked_text {
    ($name:ident, $error:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(checked: $name) -> Self {
                checked.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

checked_text!(TemplateName, BadTemplateName);
checked_text!(ContentId, BadContentId);

/// A template's name: 1 to 64 characters of `[A-Za-z0-9._-]`, not starting with a dot or a dash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` cannot be a template's name: use 1 to 64 letters, digits, dots, dashes or underscores")]
pub struct BadTemplateName {
    pub name: String,
}

impl FromStr for TemplateName {
    type Err = BadTemplateName;

    fn from_str(text: &str) -> Result<Self, BadTemplateName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        // It becomes a file name and an argument, so it must not be hidden, `..` or an option.
        let good = (1..=64).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with(['.', '-']);
        if good { Ok(Self(text.to_owned())) } else { Err(BadTemplateName { name: text.to_owned() }) }
    }
}

/// The id of an image or of a part: the first 32 hexadecimal digits of a BLAKE3 digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not 32 hexadecimal digits")]
pub struct BadContentId(String);

impl ContentId {
    const LENGTH: usize = 32;

    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hex = blake3::hash(bytes).to_hex().to_string();
        hex.truncate(Self::LENGTH);
        Self(hex)
    }

    /// The id of a JSON value, over its compact form with the keys of objects sorted.
    pub(crate) fn of_json(value: &Value) -> Self {
        Self::of(canonical(value).as_bytes())
    }
}

/// Not `Value::to_string`, whose order of keys depends on a feature of serde_json that any dependency can turn on.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let field =
                |(name, value): (&String, &Value)| format!("{}:{}", Value::from(name.as_str()), canonical(value));
            format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

impl FromStr for ContentId {
    type Err = BadContentId;

    fn from_str(text: &str) -> Result<Self, BadContentId> {
        let good = text.len() == Self::LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if good { Ok(Self(text.to_owned())) } else { Err(BadContentId(text.to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_or_look_like_options_are_refused() {
        for bad in ["", ".", "..", ".hidden", "-x", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<TemplateName>().is_err(), "{bad:?} was accepted");
        }
        for good in ["base", "ubuntu-24.04", "A_b.c", &"x".repeat(64)] {
            assert_eq!(good.parse::<TemplateName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn json_is_canonical_whatever_the_order_of_its_keys() {
        let value = serde_json::json!({ "b": [1, null, "x\n"], "a": { "d": true, "c": {} }, "é": [] });
        assert_eq!(canonical(&value), r#"{"a":{"c":{},"d":true},"b":[1,null,"x\n"],"é":[]}"#);
    }

    #[test]
    fn a_content_id_is_not_a_path() {
        assert!("../../../../etc/passwd0000000000".parse::<ContentId>().is_err());
        let id = ContentId::of(b"x");
        assert_eq!(id.as_str().parse::<ContentId>(), Ok(id));
    }
}
