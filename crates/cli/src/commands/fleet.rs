//! `sandling fleet`.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use futures_util::future::join_all;
use jiff::Timestamp;
use sandling_api::{FleetSettings, JoinToken};
use sandling_engine::with_causes;
use sandling_fleet::store::StoreLocation;
use sandling_fleet::{DrainRecord, Ledger, NodeRecord, own_etcd};
use sandling_wire::Home;
use serde_json::{Value, json};

use super::{config, fleet_drain, fleet_rebuild};
use crate::options::{Common, FleetCommand, StoreOptions};
use crate::show;

/// A fleet has fewer nodes than this.
const MOST_NODES: usize = 10_000;

pub async fn fleet(common: &Common, command: &FleetCommand) -> anyhow::Result<()> {
    let home = config(common)?.home;
    match command {
        FleetCommand::Init { address, engine, store, name } => {
            init(&home, address, engine, store, name.as_deref()).await
        }
        FleetCommand::Join { through, token, address, name } => {
            join(&home, through, token, address, name.as_deref()).await
        }
        FleetCommand::Token { machines } => show::line(JoinToken::issue(&settings(&home)?, &home, *machines)?.text()),
        FleetCommand::Status { json } => status(&settings(&home)?, &home, *json).await,
        FleetCommand::Rebuild { engine, lost, force } => {
            let settings = settings(&home)?;
            let engine = if engine.is_empty() { None } else { Some(urls(engine)?) };
            fleet_rebuild::rebuild(&settings, &home, engine, lost, *force).await
        }
        FleetCommand::Remove { node } => remove(&settings(&home)?, &home, node).await,
        FleetCommand::Drain { node, wait, keep_sandboxes, detach } => {
            let settings = settings(&home)?;
            check_member(&settings, &home, node).await?;
            let wanted =
                DrainRecord { keeps_sandboxes: *keep_sandboxes, wait_seconds: *wait, unknown: Default::default() };
            let ledger = settings.ledger(&home)?;
            sandling_fleet::start_drain(&ledger, node, &wanted).await?;
            if !keep_sandboxes && !detach {
                fleet_drain::watch(&ledger, node).await?;
            }
            show::line(node)
        }
        FleetCommand::Undrain { node } => {
            sandling_fleet::end_drain(&settings(&home)?.ledger(&home)?, node).await?;
            show::line(node)
        }
    }
}

fn settings(home: &Home) -> anyhow::Result<FleetSettings> {
    FleetSettings::load(home)?.context("this machine is in no fleet; `sandling fleet init` starts one")
}

async fn init(
    home: &Home,
    address: &str,
    engine: &[String],
    store: &StoreOptions,
    name: Option<&str>,
) -> anyhow::Result<()> {
    refuse_second(home)?;
    let store = store_location(store)?;
    let runs_engine = engine.is_empty();
    let engine = if runs_engine { vec![own_engine(address)?] } else { urls(engine)? };
    let name = node_name(name)?;
    let fingerprint = sandling_service::random::hex::<16>();
    let joined_ms = Timestamp::now().as_millisecond();
    let settings = FleetSettings {
        name,
        address: address.to_owned(),
        engine,
        engine_generation: 0,
        runs_engine,
        fingerprint,
        store,
        joined_ms,
    };
    if !runs_engine && let Some((node, _)) = members(&settings, home).await?.first() {
        bail!("this etcd has a fleet already, with node {node}; `sandling fleet join` makes this machine a node of it");
    }
    home.prepare_root().context("cannot create the home directory")?;
    settings.store(home)?;
    if let Some(Err(error)) = settings.check_store(home).await {
        eprintln!("The store does not work here yet: {}", with_causes(&error));
        eprintln!("The server tries again. `sandling fleet status` shows when it works.");
    }
    eprintln!("This machine is node {} from the next `sandling serve` on. Another one joins with:", settings.name);
    eprintln!("  sandling fleet join {address} --token TOKEN --address ITS-HOST:PORT");
    eprintln!(
        "The token is valid once and for an hour. `sandling fleet token` prints others, also for several machines:"
    );
    show::line(JoinToken::issue(&settings, home, 1)?.text())
}

/// Where the store is. A directory must exist.
fn store_location(options: &StoreOptions) -> anyhow::Result<Option<StoreLocation>> {
    let Some(url) = &options.store else { return Ok(None) };
    let location = StoreLocation::new(url, options.store_endpoint.clone(), options.store_region.clone())?;
    location.open()?;
    Ok(Some(location))
}

/// The address of an etcd that this node's server will run.
fn own_engine(address: &str) -> anyhow::Result<String> {
    if own_etcd::program().is_none() {
        bail!("the program etcd is not installed; run `apt-get install etcd-server`, or name an etcd with --engine");
    }
    sandling_api::address_of_own_engine(address)
        .with_context(|| format!("{address} is not HOST:PORT with a port below 65535"))
}

