//! The command: through a server if there is one, else in this process.

use std::process::ExitCode;

use anyhow::bail;

use super::{here, served};
use crate::client::{Client, Origin};
use crate::options::{Common, Template, TemplateCommand};

pub async fn template(common: &Common, options: &Template) -> anyhow::Result<ExitCode> {
    match Client::find()? {
        Some(client) => with_server(common, &client, &options.command).await?,
        None => here::template(common, &options.command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn with_server(common: &Common, client: &Client, command: &TemplateCommand) -> anyhow::Result<()> {
    match (needs_files(command), client.server().origin) {
        (None, _) => served::template(client, command).await,
        // It is this machine's, and so are its files; it sees what changes.
        (Some(_), Origin::Home) => here::template(common, command).await,
        (Some(what), Origin::Environment) => {
            bail!("{what} works only on the server's own machine: run it there, with SANDLING_API unset")
        }
    }
}

/// What of a wish no server does for its clients.
fn needs_files(command: &TemplateCommand) -> Option<&'static str> {
    match command {
        TemplateCommand::Build(build) if build.kernel.is_some() => Some("--kernel"),
        TemplateCommand::Build(build) if build.upgrade => Some("--upgrade"),
        TemplateCommand::Build(build) if build.force => Some("--force"),
        TemplateCommand::Build(build) if sandling_image::resolve(&build.name).is_ok() => {
            Some("building a built-in template")
        }
        TemplateCommand::Inspect { verify: true, .. } => Some("--verify"),
        _ => None,
    }
}
