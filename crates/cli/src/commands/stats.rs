//! `sandling stats`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Sandbox, read};
use crate::options::Stats;
use crate::show;

#[derive(Deserialize)]
struct Usage {
    host_cpu_percent: f64,
    memory_bytes: u64,
    disk_bytes: u64,
    network_received_bytes: u64,
    network_sent_bytes: u64,
    guest: Option<Guest>,
}

#[derive(Deserialize)]
struct Guest {
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    processes: u32,
}

pub async fn stats(options: &Stats) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let mut usage = BTreeMap::new();
    for id in wanted(&client, options).await? {
        let answer: Value = client.get(&format!("/v1/sandboxes/{id}/metrics")).await?;
        usage.insert(id, answer);
    }
    if options.json {
        return show::json(&usage);
    }
    let mut table =
        show::table(&["id", "cpu (average)", "guest memory", "host memory", "disk", "received", "sent", "processes"]);
    for (id, answer) in usage {
        let usage: Usage = read(answer)?;
        let guest = usage.guest.as_ref();
        table.add_row([
            show::short(&id).to_owned(),
            format!("{:.1} %", usage.host_cpu_percent),
            guest.map_or("-".to_owned(), |guest| {
                let used = guest.memory_total_bytes.saturating_sub(guest.memory_available_bytes);
                format!("{} of {}", show::bytes(used), show::bytes(guest.memory_total_bytes))
            }),
            show::bytes(usage.memory_bytes),
            show::bytes(usage.disk_bytes),
            show::bytes(usage.network_received_bytes),
            show::bytes(usage.network_sent_bytes),
            guest.map_or("-".to_owned(), |guest| guest.processes.to_string()),
        ]);
    }
    show::line(table)
}

/// The named sandboxes, or all that have a machine. A request for the usage of a hibernated one would wake it.
async fn wanted(client: &Client, options: &Stats) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for named in &options.sandboxes {
        ids.push(client.sandbox(named).await?);
    }
    if options.sandboxes.is_empty() {
        let all: Vec<Sandbox> = client.get("/v1/sandboxes").await?;
        let has_machine = |sandbox: &Sandbox| ["running", "paused"].contains(&sandbox.status.as_str());
        ids.extend(all.into_iter().filter(has_machine).map(|sandbox| sandbox.id));
    }
    Ok(ids)
}
