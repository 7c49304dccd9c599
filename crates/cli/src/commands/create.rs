//! `sandling create`.

use sandling_wire::{CheckpointsName, CreateSandbox};
use serde_json::Value;

use crate::client::Client;
use crate::options::Create;
use crate::show;

pub async fn create(options: &Create) -> anyhow::Result<()> {
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
        checkpoints: options.checkpoints.as_ref().map(|_| CheckpointsName::EveryExec),
        checkpoints_kept: options.checkpoints_kept,
        ..options.machine.request()?
    };
    let created: Value = client.post("/v1/sandboxes", &request).await?;
    show::field(&created, "id", options.json)
}
