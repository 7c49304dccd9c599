//! Settings of workspaces: what is set on one node holds on all. Like tokens, each node has all of them in its own database.
//!
//! The values of secrets are encrypted in etcd, with a key that only nodes have.

use std::collections::{BTreeMap, BTreeSet};

use sandling_service::{
    KnownSetting, Setting, SettingError, SettingStep, SharedSetting, SharedWorkspace, WorkspaceName, now_ms,
    setting_step,
};
use serde_json::Value;

use super::accounts::{Pushed, Rest};
use super::member::Fleet;
use crate::app::App;

const SETTINGS: &str = "setting/";

impl Fleet {
    /// Merges what is set here with what the others have set. Comes after the workspaces.
    pub(super) fn adopt_settings(&self, app: &App, pushed: &Pushed, rest: &mut Rest) -> Result<(), SettingError> {
        let Some(records) = self.shared_records(SETTINGS, pushed) else { return Ok(()) };
        let workspaces = app.service.workspaces.shared()?;
        let joined_ms = self.settings.joined_ms;
        let mut own = app.service.settings()?;
        let known = app.service.known_settings(joined_ms)?;
        let mut theirs = BTreeMap::new();
        for (name, body) in records {
            match (Setting::parse(&name), SharedSetting::parse(&body)) {
                (Some(setting), Some(shared)) => drop(theirs.insert(setting, shared)),
                // A later version wrote it.
                (Some(setting), None) => drop(own.remove(&setting)),
                (None, _) => {}
            }
        }
        let known_names = known.keys().filter_map(|name| Setting::parse(name));
        let all: BTreeSet<Setting> = own.keys().chain(theirs.keys()).cloned().chain(known_names).collect();
        for setting in all {
            match status(&workspaces, setting.workspace(), &rest.kept) {
                Status::Shared => {}
                Status::Deleted => {
                    if theirs.contains_key(&setting) {
                        rest.writes.push((format!("{SETTINGS}{setting}"), None));
                    }
                    continue;
                }
                Status::NotShared => continue,
            }
            let merged = self.merge_setting(
                app,
                &setting,
                (own.get(&setting), known.get(&setting.to_string()), theirs.get(&setting)),
                rest,
            );
            // One that cannot be merged stops no other.
            if let Err(error) = merged {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(setting = %setting, error, "a setting cannot be shared now");
            }
        }
        Ok(())
    }

    fn merge_setting(
        &self,
        app: &App,
        setting: &Setting,
        (own, known, theirs): (Option<&Value>, Option<&KnownSetting>, Option<&SharedSetting>),
        rest: &mut Rest,
    ) -> Result<(), SettingError> {
        let name = setting.to_string();
        let shared = match (setting_step(own, known, theirs, now_ms()), theirs) {
            (SettingStep::Publish(changed_ms), _) => {
                let Some(shared) = self.to_publish(app, setting, own, changed_ms)? else { return Ok(()) };
                let body = serde_json::to_string(&shared)?;
                rest.writes.push((format!("{SETTINGS}{name}"), Some(body)));
                shared
            }
            (SettingStep::Adopt, Some(theirs)) => {
                let secret = match theirs.sealed() {
                    Some(sealed) => match self.shared.open(&name, sealed) {
                        Some(secret) => Some(secret),
                        None => return Ok(()),
                    },
                    None => None,
                };
                app.service.adopt_setting(setting, theirs.value.as_ref(), secret.as_deref())?;
                theirs.clone()
            }
            _ => return Ok(()),
        };
        let shared = shared.known();
        if known != Some(&shared) {
            app.service.remember_setting(&name, self.settings.joined_ms, &shared)?;
        }
        Ok(())
    }

    /// `None` if the value has changed meanwhile: the next round looks again.
    fn to_publish(
        &self,
        app: &App,
        setting: &Setting,
        own: Option<&Value>,
        changed_ms: i64,
    ) -> Result<Option<SharedSetting>, SettingError> {
        let shared = SharedSetting::new(changed_ms, own.cloned());
        let Setting::Secret(workspace, name) = setting else { return Ok(Some(shared)) };
        if own.is_none() {
            return Ok(Some(shared));
        }
        let secret = app.service.export_secret(workspace, name)?;
        Ok(secret.map(|secret| shared.seal(&self.shared.seal(&setting.to_string(), &secret))))
    }
}

/// Whether the settings of a workspace are shared.
enum Status {
    Shared,
    /// This node does not know the workspace yet, or has one of its own by this name.
    NotShared,
    Deleted,
}

fn status(workspaces: &[SharedWorkspace], name: &WorkspaceName, kept: &[WorkspaceName]) -> Status {
    if kept.contains(name) {
        return Status::NotShared;
    }
    let known = workspaces.iter().find(|workspace| workspace.name == *name);
    match known {
        None if *name == WorkspaceName::default() => Status::Shared,
        None => Status::NotShared,
        Some(SharedWorkspace { deleted_at: Some(_), .. }) => Status::Deleted,
        Some(SharedWorkspace { deleted_at: None, .. }) => Status::Shared,
    }
}
