//! `sandling ports`.

use sandling_wire::CreatePreview;
use serde_json::Value;

use crate::client::{Client, Port};
use crate::options::Ports;
use crate::show;

pub async fn ports(options: &Ports) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    if let Some(port) = options.link {
        let request = CreatePreview { port, ttl_seconds: Some(options.ttl), paths: None };
        let created: Value = client.post(&format!("/v1/sandboxes/{sandbox}/preview-token"), &request).await?;
        return show::field(&created, "url", options.json);
    }
    let mut answer: Value = client.get(&format!("/v1/sandboxes/{sandbox}/ports")).await?;
    let ports = answer["ports"].take();
    if !options.json && ports.as_array().is_some_and(Vec::is_empty) {
        eprintln!("No program in this sandbox listens on a TCP port.");
        return Ok(());
    }
    show::list(ports, options.json, &["port", "preview URL"], |port: Port| [port.port.to_string(), port.preview_url])?;
    if !options.json {
        eprintln!(
            "A preview needs a token. `sandling ports {} --link PORT` prints a link that has one.",
            options.sandbox
        );
    }
    Ok(())
}
