//! Templates as a table, the same wherever the list comes from.

use jiff::Timestamp;
use sandling_wire::{FreedView, TemplateVersion};
use serde_json::Value;

use crate::client::Template;
use crate::show;

pub fn print(listed: Value, json: bool) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let in_fleet = listed.as_array().is_some_and(|listed| listed.iter().any(|template| template["nodes"].is_array()));
    let header = ["name", "size", "age", "cpus", "memory", "disk", "description", "nodes"];
    let header = if in_fleet { &header[..] } else { &header[..7] };
    show::list(listed, json, header, |template: Template| {
        let mut row = vec![
            template.name,
            if template.ready { show::bytes(template.size_bytes) } else { "not built".to_owned() },
            template
                .meta
                .get("created_at")
                .and_then(|at| at.parse().ok())
                .map_or_else(String::new, |at| show::span(at, now)),
            template.cpu.to_string(),
            format!("{} MiB", template.memory_mb),
            format!("{} MiB", template.disk_mb),
            template.description,
        ];
        row.extend(template.nodes.map(|nodes| nodes.join(", ")));
        row
    })
}

pub fn print_freed(freed: FreedView, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&freed);
    }
    let FreedView { steps, layers, templates, bakes, bytes } = freed;
    let bytes = show::bytes(bytes);
    show::line(format_args!(
        "removed {steps} cached steps, {layers} layers, {templates} unused templates and {bakes} unused sizes: {bytes} freed"
    ))
}

pub fn print_removed(name: &str, bytes: u64) -> anyhow::Result<()> {
    show::line(format_args!("removed {name}: {} freed", show::bytes(bytes)))
}

pub fn print_versions(versions: Value, json: bool) -> anyhow::Result<()> {
    let now = Timestamp::now();
    show::list(versions, json, &["digest", "age", "size", "current"], |version: TemplateVersion| {
        [
            version.digest,
            version.created_at.parse().map_or_else(|_| String::new(), |at| show::span(at, now)),
            show::bytes(version.size_bytes),
            if version.current { "yes".to_owned() } else { String::new() },
        ]
    })
}
