//! `sandling network`.

use std::ops::ControlFlow;

use anyhow::bail;
use comfy_table::Cell;
use sandling_wire::{ModeName, NetworkRequest, TlsName};
use serde::Deserialize;
use serde_json::Value;

use super::decision::Decision;
use crate::client::{Client, Event, parse, query, read, segment};
use crate::options::{Network, given_allow_list, given_list, limits};
use crate::show;

const DEFAULT_TAIL: u32 = 20;

#[derive(Deserialize)]
struct NetworkState {
    #[serde(flatten)]
    policy: Policy,
    from: String,
    bound: Option<Policy>,
    limits: Value,
    secrets: Vec<AttachedSecret>,
    #[serde(default)]
    revoked_secrets: Vec<String>,
    group: Option<Group>,
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
struct Group {
    name: String,
    names: Vec<String>,
}

#[derive(Deserialize)]
struct AttachedSecret {
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

pub async fn network(options: &Network) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let Some(sandbox) = &options.sandbox else { return default(&client, options).await };
    let id = client.sandbox(sandbox).await?;
    let path = format!("/v1/sandboxes/{id}/network");
    if options.clear {
        client.delete(&path).await?;
    }
    let mut now: Value = match change(&client, &path, options).await? {
        Some(change) => client.put(&path, &change).await?,
        None => client.get(&path).await?,
    };
    if options.follow {
        return follow(&client, &id, options).await;
    }
    let tail = options.tail.unwrap_or(DEFAULT_TAIL).to_string();
    let mut events: Value = client.get(&format!("{path}/events{}", query(&[("tail", Some(tail))]))).await?;
    if options.json {
        now["events"] = events["events"].take();
        return show::json(&now);
    }
    print(&read(now)?)?;
    let header = ["time", "what", "verdict", "where", "why"];
    show::list(events["events"].take(), false, &header, |event: Decision| {
        [
            Cell::new(show::time(event.time)),
            Cell::new(&event.kind),
            show::status(&event.verdict),
            Cell::new(event.target()),
            Cell::new(event.why()),
        ]
    })
}

/// The requested changes, or `None` if only the current state is wanted.
async fn change(client: &Client, path: &str, options: &Network) -> anyhow::Result<Option<NetworkRequest>> {
    let mut request = requested_policy(options)?;
    if !options.allow.is_empty() {
        let now: NetworkState = client.get(path).await?;
        add_allowed(&mut request, &options.allow, Some(&now.policy));
    }
    (request.group, request.hostname) = (options.group.clone(), options.hostname.clone());
    if !options.revoke.is_empty() || !options.secrets.is_empty() {
        let now: NetworkState = client.get(path).await?;
        check_revoked(options, &now.secrets)?;
        let kept = now.secrets.into_iter().map(|secret| secret.name).filter(|name| !options.revoke.contains(name));
        request.secrets = Some(kept.chain(options.secrets.iter().cloned()).collect());
    }
    let changes = has_changes(&request) || request.secrets.is_some() || request.group.is_some();
    Ok(changes.then_some(request))
}

/// Rejects unknown names: a mistyped name would leave the secret attached without notice.
fn check_revoked(options: &Network, had: &[AttachedSecret]) -> anyhow::Result<()> {
    for name in &options.revoke {
        if options.secrets.contains(name) {
            bail!("secret {name} is in both --secret and --revoke; use only one of them");
        }
        if !had.iter().any(|secret| secret.name == *name) {
            bail!("the sandbox has no secret {name}; it has: {}", words(had.iter().map(|secret| secret.name.as_str())));
        }
    }
    Ok(())
}

fn requested_policy(options: &Network) -> anyhow::Result<NetworkRequest> {
    let tls = options.inspect_tls.map(|inspect| if inspect { TlsName::Inspected } else { TlsName::Sealed });
    Ok(NetworkRequest {
        mode: options.mode,
        allow: given_allow_list(&options.only),
        deny: given_list(&options.deny),
        tls,
        limits: limits(&options.limits)?,
        binding: options.binding,
        ..NetworkRequest::default()
    })
}

/// Adds entries to the allow-list that applies now. A policy that denies everything becomes an allow-list.
fn add_allowed(request: &mut NetworkRequest, entries: &[String], now: Option<&Policy>) {
    let applied = now.filter(|policy| policy.mode != "deny");
    let had = applied.map(|policy| policy.allow.clone()).unwrap_or_default();
    let new = given_allow_list(entries).unwrap_or_default().into_iter().filter(|entry| !had.contains(entry));
    request.allow = Some(had.iter().cloned().chain(new).collect());
    // The server turns a request with a list and without a mode into an allow-list.
    request.mode = request.mode.or_else(|| applied.and_then(Policy::mode));
}

impl Policy {
    fn mode(&self) -> Option<ModeName> {
        serde_json::from_value(self.mode.as_str().into()).ok()
    }
}

fn has_changes(request: &NetworkRequest) -> bool {
    let NetworkRequest { mode, allow, deny, tls, limits, binding, .. } = request;
    mode.is_some() || allow.is_some() || deny.is_some() || tls.is_some() || limits.is_some() || binding.is_some()
}

/// Shows, changes or removes the default policy of the workspace or of a template.
async fn default(client: &Client, options: &Network) -> anyhow::Result<()> {
    let path = match &options.template {
        Some(template) => format!("/v1/templates/{}/network", segment(template)),
        None => "/v1/network".to_owned(),
    };
    let mut request = requested_policy(options)?;
    if !options.allow.is_empty() {
        let now: Value = client.get(&path).await?;
        let policy: Option<Policy> = serde_json::from_value(now["policy"].clone())?;
        add_allowed(&mut request, &options.allow, policy.as_ref());
    }
    if options.clear {
        return Ok(client.delete(&path).await?);
    }
    let now: Value = if has_changes(&request) { client.put(&path, &request).await? } else { client.get(&path).await? };
    if options.json {
        return show::json(&now);
    }
    match serde_json::from_value::<Option<Policy>>(now["policy"].clone())? {
        Some(policy) => {
            show::line(format_args!("mode      {} (TLS {})", policy.mode, policy.tls))?;
            print_lists(&policy)?;
        }
        None => show::line("mode      not set")?,
    }
    show::line(format_args!("limits    {}", format_limits(&now["limits"])))?;
    if now["binding"] == true {
        show::line("binding   yes, for all sandboxes of the workspace")?;
    }
    Ok(())
}

/// Prints a policy's lists.
fn print_lists(policy: &Policy) -> anyhow::Result<()> {
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

/// Formats limits as on the command line.
fn format_limits(limits: &Value) -> String {
    let limits = limits.as_object().into_iter().flatten();
    words(limits.map(|(name, value)| format!("{name}={value}")))
}

fn print(now: &NetworkState) -> anyhow::Result<()> {
    let policy = &now.policy;
    show::line(format_args!("mode      {} (TLS {}){}", policy.mode, policy.tls, policy_source(&now.from)))?;
    print_lists(policy)?;
    if let Some(bound) = &now.bound {
        let list = if bound.allow.is_empty() { String::new() } else { format!(": {}", words(&bound.allow)) };
        let but = if bound.deny.is_empty() { String::new() } else { format!(", except {}", words(&bound.deny)) };
        show::line(format_args!("at most   {} (TLS {}){list}{but}", bound.mode, bound.tls))?;
    }
    show::line(format_args!("secrets   {}", words(now.secrets.iter().map(|secret| &secret.name))))?;
    if !now.revoked_secrets.is_empty() {
        show::line(format_args!("revoked   {} (the secret was removed)", words(&now.revoked_secrets)))?;
    }
    show::line(format_args!("limits    {}", format_limits(&now.limits)))?;
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

/// Where the policy comes from, unless it is the sandbox's own.
fn policy_source(from: &str) -> String {
    match from {
        "sandbox" => String::new(),
        "nothing" => ", the built-in default".to_owned(),
        whose => format!(", from the {whose}'s default"),
    }
}

/// Prints decisions until the sandbox ends.
async fn follow(client: &Client, id: &str, options: &Network) -> anyhow::Result<()> {
    let tail = Some(options.tail.unwrap_or(DEFAULT_TAIL).to_string());
    let follow = query(&[("follow", Some("true".to_owned())), ("tail", tail)]);
    let print = |event: &Event| {
        if options.json {
            show::line(&event.data)?;
        } else {
            let decision: Decision = parse(&event.data)?;
            let (time, kind, verdict) = (show::time(decision.time), &decision.kind, &decision.verdict);
            show::line(format_args!("{time}  {kind:<8} {verdict:<8} {}  {}", decision.target(), decision.why()))?;
        }
        Ok(ControlFlow::Continue(()))
    };
    client.follow(&format!("/v1/sandboxes/{id}/network/events{follow}"), Some("0"), print).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_entries_are_added_to_those_that_apply() {
        let policy = |mode: &str, allow: &[&str]| Policy {
            mode: mode.to_owned(),
            allow: allow.iter().map(|entry| (*entry).to_owned()).collect(),
            deny: Vec::new(),
            tls: "sealed".to_owned(),
        };
        let added = |now: Option<Policy>| {
            let mut request = NetworkRequest::default();
            add_allowed(&mut request, &["pypi".to_owned(), "a.com".to_owned()], now.as_ref());
            (request.mode, request.allow.unwrap())
        };
        let both = vec!["a.com".to_owned(), "pypi".to_owned()];
        assert_eq!(added(Some(policy("allow", &["a.com"]))), (Some(ModeName::Allow), both));
        let new = vec!["pypi".to_owned(), "a.com".to_owned()];
        assert_eq!(added(Some(policy("deny", &["old.com"]))), (None, new.clone()), "it allowed nothing");
        assert_eq!(added(Some(policy("open", &[]))).0, Some(ModeName::Open));
        assert_eq!(added(None), (None, new));
    }
}