fn urls(engine: &[String]) -> anyhow::Result<Vec<String>> {
    let url = |engine: &String| {
        let address = engine.strip_prefix("etcd://");
        address.map(|address| format!("http://{address}")).with_context(|| format!("{engine} is not etcd://HOST:PORT"))
    };
    engine.iter().map(url).collect()
}

async fn join(home: &Home, through: &str, token: &str, address: &str, name: Option<&str>) -> anyhow::Result<()> {
    refuse_second(home)?;
    let token = JoinToken::parse(token).context("this is not a join token; `sandling fleet token` prints one")?;
    home.prepare_root().context("cannot create the home directory")?;
    let name = node_name(name)?;
    token.join(through, home, &name, address).await?;
    eprintln!("This machine is node {name} from the next `sandling serve` on.");
    Ok(())
}

fn refuse_second(home: &Home) -> anyhow::Result<()> {
    match FleetSettings::load(home)? {
        Some(settings) => bail!(
            "this machine is node {} of a fleet already; remove {} to leave it",
            settings.name,
            home.fleet().display()
        ),
        None => Ok(()),
    }
}

async fn refuse_removed(settings: &FleetSettings, home: &Home) -> anyhow::Result<()> {
    let removed = sandling_fleet::is_removed(&settings.ledger(home)?, &settings.fingerprint).await;
    if removed.with_context(|| unusable(settings))? {
        let fleet = home.fleet();
        bail!(
            "this machine was removed from the fleet; to join again, stop the server, remove {} and use a new join token",
            fleet.display()
        );
    }
    Ok(())
}

fn unusable(settings: &FleetSettings) -> String {
    format!(
        "the fleet's etcd at {} cannot be used; if its machine is lost for good, run `sandling fleet rebuild` on a node \
         that is up",
        settings.engine.join(", ")
    )
}

fn node_name(given: Option<&str>) -> anyhow::Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname").context("cannot read the host's name")?,
    };
    let name = name.trim().to_lowercase();
    let valid = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    if name.is_empty() || name.len() > 40 || name.starts_with('-') || name.ends_with('-') || !name.chars().all(valid) {
        bail!("{name:?} cannot name a node; use --name with up to 40 letters, digits and inner dashes");
    }
    Ok(name)
}

pub(super) async fn members(settings: &FleetSettings, home: &Home) -> anyhow::Result<Vec<(String, NodeRecord)>> {
    let listed = settings.ledger(home)?.list(sandling_fleet::NODES, None, MOST_NODES).await;
    let listed = listed.with_context(|| unusable(settings))?;
    let member = |record: &sandling_fleet::Record| {
        let name = record.key.strip_prefix(sandling_fleet::NODES).unwrap_or(&record.key);
        anyhow::Ok((name.to_owned(), serde_json::from_str(&record.value)?))
    };
    listed.records.iter().map(member).collect()
}

async fn check_member(settings: &FleetSettings, home: &Home, name: &str) -> anyhow::Result<()> {
    if members(settings, home).await?.iter().any(|(member, _)| member == name) {
        return Ok(());
    }
    bail!("the fleet has no node {name}; `sandling fleet status` lists its nodes")
}

async fn remove(settings: &FleetSettings, home: &Home, node: &str) -> anyhow::Result<()> {
    if members(settings, home).await?.iter().any(|(member, record)| member == node && runs_etcd(settings, record)) {
        bail!(
            "node {node} runs the fleet's etcd, so the fleet cannot be without it; `sandling fleet rebuild --force` on \
             another node gives the fleet another one"
        );
    }
    if !sandling_fleet::remove(&settings.ledger(home)?, node).await? {
        bail!("the fleet has no node {node}; `sandling fleet status` lists the nodes that are up");
    }
    show::line(node)
}

/// Whether a node runs the fleet's etcd.
pub(super) fn runs_etcd(settings: &FleetSettings, record: &NodeRecord) -> bool {
    let own = sandling_api::address_of_own_engine(&record.address);
    own.is_some() && own.as_ref() == settings.engine.first()
}

/// What to do about nodes of different versions, if there are.
fn mixed_versions(members: &[(String, NodeRecord)]) -> Option<String> {
    let incompatible = members.iter().find_map(|(name, record)| record.protocol.check(name).err());
    if let Some(incompatible) = incompatible {
        return Some(incompatible.to_string());
    }
    let said = |(_, record): &(String, NodeRecord)| (record.version.clone(), record.protocol.text());
    let versions: BTreeSet<_> = members.iter().map(said).collect();
    let named: Vec<_> = versions.iter().map(|(version, protocol)| format!("{version} (protocol {protocol})")).collect();
    (versions.len() > 1).then(|| {
        format!(
            "The nodes run different versions: {}. That is fine while you upgrade one after another.",
            named.join(", ")
        )
    })
}

