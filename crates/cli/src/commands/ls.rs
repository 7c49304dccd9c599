//! `sandling ls`.

use comfy_table::Cell;
use jiff::Timestamp;
use serde_json::Value;

use crate::client::{Client, Sandbox, field};
use crate::options::Ls;
use crate::show;

pub async fn ls(options: &Ls) -> anyhow::Result<()> {
    let mut found: Vec<Value> = Client::require().await?.get("/v1/sandboxes").await?;
    found.retain(|sandbox| options.labels.iter().all(|(name, value)| sandbox["labels"][name] == **value));
    if options.quiet {
        return found.iter().try_for_each(|sandbox| show::line(field(sandbox, "id")?));
    }
    if found.is_empty() && !options.json {
        eprintln!("No sandboxes found. Create one with `sandling create`.");
        return Ok(());
    }
    let now = Timestamp::now();
    let header = ["id", "name", "template", "status", "cpus", "memory", "age", "ends in", "labels"];
    show::list(found.into(), options.json, &header, |sandbox: Sandbox| {
        [
            Cell::new(show::short(&sandbox.id)),
            Cell::new(sandbox.name.unwrap_or_default()),
            Cell::new(&sandbox.template),
            show::status(&sandbox.status),
            Cell::new(sandbox.cpu),
            Cell::new(format!("{} MiB", sandbox.memory_mb)),
            Cell::new(show::span(sandbox.created_at, now)),
            Cell::new(sandbox.expires_at.map_or("never".to_owned(), |at| show::span(now, at))),
            Cell::new(show::pairs(&sandbox.labels)),
        ]
    })
}
