//! API keys that are stored as secrets while an `--engine` runs.
//!
//! A killed process cannot remove its key, so the next run removes keys that no sandbox uses any more.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::client::{Client, ClientError, field};

const PREFIX: &str = "AGENT_KEY_";
/// A key is stored before its sandbox is created, so younger keys count as used.
const MIN_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The name of a new key. It is unique, so that no other secret is replaced.
pub fn name(now: Timestamp) -> String {
    format!("{PREFIX}{}_{}", std::process::id(), now.as_millisecond())
}

/// When a key was stored, or `None` if the secret is not such a key.
fn stored_at(name: &str) -> Option<Timestamp> {
    let (_, at) = name.strip_prefix(PREFIX)?.split_once('_')?;
    Timestamp::from_millisecond(at.parse().ok()?).ok()
}

/// Keys that no sandbox uses, except recent ones, whose sandbox may not exist yet.
pub async fn stale(client: &Client) -> Result<Vec<String>, ClientError> {
    let stored: Value = client.get("/v1/secrets").await?;
    let keys: Vec<String> = values(&stored["secrets"]).filter_map(|secret| field(secret, "name").ok()).collect();
    if !keys.iter().any(|name| stored_at(name).is_some()) {
        return Ok(Vec::new());
    }
    let sandboxes: Value = client.get("/v1/sandboxes").await?;
    let used = values(&sandboxes).flat_map(|sandbox| values(&sandbox["network"]["secrets"]));
    Ok(unused(keys, &used.filter_map(|name| name.as_str().map(str::to_owned)).collect(), Timestamp::now()))
}

fn values(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
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
