//! Resolves names and ID prefixes of sandboxes, snapshots and commands.

use serde::Deserialize;
use serde_json::Value;

use super::answers::{Sandbox, read};
use super::error::ClientError;
use super::http::{Client, segment};

/// Something that has an ID and perhaps a name.
#[derive(Debug, Deserialize)]
struct Named {
    id: String,
    name: Option<String>,
}

impl Client {
    /// The full ID of a sandbox, given its ID, its name or a unique prefix of its ID.
    pub async fn sandbox(&self, named: &str) -> Result<String, ClientError> {
        // A full ID needs no lookup, and also works for sandboxes that have ended.
        if let Some(id) = parse_full_id(named) {
            return Ok(id);
        }
        let all: Vec<Sandbox> = self.get("/v1/sandboxes").await?;
        let all = all.into_iter().map(|Sandbox { id, name, .. }| Named { id, name });
        match find("sandboxes", named, all)? {
            Some(id) => Ok(id),
            None => Err(self.why_missing(named).await),
        }
    }

    /// The full ID of a snapshot, given its ID, its name or a unique prefix of its ID.
    pub async fn snapshot(&self, named: &str) -> Result<String, ClientError> {
        if let Some(id) = parse_full_id(named) {
            return Ok(id);
        }
        let mut answer: Value = self.get("/v1/snapshots").await?;
        let all: Vec<Named> = read(answer["snapshots"].take())?;
        find("snapshots", named, all.into_iter())?.ok_or_else(|| ClientError::NoSnapshot(named.to_owned()))
    }

    /// The full ID of a command in a sandbox, given its ID or a unique prefix.
    pub async fn exec(&self, sandbox: &str, named: &str) -> Result<String, ClientError> {
        let mut answer: Value = self.get(&format!("/v1/sandboxes/{sandbox}/execs")).await?;
        let all: Vec<Named> = read(answer["execs"].take())?;
        find("commands", named, all.into_iter())?.ok_or_else(|| ClientError::NoExec(named.to_owned()))
    }

    /// Why a sandbox does not exist. The server knows why those that existed have ended.
    async fn why_missing(&self, named: &str) -> ClientError {
        let asked: Result<Value, ClientError> = match named {
            "" => Ok(Value::Null),
            _ => self.get(&format!("/v1/sandboxes/{}", segment(named))).await,
        };
        match asked {
            Err(error @ ClientError::Refused { .. }) if error.is_ended() => error,
            _ => ClientError::NoSandbox(named.to_owned()),
        }
    }
}

/// Parses a UUID with or without dashes, and returns it with dashes.
fn parse_full_id(named: &str) -> Option<String> {
    let digits = named.to_ascii_lowercase();
    let digits = if named.len() == 36 { digits.split('-').collect() } else { digits };
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part));
    let dashed = parts.into_iter().collect::<Option<Vec<_>>>()?.join("-");
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && (named.len() == 32 || dashed.eq_ignore_ascii_case(named))).then_some(dashed)
}

/// The ID of the one with this ID or name, or of the only one whose ID starts with it.
fn find(what: &'static str, named: &str, all: impl Iterator<Item = Named>) -> Result<Option<String>, ClientError> {
    let wanted = named.to_ascii_lowercase();
    let mut found = Vec::new();
    for Named { id, name } in all {
        if id == named || name.as_deref() == Some(named) {
            return Ok(Some(id));
        }
        if !wanted.is_empty() && id.to_ascii_lowercase().starts_with(&wanted) {
            found.push(id);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => Err(ClientError::Ambiguous { what, prefix: named.to_owned(), count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_id_is_recognized_with_and_without_dashes() {
        let id = "0a1b2c3d-0000-4000-8000-0123456789ab";
        assert_eq!(parse_full_id(id).as_deref(), Some(id));
        assert_eq!(parse_full_id(&id.replace('-', "").to_uppercase()).as_deref(), Some(id));
        for bad in ["", "0a1b", "0a1b2c3d-0000-4000-80000-123456789ab", &"x".repeat(32), &"é".repeat(16)] {
            assert_eq!(parse_full_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_prefix_must_match_exactly_one() {
        let found = |named: &str| {
            let all = [("ab1", None), ("ab2", None), ("c", Some("ab")), ("Own-Id", None)];
            let all = all.map(|(id, name)| Named { id: id.to_owned(), name: name.map(str::to_owned) });
            find("sandboxes", named, all.into_iter())
        };
        for (named, id) in [("C", "c"), ("ab2", "ab2"), ("ab", "c"), ("own", "Own-Id")] {
            assert_eq!(found(named).unwrap().as_deref(), Some(id), "{named}");
        }
        assert!(matches!(found("a"), Err(ClientError::Ambiguous { count: 2, .. })));
        assert_eq!(found("x").unwrap(), None);
        assert_eq!(found("").unwrap(), None);
    }
}
