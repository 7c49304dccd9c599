//! Template commands through a server.

use std::time::Instant;

use anyhow::bail;
use sandling_wire::BuildRequest;
use serde_json::Value;

use super::list;
use crate::client::{Build as Progress, Client, segment};
use crate::options::{Build, TemplateCommand};
use crate::show;

pub async fn template(client: &Client, command: &TemplateCommand) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Build(options) => build(client, options).await,
        TemplateCommand::Ls { json } => list::print(client.get("/v1/templates").await?, *json),
        TemplateCommand::Inspect { name, .. } => show::json(&client.get::<Value>(&path(name)).await?),
        TemplateCommand::Rm { name } => Ok(client.delete(&path(name)).await?),
    }
}

fn path(name: &str) -> String {
    format!("/v1/templates/{}", segment(name))
}

async fn build(client: &Client, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let request = BuildRequest {
        name: options.name.clone(),
        from: Some(options.from.clone()),
        packages: options.packages.clone(),
        npm: options.npm.clone(),
        cpu: options.cpus,
        memory_mb: options.memory,
        disk_mb: options.disk,
        ..BuildRequest::default()
    };
    let Progress { id, .. } = client.post("/v1/templates/build", &request).await?;
    let built = follow(client, &id).await?;
    match (built.status.as_str(), built.error) {
        ("done", _) => {}
        (_, Some(error)) => bail!(error),
        (status, None) => bail!(
            "the build did not finish: the server stopped while its status was {status:?}; build the template again"
        ),
    }
    show::line(format_args!(
        "{} is ready: {} on disk, {:.0} s",
        options.name,
        show::bytes(built.bytes.unwrap_or_default()),
        started.elapsed().as_secs_f64()
    ))
}

/// Shows a build's steps until it ends.
async fn follow(client: &Client, id: &str) -> anyhow::Result<Progress> {
    let progress = show::Progress::new();
    let mut steps = client.events(&format!("/v1/templates/builds/{id}/logs?follow=true"), None).await?;
    while let Some(step) = steps.next().await? {
        if step.name != "done" {
            progress.say(step.data);
        }
    }
    progress.done();
    Ok(client.get(&format!("/v1/templates/builds/{id}")).await?)
}
