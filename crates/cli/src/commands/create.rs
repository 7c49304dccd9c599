//! `sandling create`.

use sandling_wire::{CheckpointsName, CreateSandbox, FailoverName};
use serde_json::Value;

use super::image::{self, ImageSource};
use super::waiting;
use crate::client::Client;
use crate::options::{Common, Create};
use crate::show;

pub async fn create(common: &Common, options: &Create) -> anyhow::Result<()> {
    let client = Client::require().await?;
    if let Some(note) = sandling_engine::alias_note(&options.template) {
        eprintln!("sandling: {note}");
    }
    let (template, reference) = match options.image.as_deref().map(ImageSource::parse) {
        None => (Some(options.template.clone()), None),
        Some(ImageSource::Reference(reference)) => (None, Some(reference)),
        Some(ImageSource::File(path)) => (Some(image::template_of_file(common, Some(&client), &path).await?), None),
    };
    let from_snapshot = match &options.from_snapshot {
        Some(named) => Some(client.snapshot(named).await?),
        None => None,
    };
    let request = CreateSandbox {
        name: options.name.clone(),
        template,
        image: reference,
        from_snapshot,
        env: Some(options.env.iter().cloned().collect()),
        labels: Some(options.labels.iter().cloned().collect()),
        ttl_seconds: options.ttl,
        idle_seconds: options.idle,
        persistent: Some(options.persistent),
        checkpoints: options.checkpoints.as_ref().map(|_| CheckpointsName::EveryExec),
        checkpoints_kept: options.checkpoints_kept,
        failover: options.failover.as_ref().map(|_| FailoverName::Snapshot),
        ..options.machine.request()?
    };
    let creating = client.post::<Value>("/v1/sandboxes", &request);
    let created = waiting::with_progress(&client, &request, creating).await?;
    show::field(&created, "id", options.json)
}