async fn status(settings: &FleetSettings, home: &Home, as_json: bool) -> anyhow::Result<()> {
    refuse_removed(settings, home).await?;
    let ledger = settings.ledger(home)?;
    let members = members(settings, home).await?;
    if let Some(mixed) = mixed_versions(&members) {
        eprintln!("{mixed}");
    }
    let stores = join_all(members.iter().map(|(name, record)| store_of(settings, home, name, record))).await;
    let mut listed = Vec::new();
    for ((name, record), store) in members.into_iter().zip(stores) {
        let drain = if record.draining { fleet_drain::progress(&ledger, &name).await? } else { None };
        let (runs_etcd, generation) = (runs_etcd(settings, &record), settings.engine_generation);
        let NodeRecord { address, version, protocol, hardware, draining, .. } = record;
        let mut node = json!({
            "name": name, "address": address, "version": version, "protocol": protocol.text(), "hardware": hardware,
            "draining": draining, "runs_etcd": runs_etcd, "etcd_generation": generation,
        });
        if let Some(drain) = drain {
            node["drain"] = serde_json::to_value(drain)?;
        }
        if let Some(store) = store {
            node["store"] = store;
        }
        listed.push(node);
    }
    let has_store = settings.store.is_some();
    let mut headings = vec!["name", "address", "version", "hardware", "state", "etcd"];
    headings.extend(["store", "durable"].into_iter().filter(|_| has_store));
    show::list(listed.into(), as_json, &headings, |node: Value| {
        let text = |field: &str| node[field].as_str().unwrap_or_default().to_owned();
        let mut row =
            vec![text("name"), text("address"), text("version"), text("hardware"), state_of(&node), etcd_of(&node)];
        row.extend(store_columns(&node["store"]).into_iter().filter(|_| has_store));
        row
    })
}

fn state_of(node: &Value) -> String {
    let drain = serde_json::from_value(node["drain"].clone()).ok();
    match (node["draining"] == true, drain) {
        (true, Some(drain)) => format!("draining: {}", fleet_drain::describe(&drain)),
        (true, None) => "draining".to_owned(),
        (false, _) => "ready".to_owned(),
    }
}

/// Shown for the node that runs the fleet's etcd.
fn etcd_of(node: &Value) -> String {
    match node["runs_etcd"] == true {
        true => format!("generation {}", node["etcd_generation"]),
        false => String::new(),
    }
}

/// What a node says about the store. `None` if the fleet has none.
async fn store_of(settings: &FleetSettings, home: &Home, name: &str, record: &NodeRecord) -> Option<Value> {
    settings.store.as_ref()?;
    let said = match settings.ask_peer(home, name, record).await {
        Ok(health) => health.store.map(|store| json!(store)),
        Err(why) => Some(json!({"problem": format!("the node does not answer: {why}")})),
    };
    Some(said.unwrap_or_else(|| json!({"problem": "the node knows of no store"})))
}

/// Whether the store works, and how many of the node's snapshots it has.
fn store_columns(store: &Value) -> [String; 2] {
    let health = store["problem"].as_str().unwrap_or("ok").to_owned();
    let durable = match (store["durable"].as_u64(), store["waiting"].as_u64()) {
        (Some(durable), Some(waiting)) => format!("{durable} of {}", durable + waiting),
        _ => String::new(),
    };
    [health, durable]
}

#[cfg(test)]
mod tests {
    use sandling_fleet::Protocol;

    use super::*;

    fn node(name: &str, version: &str, protocol: Protocol) -> (String, NodeRecord) {
        let record = NodeRecord {
            fingerprint: String::new(),
            hardware: String::new(),
            address: String::new(),
            version: version.to_owned(),
            protocol,
            draining: false,
            unknown: Default::default(),
        };
        (name.to_owned(), record)
    }

    #[test]
    fn different_versions_are_fine_while_they_understand_each_other() {
        let Protocol { current, oldest } = Protocol::OWN;
        let (a, b) = (node("a", "1.1.0", Protocol::OWN), node("b", "1.0.0", Protocol { current: oldest, oldest }));
        assert_eq!(mixed_versions(&[a.clone(), a.clone()]), None);
        assert!(mixed_versions(&[a.clone(), b]).unwrap().contains("1.0.0 (protocol 1-1), 1.1.0"));
        let far = node("c", "3.0.0", Protocol { current: current + 2, oldest: current + 1 });
        assert!(mixed_versions(&[a, far]).unwrap().contains("upgrade Sandling on this node"));
    }
}
