//! Settings of workspaces that several homes share: quotas, whether runs are recorded, network defaults and secrets.
//!
//! Each home has a copy of all of them. It also remembers what all homes had last, so it notices what was changed here. Of two
//! changes, the later one holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use rusqlite::params;
use sandling_engine::network::{CarriedSecret, SecretVersion, StoredDefault};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::Query;
use sandling_engine::{Engine, NetworkDefault, NetworkError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admission::Quota;
use crate::service::Service;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// The only version of a record that this program reads and writes.
const VERSION: u32 = 1;
/// The part of a secret's record that only nodes can read.
const SEALED: &str = "sealed";

/// What can be set of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    Quota(WorkspaceName),
    RecordRuns(WorkspaceName),
    /// Without a template, the workspace's own.
    NetworkDefault(WorkspaceName, Option<String>),
    Secret(WorkspaceName, String),
}

/// The value of a setting, or that it is not set any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSetting {
    version: u32,
    pub changed_ms: i64,
    pub value: Option<Value>,
}

/// What all homes had last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSetting {
    pub changed_ms: i64,
    /// `None` if it was not set.
    pub state: Option<String>,
}

/// What a home does about its own value and the one that the others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingStep {
    Nothing,
    Adopt,
    /// The own value is new to the others, since this time.
    Publish(i64),
}

#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    #[error("a shared setting cannot be read")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Setting {
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(3, '/');
        let (kind, workspace, rest) = (parts.next()?, WorkspaceName::parse(parts.next()?)?, parts.next());
        Some(match (kind, rest.map(str::to_owned)) {
            ("quota", None) => Self::Quota(workspace),
            ("record-runs", None) => Self::RecordRuns(workspace),
            ("network", template) => Self::NetworkDefault(workspace, template),
            ("secret", Some(name)) => Self::Secret(workspace, name),
            _ => return None,
        })
    }

    pub fn workspace(&self) -> &WorkspaceName {
        match self {
            Self::Quota(workspace)
            | Self::RecordRuns(workspace)
            | Self::NetworkDefault(workspace, _)
            | Self::Secret(workspace, _) => workspace,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(workspace) => write!(f, "quota/{workspace}"),
            Self::RecordRuns(workspace) => write!(f, "record-runs/{workspace}"),
            Self::NetworkDefault(workspace, None) => write!(f, "network/{workspace}"),
            Self::NetworkDefault(workspace, Some(template)) => write!(f, "network/{workspace}/{template}"),
            Self::Secret(workspace, name) => write!(f, "secret/{workspace}/{name}"),
        }
    }
}

impl SharedSetting {
    pub fn new(changed_ms: i64, value: Option<Value>) -> Self {
        Self { version: VERSION, changed_ms, value }
    }

    /// `None` if a later version wrote it.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok().filter(|setting| setting.version <= VERSION)
    }

    pub fn known(&self) -> KnownSetting {
        KnownSetting { changed_ms: self.changed_ms, state: self.value.as_ref().map(state_of) }
    }

    /// Adds the encrypted part of a secret.
    pub fn seal(mut self, sealed: &str) -> Self {
        if let Some(value) = &mut self.value {
            value[SEALED] = sealed.into();
        }
        self
    }

    /// The encrypted part of a secret.
    pub fn sealed(&self) -> Option<&str> {
        self.value.as_ref()?[SEALED].as_str()
    }
}

/// What tells a value from another one. Two encryptions of a secret are the same.
fn state_of(value: &Value) -> String {
    let mut value = value.clone();
    if let Value::Object(fields) = &mut value {
        fields.remove(SEALED);
    }
    value.to_string()
}

/// `own` is what is set here. A home that shares a setting for the first time gives way to what the others have set, and not
/// to the removal of what they had.
pub fn setting_step(
    own: Option<&Value>,
    known: Option<&KnownSetting>,
    theirs: Option<&SharedSetting>,
    now_ms: i64,
) -> SettingStep {
    let own = own.map(state_of);
    let theirs = theirs.map(SharedSetting::known);
    let after = |at: Option<i64>| now_ms.max(at.map_or(i64::MIN, |at| at.saturating_add(1)));
    let their_change = theirs.as_ref().map(|theirs| theirs.changed_ms);
    let Some(known) = known else {
        return match theirs {
            None if own.is_none() => SettingStep::Nothing,
            Some(theirs) if theirs.state.is_some() || own.is_none() => SettingStep::Adopt,
            _ => SettingStep::Publish(after(their_change)),
        };
    };
    if own != known.state {
        let is_theirs = theirs.as_ref().is_some_and(|theirs| theirs.state == own);
        return if is_theirs {
            SettingStep::Adopt
        } else {
            SettingStep::Publish(after(their_change.max(Some(known.changed_ms))))
        };
    }
    match theirs {
        Some(theirs) if theirs == *known => SettingStep::Nothing,
        Some(theirs) if (theirs.changed_ms, &theirs.state) > (known.changed_ms, &known.state) => SettingStep::Adopt,
        _ => SettingStep::Publish(known.changed_ms),
    }
}

