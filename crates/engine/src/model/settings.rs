//! Settings that the crates above the engine store with a sandbox and its snapshots. The engine does not interpret them.
//!
//! Labels belong to users and mean nothing to Sandling. Rows that were written before these fields existed have them as
//! labels; [`read_row`] converts those.

use std::collections::BTreeMap;

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
    /// The volume whose files the sandbox serves, if it was created only for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_volume: Option<String>,
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
    upgrade_labels(&mut row);
    serde_json::from_value(row)
}

/// Turns the labels by which older versions stored settings into settings. A row that has settings is left as it is, so
/// that a user's label of the same name stays a label.
pub(crate) fn upgrade_labels(row: &mut Value) {
    let Some(row) = row.as_object_mut().filter(|row| !row.contains_key("settings")) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        #[serde(default)]
        labels: BTreeMap<String, String>,
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
            for_volume: Some("data".to_owned()),
        };
        assert_eq!(row.settings, settings);
    }

    #[test]
    fn labels_of_users_stay_labels() {
        let row = read(json!({"labels": {"e2b.public_ports": "true"}, "settings": {}}));
        assert!(row.labels.contains_key("e2b.public_ports") && !row.settings.public_ports);
        assert_eq!(read(json!({})).settings, SandboxSettings::default());
        assert_eq!(read(json!({"labels": {"template.env": "no JSON"}})).settings, SandboxSettings::default());
    }
}
