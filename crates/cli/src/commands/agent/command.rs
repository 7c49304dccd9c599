//! Runs a task from start to finish.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use sandling_agent::{
    Attempt, Budget, EndedBy, Endpoint, Engine, Job, Model, Prices, Project, Race, Transcript, Winner, Worker, race,
};
use sandling_engine::Home;
use sandling_tools::Toolbox;
use tokio_util::sync::CancellationToken;

use super::keys;
use super::machine::Machine;
use super::result;
use super::view::View;
use crate::commands::remove_sandbox;
use crate::options::{Agent, AgentBudget};
use crate::outcome;
use crate::signals::stop_on_signals;

pub async fn agent(options: &Agent) -> anyhow::Result<ExitCode> {
    // Check this before any request to the model costs money.
    result::check_can_confirm(options, io::stdin().is_terminal())?;
    match &options.engine {
        Some(name) => {
            let api = options.api.or_else(|| Engine::api_of(name));
            let endpoint = Endpoint::for_engine(api, options.model.clone())?;
            let engine = Engine::new(name, endpoint, keys::name(jiff::Timestamp::now()))?;
            with(options, Worker::Engine(&engine)).await
        }
        None => {
            let endpoint = Endpoint::from_environment(options.api, options.model.clone())?;
            with(options, Worker::Model(&Model::new(endpoint, !options.no_stream)?)).await
        }
    }
}

async fn with(options: &Agent, worker: Worker<'_>) -> anyhow::Result<ExitCode> {
    let project = options.files.as_deref().map(Project::read).transpose()?;
    let (transcript, path) = transcript(options)?;
    let stop = stop_on_signals()?;
    let view = View::new(options.quiet);
    let machine = Machine::make(options, worker).await?;
    let task = Task { options, worker, project: project.as_ref(), transcript, stop, view: &view };
    let done = task.run(&machine.toolbox).await;
    machine.end().await;
    view.note(&format!("transcript: {}", path.display()));
    if task.stop.is_cancelled() {
        return done.map(|_| ExitCode::from(outcome::INTERRUPTED));
    }
    done
}

struct Task<'a> {
    options: &'a Agent,
    worker: Worker<'a>,
    project: Option<&'a Project>,
    transcript: Transcript,
    stop: CancellationToken,
    view: &'a View,
}

