//! `sandling ls`.

use std::process::ExitCode;

use comfy_table::Cell;
use jiff::Timestamp;
use serde_json::Value;

use crate::client::{Client, Sandbox, read};
use crate::options::Ls;
use crate::show;

pub async fn ls(options: &Ls) -> anyhow::Result<ExitCode> {
    let mut found: Vec<Value> = Client::require()?.get("/v1/sandboxes").await?;
    found.retain(|sandbox| options.labels.iter().all(|(name, value)| sandbox["labels"][name] == **value));
    if options.json {
        show::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let found: Vec<Sandbox> = read(Value::from(found))?;
    if options.quiet {
        for sandbox in &found {
            show::line(&sandbox.id)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    print(&found)?;
    Ok(ExitCode::SUCCESS)
}

fn print(found: &[Sandbox]) -> anyhow::Result<()> {
    if found.is_empty() {
        eprintln!("No sandboxes found. Create one with `sandling create`.");
        return Ok(());
    }
    let now = Timestamp::now();
    let mut table = show::table(&["id", "template", "status", "cpus", "memory", "age", "ends in", "labels"]);
    for sandbox in found {
        table.add_row([
            Cell::new(show::short(&sandbox.id)),
            Cell::new(&sandbox.template),
            show::status(&sandbox.status),
            Cell::new(sandbox.cpu),
            Cell::new(format!("{} MiB", sandbox.memory_mb)),
            Cell::new(show::span(sandbox.created_at, now)),
            Cell::new(sandbox.expires_at.map_or("never".to_owned(), |at| show::span(now, at))),
            Cell::new(show::pairs(&sandbox.labels)),
        ]);
    }
    show::line(table)
}
