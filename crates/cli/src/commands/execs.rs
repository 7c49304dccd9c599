//! `sandling execs`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::client::Client;
use crate::options::Execs;
use crate::show;

#[derive(Deserialize)]
struct Command {
    id: String,
    pid: u32,
    command: String,
    started_at: Timestamp,
    status: String,
    exit_code: Option<i32>,
}

pub async fn execs(options: &Execs) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let mut answer: Value = client.get(&format!("/v1/sandboxes/{sandbox}/execs")).await?;
    let now = Timestamp::now();
    let header = ["id", "pid", "status", "exit", "age", "command"];
    show::list(answer["execs"].take(), options.json, &header, |command: Command| {
        [
            command.id,
            command.pid.to_string(),
            command.status,
            command.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            show::span(command.started_at, now),
            show::first_line(&command.command),
        ]
    })
}
