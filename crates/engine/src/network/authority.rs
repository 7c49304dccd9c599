//! The certificate authority of one sandbox: made when something of its TLS is to be opened, trusted by its guest only.

use std::sync::Arc;
use std::time::Duration;

use sandling_network::Authority;
use sandling_protocol::{ExecSpec, OnLimit, Program, Request, Response, Stdin};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::shared::Shared;
use crate::link::{Link, LinkError};
use crate::model::SandboxId;

/// Where the guest's programs find all authorities, its own among them.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Where only its own authority and those of the operator are.
const OWN: &str = "/usr/local/share/ca-certificates/sandling.crt";

/// The bundle for programs that read one file, the hashed link for those that look through the directory.
const INSTALL: &str = r#"set -e
mkdir -p "${1%/*}" "${2%/*}"
[ ! -s "$2" ] || [ -z "$(tail -c 1 "$2")" ] || echo >>"$2"
printf '%s\n' "$3" | tee -a "$1" >>"$2"
if hash=$(printf '%s\n' "$3" | openssl x509 -hash -noout 2>/dev/null); then ln -sf "$1" "${2%/*}/$hash.0"; fi"#;

#[derive(Serialize, Deserialize)]
struct SavedAuthority {
    certificate: String,
    key: String,
}

/// Variables by which programs that do not use the system's authorities find them.
pub(super) fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let bundle = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"];
    let bundle = bundle.into_iter().chain(["AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO"]);
    bundle.map(|name| (name, BUNDLE)).chain([("NODE_EXTRA_CA_CERTS", OWN), ("DENO_CERT", OWN)])
}

/// Makes a guest trust authorities, in PEM.
pub(super) async fn install(link: &Link, certificate: &str, within: Duration) -> Result<(), NetworkError> {
    let words = ["/bin/sh", "-c", INSTALL, "sh", OWN, BUNDLE, certificate];
    // Another each time: a run that was given up may still be there, with another certificate.
    let id = format!("sandling-authority-{}", uuid::Uuid::new_v4().simple());
    let spec = ExecSpec {
        id: id.clone(),
        program: Program::Argv(words.map(str::to_owned).to_vec()),
        env: Default::default(),
        cwd: None,
        user: Some("root".to_owned()),
        timeout_ms: Some(within.as_millis() as u64),
        output_limit: 1 << 16,
        on_limit: OnLimit::Kill,
        stdin: Stdin::Closed,
        terminal: None,
    };
    let ended = link.open(Request::Run(spec), &[])?.drain(|_, _| {}).await?;
    link.call(Request::Forget { exec: id }).await?;
    match ended {
        Response::Exited(exit) if exit.code == 0 => Ok(()),
        Response::Exited(exit) => Err(NetworkError::Install { code: exit.code }),
        _ => Err(LinkError::Unexpected.into()),
    }
}

fn purpose(sandbox: &SandboxId) -> String {
    format!("authority {sandbox}")
}

impl Shared {
    /// Stores a sandbox's authority for its next gateway.
    pub(super) fn save_authority(&self, sandbox: &SandboxId, authority: &Authority) -> Result<(), NetworkError> {
        let saved = SavedAuthority {
            certificate: authority.certificate_pem().to_owned(),
            key: authority.key_pem().as_str().to_owned(),
        };
        let text = serde_json::to_vec(&saved).map_err(|error| NetworkError::Key(error.into()))?;
        self.save_authority_text(sandbox, &text)
    }

    pub(super) fn save_authority_text(&self, sandbox: &SandboxId, text: &[u8]) -> Result<(), NetworkError> {
        let sealed = self.vault.seal(&purpose(sandbox), text).map_err(NetworkError::Key)?;
        Ok(self.store.put_authority(sandbox.as_str(), &sealed)?)
    }

    /// A sandbox's authority as it is stored, decrypted.
    pub(super) fn authority_text(&self, sandbox: &SandboxId) -> Result<Option<String>, NetworkError> {
        let Some(sealed) = self.store.authority(sandbox.as_str())? else { return Ok(None) };
        let text = self.vault.open(&purpose(sandbox), &sealed).map_err(NetworkError::Key)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// The authority that a sandbox's guest trusts, if it has one.
    pub(super) fn authority_of(&self, sandbox: &SandboxId) -> Result<Option<Arc<Authority>>, NetworkError> {
        let Some(text) = self.authority_text(sandbox)? else { return Ok(None) };
        let saved: SavedAuthority = serde_json::from_str(&text).map_err(|error| NetworkError::Key(error.into()))?;
        Ok(Some(Arc::new(Authority::from_pem(&saved.certificate, &saved.key)?)))
    }
}
