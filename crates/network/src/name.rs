//! A host name in one canonical spelling, so that names compare equal: lower case, without a trailing dot.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name that DNS can carry, as text.
const LONGEST_NAME: usize = 253;
/// The longest label that DNS can carry.
const LONGEST_LABEL: usize = 63;

/// A host name: labels of letters, digits, `-` and `_`. Never an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(Box<str>);

/// Why a text is not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotAName {
    #[error("a host name has between 1 and {LONGEST_NAME} characters")]
    Length,
    #[error("a label of a host name has between 1 and {LONGEST_LABEL} characters")]
    Label,
    #[error("a host name has letters, digits, - and _ only")]
    Character,
    #[error("this is an address, not a host name")]
    Address,
}

impl HostName {
    /// The name in lower case, without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, from left to right.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether this name is a subdomain of `parent`, at any depth.
    pub fn is_below(&self, parent: &HostName) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Whether this name is `parent` or a subdomain of it.
    pub fn is_or_is_below(&self, parent: &str) -> bool {
        self.0.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl FromStr for HostName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<HostName, NotAName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() || text.len() > LONGEST_NAME {
            return Err(NotAName::Length);
        }
        for label in text.split('.') {
            if label.is_empty() || label.len() > LONGEST_LABEL {
                return Err(NotAName::Label);
            }
            if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
                return Err(NotAName::Character);
            }
        }
        // Many resolvers read `127.1`, `0x7f.1` and `2130706433` as addresses. No top-level domain looks like a number.
        let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let digits = last.strip_prefix("0x").unwrap_or(&last);
        if last.bytes().all(|byte| byte.is_ascii_digit())
            || (last.starts_with("0x") && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return Err(NotAName::Address);
        }
        Ok(HostName(text.to_ascii_lowercase().into_boxed_str()))
    }
}

impl TryFrom<String> for HostName {
    type Error = NotAName;

    fn try_from(text: String) -> Result<HostName, NotAName> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> String {
        name.0.into_string()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn spellings_of_one_name_are_equal() {
        assert_eq!(name("Example.COM."), name("example.com"));
    }

    #[test]
    fn addresses_in_any_spelling_are_not_names() {
        for text in ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "10.0.0.0x1", "1.2.3.4."] {
            assert_eq!(text.parse::<HostName>(), Err(NotAName::Address), "{text}");
        }
    }

    #[test]
    fn names_that_other_parsers_read_differently_are_refused() {
        for text in ["a b.com", "a\0.com", "a/.com", "a:80", "ä.com", "[::1]", "a..com", ".com", "", "."] {
            assert!(text.parse::<HostName>().is_err(), "{text:?}");
        }
        assert_eq!(format!("{}.com", "a".repeat(64)).parse::<HostName>(), Err(NotAName::Label));
        assert_eq!("a.".repeat(127).parse::<HostName>().map(|n| n.as_str().len()), Ok(253));
        assert_eq!("ab.".repeat(127).parse::<HostName>(), Err(NotAName::Length));
    }

    #[test]
    fn subdomains_match_whole_labels_only() {
        assert!(name("a.example.com").is_below(&name("example.com")));
        assert!(name("b.a.example.com").is_below(&name("example.com")));
        assert!(!name("example.com").is_below(&name("example.com")));
        assert!(!name("evilexample.com").is_below(&name("example.com")));
    }
}
