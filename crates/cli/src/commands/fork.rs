//! `sandling fork`.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::client::{Client, ClientError};
use crate::options::Fork;
use crate::show;

pub async fn fork(options: &Fork) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
    let parent = client.sandbox(&options.sandbox).await?;
    let mut wish = json!({ "count": options.count, "inherit_secrets": options.secrets });
    if let Some(ttl) = options.ttl {
        wish["ttl_seconds"] = ttl.into();
    }
    if let Some(volumes) = options.volumes {
        wish["volumes"] = volumes.wire_name().into();
    }
    let made: Value = client.post(&format!("/v1/sandboxes/{parent}/fork-tree"), &wish).await?;
    if options.json {
        show::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    for child in made["children"].as_array().into_iter().flatten() {
        let id = child["id"].as_str().ok_or_else(|| ClientError::Strange("a child has no id".to_owned()))?;
        show::line(id)?;
    }
    Ok(ExitCode::SUCCESS)
}
