//! The environment, user and directory that a template sets for every process in its sandboxes.
//!
//! They are stored as labels of the template's snapshot and of its sandboxes.

use std::collections::BTreeMap;

use sandling_engine::store::StoreError;
use sandling_engine::{CreateSpec, Engine, RunSpec, SandboxInfo};
use sandling_protocol::ContextSpec;

const ENV: &str = "template.env";
const USER: &str = "template.user";
const WORKDIR: &str = "template.workdir";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessDefaults {
    pub env: BTreeMap<String, String>,
    pub user: Option<String>,
    pub workdir: Option<String>,
}

impl ProcessDefaults {
    pub fn of(info: &SandboxInfo) -> Self {
        Self::from_labels(&info.labels)
    }

    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        Self {
            env: labels.get(ENV).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            user: labels.get(USER).cloned(),
            workdir: labels.get(WORKDIR).cloned(),
        }
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        let env = (!self.env.is_empty()).then(|| serde_json::json!(self.env).to_string());
        let said = [(ENV, env), (USER, self.user.clone()), (WORKDIR, self.workdir.clone())];
        said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Applies the defaults of its template to a new sandbox. Values from the client take precedence.
    pub fn inherit(engine: &Engine, spec: &mut CreateSpec) -> Result<(), StoreError> {
        let template = match &spec.from_snapshot {
            Some(id) => engine.find_snapshot(&spec.workspace, id)?,
            None => engine.snapshot_of_template(&spec.workspace, &spec.template)?,
        };
        let Some(template) = template else { return Ok(()) };
        let defaults = Self::from_labels(&template.labels);
        for (name, value) in &defaults.env {
            spec.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in defaults.labels() {
            spec.labels.entry(name).or_insert(value);
        }
        Ok(())
    }

    /// Fills in the user and directory of a command that names none.
    pub fn fill(self, spec: &mut RunSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }

    /// Fills in the user and directory of an interpreter that names none.
    pub fn fill_context(self, spec: &mut ContextSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_back() {
        let defaults = ProcessDefaults {
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            user: Some("root".to_owned()),
            workdir: Some("/app".to_owned()),
        };
        assert_eq!(ProcessDefaults::from_labels(&defaults.labels()), defaults);
        assert!(ProcessDefaults::default().labels().is_empty());
    }
}
