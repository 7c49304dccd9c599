//! The keys that are stored for command lines while they work.
//!
//! One that was killed could not remove its own, so whoever comes next removes those that no sandbox can use any more.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::client::Client;

const PREFIX: &str = "AGENT_KEY_";
/// A key is stored before the sandbox that is given it is made.
const BEFORE_ITS_SANDBOX: SignedDuration = SignedDuration::from_mins(10);

/// The name of a new one.
pub fn name(now: Timestamp) -> String {
    format!("{PREFIX}{}_{}", std::process::id(), now.as_millisecond())
}

/// When a key was stored, if it is one.
fn stored_at(name: &str) -> Option<Timestamp> {
    let (_, at) = name.strip_prefix(PREFIX)?.split_once('_')?;
    Timestamp::from_millisecond(at.parse().ok()?).ok()
}

#[derive(Deserialize)]
struct Stored {
    secrets: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Living {
    network: Given,
}

#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    secrets: Vec<String>,
}

/// Those that were forgotten: of no sandbox that lives, and not of one that is about to.
pub async fn forgotten(client: &Client) -> Result<Vec<String>, crate::client::ClientError> {
    let stored: Stored = client.get("/v1/secrets").await?;
    let keys: Vec<String> = stored.secrets.into_iter().map(|secret| secret.name).collect();
    if !keys.iter().any(|name| stored_at(name).is_some()) {
        return Ok(Vec::new());
    }
    let living: Vec<Living> = client.get("/v1/sandboxes").await?;
    let used: BTreeSet<String> = living.into_iter().flat_map(|sandbox| sandbox.network.secrets).collect();
    Ok(unused(keys, &used, Timestamp::now()))
}

fn unused(keys: Vec<String>, used: &BTreeSet<String>, now: Timestamp) -> Vec<String> {
    let is_old = |name: &str| stored_at(name).is_some_and(|at| now.duration_since(at) > BEFORE_ITS_SANDBOX);
    keys.into_iter().filter(|name| is_old(name) && !used.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_keys_of_no_sandbox_are_forgotten() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |minutes| name(now - SignedDuration::from_mins(minutes));
        let keys = vec![ago(60), ago(90), ago(1), "API_KEY".to_owned(), "AGENT_KEY_MINE".to_owned()];
        let used = BTreeSet::from([ago(90)]);
        assert_eq!(unused(keys, &used, now), [ago(60)]);
    }
}
