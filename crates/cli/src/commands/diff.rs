//! `sandling diff`.

use std::path::Path;

use anyhow::bail;
use sandling_engine::SandboxId;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, ClientError, Sandbox, query, read};
use crate::options::Diff;
use crate::save::save;
use crate::show;

#[derive(Deserialize)]
struct Answer {
    added: usize,
    changed: usize,
    removed: usize,
    files: Vec<ChangedFile>,
}

#[derive(Deserialize)]
struct ChangedFile {
    path: String,
    change: String,
    after: Option<State>,
    before: Option<State>,
}

#[derive(Deserialize)]
struct State {
    kind: String,
}

pub async fn diff(options: &Diff) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let from = full_state(&client, &options.from).await?;
    let to = match &options.to {
        Some(to) => full_state(&client, to).await?,
        None => from.split('@').next().unwrap_or_default().to_owned(),
    };
    if from == to {
        let named = options.from.split('@').next().unwrap_or_default();
        bail!(
            "both states are {from}; compare with a checkpoint, as in `sandling diff {named}@1`: \
             `sandling timeline {named}` lists those of a sandbox"
        );
    }
    let path = directory(&client, &from, &options.path).await?;
    let format = match (&options.tar, options.patch) {
        (Some(_), _) => Some("tar"),
        (None, true) => Some("patch"),
        (None, false) => None,
    };
    let parameters =
        query(&[("from", Some(from)), ("to", Some(to)), ("path", Some(path)), ("format", format.map(str::to_owned))]);
    let path = format!("/v1/diff{parameters}");
    match &options.tar {
        Some(file) => save(&client, &path, file).await,
        None if options.patch => save(&client, &path, Path::new("-")).await,
        None => list(client.get(&path).await?, options.json),
    }
}

/// Expands a prefix in `SANDBOX` or `SANDBOX@CHECKPOINT` to the full ID.
async fn full_state(client: &Client, text: &str) -> Result<String, ClientError> {
    match text.split_once('@') {
        Some((sandbox, checkpoint)) => Ok(format!("{}@{checkpoint}", client.sandbox(sandbox).await?)),
        // A full ID may be a snapshot's; the server decides.
        None if SandboxId::parse(text).is_some() => Ok(text.to_owned()),
        None => match client.sandbox(text).await {
            Err(ClientError::NoSandbox(_)) => client.snapshot(text).await,
            found => found,
        },
    }
}

/// A relative path starts where the sandbox's commands start.
async fn directory(client: &Client, state: &str, path: &str) -> anyhow::Result<String> {
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    let id = state.split('@').next().unwrap_or_default();
    match client.get::<Sandbox>(&format!("/v1/sandboxes/{id}")).await {
        Ok(sandbox) => Ok(absolute(sandbox.workdir.as_deref().unwrap_or("/"), path)),
        Err(error) if error.is_missing() => {
            bail!("{id} is not a sandbox, so `--path {path}` cannot be relative; begin it with `/`")
        }
        Err(error) => Err(error.into()),
    }
}

/// Joins a directory with a relative path, and removes its `.` and `..`.
fn absolute(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn list(answer: Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&answer);
    }
    let answer: Answer = read(answer)?;
    for file in answer.files {
        let letter = match file.change.as_str() {
            "added" => 'A',
            "removed" => 'D',
            _ => 'M',
        };
        let kind = file.after.or(file.before).map(|state| state.kind).unwrap_or_default();
        // File names from the guest may contain terminal control characters.
        let name: String =
            file.path.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect();
        show::line(format!("{letter} {name}{}", if kind == "directory" { "/" } else { "" }))?;
    }
    eprintln!("{} added, {} changed, {} removed", answer.added, answer.changed, answer.removed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_directory_starts_where_commands_start() {
        assert_eq!(
            ["src", "./src/", "../etc", ".", "../../.."].map(|path| absolute("/workspace", path)),
            ["/workspace/src", "/workspace/src", "/etc", "/workspace", "/"]
        );
    }
}
