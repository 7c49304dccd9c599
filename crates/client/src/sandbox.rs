//! Sandboxes by what people write for them.

use sandling_engine::SandboxId;

use super::answers::Sandbox;
use super::error::ClientError;
use super::http::Client;

impl Client {
    /// The id of the sandbox that somebody means: an id, or as much of the beginning as only one has.
    pub async fn sandbox(&self, named: &str) -> Result<String, ClientError> {
        // A whole id needs no looking up, and may be one that has ended.
        if let Some(id) = SandboxId::parse(named) {
            return Ok(id.to_string());
        }
        let all: Vec<Sandbox> = self.get("/v1/sandboxes").await?;
        pick(named, all.into_iter().map(|sandbox| sandbox.id))
    }
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
    fn a_prefix_must_mean_one_sandbox() {
        let ids = || ["ab1", "ab2", "c"].map(str::to_owned).into_iter();
        assert_eq!(pick("C", ids()).unwrap(), "c");
        assert_eq!(pick("ab2", ids()).unwrap(), "ab2");
        assert!(matches!(pick("ab", ids()), Err(ClientError::Ambiguous { count: 2, .. })));
        assert!(matches!(pick("x", ids()), Err(ClientError::NoSandbox(_))));
        assert!(matches!(pick("", ids()), Err(ClientError::NoSandbox(_))));
    }
}
