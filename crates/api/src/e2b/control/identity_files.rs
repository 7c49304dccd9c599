//! The files in which programs of a sandbox find out which one it is, as with E2B.

use std::sync::Arc;

use sandling_engine::{Sandbox, UseError};
use sandling_protocol::WriteMode;

use super::view::template_of;
use crate::e2b::settings::Settings;

const FOLDER: &str = "/run/e2b";

/// Writes the files in the background, so that no create waits for them. A sandbox that was forked or restored has those
/// of the one that was saved, and one that has booted has none.
pub(super) fn write(sandbox: &Arc<Sandbox>) {
    let sandbox = sandbox.clone();
    tokio::spawn(async move {
        let info = sandbox.info();
        let (id, template) = (info.id.compact(), template_of(&info, &Settings::of(&info)));
        let written = tokio::try_join!(
            put(&sandbox, ".E2B_SANDBOX_ID", &id),
            put(&sandbox, ".E2B_TEMPLATE_ID", &template),
            put(&sandbox, ".E2B_SANDBOX", "true"),
        );
        if let Err(error) = written {
            // It may have ended or been paused meanwhile. The next connect writes them again.
            tracing::debug!(
                sandbox = id,
                error = &error as &dyn std::error::Error,
                "cannot write the files of its identity"
            );
        }
    });
}

async fn put(sandbox: &Arc<Sandbox>, name: &str, text: &str) -> Result<(), UseError> {
    let mut upload = sandbox.write_file(&format!("{FOLDER}/{name}"), WriteMode::Replace, Some(0o444), None)?;
    upload.send(text.as_bytes()).await?;
    upload.finish().await.map(drop)
}
