//! A sandbox's tokens. They are derived from its id and the server's secret, so they stay valid as long as the sandbox
//! exists, across pauses and server restarts. A fork has other tokens.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sandling_engine::SandboxId;
use sha2::{Digest, Sha256};

use crate::app::App;

/// The token for a sandbox's processes and files.
pub(super) fn access(app: &App, id: &SandboxId) -> String {
    app.service.previews.derive(&format!("e2b:access:{id}"))
}

/// The token for the servers in a sandbox whose ports are not public.
pub(super) fn traffic(app: &App, id: &SandboxId) -> String {
    app.service.previews.derive(&format!("e2b:traffic:{id}"))
}

/// The token for one upload of a template's files.
pub(super) fn upload(app: &App, workspace: &str, hash: &str) -> String {
    app.service.previews.derive(&format!("e2b:upload:{workspace}:{hash}"))
}

/// The token for a volume's files. It contains the workspace, because the files' URLs do not.
pub(super) fn volume(app: &App, workspace: &str, id: &str) -> String {
    format!("{workspace}.{}", app.service.previews.derive(&format!("e2b:volume:{workspace}:{id}")))
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
