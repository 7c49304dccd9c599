//! Removes a sandbox that a command created for itself.

use std::time::Duration;

use sandling_engine::with_causes;

use crate::client::Client;

/// How long to wait for the server to remove something.
pub const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Removes a sandbox. It is no error if the sandbox has already ended.
pub async fn remove_sandbox(client: &Client, sandbox: &str) {
    if let Err(error) = client.delete_within(&format!("/v1/sandboxes/{sandbox}"), REMOVE_TIMEOUT).await {
        let why = with_causes(&error);
        eprintln!("sandling: cannot remove sandbox {sandbox}; it ends when its TTL expires: {why}");
    }
}
