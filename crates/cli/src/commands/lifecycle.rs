//! `sandling pause`, `resume`, `hibernate` and `wake`, which act on several sandboxes.
//!
//! A failure is printed, and the remaining sandboxes are still processed.

use std::process::ExitCode;

use sandling_wire::HibernateRequest;
use serde::Serialize;
use serde_json::json;

use crate::client::{Client, ClientError};
use crate::options::{Hibernate, SandboxList};
use crate::{outcome, show};

/// Requests a state change, which is the last segment of its route, for each sandbox.
pub async fn change_state(options: &SandboxList, change: &str) -> anyhow::Result<ExitCode> {
    change_with(options, change, &json!({})).await
}

pub async fn hibernate(options: &Hibernate) -> anyhow::Result<ExitCode> {
    change_with(&options.list, "hibernate", &HibernateRequest { keep_memory: !options.disk_only }).await
}

async fn change_with(options: &SandboxList, change: &str, body: &impl Serialize) -> anyhow::Result<ExitCode> {
    let client = Client::require().await?;
    let request = async |id: &str| client.tell(&format!("/v1/sandboxes/{id}/{change}"), body).await;
    for_each(&client, &options.sandboxes, request).await
}

/// Runs `work` for each sandbox in order and prints the IDs for which it succeeded.
pub async fn for_each(
    client: &Client,
    named: &[String],
    work: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> anyhow::Result<ExitCode> {
    let mut last = ExitCode::SUCCESS;
    for name in named {
        let done = async {
            let id = client.sandbox(name).await?;
            work(&id).await?;
            Ok::<_, ClientError>(id)
        };
        match done.await {
            Ok(id) => show::line(id)?,
            Err(error) if named.len() == 1 => return Err(error.into()),
            Err(error) => last = outcome::report_error(&anyhow::Error::from(error).context(name.clone())),
        }
    }
    Ok(last)
}
