//! The machine of a build, in which its steps run one after another.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sandling_builder::{Job, Mount, Place};
use sandling_engine::store::StoreError;
use sandling_engine::{
    Execution, Output, ProcessDefaults, RunError, RunSpec, Sandbox, SnapshotError, TemplateError, UseError,
};
use sandling_protocol::{ExitReason, OnLimit, Part, Program, Stdin, WriteMode};

use super::input::Input;
use super::registry::{Build, Level};
use super::steps::{self, Action, FileSource, PlaceFiles, PlanDefaults, RunMount, below};
use super::uploads::UploadError;
use crate::decoder::Decoder;
use crate::images::ImageError;
use crate::sandboxes::CreateError;

const LONGEST_STEP: Duration = Duration::from_secs(3600);
const READY_TIMEOUT: Duration = Duration::from_secs(300);
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long a start command without a ready command must run to count as ready.
const SETTLE: Duration = Duration::from_secs(3);

/// Where the builder is in the machine until it starts.
const BUILDER_PATH: &str = "/run/.sandling-builder";
/// What `ADD` of an address has fetched.
const DOWNLOADED: &str = "/.sandling-build/downloaded";

/// Secrets of a build, by their ids. They are in no log and in no key.
pub type Secrets = BTreeMap<String, Vec<u8>>;

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildFailure {
    #[error("the command ended with the exit code {0}")]
    Exit(i32),
    #[error("the warm command `{command}` {problem}")]
    Warm { command: String, problem: String },
    #[error("the build took longer than two hours")]
    TooLong,
    #[error("the step took longer than an hour")]
    StepTimeout,
    #[error("the start command was not ready within 5 minutes")]
    NotReady,
    #[error("the files of COPY {0} were not uploaded")]
    NoFiles(String),
    #[error("a stage that this one needs was not built")]
    NoStage,
    #[error("the quota has no room for the files of a stage; free some with `sandling template gc`")]
    NoRoomForStage,
    #[error("there is no {0} among the files")]
    NoSource(String),
    #[error("the image has neither curl nor wget nor python3, one of which ADD needs for an address")]
    NoDownloader,
    #[error("the secret {0} is required, and was not given; pass it with --secret id={0},src=FILE")]
    NoSecret(String),
    #[error("cannot read the uploaded files")]
    Archive(#[source] io::Error),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Image(#[from] ImageError),
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
    /// What applies to the next step.
    current: ProcessDefaults,
    plan: PlanDefaults,
    /// Variables that only steps see.
    arguments: BTreeMap<String, String>,
}

impl BuildMachine {
    pub(super) fn new(build: &Arc<Build>, sandbox: &Arc<Sandbox>, base: ProcessDefaults, plan: PlanDefaults) -> Self {
        let (build, sandbox) = (build.clone(), sandbox.clone());
        Self { build, sandbox, current: base, plan, arguments: BTreeMap::new() }
    }

    /// Notes what a step that need not run sets for the steps after it.
    pub(super) fn replay(&mut self, action: &Action) {
        action.apply(&mut self.current, self.plan);
        if let Action::Arg(arguments) = action {
            self.arguments.extend(arguments.clone());
        }
    }

    /// Runs a step. `inputs` are its files, in their order.
    pub(super) async fn step(
        &mut self,
        number: usize,
        action: &Action,
        inputs: Vec<Input>,
        secrets: &Secrets,
    ) -> Result<(), BuildFailure> {
        self.replay(action);
        match action {
            Action::Env(_) | Action::User(_) | Action::Note(_) | Action::Arg(_) => Ok(()),
            // Which program runs does not matter: none runs as a user that does not exist.
            Action::KnownUser(user) => self.run(Some(number), vec!["true".to_owned()], user).await,
            Action::Workdir(_) => {
                let path = self.current.workdir.clone().unwrap_or_default();
                Ok(self.sandbox.make_dir_for(self.user(), &path).await?)
            }
            Action::Run { argv, user, mounts, network, .. } if mounts.is_empty() && *network => {
                let user = user.as_deref().unwrap_or_else(|| self.user());
                self.run(Some(number), argv.clone(), user).await
            }
            Action::Run { argv, user, mounts, network, .. } => {
                let user = user.clone().unwrap_or_else(|| self.user().to_owned());
                let mounts = self.prepare_mounts(number, mounts, inputs, secrets).await?;
                let (argv, directory) = (argv.clone(), self.directory());
                let run = sandling_builder::Run { argv, user, directory, mounts, network: *network };
                self.job(number, &Job::Run(run), None).await
            }
            Action::Copy { source, target, owner, mode, .. } => {
                let place = self.place(target, false, Some(owner.as_deref().unwrap_or_else(|| self.user())), *mode);
                self.job(number, &Job::Copy { source: source.clone(), place }, inputs.into_iter().next()).await
            }
            Action::Place(files) => self.place_files(number, files, inputs).await,
        }
    }

    fn place(&self, target: &str, into: bool, owner: Option<&str>, mode: Option<u32>) -> Place {
        let target = below(&self.current, self.plan, target);
        Place { target, into, owner: owner.map(str::to_owned), mode, unpack: false }
    }

    async fn place_files(&self, number: usize, files: &PlaceFiles, inputs: Vec<Input>) -> Result<(), BuildFailure> {
        let mut place = self.place(&files.target, files.into, files.owner.as_deref(), files.mode);
        place.unpack = files.unpack;
        match &files.from {
            FileSource::Url { url, name, sha256 } => {
                place.unpack = false;
                self.download(number, url).await?;
                let job = Job::Adopt { file: DOWNLOADED.to_owned(), name: name.clone(), sha256: sha256.clone(), place };
                self.job(number, &job, None).await
            }
            _ => self.job(number, &Job::Place(place), inputs.into_iter().next()).await,
        }
    }

    /// Fetches an address with what the image has for that, so that the machine's network policy applies.
    async fn download(&self, number: usize, url: &str) -> Result<(), BuildFailure> {
        let python = "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])";
        let ways: [&[&str]; 3] = [
            &["curl", "--fail", "--silent", "--show-error", "--location", "--create-dirs", "--output", DOWNLOADED, url],
            &["wget", "-q", "-O", DOWNLOADED, url],
            &["python3", "-c", python, url, DOWNLOADED],
        ];
        self.sandbox.make_dir(sandling_builder::DIRECTORY, Some(0o700), true).await?;
        for way in ways {
            let argv: Vec<String> = way.iter().map(|word| (*word).to_owned()).collect();
            match self.run(Some(number), argv, "root").await {
                // The image does not have the program.
                Err(BuildFailure::Run(_) | BuildFailure::Use(_) | BuildFailure::Exit(127)) => continue,
                done => return done,
            }
        }
        Err(BuildFailure::NoDownloader)
    }

    /// Brings what the mounts of a command need into the machine.
    async fn prepare_mounts(
        &self,
        number: usize,
        mounts: &[RunMount],
        inputs: Vec<Input>,
        secrets: &Secrets,
    ) -> Result<Vec<Mount>, BuildFailure> {
        let (mut prepared, mut inputs) = (Vec::new(), inputs.into_iter());
        for (at, mount) in mounts.iter().enumerate() {
            let path = |target: &str| below(&self.current, self.plan, target);
            prepared.push(match mount.clone() {
                RunMount::Cache { id, target, mode, uid, gid, read_only } => {
                    Mount::Cache { id, target: path(&target), mode, uid, gid, read_only }
                }
                RunMount::Tmpfs { target, size_bytes } => Mount::Tmpfs { target: path(&target), size_bytes },
                RunMount::Secret { id, target, variable, mode, uid, gid, required } => {
                    let Some(secret) = secrets.get(&id) else {
                        if required {
                            return Err(BuildFailure::NoSecret(id));
                        }
                        continue;
                    };
                    self.send_file(&format!("{}/{id}", sandling_builder::SECRETS), 0o600, secret).await?;
                    Mount::Secret { id, target: target.map(|target| path(&target)), variable, mode, uid, gid }
                }
                RunMount::Bind { target, read_only, .. } => {
                    let staged = at.to_string();
                    let place = Place { target: format!("{}/{staged}", sandling_builder::STAGED), ..Place::default() };
                    self.job(number, &Job::Place(place), inputs.next()).await?;
                    Mount::Bind { staged, target: path(&target), read_only }
                }
            });
        }
        Ok(prepared)
    }

    async fn send_file(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), BuildFailure> {
        let mut upload = self.sandbox.write_file(path, WriteMode::Replace, Some(mode), None)?;
        upload.send_all(content).await.map_err(BuildFailure::Archive)??;
        upload.finish().await?;
        Ok(())
    }

    /// Runs a job of the builder, which is sent each time and removes itself.
    pub(super) async fn job(&self, number: usize, job: &Job, input: Option<Input>) -> Result<(), BuildFailure> {
        self.job_within(LONGEST_STEP, number, job, input).await
    }

    async fn job_within(
        &self,
        within: Duration,
        number: usize,
        job: &Job,
        input: Option<Input>,
    ) -> Result<(), BuildFailure> {
        self.send_file(BUILDER_PATH, 0o700, sandling_image::BUILDER).await?;
        let argument = serde_json::to_string(job).unwrap_or_default();
        let mut spec = self.spec(vec![BUILDER_PATH.to_owned(), argument], "root", Some(within));
        // The directory of the steps may not exist yet.
        spec.cwd = Some("/".to_owned());
        let Some(input) = input else {
            let mut execution = self.sandbox.run(spec)?;
            return self.follow(&mut execution, Some(number)).await;
        };
        spec.stdin = Stdin::Open;
        let mut execution = self.sandbox.run(spec)?;
        let sender = execution.stdin();
        let (ended, sent) = tokio::join!(self.follow(&mut execution, Some(number)), input.send(&sender));
        // If the builder failed, it stopped reading.
        ended?;
        sent
    }

    /// Where the next step runs.
    fn directory(&self) -> String {
        self.current.workdir.clone().unwrap_or_else(|| self.plan.workdir.unwrap_or("/").to_owned())
    }

    fn user(&self) -> &str {
        steps::user(&self.current, self.plan)
    }

    /// Starts the command that runs in every sandbox of the template, and waits until it is ready.
    pub(super) async fn start(&self, start: &[String], ready: Option<&[String]>) -> Result<(), BuildFailure> {
        self.build.log(&format!("START {}", start.join(" ")), Level::Info, None);
        let mut started = self.sandbox.run(self.spec(start.to_vec(), self.user(), None))?;
        let end = self.follow(&mut started, None);
        let Some(ready) = ready else {
            // A command that ends at once may have failed. One that keeps running counts as ready.
            return tokio::time::timeout(SETTLE, end).await.unwrap_or(Ok(()));
        };
        let failed = async {
            match end.await {
                // It may have left a process that runs.
                Ok(()) => std::future::pending().await,
                Err(failure) => failure,
            }
        };
        tokio::select! {
            failure = failed => Err(failure),
            ready = self.until_ready(ready) => ready,
        }
    }

    async fn until_ready(&self, ready: &[String]) -> Result<(), BuildFailure> {
        let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let check = self.sandbox.run(self.spec(ready.to_vec(), self.user(), Some(Duration::from_secs(60))))?;
            if check.collect().await?.exit.code == 0 {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(BuildFailure::NotReady);
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    /// Runs a line for the shell as a sandbox of the template would, and kills the processes that it leaves.
    pub(super) async fn rehearse(&self, number: usize, line: &str, within: Duration) -> Result<(), BuildFailure> {
        let argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
        let (user, directory) = (self.user().to_owned(), self.directory());
        let run = sandling_builder::Run { argv, user, directory, mounts: Vec::new(), network: true };
        self.job_within(within, number, &Job::Rehearse(run), None).await
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
