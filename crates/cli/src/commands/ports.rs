//! `sandling ports`.

use std::process::ExitCode;

use sandling_wire::CreatePreview;
use serde_json::Value;

use crate::client::{Client, Port, Preview, read};
use crate::options::Ports;
use crate::show;

pub async fn ports(options: &Ports) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    match options.link {
        Some(port) => link(&client, &sandbox, port, options).await?,
        None => list(&client, &sandbox, options.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, sandbox: &str, json: bool) -> anyhow::Result<()> {
    let mut answer: Value = client.get(&format!("/v1/sandboxes/{sandbox}/ports")).await?;
    let ports = answer["ports"].take();
    if json {
        return show::json(&ports);
    }
    let ports: Vec<Port> = read(ports)?;
    if ports.is_empty() {
        eprintln!("No program in this sandbox listens on a TCP port.");
        return Ok(());
    }
    let mut table = show::table(&["port", "preview URL (needs a token; `--link` creates one)"]);
    for port in ports {
        table.add_row([port.port.to_string(), port.preview_url]);
    }
    show::line(table)
}

async fn link(client: &Client, sandbox: &str, port: u16, options: &Ports) -> anyhow::Result<()> {
    let request = CreatePreview { port, ttl_seconds: Some(options.ttl), paths: None };
    let created: Value = client.post(&format!("/v1/sandboxes/{sandbox}/preview-token"), &request).await?;
    if options.json {
        return show::json(&created);
    }
    show::line(read::<Preview>(created)?.url)
}
