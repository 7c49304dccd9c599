//! `sandling network`.

use std::process::ExitCode;
use std::time::Duration;

use sandling_api::NetworkRequest;
use serde::Deserialize;
use serde_json::Value;

use super::decision::Decision;
use crate::client::{Client, ClientError, parse, query, read, segment};
use crate::options::{Network, limits, listed};
use crate::show;

/// A stream that ends at once, again and again, is not asked for again at once.
const PAUSE: Duration = Duration::from_secs(1);
const USUAL_TAIL: u32 = 20;

#[derive(Deserialize)]
struct Shown {
    mode: String,
    allow: Vec<String>,
    tls: String,
    from: String,
    bound: Option<Policy>,
    limits: Value,
    secrets: Vec<Attached>,
    #[serde(default)]
    revoked_secrets: Vec<String>,
    group: Option<GroupShown>,
    counts: Counts,
    learned: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Policy {
    mode: String,
    allow: Vec<String>,
    tls: String,
}

#[derive(Deserialize)]
struct GroupShown {
    name: String,
    names: Vec<String>,
}

#[derive(Deserialize)]
struct Attached {
    name: String,
}

#[derive(Deserialize)]
struct Counts {
    sent_bytes: u64,
    received_bytes: u64,
    connections_open: u64,
    connections_allowed: u64,
    connections_refused: u64,
}

pub async fn network(options: &Network) -> anyhow::Result<ExitCode> {
    let client = Client::need()?;
    let Some(sandbox) = &options.sandbox else { return default(&client, options).await };
    let id = client.sandbox(sandbox).await?;
    let path = format!("/v1/sandboxes/{id}/network");
    if options.clear {
        client.delete(&path).await?;
    }
    let now: Value = match change(&client, &path, options).await? {
        Some(change) => client.put(&path, &change).await?,
        None => client.get(&path).await?,
    };
    if options.follow {
        return follow(&client, &id, options).await;
    }
    let tail = options.tail.unwrap_or(USUAL_TAIL).to_string();
    let mut events: Value = client.get(&format!("{path}/events{}", query(&[("tail", Some(tail))]))).await?;
    if options.json {
        let mut now = now;
        now["events"] = events["events"].take();
        show::json(&now)?;
    } else {
        print(&read(now)?)?;
        list(read(events["events"].take())?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to change, if anything is.
async fn change(client: &Client, path: &str, options: &Network) -> anyhow::Result<Option<NetworkRequest>> {
    let mut request = asked(options)?;
    (request.group, request.hostname) = (options.group.clone(), options.hostname.clone());
    if !options.revoke.is_empty() || !options.secrets.is_empty() {
        let now: Shown = client.get(path).await?;
        let kept = now.secrets.into_iter().map(|secret| secret.name).filter(|name| !options.revoke.contains(name));
        request.secrets = Some(kept.chain(options.secrets.iter().cloned()).collect());
    }
    let changes = says(&request) || request.secrets.is_some() || request.group.is_some();
    Ok(changes.then_some(request))
}

fn asked(options: &Network) -> anyhow::Result<NetworkRequest> {
    let (mode, allow) = (options.mode.map(Into::into), listed(&options.allow));
    let (limits, binding) = (limits(&options.limits)?, options.binding);
    Ok(NetworkRequest { mode, allow, limits, binding, ..NetworkRequest::default() })
}

fn says(request: &NetworkRequest) -> bool {
    request.mode.is_some() || request.allow.is_some() || request.limits.is_some() || request.binding.is_some()
}

/// Shows, changes or removes what sandboxes may reach that say nothing themselves.
async fn default(client: &Client, options: &Network) -> anyhow::Result<ExitCode> {
    let path = match &options.template {
        Some(template) => format!("/v1/templates/{}/network", segment(template)),
        None => "/v1/network".to_owned(),
    };
    let request = asked(options)?;
    if options.clear {
        client.delete(&path).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let now: Value = if says(&request) { client.put(&path, &request).await? } else { client.get(&path).await? };
    if options.json {
        show::json(&now)?;
        return Ok(ExitCode::SUCCESS);
    }
    match serde_json::from_value::<Option<Policy>>(now["policy"].clone())? {
        Some(policy) => {
            show::line(format_args!("mode      {} (TLS {})", policy.mode, policy.tls))?;
            show::line(format_args!("allow     {}", words(&policy.allow)))?;
        }
        None => show::line("mode      as by default")?,
    }
    show::line(format_args!("limits    {}", written(&now["limits"])))?;
    if now["binding"] == true {
        show::line("binding   for all sandboxes of the workspace")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn words(words: &[String]) -> String {
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

/// Limits as they are written on the command line.
fn written(limits: &Value) -> String {
    let limits = limits.as_object().into_iter().flatten();
    words(&limits.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
}

fn print(now: &Shown) -> anyhow::Result<()> {
    let secrets: Vec<_> = now.secrets.iter().map(|secret| secret.name.clone()).collect();
    show::line(format_args!("mode      {} (TLS {}){}", now.mode, now.tls, followed(&now.from)))?;
    show::line(format_args!("allow     {}", words(&now.allow)))?;
    if let Some(bound) = &now.bound {
        let list = if bound.allow.is_empty() { String::new() } else { format!(": {}", words(&bound.allow)) };
        show::line(format_args!("at most   {} (TLS {}){list}", bound.mode, bound.tls))?;
    }
    show::line(format_args!("secrets   {}", words(&secrets)))?;
    if !now.revoked_secrets.is_empty() {
        show::line(format_args!("revoked   {} (removed since it was given)", words(&now.revoked_secrets)))?;
    }
    show::line(format_args!("limits    {}", written(&now.limits)))?;
    if let Some(group) = &now.group {
        show::line(format_args!("group     {} (as {})", group.name, words(&group.names)))?;
    }
    if let Some(learned) = &now.learned {
        show::line(format_args!("learned   {}", words(learned)))?;
    }
    let counts = &now.counts;
    show::line(format_args!(
        "traffic   {} bytes sent, {} received; {} connections allowed, {} refused, {} open\n",
        counts.sent_bytes,
        counts.received_bytes,
        counts.connections_allowed,
        counts.connections_refused,
        counts.connections_open
    ))
}

/// Whose default it follows, if it follows any.
fn followed(from: &str) -> String {
    match from {
        "sandbox" => String::new(),
        "nothing" => ", as nothing is said".to_owned(),
        whose => format!(", as its {whose}'s default"),
    }
}

fn list(events: Vec<Decision>) -> anyhow::Result<()> {
    let mut table = show::table(&["time", "what", "verdict", "where", "why"]);
    for event in events {
        let cells = [show::time(event.time), event.kind.clone()];
        let mut row: Vec<_> = cells.into_iter().map(comfy_table::Cell::new).collect();
        row.push(show::status(&event.verdict));
        row.extend([event.target(), event.why()].map(comfy_table::Cell::new));
        table.add_row(row);
    }
    show::line(table)
}

/// Prints decisions as they come, until the sandbox ends. A stream that was cut off is taken up where it was.
async fn follow(client: &Client, id: &str, options: &Network) -> anyhow::Result<ExitCode> {
    let tail = Some(options.tail.unwrap_or(USUAL_TAIL).to_string());
    let follow = query(&[("follow", Some("true".to_owned())), ("tail", tail)]);
    let path = format!("/v1/sandboxes/{id}/network/events{follow}");
    let mut last = None;
    loop {
        let mut events = match client.events(&path, last.as_deref()).await {
            Err(error) if error.is_missing() && last.is_some() => return Ok(ExitCode::SUCCESS),
            opened => opened?,
        };
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) | Err(ClientError::Broken(_)) => break,
                Err(error) => return Err(error.into()),
            };
            if options.json {
                show::line(&event.data)?;
            } else {
                let told: Decision = parse(&event.data)?;
                let (time, kind) = (show::time(told.time), &told.kind);
                show::line(format_args!("{time}  {kind:<8} {:<8} {}  {}", told.verdict, told.target(), told.why()))?;
            }
            last = event.id.or(last);
        }
        last.get_or_insert_with(|| "0".to_owned());
        tokio::time::sleep(PAUSE).await;
    }
}
