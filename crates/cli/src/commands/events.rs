//! `sandling events`.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, ClientError, SandboxEvent, parse, query, read};
use crate::options::Events;
use crate::show;

/// Wait this long before reopening a stream.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// The type of a sandbox's last event.
const ENDED: &str = "sandbox.ended";

pub async fn events(options: &Events) -> anyhow::Result<ExitCode> {
    let client = Client::require()?;
    let base = match &options.sandbox {
        Some(named) => format!("/v1/sandboxes/{}/events", client.sandbox(named).await?),
        None => "/v1/events".to_owned(),
    };
    let tail = options.tail.map(|count| count.to_string());
    if options.follow {
        let path = format!("{base}{}", query(&[("follow", Some("true".to_owned())), ("tail", tail)]));
        follow(&client, &path, options).await?;
    } else {
        let mut answer: Value = client.get(&format!("{base}{}", query(&[("tail", tail)]))).await?;
        list(answer["events"].take(), options.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(events: Value, json: bool) -> anyhow::Result<()> {
    if json {
        let events: Vec<Value> = read(events)?;
        return events.iter().try_for_each(show::line);
    }
    let mut table = show::table(&["time", "sandbox", "event", "detail"]);
    for event in read::<Vec<SandboxEvent>>(events)? {
        table.add_row([
            show::time(event.time),
            show::short(&event.sandbox_id).to_owned(),
            name(&event),
            detail(&event),
        ]);
    }
    show::line(table)
}

/// Prints events as they arrive. After a broken connection, the stream resumes where it stopped.
async fn follow(client: &Client, path: &str, options: &Events) -> anyhow::Result<()> {
    let mut last = None;
    loop {
        let mut events = client.events(path, last.as_deref()).await?;
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) | Err(ClientError::Broken(_)) => break,
                Err(error) => return Err(error.into()),
            };
            let event_data: SandboxEvent = parse(&event.data)?;
            match options.json {
                true => show::line(&event.data)?,
                false => show::line(format_args!(
                    "{}  {}  {:<10} {}",
                    show::time(event_data.time),
                    show::short(&event_data.sandbox_id),
                    name(&event_data),
                    detail(&event_data)
                ))?,
            }
            last = event.id.or(last);
            if options.sandbox.is_some() && event_data.kind == ENDED {
                return Ok(());
            }
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

fn name(event: &SandboxEvent) -> String {
    event.kind.strip_prefix("sandbox.").unwrap_or(&event.kind).to_owned()
}

fn detail(event: &SandboxEvent) -> String {
    match &event.payload {
        Value::Null => String::new(),
        Value::Object(fields) => {
            let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fields.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}
