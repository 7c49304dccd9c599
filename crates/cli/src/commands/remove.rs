//! The end of a sandbox that a command made for itself.

use std::time::Duration;

use crate::client::Client;
use crate::outcome;

/// A server that has not removed something by then will not.
pub const REMOVE_WITHIN: Duration = Duration::from_secs(30);

/// Removes a sandbox. One that has ended by itself is gone already.
pub async fn remove_sandbox(client: &Client, sandbox: &str) {
    if let Err(error) = client.delete_within(&format!("/v1/sandboxes/{sandbox}"), REMOVE_WITHIN).await {
        let why = outcome::chain(&error);
        eprintln!("sandling: sandbox {sandbox} could not be removed, and ends by itself when its time is over: {why}");
    }
}
