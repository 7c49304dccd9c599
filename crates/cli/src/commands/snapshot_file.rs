//! `sandling snapshot export` and `import`.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::{Bytes, Frame};
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::client::{Client, ClientError, query, segment};
use crate::outcome;

const CHUNK_SIZE: u64 = 256 * 1024;

/// Writes to a temporary file first, so that `file` is complete once it exists.
pub async fn export(client: &Client, snapshot: &str, file: &Path) -> anyhow::Result<()> {
    let response = client.get_raw(&format!("/v1/snapshots/{}/export", segment(snapshot))).await?;
    let mut body = response.into_body();
    let to_stdout = file == Path::new("-");
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable = || format!("cannot write {}", file.display());
    let mut temporary = match to_stdout {
        true => None,
        false => Some(NamedTempFile::new_in(parent).with_context(unwritable)?),
    };
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(ClientError::broken)?.into_data() else { continue };
        match &mut temporary {
            Some(file) => file.write_all(&bytes).with_context(unwritable)?,
            None => io::stdout().write_all(&bytes).map_err(outcome::stdout_error)?,
        }
    }
    match temporary {
        Some(temporary) => drop(temporary.persist(file).with_context(unwritable)?),
        None => io::stdout().flush().map_err(outcome::stdout_error)?,
    }
    Ok(())
}

pub async fn import(client: &Client, file: &Path, name: Option<&str>) -> anyhow::Result<serde_json::Value> {
    let source: Box<dyn AsyncRead + Unpin + Send> = if file == Path::new("-") {
        Box::new(tokio::io::stdin())
    } else {
        let opened = tokio::fs::File::open(file).await;
        let opened = opened.with_context(|| format!("cannot read {}", file.display()))?;
        if opened.metadata().await.is_ok_and(|metadata| metadata.is_dir()) {
            bail!("{} is a directory, not a snapshot file", file.display());
        }
        Box::new(opened)
    };
    let chunks = futures_util::stream::unfold(Some(source), async |source| {
        let mut source = source?;
        let mut chunk = Vec::with_capacity(CHUNK_SIZE as usize);
        match (&mut source).take(CHUNK_SIZE).read_to_end(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(Bytes::from(chunk)), Some(source))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let body = StreamBody::new(chunks.map(|chunk: io::Result<Bytes>| chunk.map(Frame::data))).boxed_unsync();
    let path = format!("/v1/snapshots/import{}", query(&[("name", name.map(str::to_owned))]));
    Ok(client.send_for(Method::POST, &path, body).await?)
}