impl Service {
    /// What is set in this home. Of a secret, it is which value it has, without the value.
    pub fn settings(&self) -> Result<BTreeMap<Setting, Value>, SettingError> {
        let workspaces = self.store.workspaces()?;
        let live: BTreeSet<_> = workspaces.iter().map(|workspace| workspace.name.clone()).collect();
        let mut all = BTreeMap::new();
        for workspace in workspaces.into_iter().filter(|workspace| workspace.record_runs) {
            all.insert(Setting::RecordRuns(workspace.name), true.into());
        }
        for name in &live {
            if let Some(quota) = self.store.quota(name)? {
                all.insert(Setting::Quota(name.clone()), serde_json::to_value(quota)?);
            }
        }
        let is_live = |workspace: &str| WorkspaceName::parse(workspace).filter(|name| live.contains(name));
        let networks = self.engine().networks();
        for StoredDefault { workspace, template, default } in networks.all_defaults()? {
            if let Some(name) = is_live(&workspace) {
                all.insert(Setting::NetworkDefault(name, template), serde_json::to_value(default)?);
            }
        }
        for SecretVersion { workspace, name: secret, id, created_ms } in networks.secret_versions()? {
            if let Some(name) = is_live(&workspace) {
                all.insert(Setting::Secret(name, secret), json!({ "id": id.as_str(), "created_ms": created_ms }));
            }
        }
        Ok(all)
    }

    /// The encoded value of a secret, for another home.
    pub fn export_secret(&self, workspace: &WorkspaceName, name: &str) -> Result<Option<String>, SettingError> {
        let secret = self.engine().networks().export_secret(workspace.as_str(), name)?;
        Ok(secret.map(|secret| serde_json::to_string(&secret)).transpose()?)
    }

    /// Sets what another home has set. `secret` is the encoded value of a secret.
    pub fn adopt_setting(
        &self,
        setting: &Setting,
        value: Option<&Value>,
        secret: Option<&str>,
    ) -> Result<(), SettingError> {
        let networks = self.engine().networks();
        match setting {
            Setting::Quota(workspace) => {
                let quota = value.map(|value| serde_json::from_value::<Quota>(value.clone())).transpose()?;
                self.admission.adopt_quota(workspace, quota.as_ref())?;
            }
            Setting::RecordRuns(workspace) => {
                self.store.set_record_runs(workspace, value == Some(&Value::Bool(true)))?;
            }
            Setting::NetworkDefault(workspace, template) => {
                let default = value.map(|value| serde_json::from_value::<NetworkDefault>(value.clone())).transpose()?;
                networks.adopt_default(workspace.as_str(), template.as_deref(), default)?;
            }
            Setting::Secret(workspace, name) => match (value, secret) {
                (Some(_), Some(secret)) => {
                    networks.adopt_secret(workspace.as_str(), &serde_json::from_str::<CarriedSecret>(secret)?)?;
                }
                (Some(_), None) => {}
                (None, _) => drop(networks.remove_secret(workspace.as_str(), name)?),
            },
        }
        Ok(())
    }

    /// What all homes had last, since this machine joined them.
    pub fn known_settings(&self, joined_ms: i64) -> Result<BTreeMap<String, KnownSetting>, StoreError> {
        self.store.known_settings(joined_ms)
    }

    pub fn remember_setting(&self, name: &str, joined_ms: i64, known: &KnownSetting) -> Result<(), StoreError> {
        self.store.remember_setting(name, joined_ms, known)
    }

    fn engine(&self) -> &Engine {
        self.sandboxes.engine()
    }
}

impl Store {
    fn known_settings(&self, joined_ms: i64) -> Result<BTreeMap<String, KnownSetting>, StoreError> {
        let of_fleet = "SELECT name, changed_ms, state FROM shared_settings WHERE joined_ms = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get("name")?, KnownSetting { changed_ms: row.get("changed_ms")?, state: row.get("state")? }))
        };
        Ok(self.connection().all(of_fleet, [joined_ms], read)?.into_iter().collect())
    }

    fn remember_setting(&self, name: &str, joined_ms: i64, known: &KnownSetting) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO shared_settings (name, joined_ms, changed_ms, state) VALUES (?1, ?2, ?3, ?4)";
        self.connection().run(sql, params![name, joined_ms, known.changed_ms, known.state]).map(drop)
    }
}

