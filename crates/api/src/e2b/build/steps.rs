//! What a client asks to be built, understood before anything is made.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::e2b::settings::Start;
use crate::error::ApiError;
use crate::wire::sandbox::check_env;

const MOST_STEPS: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::e2b) struct Plan {
    pub(super) from_image: Option<String>,
    pub(super) from_template: Option<String>,
    pub(super) steps: Vec<Step>,
    pub(super) start_cmd: Option<String>,
    pub(super) ready_cmd: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Step {
    r#type: String,
    args: Vec<String>,
    files_hash: Option<String>,
}

/// A step that can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Run { line: String, user: Option<String> },
    Copy { source: String, target: String, owner: Option<String>, mode: Option<u32>, hash: String },
    Env(BTreeMap<String, String>),
    Workdir(String),
    User(String),
}

impl Plan {
    /// All steps, or what is wrong with the first that cannot be done.
    pub(super) fn actions(&self) -> Result<Vec<Action>, ApiError> {
        if self.steps.len() > MOST_STEPS {
            return Err(ApiError::bad_request(format!("a template has {MOST_STEPS} steps at most")));
        }
        self.steps.iter().map(Step::action).collect()
    }

    /// The name of what the steps stand on: a template of ours or of the client's.
    pub(super) fn base(&self) -> Result<String, ApiError> {
        if let Some(template) = self.from_template.as_ref().filter(|name| !name.is_empty()) {
            return Ok(template.clone());
        }
        let image = self.from_image.as_deref().unwrap_or("e2bdev/base");
        let name = image.strip_prefix("docker.io/").unwrap_or(image);
        match name.strip_suffix(":latest").unwrap_or(name) {
            known @ ("e2bdev/base" | "e2bdev/code-interpreter") => Ok(known.to_owned()),
            _ => Err(ApiError::bad_request(format!(
                "the image {image:?} cannot be had here: begin with from_base_image(), or with \
                 from_template(\"base\") or from_template(\"code-interpreter-v1\")"
            ))),
        }
    }
}

/// What holds for all that is started in the template, after these steps.
pub(super) fn outcome(mut start: Start, actions: &[Action]) -> Start {
    for action in actions {
        action.apply(&mut start);
    }
    start
}

impl Action {
    pub(super) fn apply(&self, start: &mut Start) {
        match self {
            Self::Env(env) => start.env.extend(env.clone()),
            Self::Workdir(path) => start.workdir = Some(below(start, path)),
            Self::User(user) => start.user.clone_from(user),
            Self::Run { .. } | Self::Copy { .. } => {}
        }
    }

    /// As a person would write it.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Run { line, .. } => format!("RUN {line}"),
            Self::Copy { source, target, .. } => format!("COPY {source} {target}"),
            Self::Env(env) => format!("ENV {}", env.keys().cloned().collect::<Vec<_>>().join(" ")),
            Self::Workdir(path) => format!("WORKDIR {path}"),
            Self::User(user) => format!("USER {user}"),
        }
    }
}

/// A path as seen from where the steps have come to.
pub(super) fn below(start: &Start, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let home = if start.user == "root" { "/root".to_owned() } else { format!("/home/{}", start.user) };
    let rest = path.strip_prefix("~/").unwrap_or(path);
    let from = if rest.len() == path.len() { start.workdir.clone().unwrap_or(home) } else { home };
    format!("{}/{rest}", from.trim_end_matches('/'))
}

impl Step {
    fn action(&self) -> Result<Action, ApiError> {
        let argument = |at: usize| self.args.get(at).filter(|text| !text.is_empty()).cloned();
        let needed = |at: usize| {
            argument(at).ok_or_else(|| ApiError::bad_request(format!("a step {} lacks an argument", self.r#type)))
        };
        match self.r#type.as_str() {
            "RUN" => Ok(Action::Run { line: needed(0)?, user: argument(1) }),
            "COPY" => Ok(Action::Copy {
                source: needed(0)?,
                target: needed(1)?,
                owner: argument(2),
                mode: argument(3).map(|mode| crate::wire::files::permissions(&mode)).transpose()?,
                hash: self.hash()?,
            }),
            "ENV" => {
                let pairs = self.args.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                let env = pairs.collect();
                check_env(&env)?;
                Ok(Action::Env(env))
            }
            "WORKDIR" => Ok(Action::Workdir(needed(0)?)),
            "USER" => Ok(Action::User(needed(0)?)),
            other => Err(ApiError::bad_request(format!("a step {other:?} is not known here"))),
        }
    }

    fn hash(&self) -> Result<String, ApiError> {
        let missing = || ApiError::bad_request("a COPY step lacks the hash of its files");
        checked_hash(self.files_hash.as_deref().ok_or_else(missing)?)
    }
}

/// It becomes a file's name.
pub(super) fn checked_hash(hash: &str) -> Result<String, ApiError> {
    let fits = (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| hash.to_owned()).ok_or_else(|| ApiError::bad_request("the hash of files must be hexadecimal"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(value: serde_json::Value) -> Plan {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn steps_are_understood_as_the_clients_send_them() {
        let plan = plan(json!({ "fromImage": "e2bdev/base", "force": false, "steps": [
            { "type": "ENV", "args": ["A", "1", "B", "2"], "force": false },
            { "type": "WORKDIR", "args": ["app"] },
            { "type": "COPY", "args": ["src", "dest", "", "0755"], "filesHash": "0123456789abcdef" },
            { "type": "USER", "args": ["root"] },
            { "type": "RUN", "args": ["make", "user"] },
        ]}));
        let actions = plan.actions().unwrap();
        let start = outcome(Start::default(), &actions);
        assert_eq!((start.user.as_str(), start.workdir.as_deref()), ("root", Some("/home/user/app")));
        assert_eq!(start.env["B"], "2");
        assert!(matches!(&actions[2], Action::Copy { mode: Some(0o755), owner: None, .. }));
    }

    #[test]
    fn an_image_that_cannot_be_had_is_named() {
        assert_eq!(plan(json!({})).base().unwrap(), "e2bdev/base");
        assert_eq!(plan(json!({ "fromTemplate": "mine:v1" })).base().unwrap(), "mine:v1");
        let refused = plan(json!({ "fromImage": "python:3.12" })).base().unwrap_err();
        assert!(refused.message.contains("python:3.12") && refused.message.contains("from_template"));
    }

    #[test]
    fn hostile_steps_are_refused() {
        for step in [
            json!({ "type": "RUN", "args": [] }),
            json!({ "type": "COPY", "args": ["a", "b"], "filesHash": "../../etc/passwd" }),
            json!({ "type": "COPY", "args": ["a", "b"] }),
            json!({ "type": "ENV", "args": ["A=B", "1"] }),
            json!({ "type": "ARG", "args": ["x"] }),
        ] {
            assert!(plan(json!({ "steps": [step] })).actions().is_err(), "{step}");
        }
    }
}
