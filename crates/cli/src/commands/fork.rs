//! `sandling fork`.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::client::{Client, ClientError};
use crate::options::Fork;
use crate::show;

pub async fn fork(options: &Fork) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    let parent = client.sandbox(&options.sandbox).await?;
    let mut request = json!({ "count": options.count, "inherit_secrets": options.secrets });
    if let Some(ttl) = options.ttl {
        request["ttl_seconds"] = ttl.into();
    }
    if let Some(volumes) = options.volumes {
        request["volumes"] = volumes.wire_name().into();
    }
    let created: Value = client.post(&format!("/v1/sandboxes/{parent}/fork-tree"), &request).await?;
    if options.json {
        show::json(&created)?;
        return Ok(ExitCode::SUCCESS);
    }
    for child in created["children"].as_array().into_iter().flatten() {
        let id = child["id"]
            .as_str()
            .ok_or_else(|| ClientError::UnexpectedResponse("a forked sandbox has no id".to_owned()))?;
        show::line(id)?;
    }
    Ok(ExitCode::SUCCESS)
}
