//! Files and directories in E2B's format.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::Sandbox;
use sandling_protocol::{Entry, EntryKind};
use serde_json::{Value, json};

use super::paths::lines;
use crate::error::ApiError;

/// The names of a sandbox's users and groups.
pub(super) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// Reads the names that these entries need. For root there is nothing to read.
    pub(super) async fn for_entries(sandbox: &Arc<Sandbox>, entries: &[Entry]) -> Self {
        let mut names = Self { users: HashMap::new(), groups: HashMap::new() };
        if entries.iter().any(|entry| entry.uid != 0 || entry.gid != 0) {
            // If the file cannot be read, the entries have numeric ids.
            names.users = numbered(lines(sandbox, "/etc/passwd").await.unwrap_or_default());
            names.groups = numbered(lines(sandbox, "/etc/group").await.unwrap_or_default());
        }
        names
    }
}

fn numbered(lines: Vec<String>) -> HashMap<u32, String> {
    let entry = |line: &String| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    lines.iter().filter_map(entry).collect()
}

/// One entry, with the names of its owner and group.
pub(super) async fn looked_at(sandbox: &Arc<Sandbox>, path: &str) -> Result<Value, ApiError> {
    let entry = sandbox.stat(path).await?;
    let names = Names::for_entries(sandbox, std::slice::from_ref(&entry)).await;
    Ok(view(&entry, &names))
}

pub(super) fn view(entry: &Entry, names: &Names) -> Value {
    let name = |known: &HashMap<u32, String>, id: u32| match id {
        0 => "root".to_owned(),
        id => known.get(&id).cloned().unwrap_or_else(|| id.to_string()),
    };
    let modified = Timestamp::from_millisecond(entry.modified_unix_ms).unwrap_or_default();
    let mut view = json!({
        "name": entry.name,
        "type": kind(entry.kind),
        "path": entry.path,
        // This encoding writes 64-bit integers as strings.
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": name(&names.users, entry.uid),
        "group": name(&names.groups, entry.gid),
        "modifiedTime": modified.to_string(),
    });
    if let Some(target) = &entry.target {
        view["symlinkTarget"] = absolute(&entry.path, target).into();
        view["isSymlink"] = true.into();
    }
    if !entry.metadata.is_empty() {
        view["metadata"] = json!(entry.metadata);
    }
    view
}

/// Where a link leads to, as E2B says it: from the root, whatever the link itself says.
fn absolute(link: &str, target: &str) -> String {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if target.starts_with('/') { target.to_owned() } else { format!("{folder}/{target}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The clients drop entries without a type, so a device counts as a file.
fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File | EntryKind::Other => "FILE_TYPE_FILE",
        EntryKind::Directory => "FILE_TYPE_DIRECTORY",
        EntryKind::Symlink => "FILE_TYPE_SYMLINK",
    }
}

/// A mode as Go prints it: letters for the type, then three times `rwx`.
fn permissions(entry: &Entry) -> String {
    let mut text = String::new();
    if entry.kind == EntryKind::Directory {
        text.push('d');
    }
    if entry.target.is_some() {
        text.push('L');
    }
    for (bit, letter) in [(0o4000, 'u'), (0o2000, 'g'), (0o1000, 't')] {
        if entry.mode & bit != 0 {
            text.push(letter);
        }
    }
    if text.is_empty() {
        text.push('-');
    }
    for (at, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if entry.mode & (0o400 >> at) != 0 { letter } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, mode: u32, target: Option<&str>) -> Entry {
        let text = str::to_owned;
        Entry {
            path: text("/a/b"),
            name: text("b"),
            kind,
            size: 7,
            mode,
            uid: 1000,
            gid: 0,
            modified_unix_ms: 1_700_000_000_123,
            target: target.map(text),
            metadata: Default::default(),
        }
    }

    #[test]
    fn modes_are_written_as_go_writes_them() {
        assert_eq!(permissions(&entry(EntryKind::File, 0o644, None)), "-rw-r--r--");
        assert_eq!(permissions(&entry(EntryKind::Directory, 0o1777, None)), "dtrwxrwxrwx");
        assert_eq!(permissions(&entry(EntryKind::File, 0o777, Some("x"))), "Lrwxrwxrwx");
    }

    #[test]
    fn a_link_leads_to_a_path_from_the_root() {
        for (target, shown) in [("c", "/a/c"), ("../x", "/x"), ("/etc/./hosts", "/etc/hosts"), ("../../..", "/")] {
            assert_eq!(view(&entry(EntryKind::File, 0o644, Some(target)), &none())["symlinkTarget"], shown);
        }
    }

    fn none() -> Names {
        Names { users: HashMap::new(), groups: HashMap::new() }
    }

    #[test]
    fn an_entry_has_the_names_of_those_it_belongs_to() {
        let names = Names { users: numbered(vec!["user:x:1000:1000::/home/user:".to_owned()]), groups: HashMap::new() };
        let view = view(&entry(EntryKind::Directory, 0o755, None), &names);
        assert_eq!((&view["owner"], &view["group"], &view["size"]), (&json!("user"), &json!("root"), &json!("7")));
        assert_eq!(view["modifiedTime"], "2023-11-14T22:13:20.123Z");
        assert!(view.get("symlinkTarget").is_none());
    }
}
