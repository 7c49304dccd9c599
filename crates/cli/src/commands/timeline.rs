//! `sandling timeline`, `sandling checkpoint` and `sandling rewind`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, segment};
use crate::options::{CheckpointCommand, Rewind, Timeline};
use crate::show;

/// Characters of a command to show.
const MAX_TEXT: usize = 60;

#[derive(Deserialize)]
struct CheckpointEntry {
    number: u64,
    name: Option<String>,
    at: Timestamp,
    cause: String,
    text: String,
    after: Option<u64>,
    size_bytes: u64,
}

pub async fn timeline(options: &Timeline) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let mut answer: Value = client.get(&format!("/v1/sandboxes/{sandbox}/timeline")).await?;
    if options.json {
        return show::json(&answer);
    }
    let (current, now) = (answer["current"].as_u64(), Timestamp::now());
    let header = ["", "number", "name", "after", "age", "adds", "before"];
    show::list(answer["checkpoints"].take(), false, &header, |entry: CheckpointEntry| {
        let first = entry.text.lines().next().unwrap_or_default();
        let cut: String = first.chars().take(MAX_TEXT).collect();
        let whole = cut.len() == entry.text.trim_end().len();
        [
            if current == Some(entry.number) { "*" } else { "" }.to_owned(),
            entry.number.to_string(),
            entry.name.unwrap_or_default(),
            entry.after.map(|number| number.to_string()).unwrap_or_default(),
            show::span(entry.at, now),
            show::bytes(entry.size_bytes),
            if cut.is_empty() {
                entry.cause
            } else {
                format!("{}: {cut}{}", entry.cause, if whole { "" } else { "…" })
            },
        ]
    })
}

pub async fn checkpoint(command: &CheckpointCommand) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let made: Value = match command {
        CheckpointCommand::Create { sandbox, name } => {
            let sandbox = client.sandbox(sandbox).await?;
            client.post(&format!("/v1/sandboxes/{sandbox}/checkpoints"), &json!({ "name": name })).await?
        }
        CheckpointCommand::Name { sandbox, checkpoint, name } => {
            let sandbox = client.sandbox(sandbox).await?;
            let path = format!("/v1/sandboxes/{sandbox}/checkpoints/{}", segment(checkpoint));
            client.patch(&path, &json!({ "name": name })).await?
        }
    };
    show::field(&made, "number", false)
}

pub async fn rewind(options: &Rewind) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let answer: Value = client.post(&format!("/v1/sandboxes/{sandbox}/rewind"), &json!({ "to": options.to })).await?;
    if options.json {
        return show::json(&answer);
    }
    let was = answer["was"].as_u64().map(|was| format!("; the previous state is checkpoint {was}")).unwrap_or_default();
    show::line(format!("{sandbox} is at checkpoint {}{was}", answer["to"]))
}
