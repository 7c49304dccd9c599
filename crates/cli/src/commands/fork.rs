//! `sandling fork`.

use serde_json::{Value, json};

use crate::client::{Client, field};
use crate::options::Fork;
use crate::show;

pub async fn fork(options: &Fork) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let parent = client.sandbox(&options.sandbox).await?;
    let mut request = json!({ "count": options.count, "inherit_secrets": options.secrets });
    if let Some(at) = &options.at {
        request["at"] = at.as_str().into();
    }
    if let Some(ttl) = options.ttl {
        request["ttl_seconds"] = ttl.into();
    }
    if let Some(volumes) = &options.volumes {
        request["volumes"] = volumes.as_str().into();
    }
    let created: Value = client.post(&format!("/v1/sandboxes/{parent}/fork-tree"), &request).await?;
    if options.json {
        return show::json(&created);
    }
    for child in created["children"].as_array().into_iter().flatten() {
        show::line(field(child, "id")?)?;
    }
    Ok(())
}
