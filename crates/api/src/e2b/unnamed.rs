//! Requests that do not name their sandbox, their volume's workspace or their build's: what they carry shows it.

use axum::http::Method;
use axum::http::request::Parts;
use sandling_engine::SandboxId;
use sandling_service::{Principal, WorkspaceName};

use super::place::{ACCESS_TOKEN, is_control};
use super::token::{self, Signed};
use crate::app::App;
use crate::auth::{presented, query_value};

/// The path of a file's content, and what a signed URL of it allows.
pub(super) const FILES: &str = "/files";
pub(super) const READ: &str = "read";
pub(super) const WRITE: &str = "write";
/// In a credential: it is a token.
const TOKEN: &str = "token";

/// How a request that names no sandbox shows which one it is for: by an access token, or by the signature of a file's URL.
pub(crate) fn credential(parts: &Parts) -> Option<String> {
    if is_control(parts.uri.path()) {
        return None;
    }
    if let Some(token) = parts.headers.get(ACCESS_TOKEN) {
        return Some(format!("{TOKEN} {}", token.to_str().ok()?));
    }
    let query = parts.uri.query().filter(|_| parts.uri.path() == FILES)?;
    let operation = if parts.method == Method::POST { WRITE } else { READ };
    (!query_value(Some(query), "signature").is_empty()).then(|| format!("{operation} {query}"))
}

/// The sandbox of this node that a credential is for.
pub(crate) fn sandbox_with(app: &App, credential: &str) -> Option<SandboxId> {
    match credential.split_once(' ')? {
        (TOKEN, token) => token::sandbox_of(app, token),
        (WRITE, query) => signer(app, Some(query), WRITE, None).map(|(_, id)| id),
        (_, query) => signer(app, Some(query), READ, None).map(|(_, id)| id),
    }
}

/// The holder of the token that has signed a file's URL, and the token's sandbox on this node.
pub(super) fn signer(
    app: &App,
    query: Option<&str>,
    operation: &'static str,
    named: Option<&SandboxId>,
) -> Option<(Principal, SandboxId)> {
    let [user, path, signature, expires] =
        ["username", "path", "signature", "signature_expiration"].map(|name| query_value(query, name));
    let expires = (!expires.is_empty()).then(|| expires.parse()).transpose().ok()?;
    let signed = Signed { path: &path, operation, user: &user, expires };
    let fits = |token: &String| token::same(&signed.signature(token), &signature);
    let sandboxes = app.engine.list().into_iter().filter(|info| named.is_none_or(|id| *id == info.id));
    let mut signers = sandboxes.filter_map(|info| {
        let token = token::access_candidates(app, &info.workspace, &info.id).into_iter().find(fits)?;
        Some((token::check_access(app, &token, &info.id)?, info.id))
    });
    signers.next()
}

/// The workspace of a request about a volume's files or an upload, which have tokens of their own. Nothing is checked.
pub(crate) fn workspace_of(app: &App, parts: &Parts) -> Option<WorkspaceName> {
    let path = parts.uri.path();
    if path.starts_with("/volumecontent/") {
        return token::workspace_of(app, &presented(parts));
    }
    let is_upload = parts.method == Method::PUT && path.starts_with("/templates/");
    token::workspace_of(app, &query_value(parts.uri.query().filter(|_| is_upload), "token"))
}
