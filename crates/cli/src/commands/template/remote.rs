//! Template commands through a server.

use std::time::Instant;

use anyhow::bail;
use http_body_util::{BodyExt, Empty};
use hyper::Method;
use sandling_wire::{BuildRequest, ExecRequest, FreedView, PullTemplate};
use serde_json::Value;

use super::dockerfile::Source;
use super::list;
use crate::client::{Body, Build as Progress, Client, segment};
use crate::commands::exec::in_terminal;
use crate::options::{Build, TemplateCommand};
use crate::{show, terminal};

const SHELL: &str = "command -v bash >/dev/null && exec bash -l; exec /bin/sh";

pub async fn template(client: &Client, command: &TemplateCommand) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Build(options) => build(client, options).await,
        TemplateCommand::Ls { json } => list::print(client.get("/v1/templates").await?, *json),
        TemplateCommand::Inspect { name, .. } => show::json(&client.get::<Value>(&path(name)).await?),
        TemplateCommand::Pull { name, from, replace } => {
            let request = PullTemplate { from: from.clone(), replace: Some(*replace) };
            pull(client, name, &request).await
        }
        TemplateCommand::Rm { name } => {
            let route = format!("{}?report=true", path(name));
            let freed: FreedView = client.send_for(Method::DELETE, &route, whole_body()).await?;
            list::print_removed(name, freed.bytes)
        }
        TemplateCommand::History { name, json } => {
            list::print_versions(client.get(&format!("{}/history", path(name))).await?, *json)
        }
        TemplateCommand::Export { .. } | TemplateCommand::Import { .. } => {
            bail!("templates are exported and imported only on the server's own machine")
        }
        TemplateCommand::Gc { json } => {
            let freed = client.send_for(Method::DELETE, "/v1/templates/builds/cache", whole_body()).await?;
            list::print_freed(freed, *json)
        }
    }
}

fn whole_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn path(name: &str) -> String {
    format!("/v1/templates/{}", segment(name))
}

async fn build(client: &Client, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    if options.shell_on_failure && !terminal::is_interactive() {
        bail!("--shell-on-failure needs a terminal, but stdin or stdout is not one");
    }
    let request = if options.is_dockerfile() {
        Source::read(options)?.send(client, options).await?
    } else {
        let added = options.added()?;
        BuildRequest {
            name: options.name.clone(),
            from: Some(options.from.clone()),
            packages: added.debian,
            npm: added.npm,
            pip: added.pip,
            requirements: added.requirements,
            warm: options.warm.clone(),
            no_cache: Some(options.ignores_cache()),
            keep_failed: Some(options.shell_on_failure),
            replace: Some(true),
            cpu: options.cpus,
            memory_mb: options.memory,
            disk_mb: options.disk,
            ..BuildRequest::default()
        }
    };
    let Progress { id, .. } = client.post("/v1/templates/build", &request).await?;
    let built = follow(client, &id).await?;
    match (built.status.as_str(), built.error, built.sandbox) {
        ("done", ..) => print_ready(&options.name, built.bytes, started),
        (_, Some(error), Some(sandbox)) => {
            show::line(format_args!("{error}"))?;
            look(client, &sandbox).await
        }
        (_, Some(error), None) => bail!(error),
        (status, None, _) => bail!(
            "the build did not finish: the server stopped while its status was {status:?}; build the template again"
        ),
    }
}

async fn pull(client: &Client, name: &str, request: &PullTemplate) -> anyhow::Result<()> {
    let started = Instant::now();
    let Progress { id, .. } = client.post(&format!("{}/pull", path(name)), request).await?;
    let pulled = follow(client, &id).await?;
    match (pulled.status.as_str(), pulled.error) {
        ("done", _) => print_ready(name, pulled.bytes, started),
        (_, Some(error)) => bail!(error),
        (status, None) => {
            bail!(
                "the copy did not finish: the server stopped while its status was {status:?}; pull the template again"
            )
        }
    }
}

fn print_ready(name: &str, bytes: Option<u64>, started: Instant) -> anyhow::Result<()> {
    show::line(format_args!(
        "{name} is ready: {} on disk, {:.0} s",
        show::bytes(bytes.unwrap_or_default()),
        started.elapsed().as_secs_f64()
    ))
}

/// Opens a shell in the machine of a failed build, and removes it afterwards.
async fn look(client: &Client, sandbox: &str) -> anyhow::Result<()> {
    show::line(format_args!("this is the machine of the failed step; `exit` removes it"))?;
    let sandbox = client.sandbox(sandbox).await?;
    let request = ExecRequest { cmd: Some(SHELL.to_owned()), user: Some("root".to_owned()), ..ExecRequest::default() };
    let ended = in_terminal(client, &sandbox, request).await;
    client.delete(&format!("/v1/sandboxes/{}", segment(&sandbox))).await?;
    ended?;
    bail!("the build failed")
}

/// Shows a build's steps until it ends.
async fn follow(client: &Client, id: &str) -> anyhow::Result<Progress> {
    let progress = show::Progress::new();
    let mut steps = client.events(&format!("/v1/templates/builds/{id}/logs?follow=true"), None).await?;
    while let Some(step) = steps.next().await? {
        if step.name != "done" {
            progress.print(&step.data);
        }
    }
    progress.done();
    Ok(client.get(&format!("/v1/templates/builds/{id}")).await?)
}
