//! `sandling diff`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use http_body_util::BodyExt;
use sandling_engine::SandboxId;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, ClientError, query, read};
use crate::options::Diff;
use crate::{outcome, show};

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

pub async fn diff(options: &Diff) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    let from = full_state(&client, &options.from).await?;
    let to = match &options.to {
        Some(to) => full_state(&client, to).await?,
        None => from.split('@').next().unwrap_or_default().to_owned(),
    };
    let format = match (&options.tar, options.patch) {
        (Some(_), _) => Some("tar"),
        (None, true) => Some("patch"),
        (None, false) => None,
    };
    let parameters = query(&[
        ("from", Some(from)),
        ("to", Some(to)),
        ("path", Some(options.path.clone())),
        ("format", format.map(str::to_owned)),
    ]);
    let path = format!("/v1/diff{parameters}");
    match &options.tar {
        Some(file) => save(&client, &path, file).await?,
        None if options.patch => save(&client, &path, Path::new("-")).await?,
        None => list(client.get(&path).await?, options.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Expands a prefix in `SANDBOX` or `SANDBOX@CHECKPOINT` to the full ID.
async fn full_state(client: &Client, text: &str) -> Result<String, ClientError> {
    match text.split_once('@') {
        Some((sandbox, checkpoint)) => Ok(format!("{}@{checkpoint}", client.sandbox(sandbox).await?)),
        // A full ID may be a snapshot's; the server decides.
        None if SandboxId::parse(text).is_some() => Ok(text.to_owned()),
        None => client.sandbox(text).await,
    }
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

/// Streams the response to a file or stdout. The file appears only when it is complete.
async fn save(client: &Client, path: &str, file: &Path) -> anyhow::Result<()> {
    let mut body = client.get_raw(path).await?.into_body();
    if file == Path::new("-") {
        let mut stdout = io::stdout();
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(ClientError::broken)?.into_data() else { continue };
            stdout.write_all(&bytes).map_err(outcome::stdout_error)?;
        }
        return stdout.flush().map_err(outcome::stdout_error);
    }
    let unwritable = || format!("cannot write {}", file.display());
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(directory).with_context(unwritable)?;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(ClientError::broken)?.into_data() else { continue };
        part.write_all(&bytes).with_context(unwritable)?;
    }
    let done: File = part.persist(file).with_context(unwritable)?;
    done.sync_all().with_context(unwritable)
}
