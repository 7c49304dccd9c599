//! The machine of a build, in which its steps run one after another.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::store::StoreError;
use sandling_engine::{
    Execution, Output, ProcessDefaults, RunError, RunSpec, Sandbox, SnapshotError, TemplateError, UseError,
};
use sandling_protocol::{ExitReason, OnLimit, Part, Program};

use super::copy::Copy;
use super::registry::{Build, Level};
use super::steps::{self, Action, PlanDefaults, below};
use super::uploads::{UploadError, Uploads};
use crate::decoder::Decoder;
use crate::sandboxes::CreateError;

const LONGEST_STEP: Duration = Duration::from_secs(3600);
const READY_TIMEOUT: Duration = Duration::from_secs(300);
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long a start command without a ready command must run to count as ready.
const SETTLE: Duration = Duration::from_secs(3);

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildFailure {
    #[error("the command ended with the exit code {0}")]
    Exit(i32),
    #[error("the step took longer than an hour")]
    StepTimeout,
    #[error("the start command was not ready within 5 minutes")]
    NotReady,
    #[error("the files of COPY {0} were not uploaded")]
    NoFiles(String),
    #[error("cannot read the uploaded files")]
    Archive(#[source] io::Error),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) struct BuildMachine {
    pub(super) build: Arc<Build>,
    pub(super) sandbox: Arc<Sandbox>,
    uploads: Arc<Uploads>,
    /// What applies to the next step.
    current: ProcessDefaults,
    plan: PlanDefaults,
    /// Variables that only steps see.
    arguments: BTreeMap<String, String>,
}

impl BuildMachine {
    pub(super) fn new(
        build: &Arc<Build>,
        sandbox: &Arc<Sandbox>,
        uploads: &Arc<Uploads>,
        base: ProcessDefaults,
        plan: PlanDefaults,
    ) -> Self {
        let (build, sandbox, uploads) = (build.clone(), sandbox.clone(), uploads.clone());
        Self { build, sandbox, uploads, current: base, plan, arguments: BTreeMap::new() }
    }

    pub(super) async fn step(&mut self, number: usize, action: &Action) -> Result<(), BuildFailure> {
        self.build.log(&format!("[{number}] {}", action.describe()), Level::Info, Some(number));
        action.apply(&mut self.current, self.plan);
        match action {
            Action::Env(_) | Action::User(_) | Action::Note(_) => Ok(()),
            Action::Arg(arguments) => {
                self.arguments.extend(arguments.clone());
                Ok(())
            }
            Action::Workdir(_) => {
                let path = self.current.workdir.clone().unwrap_or_default();
                Ok(self.sandbox.make_dir_for(self.user(), &path).await?)
            }
            Action::Run { argv, user, .. } => {
                let user = user.as_deref().unwrap_or_else(|| self.user());
                self.run(Some(number), argv.clone(), user).await
            }
            Action::Copy { source, target, owner, mode, hash } => {
                let target = below(&self.current, self.plan, target);
                let owner = owner.as_deref().unwrap_or_else(|| self.user());
                let copy = Copy { hash, source, target: &target, owner, mode: *mode };
                copy.send(&self.uploads, &self.build.workspace, &self.sandbox).await?;
                self.run(Some(number), copy.command(), "root").await
            }
        }
    }

    fn user(&self) -> &str {
        steps::user(&self.current, self.plan)
    }

    /// Starts the command that runs in every sandbox of the template, and waits until it is ready.
    pub(super) async fn start(&self, start: &[String], ready: Option<&[String]>) -> Result<(), BuildFailure> {
        self.build.log(&format!("START {}", start.join(" ")), Level::Info, None);
        let mut started = self.sandbox.run(self.spec(start.to_vec(), self.user(), None))?;
        let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
        let Some(ready) = ready else {
            // A command that ends at once may have failed. One that keeps running counts as ready.
            return match tokio::time::timeout(SETTLE, self.follow(&mut started, None)).await {
                Ok(ended) => ended,
                Err(_) => Ok(()),
            };
        };
        loop {
            let check = self.sandbox.run(self.spec(ready.to_vec(), self.user(), Some(Duration::from_secs(60))))?;
            if check.collect().await?.exit.code == 0 {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(BuildFailure::NotReady);
            }
            // Its output goes to the log. A command that has ended may have left a process that runs.
            let _ = tokio::time::timeout(CHECK_EVERY, self.follow(&mut started, None)).await;
        }
    }

    async fn run(&self, number: Option<usize>, argv: Vec<String>, user: &str) -> Result<(), BuildFailure> {
        let mut execution = self.sandbox.run(self.spec(argv, user, Some(LONGEST_STEP)))?;
        self.follow(&mut execution, number).await
    }

    fn spec(&self, argv: Vec<String>, user: &str, timeout: Option<Duration>) -> RunSpec {
        let mut env = self.arguments.clone();
        env.extend(self.current.env.clone());
        RunSpec {
            env,
            cwd: self.current.workdir.clone().or(self.plan.workdir.map(str::to_owned)),
            user: Some(user.to_owned()),
            timeout,
            output_limit: u64::MAX,
            on_limit: OnLimit::Kill,
            ..RunSpec::new(Program::Argv(argv))
        }
    }

    /// Logs the output of a command until it ends. A command that fails is an error.
    async fn follow(&self, execution: &mut Execution, number: Option<usize>) -> Result<(), BuildFailure> {
        let (mut out, mut err) = (Lines::default(), Lines::default());
        loop {
            match execution.next().await? {
                Output::Bytes { part: Part::Stderr, bytes, .. } => {
                    err.take(&bytes, |line| self.build.log(line, Level::Warn, number))
                }
                Output::Bytes { bytes, .. } => out.take(&bytes, |line| self.build.log(line, Level::Info, number)),
                Output::Started { .. } | Output::Dropped(_) => {}
                Output::Exited(exit) => {
                    out.end(|line| self.build.log(line, Level::Info, number));
                    err.end(|line| self.build.log(line, Level::Warn, number));
                    return match (exit.reason, exit.code) {
                        (ExitReason::Exited, 0) => Ok(()),
                        (ExitReason::Timeout, _) => Err(BuildFailure::StepTimeout),
                        (_, code) => Err(BuildFailure::Exit(code)),
                    };
                }
            }
        }
    }
}

/// Splits bytes that arrive in pieces into lines.
#[derive(Default)]
struct Lines {
    decoder: Decoder,
    rest: String,
}

impl Lines {
    /// A longer line is cut.
    const LONGEST: usize = 64 * 1024;

    fn take(&mut self, bytes: &[u8], mut log: impl FnMut(&str)) {
        self.rest += &self.decoder.push(bytes);
        while let Some(end) = self.rest.find('\n') {
            log(self.rest[..end].trim_end_matches('\r'));
            self.rest.drain(..=end);
        }
        if self.rest.len() > Self::LONGEST {
            log(&std::mem::take(&mut self.rest));
        }
    }

    fn end(&mut self, mut log: impl FnMut(&str)) {
        self.rest += &self.decoder.finish();
        if !self.rest.is_empty() {
            log(&std::mem::take(&mut self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_logged_whole() {
        let mut logged = Vec::new();
        let mut lines = Lines::default();
        for piece in ["on", "e\r\ntw", "o\nthree"] {
            lines.take(piece.as_bytes(), |line| logged.push(line.to_owned()));
        }
        lines.end(|line| logged.push(line.to_owned()));
        assert_eq!(logged, ["one", "two", "three"]);
    }
}
