//! The steps of a build, one after another, in one machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{Execution, Output, RunSpec, Sandbox};
use sandling_protocol::{ExitReason, OnLimit, Part, Program};

use super::builds::{Build, Level};
use super::copy::Copy;
use super::start::Start;
use super::steps::{self, Action, Usual, below};
use crate::app::App;
use crate::error::ApiError;
use crate::text::Decoder;

const LONGEST_STEP: Duration = Duration::from_secs(3600);
const READY_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A start command without a word of when it is ready is given so long.
const SETTLE: Duration = Duration::from_secs(3);

/// A machine in which a template comes to be.
pub(super) struct Workshop {
    pub(super) app: Arc<App>,
    pub(super) build: Arc<Build>,
    pub(super) sandbox: Arc<Sandbox>,
    /// What holds for the next step.
    start: Start,
    usual: Usual,
    /// Variables that only steps see.
    arguments: BTreeMap<String, String>,
}

impl Workshop {
    pub(super) fn new(app: &Arc<App>, build: &Arc<Build>, sandbox: &Arc<Sandbox>, start: Start, usual: Usual) -> Self {
        let (app, build, sandbox) = (app.clone(), build.clone(), sandbox.clone());
        Self { app, build, sandbox, start, usual, arguments: BTreeMap::new() }
    }

    pub(super) async fn step(&mut self, number: usize, action: &Action) -> Result<(), ApiError> {
        self.build.say(&format!("[{number}] {}", action.describe()), Level::Info, Some(number));
        action.apply(&mut self.start, self.usual);
        match action {
            Action::Env(_) | Action::User(_) | Action::Note(_) => Ok(()),
            Action::Arg(arguments) => {
                self.arguments.extend(arguments.clone());
                Ok(())
            }
            Action::Workdir(_) => {
                let path = self.start.workdir.clone().unwrap_or_default();
                Ok(self.sandbox.make_dir_for(self.user(), &path).await?)
            }
            Action::Run { argv, user, .. } => {
                let user = user.as_deref().unwrap_or_else(|| self.user());
                self.run(Some(number), argv.clone(), user).await
            }
            Action::Copy { source, target, owner, mode, hash } => {
                let target = below(&self.start, self.usual, target);
                let owner = owner.as_deref().unwrap_or_else(|| self.user());
                let copy = Copy { hash, source, target: &target, owner, mode: *mode };
                copy.send(&self.app, &self.build.workspace, &self.sandbox).await?;
                self.run(Some(number), copy.command(), "root").await
            }
        }
    }

    fn user(&self) -> &str {
        steps::user(&self.start, self.usual)
    }

    /// Starts what is to run in every sandbox of the template, and waits until it is ready.
    pub(super) async fn begin(&self, start: &[String], ready: Option<&[String]>) -> Result<(), ApiError> {
        self.build.say(&format!("START {}", start.join(" ")), Level::Info, None);
        let mut started = self.sandbox.run(self.spec(start.to_vec(), self.user(), None))?;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        let Some(ready) = ready else {
            // One that ends at once has failed; one that runs on is taken to be ready.
            return match tokio::time::timeout(SETTLE, self.tell(&mut started, None)).await {
                Ok(ended) => ended,
                Err(_) => Ok(()),
            };
        };
        loop {
            let look = self.sandbox.run(self.spec(ready.to_vec(), self.user(), Some(Duration::from_secs(60))))?;
            if look.collect().await?.exit.code == 0 {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(ApiError::bad_request("the start command was not ready within 5 minutes"));
            }
            // What it says meanwhile is part of the log. One that has ended may have left something behind that runs.
            let _ = tokio::time::timeout(LOOK_EVERY, self.tell(&mut started, None)).await;
        }
    }

    async fn run(&self, number: Option<usize>, argv: Vec<String>, user: &str) -> Result<(), ApiError> {
        let mut execution = self.sandbox.run(self.spec(argv, user, Some(LONGEST_STEP)))?;
        self.tell(&mut execution, number).await
    }

    fn spec(&self, argv: Vec<String>, user: &str, timeout: Option<Duration>) -> RunSpec {
        let mut env = self.arguments.clone();
        env.extend(self.start.env.clone());
        RunSpec {
            env,
            cwd: self.start.workdir.clone().or(self.usual.workdir.map(str::to_owned)),
            user: Some(user.to_owned()),
            timeout,
            output_limit: u64::MAX,
            on_limit: OnLimit::Kill,
            ..RunSpec::new(Program::Argv(argv))
        }
    }

    /// Writes down what a command says until it ends, which it must do well.
    async fn tell(&self, execution: &mut Execution, number: Option<usize>) -> Result<(), ApiError> {
        let (mut out, mut err) = (Lines::default(), Lines::default());
        loop {
            match execution.next().await? {
                Output::Bytes { part: Part::Stderr, bytes, .. } => {
                    err.take(&bytes, |line| self.build.say(line, Level::Warn, number))
                }
                Output::Bytes { bytes, .. } => out.take(&bytes, |line| self.build.say(line, Level::Info, number)),
                Output::Started { .. } | Output::Dropped(_) => {}
                Output::Exited(exit) => {
                    out.end(|line| self.build.say(line, Level::Info, number));
                    err.end(|line| self.build.say(line, Level::Warn, number));
                    return match (exit.reason, exit.code) {
                        (ExitReason::Exited, 0) => Ok(()),
                        (ExitReason::Timeout, _) => Err(ApiError::bad_request("the step took longer than an hour")),
                        (_, code) => Err(ApiError::bad_request(format!("the command ended with the exit code {code}"))),
                    };
                }
            }
        }
    }
}

/// Lines out of bytes that come in pieces.
#[derive(Default)]
struct Lines {
    decoder: Decoder,
    rest: String,
}

impl Lines {
    /// A line without an end is cut here.
    const LONGEST: usize = 64 * 1024;

    fn take(&mut self, bytes: &[u8], mut say: impl FnMut(&str)) {
        self.rest += &self.decoder.push(bytes);
        while let Some(end) = self.rest.find('\n') {
            say(self.rest[..end].trim_end_matches('\r'));
            self.rest.drain(..=end);
        }
        if self.rest.len() > Self::LONGEST {
            say(&std::mem::take(&mut self.rest));
        }
    }

    fn end(&mut self, mut say: impl FnMut(&str)) {
        self.rest += &self.decoder.finish();
        if !self.rest.is_empty() {
            say(&std::mem::take(&mut self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole() {
        let mut said = Vec::new();
        let mut lines = Lines::default();
        for piece in ["on", "e\r\ntw", "o\nthree"] {
            lines.take(piece.as_bytes(), |line| said.push(line.to_owned()));
        }
        lines.end(|line| said.push(line.to_owned()));
        assert_eq!(said, ["one", "two", "three"]);
    }
}
