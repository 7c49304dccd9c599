//! `sandling timeline`, `sandling checkpoint` and `sandling rewind`.

use std::process::ExitCode;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, read, segment};
use crate::options::{Checkpoint, CheckpointCommand, Rewind, Timeline};
use crate::show;

/// So much of a command is shown.
const SHOWN: usize = 60;

#[derive(Deserialize)]
struct Listed {
    number: u64,
    name: Option<String>,
    at: Timestamp,
    cause: String,
    text: String,
    after: Option<u64>,
    size_bytes: u64,
}

#[derive(Deserialize)]
struct Answer {
    checkpoints: Vec<Listed>,
    current: Option<u64>,
}

pub async fn timeline(options: &Timeline) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let answer: Value = client.get(&format!("/v1/sandboxes/{sandbox}/timeline")).await?;
    if options.json {
        show::json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer: Answer = read(answer)?;
    let now = Timestamp::now();
    let mut table = show::table(&["", "number", "name", "after", "age", "adds", "before"]);
    for one in answer.checkpoints {
        let first = one.text.lines().next().unwrap_or_default();
        let cut: String = first.chars().take(SHOWN).collect();
        let whole = cut.len() == one.text.trim_end().len();
        table.add_row([
            if answer.current == Some(one.number) { "*" } else { "" }.to_owned(),
            one.number.to_string(),
            one.name.unwrap_or_default(),
            one.after.map(|number| number.to_string()).unwrap_or_default(),
            show::span(one.at, now),
            show::bytes(one.size_bytes),
            format!("{}: {cut}{}", one.cause, if whole { "" } else { "…" }),
        ]);
    }
    show::line(table)?;
    Ok(ExitCode::SUCCESS)
}

pub async fn checkpoint(options: &Checkpoint) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
    let made: Value = match &options.command {
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
    show::line(read::<Listed>(made)?.number)?;
    Ok(ExitCode::SUCCESS)
}

pub async fn rewind(options: &Rewind) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let answer: Value = client.post(&format!("/v1/sandboxes/{sandbox}/rewind"), &json!({ "to": options.to })).await?;
    if options.json {
        show::json(&answer)?;
    } else {
        let was = answer["was"].as_u64().map(|was| format!("; it was at {was}")).unwrap_or_default();
        show::line(format!("{sandbox} is at checkpoint {}{was}", answer["to"]))?;
    }
    Ok(ExitCode::SUCCESS)
}
