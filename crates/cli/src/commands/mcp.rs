//! `sandling mcp`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sandling_agent::ProjectTree;
use sandling_mcp::{Checkpoints, SessionSettings, session_sandbox};
use sandling_tools::Settings;
use sandling_wire::CreateSandbox;
use tokio::net::TcpListener;

use crate::client::Client;
use crate::options::Mcp;
use crate::signals::stop_on_signals;

pub async fn mcp(options: &Mcp) -> anyhow::Result<()> {
    let tools = Settings {
        timeout: Duration::from_secs(options.timeout),
        max_output: options.max_output,
        desktop: options.desktop_tools(),
        ..Settings::default()
    };
    let idle = Duration::from_secs(options.idle);
    let checkpoints = if options.checkpoints { Checkpoints::EveryStep } else { Checkpoints::OnRequest };
    let machine = CreateSandbox {
        template: options.image.is_none().then(|| options.template().to_owned()),
        image: options.image.clone(),
        ..options.machine.request()?
    };
    let files = match &options.files {
        Some(directory) => {
            let root = directory.canonicalize().with_context(|| format!("cannot read {}", directory.display()))?;
            Some(Arc::new(ProjectTree::read(&root)?.to_archive()?))
        }
        None => None,
    };
    let settings = SessionSettings {
        sandbox: Arc::new(session_sandbox(machine, idle, checkpoints)),
        files,
        setup: options.setup.clone(),
        idle,
        checkpoints,
        tools,
    };
    let stop = stop_on_signals()?;
    let Some(address) = options.http else {
        return Ok(sandling_mcp::serve_stdio(settings, stop).await?);
    };
    let token = Client::find_or_start().await?.server().token.clone();
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    println!("sandling serves MCP at http://{}/mcp", listener.local_addr()?);
    Ok(sandling_mcp::serve_http(listener, token, settings, stop).await?)
}
