//! `sandling logs`: a sandbox's console, or a command's output.

use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, ClientError, Stream, field, parse, query, segment};
use crate::commands::run::print_output;
use crate::options::Logs;
use crate::outcome;

pub async fn logs(options: &Logs) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    match &options.exec {
        Some(exec) => output(&client, &sandbox, exec, options.follow).await,
        None => console(&client, &sandbox, options).await,
    }
}

async fn console(client: &Client, sandbox: &str, options: &Logs) -> anyhow::Result<()> {
    let follow = options.follow.then(|| "true".to_owned());
    let tail = options.tail.map(|lines| lines.to_string());
    let path = format!("/v1/sandboxes/{sandbox}/logs{}", query(&[("follow", follow), ("tail", tail)]));
    if !options.follow {
        let printed = client.text(&path).await?;
        // Lines of a console end with CR LF.
        return print(Stream::Stdout, String::from_utf8_lossy(&printed).replace("\r\n", "\n").as_bytes());
    }
    let mut events = client.events(&path, None).await?;
    while let Some(event) = events.next().await? {
        print(Stream::Stdout, format!("{}\n", field(&parse(&event.data)?, "line")?).as_bytes())?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Progress {
    output_bytes: u64,
    status: String,
}

/// Prints a command's output so far, and with `follow` until the command ends.
async fn output(client: &Client, sandbox: &str, exec: &str, follow: bool) -> anyhow::Result<()> {
    let exec = client.exec(sandbox, exec).await?;
    let path = format!("/v1/sandboxes/{sandbox}/execs/{}", segment(&exec));
    let now: Progress = client.get(&path).await?;
    let until = if follow || now.status != "running" { u64::MAX } else { now.output_bytes };
    if until == 0 {
        return Ok(());
    }
    let mut events = client.events(&format!("{path}/output"), None).await?;
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "stdout" => print(Stream::Stdout, field(&parse(&event.data)?, "chunk")?.as_bytes())?,
            "stderr" => print(Stream::Stderr, field(&parse(&event.data)?, "chunk")?.as_bytes())?,
            "exit" => return Ok(()),
            // The server reports a timeout before the exit event.
            "error" => match parse::<Value>(&event.data)? {
                failed if failed["code"].is_string() => return Err(ClientError::from_body(failed).into()),
                failed => eprintln!("sandling: {}", field(&failed, "error")?),
            },
            _ => {}
        }
        // An event's ID is the output position after it.
        if event.id.and_then(|id| id.parse().ok()).is_some_and(|position: u64| position >= until) {
            return Ok(());
        }
    }
    Ok(())
}

fn print(stream: Stream, bytes: &[u8]) -> anyhow::Result<()> {
    print_output(stream, bytes).map_err(outcome::stdout_error)
}
