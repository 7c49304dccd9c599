//! `sandling create`.

use std::process::ExitCode;

use sandling_wire::{CheckpointsName, CreateSandbox};
use serde_json::Value;

use crate::client::{Client, ClientError};
use crate::options::Create;
use crate::show;

pub async fn create(options: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    if let Some(note) = sandling_engine::alias_note(&options.template) {
        eprintln!("sandling: {note}");
    }
    let request = CreateSandbox {
        template: Some(options.template.clone()),
        from_snapshot: options.from_snapshot.clone(),
        env: Some(options.env.iter().cloned().collect()),
        labels: Some(options.labels.iter().cloned().collect()),
        ttl_seconds: options.ttl,
        idle_seconds: options.idle,
        persistent: Some(options.persistent),
        cpu: options.sizes.cpus,
        memory_mb: options.sizes.memory,
        disk_mb: options.sizes.disk,
        pids: options.sizes.pids,
        checkpoints: options.checkpoints.as_ref().map(|_| CheckpointsName::EveryExec),
        checkpoints_kept: options.checkpoints_kept,
        network: Some(options.reach.request()?),
        volumes: Some(options.volumes.clone()).filter(|volumes| !volumes.is_empty()),
        ..CreateSandbox::default()
    };
    let created: Value = client.post("/v1/sandboxes", &request).await?;
    if options.json {
        show::json(&created)?;
    } else {
        let id = created["id"]
            .as_str()
            .ok_or_else(|| ClientError::UnexpectedResponse("the new sandbox has no id".to_owned()))?;
        show::line(id)?;
    }
    Ok(ExitCode::SUCCESS)
}
