//! Uses the server if there is one, otherwise this process.

use anyhow::bail;

use super::{local, remote};
use crate::client::{Client, Origin};
use crate::options::{Common, TemplateCommand};

pub async fn template(common: &Common, command: &TemplateCommand) -> anyhow::Result<()> {
    if let TemplateCommand::Build(build) = command {
        build.check()?;
    }
    let client = match (Client::find()?, command) {
        (Some(client), _) => client,
        // The machine of a failed build stays on a server.
        (None, TemplateCommand::Build(build)) if build.shell_on_failure => Client::find_or_start().await?,
        (None, _) => return local::template(common, command).await,
    };
    match (needs_files(command), client.server().origin) {
        (None, _) => remote::template(&client, command).await,
        // The server runs on this machine, so its files can be changed directly; it notices the changes.
        (Some(_), Origin::Home) => local::template(common, command).await,
        (Some(what), Origin::Environment) => {
            bail!("{what} works only on the server's own machine: run it there, with SANDLING_API unset")
        }
    }
}

/// The part of a command that a server does not do for its clients, because it needs local files.
fn needs_files(command: &TemplateCommand) -> Option<&'static str> {
    match command {
        TemplateCommand::Build(build) if build.kernel.is_some() => Some("--kernel"),
        TemplateCommand::Build(build) if build.upgrade => Some("--upgrade"),
        TemplateCommand::Build(build) if build.is_built_on_host() => Some("building a built-in template"),
        TemplateCommand::Inspect { verify: true, .. } => Some("--verify"),
        TemplateCommand::Export { .. } => Some("exporting a template"),
        TemplateCommand::Import { .. } => Some("importing a template"),
        _ => None,
    }
}
