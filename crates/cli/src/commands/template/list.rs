//! Templates as a table, the same wherever the list comes from.

use serde_json::Value;

use crate::client::{Template, read};
use crate::show;

pub fn print(listed: Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(&listed);
    }
    let mut table = show::table(&["name", "size", "cpus", "memory", "disk", "description"]);
    for template in read::<Vec<Template>>(listed)? {
        let size = if template.ready { show::bytes(template.size_bytes) } else { "not built".to_owned() };
        table.add_row([
            template.name,
            size,
            template.cpu.to_string(),
            format!("{} MiB", template.memory_mb),
            format!("{} MiB", template.disk_mb),
            template.description,
        ]);
    }
    show::line(table)
}
