//! Templates as a table, the same wherever the list comes from.

use serde_json::Value;

use crate::client::Template;
use crate::show;

pub fn print(listed: Value, json: bool) -> anyhow::Result<()> {
    let header = ["name", "size", "cpus", "memory", "disk", "description"];
    show::list(listed, json, &header, |template: Template| {
        [
            template.name,
            if template.ready { show::bytes(template.size_bytes) } else { "not built".to_owned() },
            template.cpu.to_string(),
            format!("{} MiB", template.memory_mb),
            format!("{} MiB", template.disk_mb),
            template.description,
        ]
    })
}
