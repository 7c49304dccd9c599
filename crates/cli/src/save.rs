//! Writes files that appear only when they are complete.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use http_body_util::BodyExt;
use tempfile::NamedTempFile;

use crate::client::{Client, ClientError};
use crate::outcome;

/// A temporary file in the directory of `path`, to be renamed to it.
pub fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Streams the response of a GET request to a file, or to stdout if the file is `-`.
pub async fn save(client: &Client, route: &str, file: &Path) -> anyhow::Result<()> {
    let mut body = client.get_raw(route).await?.into_body();
    let unwritable = || format!("cannot write {}", file.display());
    let mut temporary = match file == Path::new("-") {
        true => None,
        false => Some(temporary_beside(file).with_context(unwritable)?),
    };
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(ClientError::broken)?.into_data() else { continue };
        match &mut temporary {
            Some(temporary) => temporary.write_all(&bytes).with_context(unwritable)?,
            None => io::stdout().write_all(&bytes).map_err(outcome::stdout_error)?,
        }
    }
    match temporary {
        Some(temporary) => temporary.persist(file).with_context(unwritable)?.sync_all().with_context(unwritable),
        None => io::stdout().flush().map_err(outcome::stdout_error),
    }
}
