//! Which way a copy goes.

use std::process::ExitCode;

use anyhow::bail;

use super::remote::Remote;
use super::{download, upload};
use crate::client::Client;
use crate::options::{Cp, Place};

pub async fn cp(options: &Cp) -> anyhow::Result<ExitCode> {
    match (&options.source, &options.destination) {
        (Place::Here(source), Place::There { sandbox, path }) => {
            let client = Client::need()?;
            let remote = Remote::new(&client, client.sandbox(sandbox).await?);
            upload::upload(&remote, source, path).await?;
        }
        (Place::There { sandbox, path }, Place::Here(destination)) => {
            let client = Client::need()?;
            let remote = Remote::new(&client, client.sandbox(sandbox).await?);
            download::download(&remote, path, destination).await?;
        }
        (Place::There { .. }, Place::There { .. }) => {
            bail!("from one sandbox to another it takes two copies: one to here, one from here")
        }
        (Place::Here(_), Place::Here(_)) => {
            bail!("neither path is in a sandbox: write SANDBOX:PATH for the one that is")
        }
    }
    Ok(ExitCode::SUCCESS)
}
