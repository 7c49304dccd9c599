//! `sandling snapshot`.

use std::path::Path;

use anyhow::{Context, bail};
use futures_util::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::client::{Client, ClientError, query};
use crate::options::SnapshotCommand;
use crate::save::save;
use crate::show;

const CHUNK_SIZE: usize = 256 * 1024;

#[derive(Deserialize)]
struct SnapshotEntry {
    id: String,
    name: Option<String>,
    sandbox_id: String,
    template: String,
    created_at: Timestamp,
    size_bytes: u64,
    depth: usize,
    /// Servers of earlier versions do not say it.
    #[serde(default)]
    durability: String,
}

pub async fn snapshot(command: &SnapshotCommand) -> anyhow::Result<()> {
    let client = Client::require().await?;
    match command {
        SnapshotCommand::Create { sandbox, name, volumes, disk_only, durable, json } => {
            let sandbox = client.sandbox(sandbox).await?;
            let mut request = json!({ "name": name, "volumes": volumes, "keep_memory": !disk_only });
            if *durable {
                request["durable"] = true.into();
            }
            let created: Value = client.post(&format!("/v1/sandboxes/{sandbox}/snapshots"), &request).await?;
            show::field(&created, "id", *json)
        }
        SnapshotCommand::Ls { json } => list(client.get("/v1/snapshots").await?, *json),
        SnapshotCommand::Export { snapshot, file } => {
            save(&client, &format!("{}/export", path(&client, snapshot).await?), file).await
        }
        SnapshotCommand::Import { file, name, json } => {
            show::field(&import(&client, file, name.clone()).await?, "id", *json)
        }
        SnapshotCommand::ToTemplate { snapshot, name, description } => {
            let request = json!({ "name": name, "description": description });
            client.tell(&format!("{}/template", path(&client, snapshot).await?), &request).await?;
            show::line(name)
        }
        SnapshotCommand::Rm { snapshots } => {
            for id in snapshots {
                client.delete(&path(&client, id).await?).await?;
                show::line(id)?;
            }
            Ok(())
        }
    }
}

async fn path(client: &Client, snapshot: &str) -> Result<String, ClientError> {
    Ok(format!("/v1/snapshots/{}", client.snapshot(snapshot).await?))
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let header = ["id", "name", "of", "template", "age", "adds", "layers", "durability"];
    show::list(answer["snapshots"].take(), json, &header, |snapshot: SnapshotEntry| {
        [
            snapshot.id,
            snapshot.name.unwrap_or_default(),
            show::short(&snapshot.sandbox_id).to_owned(),
            snapshot.template,
            show::span(snapshot.created_at, now),
            show::bytes(snapshot.size_bytes),
            snapshot.depth.to_string(),
            snapshot.durability,
        ]
    })
}

async fn import(client: &Client, file: &Path, name: Option<String>) -> anyhow::Result<Value> {
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
    let frames = ReaderStream::with_capacity(source, CHUNK_SIZE).map_ok(Frame::data);
    let path = format!("/v1/snapshots/import{}", query(&[("name", name)]));
    Ok(client.send_for(Method::POST, &path, StreamBody::new(frames).boxed_unsync()).await?)
}
