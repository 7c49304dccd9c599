//! `sandling events`.

use std::ops::ControlFlow;

use serde_json::Value;

use crate::client::{Client, Event, SandboxEvent, parse, query, read};
use crate::options::Events;
use crate::show;

/// The type of a sandbox's last event.
const ENDED: &str = "sandbox.ended";

pub async fn events(options: &Events) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let base = match &options.sandbox {
        Some(named) => format!("/v1/sandboxes/{}/events", client.sandbox(named).await?),
        None => "/v1/events".to_owned(),
    };
    let tail = options.tail.map(|count| count.to_string());
    if options.follow {
        let path = format!("{base}{}", query(&[("follow", Some("true".to_owned())), ("tail", tail)]));
        return client.follow(&path, None, |event| print(event, options)).await;
    }
    let mut answer: Value = client.get(&format!("{base}{}", query(&[("tail", tail)]))).await?;
    let events = answer["events"].take();
    if options.json {
        return read::<Vec<Value>>(events)?.iter().try_for_each(show::line);
    }
    show::list(events, false, &["time", "sandbox", "event", "detail"], |event: SandboxEvent| {
        [show::time(event.time), show::short(&event.sandbox_id).to_owned(), name(&event), detail(&event)]
    })
}

/// Prints one event of a stream. A sandbox's stream ends with the sandbox.
fn print(event: &Event, options: &Events) -> anyhow::Result<ControlFlow<()>> {
    let data: SandboxEvent = parse(&event.data)?;
    if options.json {
        show::line(&event.data)?;
    } else {
        let (time, sandbox) = (show::time(data.time), show::short(&data.sandbox_id));
        show::line(format_args!("{time}  {sandbox}  {:<10} {}", name(&data), detail(&data)))?;
    }
    let is_last = options.sandbox.is_some() && data.kind == ENDED;
    Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
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
