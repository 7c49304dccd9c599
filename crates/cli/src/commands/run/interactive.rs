//! `sandling run -it`: a shell in a sandbox that is removed when the shell exits.

use std::process::ExitCode;

use anyhow::bail;
use sandling_wire::{CreateSandbox, ExecRequest};
use serde_json::Value;

use super::files::Files;
use super::guest::Guest;
use crate::client::{Client, field};
use crate::commands::exec::in_terminal;
use crate::commands::image::{self, ImageSource};
use crate::commands::shell::LOGIN_SHELL;
use crate::commands::{remove_sandbox, server_for, waiting};
use crate::options::{Common, Run};
use crate::terminal;

/// Ends the sandbox if this process is killed.
const TTL_SECONDS: u64 = 24 * 3600;

pub async fn shell(common: &Common, options: &Run) -> anyhow::Result<ExitCode> {
    if !terminal::is_interactive() {
        bail!("a shell needs a terminal, but stdin or stdout is not one; use `sandling run -c CODE`");
    }
    let files = Files::of(options, None)?;
    let client = match server_for(common).await? {
        Some(client) => client,
        None => Client::find_or_start().await?,
    };
    let (template, reference) = match options.image.as_deref().map(ImageSource::parse) {
        None => (Some(options.template.clone()), None),
        Some(ImageSource::Reference(reference)) => (None, Some(reference)),
        Some(ImageSource::File(path)) => (Some(image::template_of_file(common, Some(&client), &path).await?), None),
    };
    let request = CreateSandbox {
        template,
        image: reference,
        ttl_seconds: Some(TTL_SECONDS),
        env: Some(options.env.iter().cloned().collect()),
        ..options.create_request()?
    };
    let creating = client.post::<Value>("/v1/sandboxes", &request);
    let created = waiting::with_progress(&client, &request, creating).await?;
    let id = field(&created, "id")?;
    let done = in_sandbox(&client, &id, options, files.as_ref()).await;
    remove_sandbox(&client, &id).await;
    done
}

async fn in_sandbox(client: &Client, id: &str, options: &Run, files: Option<&Files>) -> anyhow::Result<ExitCode> {
    let guest = Guest::Remote { client, id };
    guest.prepare(options, files).await?;
    let cwd = files.map(|files| files.cwd.display().to_string());
    let request = ExecRequest { cmd: Some(LOGIN_SHELL.to_owned()), cwd, ..ExecRequest::default() };
    in_terminal(client, id, request).await
}
