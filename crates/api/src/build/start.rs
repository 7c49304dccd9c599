//! What a template says about everything that is started in it: kept in labels, of its snapshot and of its sandboxes.

use std::collections::BTreeMap;

use sandling_engine::{CreateSpec, RunSpec, SandboxInfo};
use sandling_protocol::ContextSpec;

use crate::app::App;
use crate::error::ApiError;

const ENV: &str = "template.env";
const USER: &str = "template.user";
const WORKDIR: &str = "template.workdir";

/// What is absent is as in any other sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: Option<String>,
    pub(crate) workdir: Option<String>,
}

impl Start {
    pub(crate) fn of(info: &SandboxInfo) -> Self {
        Self::from_labels(&info.labels)
    }

    pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        Self {
            env: labels.get(ENV).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            user: labels.get(USER).cloned(),
            workdir: labels.get(WORKDIR).cloned(),
        }
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let env = (!self.env.is_empty()).then(|| serde_json::json!(self.env).to_string());
        let said = [(ENV, env), (USER, self.user.clone()), (WORKDIR, self.workdir.clone())];
        said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// For a sandbox that is to be made, if its template says something; what the client says wins.
    pub(crate) fn inherit(app: &App, spec: &mut CreateSpec) -> Result<(), ApiError> {
        let template = match &spec.from_snapshot {
            Some(id) => app.engine.find_snapshot(&spec.workspace, id)?,
            None => app.engine.snapshot_of_template(&spec.workspace, &spec.template)?,
        };
        let Some(template) = template else { return Ok(()) };
        let start = Self::from_labels(&template.labels);
        for (name, value) in &start.env {
            spec.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in start.labels() {
            spec.labels.entry(name).or_insert(value);
        }
        Ok(())
    }

    /// For a command that does not say as whom and where.
    pub(crate) fn fill(self, spec: &mut RunSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }

    /// For an interpreter that does not say as whom and where.
    pub(crate) fn fill_context(self, spec: &mut ContextSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let start = Start {
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            user: Some("root".to_owned()),
            workdir: Some("/app".to_owned()),
        };
        assert_eq!(Start::from_labels(&start.labels()), start);
        assert!(Start::default().labels().is_empty());
    }
}
