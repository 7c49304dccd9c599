//! Where in a request a secret may be placed. No I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest header name, prefix or query key.
const LONGEST_WORD: usize = 64;
/// Headers that the gateway or HTTP itself needs.
const RESERVED_HEADERS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-range",
    "keep-alive",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where in a request a secret may be placed. Examples: `header Authorization: Bearer`, `header x-api-key`,
/// `query key`, `basic`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Placement {
    /// The value of a header, after this prefix. The prefix may be empty.
    Header { name: String, prefix: String },
    /// The value of this key of the query.
    Query(String),
    /// The user or the password of basic authentication.
    Basic,
    /// Any part of any header. Secrets that were stored before placements existed have this one.
    AnyHeader,
}

/// Why a text is not a placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadPlacement {
    #[error(
        "{0:?} is not a placement; write `header NAME`, `header NAME: PREFIX` such as `header Authorization: Bearer`, \
         `query KEY` or `basic`"
    )]
    Kind(String),
    #[error("{0:?} is not a header name with a prefix of at most {LONGEST_WORD} printable characters")]
    Header(String),
    #[error("the header {0:?} cannot carry a secret, because the gateway or HTTP itself needs it")]
    Reserved(String),
    #[error("{0:?} is not a query key of at most {LONGEST_WORD} printable characters without & = # % +")]
    Query(String),
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::Header { name: "Authorization".to_owned(), prefix: "Bearer".to_owned() }
    }
}

impl Placement {
    /// Whether a secret may follow `before` in the value of the header `name`, with `after` behind it.
    pub(crate) fn allows_header(&self, name: &str, before: &str, after: &str) -> bool {
        match self {
            Placement::Header { name: own, prefix } => {
                let spaced = prefix.is_empty() || before.ends_with(' ') || !prefix.ends_with(char::is_alphanumeric);
                let begins = before.trim().eq_ignore_ascii_case(prefix) && spaced;
                own.eq_ignore_ascii_case(name) && begins && after.trim().is_empty()
            }
            Placement::AnyHeader => true,
            Placement::Query(_) | Placement::Basic => false,
        }
    }

    /// The option of `sandling secret set` that stands for it.
    pub(crate) fn option(&self) -> String {
        match self.to_string().split_once(' ') {
            Some((kind, word)) => format!("--{kind} '{word}'"),
            None => format!("--{self}"),
        }
    }
}

impl FromStr for Placement {
    type Err = BadPlacement;

    fn from_str(text: &str) -> Result<Placement, BadPlacement> {
        let word = |text: &str| text.len() <= LONGEST_WORD && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        match text.trim().split_once(' ').map(|(kind, rest)| (kind, rest.trim())) {
            None if text.trim() == "basic" => Ok(Placement::Basic),
            Some(("any", "header")) => Ok(Placement::AnyHeader),
            Some(("header", rest)) => {
                let (name, prefix) = rest.split_once(':').map_or((rest, ""), |(name, prefix)| (name, prefix.trim()));
                if hyper::header::HeaderName::try_from(name).is_err() || !word(name) || !word(prefix) {
                    return Err(BadPlacement::Header(rest.to_owned()));
                }
                if RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
                    return Err(BadPlacement::Reserved(name.to_owned()));
                }
                Ok(Placement::Header { name: name.to_owned(), prefix: prefix.to_owned() })
            }
            Some(("query", key)) => {
                if key.is_empty() || !word(key) || key.contains(['&', '=', '#', '%', '+', ' ']) {
                    return Err(BadPlacement::Query(key.to_owned()));
                }
                Ok(Placement::Query(key.to_owned()))
            }
            _ => Err(BadPlacement::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Header { name, prefix } if prefix.is_empty() => write!(out, "header {name}"),
            Placement::Header { name, prefix } => write!(out, "header {name}: {prefix}"),
            Placement::Query(key) => write!(out, "query {key}"),
            Placement::Basic => out.write_str("basic"),
            Placement::AnyHeader => out.write_str("any header"),
        }
    }
}

impl TryFrom<String> for Placement {
    type Error = BadPlacement;

    fn try_from(text: String) -> Result<Placement, BadPlacement> {
        text.parse()
    }
}

impl From<Placement> for String {
    fn from(placement: Placement) -> String {
        placement.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_one_text() {
        let all = ["header Authorization: Bearer", "header x-api-key", "query key", "basic", "any header"];
        for text in all {
            assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        }
        assert_eq!("header Authorization: Bearer".parse(), Ok(Placement::default()));
        assert_eq!(
            "header X-Key:  Token token=".parse::<Placement>().unwrap().to_string(),
            "header X-Key: Token token="
        );
        assert_eq!(Placement::default().option(), "--header 'Authorization: Bearer'");
        for bad in ["", "header", "header ", "header a b", "header Host", "query", "query a&b", "body", "basic auth"] {
            assert!(bad.parse::<Placement>().is_err(), "{bad}");
        }
        assert!(format!("query {}", "a".repeat(65)).parse::<Placement>().is_err());
    }

    #[test]
    fn a_header_needs_its_whole_form() {
        let allows = |placement: &str, header: &str, before: &str, after: &str| {
            placement.parse::<Placement>().unwrap().allows_header(header, before, after)
        };
        assert!(allows("header Authorization: Bearer", "authorization", "bearer ", ""));
        assert!(allows("header x-api-key", "X-API-Key", "", " "));
        assert!(allows("header Authorization: Token token=", "authorization", "Token token=", ""));
        for (header, before, after) in [
            ("authorization", "", ""),
            ("authorization", "Bearer", ""),
            ("authorization", "Bearer x", ""),
            ("authorization", "Bearer ", ", more"),
            ("authorization", "Basic ", ""),
            ("x-note", "Bearer ", ""),
        ] {
            assert!(!allows("header Authorization: Bearer", header, before, after), "{header}: {before}…{after}");
        }
        assert!(!allows("basic", "authorization", "", "") && !allows("query authorization", "authorization", "", ""));
    }
}
