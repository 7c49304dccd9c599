//! What must outlast the server for previews to be honest: the secret that signs them, and which of them stand.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use jiff::Timestamp;
use sandling_service::{Access, PreviewError, WorkspaceName};

use super::{PreviewKey, PreviewToken};
use crate::error::ApiError;

const SECRET: &str = "secret";

pub(crate) struct Ledger {
    pub(crate) key: PreviewKey,
    access: Arc<Access>,
}

impl Ledger {
    /// Opens the ledger; the first time, the secret is made.
    pub(crate) fn open(directory: &Path, access: Arc<Access>) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let secret = match read_secret(directory)? {
            Some(secret) => secret,
            None => make_secret(directory)?,
        };
        Ok(Self { key: PreviewKey::new(secret), access })
    }

    /// Gives a token out: as the client will show it.
    pub(crate) fn issue(&self, workspace: &WorkspaceName, token: &PreviewToken) -> Result<String, ApiError> {
        let expires = Timestamp::from_second(token.expires_unix).unwrap_or(Timestamp::MAX);
        self.access.issue_preview(workspace, &token.id, expires)?;
        Ok(self.key.sign(token))
    }

    /// What a token allows, if it is ours, in time and not revoked.
    pub(crate) fn check(&self, signed: &str) -> Option<PreviewToken> {
        let token = self.key.check(signed, Timestamp::now())?;
        match self.access.preview_stands(&token.workspace, &token.id) {
            Ok(stands) => stands.then_some(token),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "whether a preview was revoked is not known");
                None
            }
        }
    }

    /// By a token's id, or by the token itself.
    pub(crate) fn revoke(&self, workspace: &WorkspaceName, token: &str) -> Result<(), ApiError> {
        let signed = self.key.check(token, Timestamp::now());
        let id = signed.as_ref().map_or(token, |signed| &signed.id);
        Ok(self.access.revoke_preview(workspace, id)?)
    }
}

impl From<PreviewError> for ApiError {
    fn from(error: PreviewError) -> Self {
        match error {
            PreviewError::TooMany => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_preview_tokens", error.to_string())
            }
            PreviewError::Unknown => Self::not_found("preview token"),
            PreviewError::Store(source) => source.into(),
        }
    }
}

fn read_secret(directory: &Path) -> io::Result<Option<[u8; 32]>> {
    match fs::read(directory.join(SECRET)) {
        Ok(bytes) => {
            bytes.try_into().map(Some).map_err(|_| io::Error::other("the preview secret is damaged; remove it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all; the first of several processes wins.
fn make_secret(directory: &Path) -> io::Result<[u8; 32]> {
    let secret = crate::random::bytes::<32>();
    let beside = directory.join(format!("secret.{}", crate::random::hex::<8>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&secret)?;
    file.sync_all()?;
    let placed = fs::hard_link(&beside, directory.join(SECRET));
    fs::remove_file(&beside)?;
    match placed {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_secret(directory)?.ok_or_else(|| io::Error::other("the preview secret vanished"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use sandling_engine::Home;
    use sandling_service::AccessSettings;

    use super::*;

    #[test]
    fn a_token_outlasts_the_server_that_signed_it_and_so_does_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path().join("home"));
        home.prepare().unwrap();
        let open = || Ledger::open(directory.path(), Access::open(&home, AccessSettings::default()).unwrap()).unwrap();
        let workspace = WorkspaceName::default();
        let token = PreviewToken {
            id: "0123456789abcdef".to_owned(),
            workspace: workspace.to_string(),
            sandbox: "s".to_owned(),
            port: 80,
            paths: vec![],
            expires_unix: (Timestamp::now() + SignedDuration::from_hours(1)).as_second(),
        };
        let signed = open().issue(&workspace, &token).unwrap();
        let second = open();
        assert_eq!(second.check(&signed), Some(token));
        second.revoke(&workspace, &signed).unwrap();
        assert_eq!(open().check(&signed), None);
        assert_eq!(second.revoke(&workspace, &signed).unwrap_err().code, "not_found");
    }
}
