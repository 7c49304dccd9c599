//! `sandling registry`: uses the server if there is one, otherwise this home.

use anyhow::bail;
use jiff::Timestamp;
use sandling_service::{ImageSettings, Images, WorkspaceName};
use sandling_wire::{RegistryList, RegistryView, SetRegistry};
use serde::Deserialize;
use serde_json::Value;

use super::secret::value;
use super::{open_engine, server_for};
use crate::client::{Client, segment};
use crate::options::{Common, RegistryCommand};
use crate::show;

#[derive(Deserialize)]
struct Entry {
    registry: String,
    username: String,
    created_at: Timestamp,
}

pub async fn registry(common: &Common, command: &RegistryCommand) -> anyhow::Result<()> {
    match server_for(common).await? {
        Some(client) => on_server(&client, command).await,
        None => local(common, command).await,
    }
}

async fn on_server(client: &Client, command: &RegistryCommand) -> anyhow::Result<()> {
    match command {
        RegistryCommand::Login { registry, username } => {
            let request = SetRegistry { username: username.clone(), password: value()? };
            client.put::<Value>(&format!("/v1/registries/{}", segment(registry)), &request).await?;
            Ok(())
        }
        RegistryCommand::Logout { registry } => {
            Ok(client.delete(&format!("/v1/registries/{}", segment(registry))).await?)
        }
        RegistryCommand::Ls { json } => list(client.get("/v1/registries").await?, *json),
    }
}

async fn local(common: &Common, command: &RegistryCommand) -> anyhow::Result<()> {
    let images = Images::without_server(open_engine(common).await?, ImageSettings::default())?;
    let workspace = WorkspaceName::default();
    match command {
        RegistryCommand::Login { registry, username } => {
            images.log_in_checked(&workspace, registry, username, &value()?).await?;
            Ok(())
        }
        RegistryCommand::Logout { registry } => {
            if !images.log_out(&workspace, registry)? {
                bail!("there are no credentials for {registry}; `sandling registry ls` lists your registries");
            }
            Ok(())
        }
        RegistryCommand::Ls { json } => {
            let logins = images.logins(&workspace)?.into_iter();
            let registries = logins.map(|login| RegistryView {
                registry: login.registry,
                username: login.username,
                created_at: login.created_at.to_string(),
            });
            list(serde_json::to_value(RegistryList { registries: registries.collect() })?, *json)
        }
    }
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    show::list(answer["registries"].take(), json, &["registry", "user", "stored"], |entry: Entry| {
        [entry.registry, entry.username, show::time(entry.created_at)]
    })
}
