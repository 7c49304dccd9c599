//! Tokens that E2B's clients use in place of an API token. Each is derived from the API token that asked for it and ends
//! with it. A sandbox's tokens stay the same across pauses and server restarts; a fork has other tokens.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use sandling_engine::SandboxId;
use sandling_service::{Principal, WorkspaceName};
use sha2::{Digest, Sha256};

use crate::app::App;

/// How long an upload may take to begin.
const UPLOAD_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// A client gets a new token whenever it connects to the volume.
const VOLUME_TTL: SignedDuration = SignedDuration::from_hours(24);

/// The token for a sandbox's processes and files.
pub(super) fn access(app: &App, origin: &Principal, id: &SandboxId) -> String {
    app.service.derived_tokens.issue(origin, &access_purpose(id))
}

/// The token for a sandbox's contexts, and for its servers if its ports are not public.
pub(super) fn traffic(app: &App, origin: &Principal, id: &SandboxId) -> String {
    app.service.derived_tokens.issue(origin, &traffic_purpose(id))
}

/// The token for one upload of a template's files.
pub(super) fn upload(app: &App, origin: &Principal, hash: &str) -> String {
    app.service.derived_tokens.issue_until(origin, &upload_purpose(hash), Timestamp::now() + UPLOAD_WITHIN)
}

/// The token for a volume's files.
pub(super) fn volume(app: &App, origin: &Principal, id: &str) -> String {
    app.service.derived_tokens.issue_until(origin, &volume_purpose(id), Timestamp::now() + VOLUME_TTL)
}

/// The holder of a sandbox's access token.
pub(super) fn check_access(app: &App, token: &str, id: &SandboxId) -> Option<Principal> {
    app.service.derived_tokens.check(token, &access_purpose(id))
}

/// The holder of a sandbox's traffic token.
pub(super) fn check_traffic(app: &App, token: &str, id: &SandboxId) -> Option<Principal> {
    app.service.derived_tokens.check(token, &traffic_purpose(id))
}

pub(super) fn check_upload(app: &App, token: &str, hash: &str) -> Option<Principal> {
    app.service.derived_tokens.check(token, &upload_purpose(hash))
}

pub(super) fn check_volume(app: &App, token: &str, id: &str) -> Option<Principal> {
    app.service.derived_tokens.check(token, &volume_purpose(id))
}

/// The workspace of a token for a volume's files or for an upload. This does not check the token.
pub(super) fn workspace_of(app: &App, token: &str) -> Option<WorkspaceName> {
    app.service.derived_tokens.workspace(token)
}

/// The sandbox that an access token belongs to.
pub(super) fn sandbox_of(app: &App, token: &str) -> Option<SandboxId> {
    let purposes = app.engine.list().into_iter().map(|info| (info.id.clone(), access_purpose(&info.id)));
    app.service.derived_tokens.find(token, purposes).map(|(id, _)| id)
}

/// The access tokens of a sandbox that work now.
pub(super) fn access_candidates(app: &App, workspace: &str, id: &SandboxId) -> Vec<String> {
    let workspace = WorkspaceName::parse(workspace);
    workspace.map(|name| app.service.derived_tokens.candidates(&name, &access_purpose(id))).unwrap_or_default()
}

fn access_purpose(id: &SandboxId) -> String {
    format!("e2b:access:{id}")
}

fn traffic_purpose(id: &SandboxId) -> String {
    format!("e2b:traffic:{id}")
}

fn upload_purpose(hash: &str) -> String {
    format!("e2b:upload:{hash}")
}

fn volume_purpose(id: &str) -> String {
    format!("e2b:volume:{id}")
}

/// Compares two secrets in constant time.
pub(super) fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

/// The signed parts of a file's URL.
pub(super) struct Signed<'a> {
    pub(super) path: &'a str,
    /// `read` or `write`.
    pub(super) operation: &'static str,
    pub(super) user: &'a str,
    pub(super) expires: Option<i64>,
}

impl Signed<'_> {
    pub(super) fn signature(&self, token: &str) -> String {
        let Self { path, operation, user, .. } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expires) = self.expires {
            text += &format!(":{expires}");
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_clients() {
        // Created by the Python client's `get_signature("/a b", "read", "user", "tok", …)`.
        let mut signed = Signed { path: "/a b", operation: "read", user: "user", expires: None };
        assert_eq!(signed.signature("tok"), PLAIN);
        signed.expires = Some(1_700_000_000);
        assert_eq!(signed.signature("tok"), EXPIRING);
    }

    const PLAIN: &str = "v1_cDBbVx4OFeTfc039TEq86uOXWNOUawaaYVIpCzB4iG8";
    const EXPIRING: &str = "v1_Oc18ryPTYb4ELTU1gEFR5cHfGixsdjUNN/NqpqH5plc";

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        assert!(same("abc", "abc") && !same("abc", "abd") && !same("abc", "ab") && !same("", "a"));
    }
}
