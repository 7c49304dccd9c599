//! Settings that the crates above the engine store with a sandbox and its snapshots. The engine does not interpret them.
//!
//! Labels and metadata belong to users and mean nothing to Sandling. Rows that were written before these fields existed
//! have them as labels and metadata; [`read_row`] converts those.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSettings {
    pub process: ProcessDefaults,
    /// The template by the name that the client used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_name: Option<String>,
    /// Whether traffic wakes the sandbox; yes if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<bool>,
    /// Whether its ports can be reached without a token.
    pub public_ports: bool,
    /// Whether the client asked for the internet. The network policy decides what the sandbox reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internet: Option<bool>,
    /// The host that its servers see in requests, with `${PORT}` for the port. `localhost` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_host: Option<String>,
    /// The ports whose servers speak HTTPS.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub https_ports: BTreeSet<u16>,
    /// The volume whose files the sandbox serves, if it was created only for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_volume: Option<String>,
    /// The build that runs in the sandbox, if it was created only for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_build: Option<String>,
    /// What the template's Dockerfile says about the image: its command, ports, labels and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_config: Option<Value>,
    /// The Debian packages of a template that was built from packages.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub packages: BTreeSet<String>,
    /// Present if another node of the fleet takes the sandbox over when this one is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
}

/// Such a sandbox does not run before it is known that no other node has taken it over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failover {
    /// The last time that it was taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<FailedOver>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOver {
    /// The node that was lost.
    pub from: String,
    /// The moment that the sandbox went back to.
    pub to: Timestamp,
}

/// The environment, user and directory that a template sets for every process in its sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessDefaults {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
}

/// Reads the row of a sandbox or of a snapshot.
pub(crate) fn read_row<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut row = serde_json::from_str(text)?;
    upgrade_row(&mut row);
    serde_json::from_value(row)
}

/// Turns the labels and metadata by which older versions stored settings into fields. A row that has a field is left as it
/// is, so that a user's label of the same name stays a label.
pub(crate) fn upgrade_row(row: &mut Value) {
    let Some(row) = row.as_object_mut() else { return };
    if !row.contains_key("settings") {
        upgrade_labels(row);
    }
    if !row.contains_key("fork") {
        upgrade_metadata(row);
    }
}

fn upgrade_labels(row: &mut Map<String, Value>) {
    let Some(labels) = row.get_mut("labels").and_then(Value::as_object_mut) else { return };
    let mut text = |name: &str| labels.remove(name).and_then(|label| label.as_str().map(str::to_owned));
    let mut process = Map::new();
    process.extend(text("template.user").map(|user| ("user".to_owned(), user.into())));
    process.extend(text("template.workdir").map(|workdir| ("workdir".to_owned(), workdir.into())));
    let env = text("template.env").and_then(|env| serde_json::from_str::<Value>(&env).ok());
    process.extend(env.filter(Value::is_object).map(|env| ("env".to_owned(), env)));
    let mut settings = Map::from_iter([("process".to_owned(), process.into())]);
    for (label, name) in [("e2b.template", "template_name"), ("sandling.for-volume", "for_volume")] {
        settings.extend(text(label).map(|value| (name.to_owned(), value.into())));
    }
    for name in ["auto_resume", "public_ports", "internet"] {
        settings.extend(text(&format!("e2b.{name}")).map(|flag| (name.to_owned(), json!(flag == "true"))));
    }
    row.insert("settings".to_owned(), settings.into());
}

/// Only the engine wrote these names into the metadata of a sandbox with a parent. The id of a build stays in the metadata,
/// because a user may have written the same name there.
fn upgrade_metadata(row: &mut Map<String, Value>) {
    let is_child = row.get("parent").is_some_and(Value::is_string);
    let Some(metadata) = row.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let build =
        metadata.get("build").filter(|id| id.as_str().is_some_and(|id| uuid::Uuid::parse_str(id).is_ok())).cloned();
    let mut fork = Value::Null;
    if is_child {
        let [tree, index, _] = ["fork_tree_id", "fork_index", "fork_parent_id"].map(|name| metadata.remove(name));
        let index = index.as_ref().and_then(Value::as_str).and_then(|index| index.parse::<usize>().ok());
        fork = tree.map_or(Value::Null, |tree| json!({ "tree": tree, "index": index.unwrap_or_default() }));
    }
    row.insert("fork".to_owned(), fork);
    if let (Some(build), Some(settings)) = (build, row.get_mut("settings").and_then(Value::as_object_mut)) {
        settings.entry("for_build").or_insert(build);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sandbox::ForkPlace;
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        #[serde(default)]
        labels: BTreeMap<String, String>,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        #[serde(default)]
        fork: Option<ForkPlace>,
        #[serde(default)]
        settings: SandboxSettings,
    }

    fn read(row: Value) -> Row {
        read_row(&row.to_string()).unwrap()
    }

    #[test]
    fn labels_of_older_versions_become_settings() {
        let row = read(json!({"labels": {
            "team": "a", "e2b.public_ports": "true", "e2b.auto_resume": "false", "e2b.template": "mine:v1",
            "e2b.internet": "true", "template.user": "root", "template.workdir": "/app", "template.env": "{\"A\":\"b\"}",
            "sandling.for-volume": "data"
        }}));
        assert_eq!(row.labels, BTreeMap::from([("team".to_owned(), "a".to_owned())]));
        let process = ProcessDefaults {
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            user: Some("root".to_owned()),
            workdir: Some("/app".to_owned()),
        };
        let settings = SandboxSettings {
            process,
            template_name: Some("mine:v1".to_owned()),
            auto_resume: Some(false),
            public_ports: true,
            internet: Some(true),
            request_host: None,
            https_ports: BTreeSet::new(),
            for_volume: Some("data".to_owned()),
            for_build: None,
            image_config: None,
            packages: BTreeSet::new(),
            failover: None,
        };
        assert_eq!(row.settings, settings);
    }

    #[test]
    fn metadata_of_older_versions_become_fields() {
        let ours = json!({"fork_tree_id": "t", "fork_parent_id": "p", "fork_index": "3", "role": "heir"});
        let child = read(json!({"labels": {}, "metadata": ours, "parent": "p"}));
        assert_eq!(child.fork, Some(ForkPlace { tree: "t".to_owned(), index: 3 }));
        assert_eq!(child.metadata, BTreeMap::from([("role".to_owned(), "heir".to_owned())]));
        let id = "41cce1b9-b5e9-4a71-8807-929161b20143";
        let build = read(json!({"labels": {}, "metadata": {"build": id}, "parent": null}));
        assert_eq!((build.settings.for_build.as_deref(), build.fork), (Some(id), None));
    }

    #[test]
    fn metadata_of_users_stays_metadata() {
        let forged = json!({"fork_tree_id": "t", "fork_parent_id": "p", "fork_index": "0", "build": "mine"});
        let older = read(json!({"labels": {}, "metadata": forged, "parent": null}));
        let newer = read(json!({"metadata": forged, "parent": "p", "fork": null, "settings": {}}));
        for row in [older, newer] {
            assert_eq!((row.metadata.len(), row.fork, row.settings.for_build), (4, None, None));
        }
    }

    #[test]
    fn labels_of_users_stay_labels() {
        let row = read(json!({"labels": {"e2b.public_ports": "true"}, "settings": {}}));
        assert!(row.labels.contains_key("e2b.public_ports") && !row.settings.public_ports);
        assert_eq!(read(json!({})).settings, SandboxSettings::default());
        assert_eq!(read(json!({"labels": {"template.env": "no JSON"}})).settings, SandboxSettings::default());
    }
}
