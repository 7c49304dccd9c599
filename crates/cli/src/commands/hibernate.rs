//! `sandling hibernate`.

use std::process::ExitCode;

use crate::client::Client;
use crate::each;
use crate::options::Named;

pub async fn hibernate(options: &Named) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    each::sandbox(&client, &options.sandboxes, async |id| {
        client.tell(&format!("/v1/sandboxes/{id}/hibernate"), &serde_json::json!({})).await
    })
    .await
}
