//! Resolves sandbox ID prefixes.

use super::answers::Sandbox;
use super::error::ClientError;
use super::http::Client;

impl Client {
    /// The full ID of a sandbox, given its ID or a unique prefix.
    pub async fn sandbox(&self, named: &str) -> Result<String, ClientError> {
        // A full ID needs no lookup, and also works for sandboxes that have ended.
        if let Some(id) = parse_full_id(named) {
            return Ok(id);
        }
        let all: Vec<Sandbox> = self.get("/v1/sandboxes").await?;
        find_by_prefix(named, all.into_iter().map(|sandbox| sandbox.id))
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

fn find_by_prefix(named: &str, ids: impl Iterator<Item = String>) -> Result<String, ClientError> {
    let wanted = named.to_ascii_lowercase();
    let mut found: Vec<_> = ids.filter(|id| !wanted.is_empty() && id.starts_with(&wanted)).collect();
    match (found.pop(), found.len()) {
        (Some(id), 0) => Ok(id),
        (Some(_), more) => Err(ClientError::Ambiguous { prefix: named.to_owned(), count: more + 1 }),
        (None, _) => Err(ClientError::NoSandbox(named.to_owned())),
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
    fn a_prefix_must_match_exactly_one_sandbox() {
        let ids = || ["ab1", "ab2", "c"].map(str::to_owned).into_iter();
        assert_eq!(find_by_prefix("C", ids()).unwrap(), "c");
        assert_eq!(find_by_prefix("ab2", ids()).unwrap(), "ab2");
        assert!(matches!(find_by_prefix("ab", ids()), Err(ClientError::Ambiguous { count: 2, .. })));
        assert!(matches!(find_by_prefix("x", ids()), Err(ClientError::NoSandbox(_))));
        assert!(matches!(find_by_prefix("", ids()), Err(ClientError::NoSandbox(_))));
    }
}
