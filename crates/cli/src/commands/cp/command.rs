//! Chooses the direction of a copy.

use anyhow::bail;

use super::remote::Remote;
use super::{download, upload};
use crate::client::Client;
use crate::options::{Cp, Place};

pub async fn cp(options: &Cp) -> anyhow::Result<()> {
    match (&options.source, &options.destination) {
        (Place::Local(source), Place::Remote { sandbox, path }) => {
            let client = Client::require().await?;
            let remote = Remote::new(&client, client.sandbox(sandbox).await?);
            upload::upload(&remote, source, path).await
        }
        (Place::Remote { sandbox, path }, Place::Local(destination)) => {
            let client = Client::require().await?;
            let remote = Remote::new(&client, client.sandbox(sandbox).await?);
            download::download(&remote, path, destination).await
        }
        (Place::Remote { .. }, Place::Remote { .. }) => {
            bail!("cannot copy between two sandboxes; copy to a local path first, then into the other sandbox")
        }
        (Place::Local(_), Place::Local(_)) => {
            bail!("neither path is in a sandbox; write one of them as SANDBOX:PATH")
        }
    }
}
