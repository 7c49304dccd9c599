//! A boolean in a query string, in every spelling that clients use.

use serde::Deserialize;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Flag {
    #[serde(rename = "true", alias = "1", alias = "True", alias = "yes")]
    Set,
    #[serde(rename = "false", alias = "0", alias = "False", alias = "no", alias = "")]
    Unset,
}

impl Flag {
    pub fn is_set(self) -> bool {
        self == Self::Set
    }
}

/// Every spelling, with the best one for each value first.
const SPELLINGS: [&str; 9] = ["true", "false", "1", "0", "True", "False", "yes", "no", ""];

impl PartialSchema for Flag {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(SPELLINGS)).into()
    }
}

impl ToSchema for Flag {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Query {
        follow: Option<Flag>,
    }

    #[test]
    fn every_spelling_in_the_document_is_understood() {
        for spelling in SPELLINGS {
            assert!(serde_urlencoded::from_str::<Query>(&format!("follow={spelling}")).is_ok(), "{spelling}");
        }
    }

    #[test]
    fn both_clients_spellings_are_understood() {
        let read = |text| serde_urlencoded::from_str::<Query>(text).map(|query| query.follow.is_some_and(Flag::is_set));
        for yes in ["follow=true", "follow=1", "follow=True"] {
            assert!(read(yes).unwrap(), "{yes}");
        }
        for no in ["follow=false", "follow=0", "follow=", ""] {
            assert!(!read(no).unwrap(), "{no}");
        }
        assert!(read("follow=maybe").is_err());
    }
}
