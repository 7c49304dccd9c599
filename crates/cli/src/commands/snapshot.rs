//! `sandling snapshot`.

use std::process::ExitCode;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, read, segment};
use crate::commands::snapshot_file;
use crate::options::{OnVolumes, Snapshot, SnapshotCommand};
use crate::show;

#[derive(Deserialize)]
struct SnapshotEntry {
    id: String,
    name: Option<String>,
    sandbox_id: String,
    template: String,
    created_at: Timestamp,
    size_bytes: u64,
    depth: usize,
}

pub async fn snapshot(options: &Snapshot) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    match &options.command {
        SnapshotCommand::Create { sandbox, name, volumes, json } => {
            let sandbox = client.sandbox(sandbox).await?;
            let request = json!({ "name": name, "volumes": volumes.map(OnVolumes::wire_name) });
            let created: Value = client.post(&format!("/v1/sandboxes/{sandbox}/snapshots"), &request).await?;
            if *json {
                show::json(&created)?;
            } else {
                show::line(read::<SnapshotEntry>(created)?.id)?;
            }
        }
        SnapshotCommand::Ls { json } => list(client.get("/v1/snapshots").await?, *json)?,
        SnapshotCommand::Export { snapshot, file } => snapshot_file::export(&client, snapshot, file).await?,
        SnapshotCommand::Import { file, name, json } => {
            let created = snapshot_file::import(&client, file, name.as_deref()).await?;
            if *json { show::json(&created)? } else { show::line(read::<SnapshotEntry>(created)?.id)? }
        }
        SnapshotCommand::ToTemplate { snapshot, name, description } => {
            let request = json!({ "name": name, "description": description });
            let _: Value = client.post(&format!("/v1/snapshots/{}/template", segment(snapshot)), &request).await?;
            show::line(name)?;
        }
        SnapshotCommand::Rm { snapshots } => {
            for id in snapshots {
                client.delete(&format!("/v1/snapshots/{}", segment(id))).await?;
                show::line(id)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    let snapshots = answer["snapshots"].take();
    if json {
        return show::json(&snapshots);
    }
    let now = Timestamp::now();
    let mut table = show::table(&["id", "name", "of", "template", "age", "adds", "layers"]);
    for snapshot in read::<Vec<SnapshotEntry>>(snapshots)? {
        table.add_row([
            snapshot.id,
            snapshot.name.unwrap_or_default(),
            show::short(&snapshot.sandbox_id).to_owned(),
            snapshot.template,
            show::span(snapshot.created_at, now),
            show::bytes(snapshot.size_bytes),
            snapshot.depth.to_string(),
        ]);
    }
    show::line(table)
}
