//! Serves one client over stdin and stdout.

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, Versions};
use crate::session::{Session, SessionSettings};

#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("the input on stdin is not MCP; this command is for MCP clients, see docs/mcp.md")]
    Handshake(#[source] Box<ServerInitializeError>),
    #[error("the session failed")]
    Broken(#[from] tokio::task::JoinError),
}

/// Serves until the client disconnects or `stop` is cancelled. Then it ends the client's sandboxes.
pub async fn serve_stdio(settings: SessionSettings, stop: CancellationToken) -> Result<(), StdioError> {
    // This function waits for the session itself, so no other holder is needed.
    let (guard, _) = mpsc::channel(1);
    let session = Arc::new(Session::new(settings, guard));
    let handler = Handler { session: session.clone(), versions: Versions::All };
    let served = serve(handler, stop).await;
    session.end().await;
    served
}

async fn serve(handler: Handler, stop: CancellationToken) -> Result<(), StdioError> {
    match handler.serve_with_ct(stdio(), stop).await {
        Ok(running) => running.waiting().await.map(drop).map_err(StdioError::Broken),
        // A client that disconnects before its first message is not an error.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(StdioError::Handshake(Box::new(error))),
    }
}
