//! API keys that are stored as secrets while an `--engine` runs.
//!
//! A killed process cannot remove its key, so the next run removes keys that no sandbox uses any more.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::client::Client;

const PREFIX: &str = "AGENT_KEY_";
/// A key is stored before its sandbox is created, so younger keys count as used.
const MIN_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The name of a new key.
pub fn name(now: Timestamp) -> String {
    format!("{PREFIX}{}_{}", std::process::id(), now.as_millisecond())
}

/// When a key was stored, or `None` if the secret is not such a key.
fn stored_at(name: &str) -> Option<Timestamp> {
    let (_, at) = name.strip_prefix(PREFIX)?.split_once('_')?;
    Timestamp::from_millisecond(at.parse().ok()?).ok()
}

#[derive(Deserialize)]
struct StoredSecrets {
    secrets: Vec<SecretName>,
}

#[derive(Deserialize)]
struct SecretName {
    name: String,
}

#[derive(Deserialize)]
struct RunningSandbox {
    network: NetworkInfo,
}

#[derive(Deserialize)]
struct NetworkInfo {
    #[serde(default)]
    secrets: Vec<String>,
}

/// Keys that no sandbox uses, except recent ones, whose sandbox may not exist yet.
pub async fn stale(client: &Client) -> Result<Vec<String>, crate::client::ClientError> {
    let stored: StoredSecrets = client.get("/v1/secrets").await?;
    let keys: Vec<String> = stored.secrets.into_iter().map(|secret| secret.name).collect();
    if !keys.iter().any(|name| stored_at(name).is_some()) {
        return Ok(Vec::new());
    }
    let sandboxes: Vec<RunningSandbox> = client.get("/v1/sandboxes").await?;
    let used: BTreeSet<String> = sandboxes.into_iter().flat_map(|sandbox| sandbox.network.secrets).collect();
    Ok(unused(keys, &used, Timestamp::now()))
}

fn unused(keys: Vec<String>, used: &BTreeSet<String>, now: Timestamp) -> Vec<String> {
    let is_old = |name: &str| stored_at(name).is_some_and(|at| now.duration_since(at) > MIN_AGE);
    keys.into_iter().filter(|name| is_old(name) && !used.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_unused_keys_are_stale() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |minutes| name(now - SignedDuration::from_mins(minutes));
        let keys = vec![ago(60), ago(90), ago(1), "API_KEY".to_owned(), "AGENT_KEY_MINE".to_owned()];
        let used = BTreeSet::from([ago(90)]);
        assert_eq!(unused(keys, &used, now), [ago(60)]);
    }
}
