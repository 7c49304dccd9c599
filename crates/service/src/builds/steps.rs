//! The plan of a build, which is checked before anything is made.

use std::collections::BTreeMap;

use sandling_engine::ProcessDefaults;
use sandling_oci::Config;
use serde::Serialize;

use crate::limits::{InvalidValue, check_map};

pub(super) const MOST_STEPS: usize = 1000;
const MOST_WARM: usize = 50;
const LONGEST_WARM: usize = 8 * 1024;
/// How many characters of a step an error repeats.
const LONGEST_NAME: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// The command that runs in every sandbox of the template.
    pub start: Option<Vec<String>>,
    /// The command that succeeds once `start` is ready.
    pub ready: Option<Vec<String>>,
    /// Lines for the shell that run before the machine is saved; see [`super::warm`].
    pub warm: Vec<String>,
    pub defaults: PlanDefaults,
    /// What a Dockerfile sets besides processes' defaults. It is shown with the template.
    pub config: Option<Config>,
}

/// The user and directory that apply unless a step or the base sets others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanDefaults {
    pub user: &'static str,
    /// If missing, the user's home.
    pub workdir: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    Run {
        argv: Vec<String>,
        user: Option<String>,
        /// The command as its author wrote it.
        text: String,
        mounts: Vec<RunMount>,
        /// Whether the command sees a network.
        network: bool,
    },
    /// Copies from an uploaded archive of this step's own files.
    Copy {
        source: String,
        target: String,
        /// A user, or `user:group`. If missing, the user that runs commands.
        owner: Option<String>,
        mode: Option<u32>,
        hash: String,
    },
    Place(PlaceFiles),
    Env(BTreeMap<String, String>),
    /// Variables that only the following steps see.
    Arg(BTreeMap<String, String>),
    Workdir(String),
    User(String),
    /// The same, if the machine knows the user.
    KnownUser(String),
    /// A remark about an instruction that is skipped.
    Note(String),
}

/// A `COPY` or `ADD` of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlaceFiles {
    pub from: FileSource,
    pub target: String,
    /// Whether the target is a directory in any case.
    pub into: bool,
    /// A user, or `user:group`.
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// Whether archives are unpacked.
    pub unpack: bool,
    pub text: String,
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum FileSource {
    /// The directory that was uploaded for the whole build, by the hash of its archive.
    Context {
        #[serde(skip_serializing)]
        hash: String,
        sources: Vec<String>,
        excludes: Vec<String>,
    },
    /// Names and contents that the Dockerfile has itself.
    Text(Vec<(String, String)>),
    /// Another stage of the build.
    Stage {
        stage: usize,
        sources: Vec<String>,
    },
    Url {
        url: String,
        name: String,
        sha256: Option<String>,
    },
}

/// What a `RUN` sees while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RunMount {
    Cache {
        id: String,
        target: String,
        mode: u32,
        uid: u32,
        gid: u32,
        read_only: bool,
    },
    Tmpfs {
        target: String,
        size_bytes: Option<u64>,
    },
    Secret {
        id: String,
        target: Option<String>,
        variable: Option<String>,
        mode: u32,
        uid: u32,
        gid: u32,
        required: bool,
    },
    Bind {
        from: FileSource,
        target: String,
        read_only: bool,
    },
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("a template has {MOST_STEPS} steps at most")]
    TooManySteps,
    #[error("a template has {MOST_WARM} warm commands at most")]
    TooManyWarm,
    #[error("a warm command has 1 to {LONGEST_WARM} bytes, and no byte 0")]
    BadWarm,
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error("the hash of files must be hexadecimal")]
    Hash,
    #[error("a Dockerfile may have {most_kib} KiB")]
    DockerfileTooLarge { most_kib: usize },
    #[error("the Dockerfile has no FROM")]
    NoBase,
    #[error("the Dockerfile has no stage {0}")]
    NoStage(String),
    #[error("line {line} of the Dockerfile: {keyword} {problem}")]
    Instruction { line: usize, keyword: String, problem: String },
}

impl Plan {
    pub fn check(&self) -> Result<(), PlanError> {
        if self.actions.len() > MOST_STEPS {
            return Err(PlanError::TooManySteps);
        }
        if self.warm.len() > MOST_WARM {
            return Err(PlanError::TooManyWarm);
        }
        let fits = |command: &String| (1..=LONGEST_WARM).contains(&command.len()) && !command.contains('\0');
        if !self.warm.iter().all(fits) {
            return Err(PlanError::BadWarm);
        }
        // Every process in the template's sandboxes gets these variables.
        Ok(check_map("ENV", &self.outcome(ProcessDefaults::default()).env)?)
    }

    /// What applies to every process in the template's sandboxes.
    pub(super) fn outcome(&self, mut defaults: ProcessDefaults) -> ProcessDefaults {
        for action in &self.actions {
            action.apply(&mut defaults, self.defaults);
        }
        defaults
    }
}

impl Plan {
    /// Adds a remark to the build's log.
    pub(super) fn warn(&mut self, text: String) {
        self.actions.insert(0, Action::Note(text));
    }
}

