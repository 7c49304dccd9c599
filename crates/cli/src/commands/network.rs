//! `sandling network`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use sandling_wire::{NetworkRequest, TlsName};
use serde::Deserialize;
use serde_json::Value;

use super::decision::Decision;
use crate::client::{Client, ClientError, parse, query, read, segment};
use crate::options::{Network, allowed, limits, listed};
use crate::show;

/// A stream that ends at once, again and again, is not asked for again at once.
const PAUSE: Duration = Duration::from_secs(1);
const USUAL_TAIL: u32 = 20;

#[derive(Deserialize)]
struct Shown {
    #[serde(flatten)]
    policy: Policy,
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
    #[serde(default)]
    deny: Vec<String>,
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
        check_revoked(options, &now.secrets)?;
        let kept = now.secrets.into_iter().map(|secret| secret.name).filter(|name| !options.revoke.contains(name));
        request.secrets = Some(kept.chain(options.secrets.iter().cloned()).collect());
    }
    let changes = says(&request) || request.secrets.is_some() || request.group.is_some();
    Ok(changes.then_some(request))
}

/// A name that was mistyped would otherwise stay, and look as if it were gone.
fn check_revoked(options: &Network, had: &[Attached]) -> anyhow::Result<()> {
    for name in &options.revoke {
        if options.secrets.contains(name) {
            bail!("{name} cannot be given and revoked at once");
        }
        if !had.iter().any(|secret| secret.name == *name) {
            bail!("it has no secret {name}; those it has: {}", words(had.iter().map(|secret| secret.name.as_str())));
        }
    }
    Ok(())
}

fn asked(options: &Network) -> anyhow::Result<NetworkRequest> {
    let tls = options.inspect_tls.map(|inspect| if inspect { TlsName::Inspected } else { TlsName::Sealed });
    Ok(NetworkRequest {
        mode: options.mode.map(Into::into),
        allow: allowed(&options.allow),
        deny: listed(&options.deny),
        tls,
        limits: limits(&options.limits)?,
        binding: options.binding,
        ..NetworkRequest::default()
    })
}

fn says(request: &NetworkRequest) -> bool {
    let NetworkRequest { mode, allow, deny, tls, limits, binding, .. } = request;
    mode.is_some() || allow.is_some() || deny.is_some() || tls.is_some() || limits.is_some() || binding.is_some()
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
            lists(&policy)?;
        }
        None => show::line("mode      not said")?,
    }
    show::line(format_args!("limits    {}", written(&now["limits"])))?;
    if now["binding"] == true {
        show::line("binding   for all sandboxes of the workspace")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a policy lists.
fn lists(policy: &Policy) -> anyhow::Result<()> {
    show::line(format_args!("allow     {}", words(&policy.allow)))?;
    if !policy.deny.is_empty() {
        show::line(format_args!("deny      {}", words(&policy.deny)))?;
    }
    Ok(())
}

fn words<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let words = words.into_iter().fold(String::new(), |text, word| format!("{text} {}", word.as_ref()));
    if words.is_empty() { "-".to_owned() } else { words.trim_start().to_owned() }
}

/// Limits as they are written on the command line.
fn written(limits: &Value) -> String {
    let limits = limits.as_object().into_iter().flatten();
    words(limits.map(|(name, value)| format!("{name}={value}")))
}

fn print(now: &Shown) -> anyhow::Result<()> {
    let policy = &now.policy;
    show::line(format_args!("mode      {} (TLS {}){}", policy.mode, policy.tls, followed(&now.from)))?;
    lists(policy)?;
    if let Some(bound) = &now.bound {
        let list = if bound.allow.is_empty() { String::new() } else { format!(": {}", words(&bound.allow)) };
        let but = if bound.deny.is_empty() { String::new() } else { format!(", but {}", words(&bound.deny)) };
        show::line(format_args!("at most   {} (TLS {}){list}{but}", bound.mode, bound.tls))?;
    }
    show::line(format_args!("secrets   {}", words(now.secrets.iter().map(|secret| &secret.name))))?;
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
