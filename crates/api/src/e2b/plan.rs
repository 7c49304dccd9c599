//! Template build steps in E2B's format.

use serde::Deserialize;

use super::place::INTERPRETER;
use crate::convert::files::permissions;
use crate::convert::sandbox::check_env;
use crate::error::ApiError;
use sandling_service::{Action, CacheUse, Plan, PlanDefaults, check_hash};

/// The user that runs everything in E2B's sandboxes, in its home directory.
const DEFAULTS: PlanDefaults = PlanDefaults { user: super::settings::USER, workdir: None };

/// The start command of E2B's image for code, as its users write it. It starts the server that runs cells there.
const INTERPRETER_STARTS: [&str; 2] = ["/root/.jupyter/start-up.sh", "sudo /root/.jupyter/start-up.sh"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Recipe {
    from_image: Option<String>,
    from_template: Option<String>,
    steps: Vec<Step>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
    /// Whether to run every step, although an earlier build has stored its result.
    force: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Step {
    r#type: String,
    args: Vec<String>,
    files_hash: Option<String>,
    force: bool,
}

/// The base of a build.
pub(super) enum From<'a> {
    Template(&'a str),
    Image(&'a str),
}

impl Recipe {
    pub(super) fn from(&self) -> From<'_> {
        match self.from_template.as_deref().filter(|name| !name.is_empty()) {
            Some(template) => From::Template(template),
            None => From::Image(self.from_image.as_deref().unwrap_or("e2bdev/base")),
        }
    }

    pub(super) fn cache(&self) -> CacheUse {
        let forced = self.force || self.steps.iter().any(|step| step.force);
        if forced { CacheUse::Ignore } else { CacheUse::Use }
    }

    /// Translates all steps, or returns the error of the first one that is not supported.
    pub(super) fn plan(&self) -> Result<Plan, ApiError> {
        let (start, ready) = self.start_and_ready();
        Ok(Plan {
            actions: self.steps.iter().map(Step::action).collect::<Result<_, _>>()?,
            start: start.map(shell),
            ready: ready.map(shell),
            defaults: DEFAULTS,
            ..Plan::default()
        })
    }

    /// The lines of the start and the ready command, without those that start E2B's server for code and wait for its
    /// port. Cells need no such server here.
    fn start_and_ready(&self) -> (Option<&str>, Option<&str>) {
        let start = self.start_cmd.as_deref().filter(|line| !line.is_empty());
        let start = start.filter(|line| !INTERPRETER_STARTS.contains(&line.trim()));
        let ready = self.ready_cmd.as_deref().filter(|line| !line.is_empty());
        let port = INTERPRETER.to_string();
        (start, ready.filter(|line| start.is_some() || !line.contains(&port)))
    }
}

fn shell(line: &str) -> Vec<String> {
    ["/bin/bash", "-l", "-c", line].map(str::to_owned).to_vec()
}

impl Step {
    fn action(&self) -> Result<Action, ApiError> {
        let argument = |at: usize| self.args.get(at).filter(|text| !text.is_empty()).cloned();
        let needed = |at: usize| {
            argument(at).ok_or_else(|| ApiError::bad_request(format!("a step {} lacks an argument", self.r#type)))
        };
        match self.r#type.as_str() {
            "RUN" => {
                let text = needed(0)?;
                Ok(Action::run(shell(&text), argument(1), text))
            }
            "COPY" => {
                let (source, mut target) = (needed(0)?, needed(1)?);
                // A pattern may name several files, so they go into a directory.
                if source.contains(['*', '?', '[']) && !target.ends_with('/') {
                    target.push('/');
                }
                let mode = argument(3).map(|mode| permissions(&mode)).transpose()?;
                Ok(Action::Copy { source, target, owner: argument(2), mode, hash: self.hash()? })
            }
            "ENV" => {
                let pairs = self.args.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                let env = pairs.collect();
                check_env(&env)?;
                Ok(Action::Env(env))
            }
            "WORKDIR" => Ok(Action::Workdir(needed(0)?)),
            "USER" => Ok(Action::KnownUser(needed(0)?)),
            other => Err(ApiError::bad_request(format!("a step {other:?} is not known here"))),
        }
    }

    fn hash(&self) -> Result<String, ApiError> {
        let missing = || ApiError::bad_request("a COPY step lacks the hash of its files");
        let hash = self.files_hash.clone().ok_or_else(missing)?;
        check_hash(&hash)?;
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(value: serde_json::Value) -> Result<Plan, ApiError> {
        serde_json::from_value::<Recipe>(value).unwrap().plan()
    }

    #[test]
    fn steps_are_understood_as_the_clients_send_them() {
        let plan = plan(json!({ "fromImage": "e2bdev/base", "force": false, "steps": [
            { "type": "ENV", "args": ["A", "1", "B", "2"], "force": false },
            { "type": "COPY", "args": ["src", "dest", "", "0755"], "filesHash": "0123456789abcdef" },
            { "type": "RUN", "args": ["make", "root"] },
            { "type": "COPY", "args": ["src/*", "dest"], "filesHash": "0123456789abcdef" },
        ], "startCmd": "serve", "readyCmd": "" }))
        .unwrap();
        assert!(matches!(&plan.actions[0], Action::Env(env) if env["B"] == "2"));
        assert!(
            matches!(&plan.actions[1], Action::Copy { mode: Some(0o755), owner: None, target, .. } if target == "dest")
        );
        assert!(matches!(&plan.actions[3], Action::Copy { target, .. } if target == "dest/"));
        assert!(matches!(&plan.actions[2], Action::Run { user: Some(user), .. } if user == "root"));
        assert!(plan.start.is_some() && plan.ready.is_none());
    }

    #[test]
    fn code_needs_no_start_command() {
        let commands = |start: &str, ready: &str| {
            let plan = plan(json!({ "startCmd": start, "readyCmd": ready })).unwrap();
            (plan.start.is_some(), plan.ready.is_some())
        };
        let port = "curl --fail http://localhost:49999/health";
        assert_eq!(commands("/root/.jupyter/start-up.sh", port), (false, false));
        assert_eq!(commands("sudo /root/.jupyter/start-up.sh", "test -f /ready"), (false, true));
        assert_eq!(commands("", port), (false, false));
        assert_eq!(commands("my-server 49999", port), (true, true));
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
            assert!(plan(json!({ "steps": [step] })).is_err(), "{step}");
        }
    }
}