impl Task<'_> {
    async fn run(&self, toolbox: &Toolbox) -> anyhow::Result<ExitCode> {
        self.prepare(toolbox).await?;
        match (self.options.best_of, &self.options.check) {
            (Some(attempts), Some(check)) => self.race(toolbox, usize::from(attempts), check).await,
            _ => self.single_attempt(toolbox).await,
        }
    }

    async fn prepare(&self, toolbox: &Toolbox) -> anyhow::Result<()> {
        if let Some(project) = self.project {
            project.send(toolbox).await?;
            let files = result::counted(project.files() as u64, "file");
            self.view.note(&format!("copied {files} from {} to /workspace", project.root().display()));
        }
        if let Some(setup) = &self.options.setup {
            self.view.note(&format!("setup: {setup}"));
            let ran = self.command(toolbox, setup).await?;
            if ran.exit_code != Some(0) {
                bail!("the setup failed:\n{}", ran.text);
            }
        }
        self.try_check(toolbox).await
    }

    /// Runs the check once before the model costs anything. A check that cannot run would judge every attempt wrongly.
    async fn try_check(&self, toolbox: &Toolbox) -> anyhow::Result<()> {
        let Some(check) = &self.options.check else { return Ok(()) };
        let ran = self.command(toolbox, check).await?;
        match ran.exit_code {
            Some(code @ (126 | 127)) => bail!(
                "the check cannot run in the sandbox (exit code {code}), so no request was sent to the model; install what \
                 it needs with --setup, or use another --template or --image:\n{}",
                ran.text
            ),
            Some(0) => self.view.note("check: passes already, before the first attempt"),
            _ => self.view.note("check: fails before the first attempt"),
        }
        Ok(())
    }

    async fn command(&self, toolbox: &Toolbox, command: &str) -> anyhow::Result<sandling_tools::Observation> {
        let control = sandling_tools::CallControl { cancelled: self.stop.clone(), watch: &|_, _| {} };
        Ok(toolbox.call("run_command", serde_json::json!({ "command": command }), &control).await?)
    }

    async fn single_attempt(&self, toolbox: &Toolbox) -> anyhow::Result<ExitCode> {
        let watch = |event: sandling_agent::Event<'_>| self.view.show(None, &event);
        let job = Job {
            toolbox,
            budget: budget(&self.options.budget),
            transcript: self.transcript.clone(),
            watch: &watch,
            stop: self.stop.clone(),
        };
        let outcome = self.worker.run(job, &self.options.task).await;
        let mut is_done = outcome.ended == EndedBy::Answer;
        self.view.note(&result::summary(&outcome, &budget(&self.options.budget)));
        if outcome.ended == EndedBy::Stopped {
            // Do not apply the changes of an unfinished task.
            return Ok(ExitCode::from(outcome::INTERRUPTED));
        }
        if let Some(check) = &self.options.check {
            let checked = self.command(toolbox, check).await?;
            let passed = checked.exit_code == Some(0);
            is_done &= passed;
            self.view.note(&format!("check: {}", if passed { "passed" } else { "failed" }));
        }
        result::answer(&outcome)?;
        if let Some(project) = self.project {
            result::apply_changes(self.options, project, toolbox, self.view, &self.stop).await?;
        }
        Ok(ExitCode::from(if is_done { 0 } else { outcome::FAILED }))
    }

    async fn race(&self, parent: &Toolbox, attempts: usize, check: &str) -> anyhow::Result<ExitCode> {
        let watch = |number: usize, event: sandling_agent::Event<'_>| self.view.show(Some(number), &event);
        let run = Race {
            worker: self.worker,
            parent,
            task: &self.options.task,
            check,
            attempts,
            budget: budget(&self.options.budget),
            transcript: self.transcript.clone(),
            stop: self.stop.clone(),
            watch: &watch,
        };
        let Winner { attempts, best } = race(&run).await.context("cannot fork the sandbox")?;
        let done = self.finish(&attempts, best).await;
        remove_sandbox(parent.client(), attempts[best].toolbox.sandbox()).await;
        done
    }

    async fn finish(&self, attempts: &[Attempt], best: usize) -> anyhow::Result<ExitCode> {
        self.view.note(&result::table(attempts, best, &budget(&self.options.budget)));
        let winner = &attempts[best];
        result::answer(&winner.outcome)?;
        if let Some(project) = self.project.filter(|_| winner.passed()) {
            result::apply_changes(self.options, project, &winner.toolbox, self.view, &self.stop).await?;
        }
        if !winner.passed() {
            self.view.note("no attempt passed the check, so no changes are applied");
            return Ok(ExitCode::from(outcome::FAILED));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn budget(options: &AgentBudget) -> Budget {
    Budget {
        steps: options.max_steps,
        wall: Duration::from_secs(options.max_time),
        tokens: options.max_tokens,
        cost: options.max_cost,
        prices: options.price.map(|(input, output)| Prices { input, output }),
    }
}

fn transcript(options: &Agent) -> anyhow::Result<(Transcript, PathBuf)> {
    let path = match &options.transcript {
        Some(path) => path.clone(),
        None => {
            let home = Home::from_environment()
                .context("neither SANDLING_HOME nor HOME is set; set one, or use --transcript")?;
            let directory = home.transcripts();
            std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
            let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
            directory.join(format!("{now}-{}.jsonl", std::process::id()))
        }
    };
    let transcript = Transcript::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((transcript, path))
}
