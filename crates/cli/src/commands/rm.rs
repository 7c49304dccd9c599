//! `sandling rm`.

use std::process::ExitCode;

use super::lifecycle::for_each;
use crate::client::{Client, Sandbox};
use crate::options::Rm;

pub async fn rm(options: &Rm) -> anyhow::Result<ExitCode> {
    let client = Client::require().await?;
    let mut named = options.sandboxes.clone();
    if options.all {
        let all: Vec<Sandbox> = client.get("/v1/sandboxes").await?;
        named.extend(all.into_iter().map(|sandbox| sandbox.id));
    }
    for_each(&client, &named, async |id| client.delete(&format!("/v1/sandboxes/{id}")).await).await
}