impl Action {
    /// A command without mounts.
    pub fn run(argv: Vec<String>, user: Option<String>, text: String) -> Self {
        Self::Run { argv, user, text, mounts: Vec::new(), network: true }
    }

    /// The files that the step copies from.
    pub(super) fn files(&self) -> Vec<&FileSource> {
        match self {
            Self::Place(place) => vec![&place.from],
            Self::Run { mounts, .. } => {
                let bound = mounts.iter().filter_map(|mount| match mount {
                    RunMount::Bind { from, .. } => Some(from),
                    RunMount::Cache { .. } | RunMount::Tmpfs { .. } | RunMount::Secret { .. } => None,
                });
                bound.collect()
            }
            Self::Copy { .. }
            | Self::Env(_)
            | Self::Arg(_)
            | Self::Workdir(_)
            | Self::User(_)
            | Self::KnownUser(_)
            | Self::Note(_) => Vec::new(),
        }
    }

    /// The hashes of the uploads that the step needs.
    pub(super) fn uploads(&self) -> Vec<&str> {
        let own = match self {
            Self::Copy { hash, .. } => Some(hash.as_str()),
            _ => None,
        };
        let of_context = self.files().into_iter().filter_map(|from| match from {
            FileSource::Context { hash, .. } => Some(hash.as_str()),
            FileSource::Text(_) | FileSource::Stage { .. } | FileSource::Url { .. } => None,
        });
        own.into_iter().chain(of_context).collect()
    }

    /// Whether the step changes the machine's disk.
    pub(super) fn changes_disk(&self) -> bool {
        matches!(self, Self::Run { .. } | Self::Copy { .. } | Self::Place(_) | Self::Workdir(_))
    }

    pub(super) fn apply(&self, process: &mut ProcessDefaults, plan: PlanDefaults) {
        match self {
            Self::Env(env) => process.env.extend(env.clone()),
            Self::Workdir(path) => process.workdir = Some(below(process, plan, path)),
            Self::User(user) | Self::KnownUser(user) => process.user = Some(user.clone()),
            Self::Run { .. } | Self::Copy { .. } | Self::Place(_) | Self::Arg(_) | Self::Note(_) => {}
        }
    }

    /// The step as a person would write it.
    pub(super) fn describe(&self) -> String {
        let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>().join(" ");
        match self {
            Self::Run { text, .. } => format!("RUN {text}"),
            Self::Copy { source, target, .. } => format!("COPY {source} {target}"),
            Self::Place(place) => place.text.clone(),
            Self::Env(env) => format!("ENV {}", names(env)),
            Self::Arg(arguments) => format!("ARG {}", names(arguments)),
            Self::Workdir(path) => format!("WORKDIR {path}"),
            Self::User(user) | Self::KnownUser(user) => format!("USER {user}"),
            Self::Note(text) => text.clone(),
        }
    }

    /// The beginning of the step, to name the one that failed.
    pub(super) fn name(&self) -> String {
        self.describe().lines().next().unwrap_or_default().chars().take(LONGEST_NAME).collect()
    }
}

/// The user that runs the next step.
pub(super) fn user(process: &ProcessDefaults, plan: PlanDefaults) -> &str {
    process.user.as_deref().unwrap_or(plan.user)
}

/// A path, relative to the directory that the steps have set.
pub(super) fn below(process: &ProcessDefaults, plan: PlanDefaults, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let home = match user(process, plan).split(':').next().unwrap_or_default() {
        "root" => "/root".to_owned(),
        user => format!("/home/{user}"),
    };
    let from = match path.strip_prefix("~/") {
        Some(_) => home,
        None => process.workdir.clone().or(plan.workdir.map(str::to_owned)).unwrap_or(home),
    };
    format!("{}/{}", from.trim_end_matches('/'), path.strip_prefix("~/").unwrap_or(path))
}

/// Checks the hash of uploaded files, which becomes a file name.
pub fn check_hash(hash: &str) -> Result<(), PlanError> {
    let fits = (16..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(()) } else { Err(PlanError::Hash) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_continue_from_the_directory_of_earlier_steps() {
        let e2b = PlanDefaults { user: "user", workdir: None };
        let actions = ["app", "~/x", "y"].map(|path| Action::Workdir(path.to_owned())).to_vec();
        let plan = Plan { actions, defaults: e2b, ..Plan::default() };
        assert_eq!(plan.outcome(ProcessDefaults::default()).workdir.as_deref(), Some("/home/user/x/y"));
        let docker = PlanDefaults { user: "root", workdir: Some("/") };
        assert_eq!(below(&ProcessDefaults::default(), docker, "app"), "/app");
    }

    #[test]
    fn too_many_or_too_long_warm_commands_are_refused() {
        let check = |count: usize, line: &str| Plan { warm: vec![line.to_owned(); count], ..Plan::default() }.check();
        assert_eq!(check(MOST_WARM, &"x".repeat(LONGEST_WARM)), Ok(()));
        assert_eq!(check(MOST_WARM + 1, "x"), Err(PlanError::TooManyWarm));
        for bad in ["", "a\0b", &"x".repeat(LONGEST_WARM + 1)] {
            assert_eq!(check(1, bad), Err(PlanError::BadWarm));
        }
    }
}
