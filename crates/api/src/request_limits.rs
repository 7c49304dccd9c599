//! Counts requests against the limits of the token that they come with.

use axum::http::Extensions;
use sandling_engine::SandboxId;
use sandling_service::WorkspaceName;

use crate::app::App;
use crate::error::ApiError;
use crate::peer::Peer;

/// Whose limits a request counts against.
pub(crate) enum Holder<'a> {
    /// An API token, by its prefix.
    Token(&'a str),
    /// A preview token, by its id.
    Preview(&'a str),
    /// The access token of a sandbox.
    Sandbox(&'a SandboxId),
    /// The token of a volume, by the volume's id.
    Volume(&'a str),
    /// Anybody who uses the public ports of a sandbox. They need no token, so they share these limits.
    Ports(&'a SandboxId),
}

impl Holder<'_> {
    fn key(&self) -> String {
        match self {
            Self::Token(prefix) => format!("token {prefix}"),
            Self::Preview(id) => format!("preview {id}"),
            Self::Sandbox(id) => format!("sandbox {id}"),
            Self::Volume(id) => format!("volume {id}"),
            Self::Ports(id) => format!("ports {id}"),
        }
    }
}

/// Admits a request whose token was checked. The request counts as open until its response or its socket has ended.
pub(crate) fn admit(
    app: &App,
    extensions: &Extensions,
    workspace: &WorkspaceName,
    holder: Holder<'_>,
) -> Result<(), ApiError> {
    let permit = app.service.request_limiter.admit(workspace, &holder.key())?;
    if let Some(peer) = extensions.get::<Peer>() {
        peer.hold(permit);
        if !matches!(holder, Holder::Ports(_)) {
            peer.authenticate();
        }
    }
    Ok(())
}
