//! `sandling audit`.

use comfy_table::Cell;
use serde_json::Value;

use crate::client::{AuditEntry, Client, Recording, query, read};
use crate::commands::audit_verify::{self, Logs};
use crate::options::{Audit, AuditCommand};
use crate::show;

pub async fn audit(options: &Audit) -> anyhow::Result<()> {
    if let Some(AuditCommand::Verify { workspace, file, node, offline, json }) = &options.command {
        let logs = Logs { workspace: workspace.as_deref(), node: node.as_deref() };
        return audit_verify::verify(logs, file.as_deref(), *offline, *json).await;
    }
    let client = Client::require().await?;
    if let Some(number) = options.recording {
        let parameters = query(&[("node", options.node.clone())]);
        return recording(client.get(&format!("/v1/audit/{number}/recording{parameters}")).await?, options.json);
    }
    let parameters = query(&[
        ("since", options.since.map(|since| since.to_string())),
        ("after", options.after.map(|after| after.to_string())),
        ("limit", Some(options.limit.to_string())),
        ("workspace", options.workspace.clone()),
        ("node", options.node.clone()),
    ]);
    let mut answer: Value = client.get(&format!("/v1/audit{parameters}")).await?;
    let header = ["number", "time", "who", "action", "on", "result"];
    show::list(answer["items"].take(), options.json, &header, |entry: AuditEntry| {
        [
            Cell::new(match entry.node {
                Some(node) => format!("{} {node}", entry.number),
                None => entry.number.to_string(),
            }),
            Cell::new(show::time(entry.time)),
            Cell::new(format!("{} {}", entry.actor.prefix, entry.actor.name)),
            Cell::new(if entry.recorded { format!("{} (recorded)", entry.action) } else { entry.action }),
            Cell::new(entry.object.unwrap_or_default()),
            match entry.code {
                Some(code) if entry.count > 1 => Cell::new(format!("{}: {code} ({} times)", entry.result, entry.count)),
                Some(code) => Cell::new(format!("{}: {code}", entry.result)),
                None => show::status(&entry.result),
            },
        ]
    })
}

fn recording(answer: Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&answer);
    }
    let recording: Recording = read(answer)?;
    for (title, text, cut) in
        [("code", recording.code, recording.code_cut), ("output", recording.output, recording.output_cut)]
    {
        let omitted = if cut > 0 { format!(" ({cut} bytes omitted)") } else { String::new() };
        show::line(format_args!("--- {title}{omitted}\n{}", text.trim_end_matches('\n')))?;
    }
    Ok(())
}
