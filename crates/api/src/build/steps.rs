//! What is done in a build, understood before anything is made.

use std::collections::BTreeMap;

use super::start::Start;
use crate::convert::sandbox::check_map;
use crate::error::ApiError;

pub(super) const MOST_STEPS: usize = 1000;
/// So much of a step is repeated in an error.
const LONGEST_NAME: usize = 200;

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    /// The command that is to run in every sandbox of the template.
    pub(crate) start: Option<Vec<String>>,
    /// The command that succeeds when that one is ready.
    pub(crate) ready: Option<Vec<String>>,
    pub(crate) usual: Usual,
}

/// What holds where neither a step nor the base says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usual {
    pub(crate) user: &'static str,
    /// Absent: the user's home.
    pub(crate) workdir: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Run {
        argv: Vec<String>,
        user: Option<String>,
        /// As its author wrote it.
        text: String,
    },
    Copy {
        source: String,
        target: String,
        /// A user, or `user:group`. Absent: whoever runs commands.
        owner: Option<String>,
        mode: Option<u32>,
        hash: String,
    },
    Env(BTreeMap<String, String>),
    /// Variables of the steps that follow, and of nothing afterwards.
    Arg(BTreeMap<String, String>),
    Workdir(String),
    User(String),
    /// Something that is not done, and need not be.
    Note(String),
}

impl Plan {
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.actions.len() > MOST_STEPS {
            return Err(too_many_steps());
        }
        // All that is started in the template has them.
        check_map("ENV", &self.outcome(Start::default()).env)
    }

    /// What holds for all that is started in the template.
    pub(super) fn outcome(&self, mut start: Start) -> Start {
        for action in &self.actions {
            action.apply(&mut start, self.usual);
        }
        start
    }
}

pub(super) fn too_many_steps() -> ApiError {
    ApiError::bad_request(format!("a template has {MOST_STEPS} steps at most"))
}

impl Action {
    pub(super) fn apply(&self, start: &mut Start, usual: Usual) {
        match self {
            Self::Env(env) => start.env.extend(env.clone()),
            Self::Workdir(path) => start.workdir = Some(below(start, usual, path)),
            Self::User(user) => start.user = Some(user.clone()),
            Self::Run { .. } | Self::Copy { .. } | Self::Arg(_) | Self::Note(_) => {}
        }
    }

    /// As a person would write it.
    pub(super) fn describe(&self) -> String {
        let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>().join(" ");
        match self {
            Self::Run { text, .. } => format!("RUN {text}"),
            Self::Copy { source, target, .. } => format!("COPY {source} {target}"),
            Self::Env(env) => format!("ENV {}", names(env)),
            Self::Arg(arguments) => format!("ARG {}", names(arguments)),
            Self::Workdir(path) => format!("WORKDIR {path}"),
            Self::User(user) => format!("USER {user}"),
            Self::Note(text) => text.clone(),
        }
    }

    /// Enough of it to know which one failed.
    pub(super) fn name(&self) -> String {
        self.describe().lines().next().unwrap_or_default().chars().take(LONGEST_NAME).collect()
    }
}

/// Who runs what comes next.
pub(super) fn user(start: &Start, usual: Usual) -> &str {
    start.user.as_deref().unwrap_or(usual.user)
}

/// A path as seen from where the steps have come to.
pub(super) fn below(start: &Start, usual: Usual, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let home = match user(start, usual) {
        "root" => "/root".to_owned(),
        user => format!("/home/{user}"),
    };
    let from = match path.strip_prefix("~/") {
        Some(_) => home,
        None => start.workdir.clone().or(usual.workdir.map(str::to_owned)).unwrap_or(home),
    };
    format!("{}/{}", from.trim_end_matches('/'), path.strip_prefix("~/").unwrap_or(path))
}

/// It becomes a file's name.
pub(crate) fn check_hash(hash: &str) -> Result<(), ApiError> {
    let fits = (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(()) } else { Err(ApiError::bad_request("the hash of files must be hexadecimal")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_on_from_where_the_steps_have_come_to() {
        let e2b = Usual { user: "user", workdir: None };
        let actions = ["app", "~/x", "y"].map(|path| Action::Workdir(path.to_owned())).to_vec();
        let plan = Plan { actions, usual: e2b, ..Plan::default() };
        assert_eq!(plan.outcome(Start::default()).workdir.as_deref(), Some("/home/user/x/y"));
        let docker = Usual { user: "root", workdir: Some("/") };
        assert_eq!(below(&Start::default(), docker, "app"), "/app");
    }
}
