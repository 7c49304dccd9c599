//! `sandling secret`: uses the server if there is one, otherwise this home.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use jiff::Timestamp;
use sandling_api::IntoWire;
use sandling_engine::DEFAULT_WORKSPACE;
use sandling_network::Placement;
use sandling_wire::{SecretList, SetSecret};
use serde::Deserialize;
use serde_json::Value;

use super::{open_engine, server_for};
use crate::client::{Client, segment};
use crate::options::{Common, SecretCommand};
use crate::show;

#[derive(Deserialize)]
struct SecretEntry {
    name: String,
    hosts: Vec<String>,
    placements: Vec<String>,
    created_at: Timestamp,
}

pub async fn secret(common: &Common, command: &SecretCommand) -> anyhow::Result<()> {
    match server_for(common).await? {
        Some(client) => on_server(&client, command).await,
        None => local(common, command).await,
    }
}

async fn on_server(client: &Client, command: &SecretCommand) -> anyhow::Result<()> {
    match command {
        SecretCommand::Set { name, hosts, headers, queries, basic } => {
            let placements = Some(placements(headers, queries, *basic)).filter(|all| !all.is_empty());
            let request = SetSecret { value: value()?, hosts: hosts.clone(), placements };
            client.put::<Value>(&format!("/v1/secrets/{}", segment(name)), &request).await?;
            Ok(())
        }
        SecretCommand::Ls { json } => list(client.get("/v1/secrets").await?, *json),
        SecretCommand::Rm { name } => Ok(client.delete(&format!("/v1/secrets/{}", segment(name))).await?),
    }
}

async fn local(common: &Common, command: &SecretCommand) -> anyhow::Result<()> {
    let engine = open_engine(common).await?;
    match command {
        SecretCommand::Set { name, hosts, headers, queries, basic } => {
            let hosts = hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?;
            let placements = placements(headers, queries, *basic);
            let mut placements: Vec<_> = placements.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            if placements.is_empty() {
                placements.push(Placement::default());
            }
            engine.networks().set_secret(DEFAULT_WORKSPACE, name, value()?.into(), hosts, placements)?;
            Ok(())
        }
        SecretCommand::Ls { json } => {
            let secrets = engine.networks().secrets(DEFAULT_WORKSPACE)?.into_iter().map(IntoWire::into_wire).collect();
            list(serde_json::to_value(SecretList { secrets })?, *json)
        }
        SecretCommand::Rm { name } => {
            if !engine.networks().remove_secret(DEFAULT_WORKSPACE, name)? {
                bail!("secret `{name}` does not exist; `sandling secret ls` lists your secrets");
            }
            Ok(())
        }
    }
}

/// The placements that the options name, as the API writes them.
fn placements(headers: &[String], queries: &[String], basic: bool) -> Vec<String> {
    let headers = headers.iter().map(|header| format!("header {header}"));
    let queries = queries.iter().map(|key| format!("query {key}"));
    headers.chain(queries).chain(basic.then(|| "basic".to_owned())).collect()
}

/// Reads stdin without its trailing newline.
pub(super) fn value() -> anyhow::Result<String> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        eprintln!("Type the value, then Enter and Ctrl-D. The terminal shows what you type; a file or pipe is safer.");
    }
    let mut value = String::new();
    stdin.read_to_string(&mut value).context("cannot read the value from stdin")?;
    let kept = value.trim_end_matches(['\r', '\n']).len();
    value.truncate(kept);
    Ok(value)
}

fn list(mut answer: Value, json: bool) -> anyhow::Result<()> {
    show::list(answer["secrets"].take(), json, &["name", "hosts", "placed in", "stored"], |secret: SecretEntry| {
        [secret.name, secret.hosts.join(" "), secret.placements.join(", "), show::time(secret.created_at)]
    })
}