/// The time for [`setting_step`].
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn names_of_settings_are_read_back() {
        for name in ["quota/team", "record-runs/team", "network/team", "network/team/a/b:v1", "secret/team/KEY"] {
            assert_eq!(Setting::parse(name).unwrap().to_string(), name);
        }
        for bad in ["quota", "quota/team/x", "secret/team", "other/team", "quota/Team"] {
            assert_eq!(Setting::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn records_of_version_1_are_read_and_written() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/shared-settings.jsonl");
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let (name, body) = line.split_once(' ').unwrap();
            let setting = SharedSetting::parse(body).unwrap();
            assert_eq!(serde_json::to_string(&setting).unwrap(), body);
            match (Setting::parse(name).unwrap(), setting.value.clone()) {
                (_, None) => {}
                (Setting::Quota(_), Some(value)) => drop(serde_json::from_value::<Quota>(value).unwrap()),
                (Setting::NetworkDefault(..), Some(value)) => {
                    let default: NetworkDefault = serde_json::from_value(value.clone()).unwrap();
                    assert_eq!(serde_json::to_value(default).unwrap(), value);
                }
                (Setting::RecordRuns(_), Some(value)) => assert_eq!(value, true),
                (Setting::Secret(..), Some(_)) => assert_eq!(setting.sealed(), Some("bm90aGluZw==")),
            }
        }
        assert_eq!(SharedSetting::parse(r#"{"version":2,"changed_ms":1,"value":null}"#), None);
    }

    #[test]
    fn a_machine_that_joins_gives_way_to_what_the_fleet_has_set() {
        let (mine, theirs) = (json!(1), SharedSetting::new(5, Some(json!(2))));
        assert_eq!(setting_step(Some(&mine), None, Some(&theirs), 9), SettingStep::Adopt);
        assert_eq!(setting_step(None, None, Some(&theirs), 9), SettingStep::Adopt);
        assert_eq!(setting_step(Some(&mine), None, None, 9), SettingStep::Publish(9));
        let removed = SharedSetting::new(12, None);
        assert_eq!(setting_step(Some(&mine), None, Some(&removed), 9), SettingStep::Publish(13));
        assert_eq!(setting_step(None, None, Some(&removed), 9), SettingStep::Adopt);
        assert_eq!(setting_step(None, None, None, 9), SettingStep::Nothing);
    }

    #[test]
    fn a_change_here_is_later_than_what_all_had_also_if_the_clock_is_behind() {
        let known = SharedSetting::new(50, Some(json!(1))).known();
        let change = |own: Option<Value>| {
            setting_step(own.as_ref(), Some(&known), Some(&SharedSetting::new(50, Some(json!(1)))), 9)
        };
        assert_eq!(change(Some(json!(1))), SettingStep::Nothing);
        assert_eq!(change(Some(json!(2))), SettingStep::Publish(51));
        assert_eq!(change(None), SettingStep::Publish(51));
        assert_eq!(setting_step(Some(&json!(1)), Some(&known), None, 9), SettingStep::Publish(50), "etcd has lost it");
        let older = SharedSetting::new(49, Some(json!(3)));
        assert_eq!(setting_step(Some(&json!(1)), Some(&known), Some(&older), 9), SettingStep::Publish(50));
    }

    proptest! {
        /// Homes change a setting and meet the record in any order.
        #[test]
        fn homes_agree_in_the_end(steps in proptest::collection::vec((0usize..3, proptest::option::of(0u8..4)), 1..30)) {
            let mut homes = vec![(None::<Value>, None::<KnownSetting>); 3];
            let mut record: Option<SharedSetting> = None;
            let meet = |home: &mut (Option<Value>, Option<KnownSetting>), record: &mut Option<SharedSetting>, now| {
                match setting_step(home.0.as_ref(), home.1.as_ref(), record.as_ref(), now) {
                    SettingStep::Nothing => {}
                    SettingStep::Adopt => {
                        let theirs = record.as_ref().unwrap();
                        *home = (theirs.value.clone(), Some(theirs.known()));
                    }
                    SettingStep::Publish(changed_ms) => {
                        let mine = SharedSetting::new(changed_ms, home.0.clone());
                        home.1 = Some(mine.known());
                        *record = Some(mine);
                    }
                }
            };
            for (now, (at, change)) in steps.into_iter().enumerate() {
                match change {
                    Some(0) => homes[at].0 = None,
                    Some(value) => homes[at].0 = Some(json!(value)),
                    None => meet(&mut homes[at], &mut record, now as i64),
                }
            }
            for _ in 0..2 {
                homes.iter_mut().for_each(|home| meet(home, &mut record, 100));
            }
            homes.iter_mut().for_each(|home| meet(home, &mut record, 100));
            let value = record.and_then(|record| record.value);
            prop_assert!(homes.iter().all(|home| home.0 == value), "{:?} {:?}", homes, value);
        }
    }

    #[test]
    fn what_all_had_is_forgotten_when_the_machine_joins_another_fleet() {
        let fixture = Fixture::new();
        let known = KnownSetting { changed_ms: 5, state: Some("1".to_owned()) };
        fixture.store.remember_setting("quota/team", 7, &known).unwrap();
        let fixture = fixture.restart();
        assert_eq!(fixture.store.known_settings(7).unwrap()["quota/team"], known);
        assert!(fixture.store.known_settings(8).unwrap().is_empty());
    }
}
