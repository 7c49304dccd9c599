//! `sandling volume`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::waiting;
use crate::client::{Client, segment};
use crate::options::VolumeCommand;
use crate::show;

#[derive(Deserialize)]
struct VolumeEntry {
    name: String,
    kind: String,
    size_bytes: u64,
    used_bytes: u64,
    created_at: Timestamp,
    attached_to: Vec<User>,
}

#[derive(Deserialize)]
struct User {
    sandbox_id: String,
    read_only: bool,
}

pub async fn volume(command: &VolumeCommand) -> anyhow::Result<()> {
    let client = Client::require().await?;
    match command {
        VolumeCommand::Create { name, size, json } => {
            let created: Value = client.post("/v1/volumes", &json!({ "name": name, "size_mb": size })).await?;
            show::field(&created, "name", *json)
        }
        VolumeCommand::Ls { json } => list(client.get("/v1/volumes").await?, *json),
        VolumeCommand::Inspect { name } => show::json(&client.get::<Value>(&path(name)).await?),
        VolumeCommand::Clone { name, copy, node } => {
            clone(&client, name, copy, node.as_deref()).await?;
            show::line(copy)
        }
        VolumeCommand::Snapshot { name, snapshot } => {
            client.tell(&format!("{}/snapshots", path(name)), &json!({ "name": snapshot })).await?;
            show::line(snapshot)
        }
        VolumeCommand::Rm { names } => {
            for name in names {
                client.delete(&path(name)).await?;
                show::line(name)?;
            }
            Ok(())
        }
    }
}

async fn clone(client: &Client, name: &str, copy: &str, node: Option<&str>) -> anyhow::Result<()> {
    let mut body = json!({ "name": copy });
    let mut what = format!("copying {name}");
    if let Some(node) = node {
        // Servers of earlier versions know no nodes here.
        body["node"] = node.into();
        what += &format!(" to node {node}");
    }
    let path = format!("{}/clone", path(name));
    Ok(waiting::saying(what, client.tell(&path, &body)).await?)
}

fn path(name: &str) -> String {
    format!("/v1/volumes/{}", segment(name))
}

fn list(answer: Value, json: bool) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let header = ["name", "kind", "size", "used", "age", "in use by"];
    show::list(answer, json, &header, |volume: VolumeEntry| {
        let user = |user: &User| {
            let mode = if user.read_only { " (ro)" } else { "" };
            format!("{}{mode}", show::short(&user.sandbox_id))
        };
        [
            volume.name,
            volume.kind,
            show::bytes(volume.size_bytes),
            show::bytes(volume.used_bytes),
            show::span(volume.created_at, now),
            volume.attached_to.iter().map(user).collect::<Vec<_>>().join(", "),
        ]
    })
}
