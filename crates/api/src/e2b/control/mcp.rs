//! The MCP gateway: a program that E2B's clients run in a new sandbox and that serves MCP servers at one URL.

use std::sync::Arc;

use sandling_engine::{Sandbox, UseError};
use sandling_protocol::WriteMode;

/// The program. It comes from the server and not from the template, so that every image with Python can have it.
const PROGRAM: &[u8] = include_bytes!("mcp_gateway.py");
/// Where the clients' command finds it.
const PATH: &str = "/usr/local/bin/mcp-gateway";

/// Puts the gateway into a sandbox.
pub(super) async fn install(sandbox: &Arc<Sandbox>) -> Result<(), UseError> {
    let mut upload = sandbox.write_file(PATH, WriteMode::Replace, Some(0o755), None)?;
    upload.send(PROGRAM).await?;
    upload.finish().await.map(drop)
}
