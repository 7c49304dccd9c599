//! `sandling events`.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, ClientError, SandboxEvent, parse, query, read};
use crate::options::Events;
use crate::show;

/// A stream that ends at once, again and again, is not asked for again at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The last event of a sandbox.
const ENDED: &str = "sandbox.ended";

pub async fn events(options: &Events) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
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

/// Prints events as they come. A stream that was cut off is taken up where it was.
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
            let told: SandboxEvent = parse(&event.data)?;
            match options.json {
                true => show::line(&event.data)?,
                false => show::line(format_args!(
                    "{}  {}  {:<10} {}",
                    show::time(told.time),
                    show::short(&told.sandbox_id),
                    name(&told),
                    detail(&told)
                ))?,
            }
            last = event.id.or(last);
            if options.sandbox.is_some() && told.kind == ENDED {
                return Ok(());
            }
        }
        tokio::time::sleep(PAUSE).await;
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
