//! Sandboxes by what people write for them.

use super::answers::Sandbox;
use super::error::ClientError;
use super::http::Client;

impl Client {
    /// The id of the sandbox that somebody means: an id, or as much of the beginning as only one has.
    pub async fn sandbox(&self, named: &str) -> Result<String, ClientError> {
        // A complete id needs no lookup, and the sandbox may have ended.
        if let Some(id) = complete(named) {
            return Ok(id);
        }
        let all: Vec<Sandbox> = self.get("/v1/sandboxes").await?;
        pick(named, all.into_iter().map(|sandbox| sandbox.id))
    }
}

/// A UUID with or without its dashes, written with them.
fn complete(named: &str) -> Option<String> {
    let digits = named.to_ascii_lowercase();
    let digits = if named.len() == 36 { digits.split('-').collect() } else { digits };
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part));
    let dashed = parts.into_iter().collect::<Option<Vec<_>>>()?.join("-");
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && (named.len() == 32 || dashed.eq_ignore_ascii_case(named))).then_some(dashed)
}

fn pick(named: &str, ids: impl Iterator<Item = String>) -> Result<String, ClientError> {
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
        assert_eq!(complete(id).as_deref(), Some(id));
        assert_eq!(complete(&id.replace('-', "").to_uppercase()).as_deref(), Some(id));
        for bad in ["", "0a1b", "0a1b2c3d-0000-4000-80000-123456789ab", &"x".repeat(32), &"é".repeat(16)] {
            assert_eq!(complete(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_prefix_must_mean_one_sandbox() {
        let ids = || ["ab1", "ab2", "c"].map(str::to_owned).into_iter();
        assert_eq!(pick("C", ids()).unwrap(), "c");
        assert_eq!(pick("ab2", ids()).unwrap(), "ab2");
        assert!(matches!(pick("ab", ids()), Err(ClientError::Ambiguous { count: 2, .. })));
        assert!(matches!(pick("x", ids()), Err(ClientError::NoSandbox(_))));
        assert!(matches!(pick("", ids()), Err(ClientError::NoSandbox(_))));
    }
}
