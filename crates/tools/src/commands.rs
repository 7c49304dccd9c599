//! Commands, and code that runs in a new interpreter.

use std::time::Duration;

use sandling_client::{Ended, SessionEvent, Stream};
use sandling_wire::{ExecRequest, LanguageName, OnLimitName, SessionStart};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::excerpt::Excerpt;
use crate::observation::Observation;
use crate::spec::read_arguments;
use crate::toolbox::{CallControl, ToolError, Toolbox};

/// How much of a command's output the guest keeps. A model sees less.
const KEPT: u64 = 4 * 1024 * 1024;
/// How long to wait for a killed command to be reported.
const DEAD_WITHIN: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    command: String,
    timeout_seconds: Option<f64>,
}

impl Toolbox {
    pub(crate) async fn run_command(&self, arguments: Value, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        let RunCommand { command, timeout_seconds } = read_arguments(arguments)?;
        let deadline = self.settings.deadline(timeout_seconds)?;
        self.execute(ExecRequest { cmd: Some(command), ..self.request(deadline) }, call).await
    }

    pub(crate) async fn run_script(
        &self,
        language: LanguageName,
        code: String,
        deadline: Duration,
        call: &CallControl<'_>,
    ) -> Result<Observation, ToolError> {
        let request = ExecRequest { code: Some(code), language: Some(language), ..self.request(deadline) };
        self.execute(request, call).await
    }

    fn request(&self, deadline: Duration) -> ExecRequest {
        ExecRequest {
            cwd: Some(self.settings.directory.clone()),
            timeout_seconds: Some(deadline.as_secs_f64()),
            output_limit: Some(KEPT),
            on_limit: Some(OnLimitName::KeepTail),
            ..ExecRequest::default()
        }
    }

    async fn execute(&self, run: ExecRequest, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        let timeout_seconds = run.timeout_seconds.unwrap_or_default();
        let start = SessionStart { run, terminal: None, closed_stdin: Some(true), scan: None };
        let (mut session, _input) = self.client.session(&self.sandbox, &start).await?;
        let limit = self.settings.max_output;
        let (mut stdout, mut stderr, mut id) = (Excerpt::new(limit), Excerpt::new(limit), None);
        loop {
            let heard = tokio::select! {
                heard = session.next() => heard?,
                // The command cannot be killed before its id is known, but the id arrives at once.
                () = call.cancelled.cancelled(), if id.is_some() => {
                    self.kill(id.as_deref().unwrap_or_default()).await;
                    return Err(ToolError::Cancelled);
                }
            };
            match heard {
                SessionEvent::Started { id: started } => id = Some(started),
                SessionEvent::Bytes(stream, bytes) => {
                    (call.watch)(stream, &bytes);
                    match stream {
                        Stream::Stdout => stdout.push(&bytes),
                        Stream::Stderr => stderr.push(&bytes),
                    }
                }
                SessionEvent::Dropped(bytes) => stdout.skip(bytes),
                SessionEvent::Ended(ended) => return Ok(ran(&ended, timeout_seconds, stdout, stderr)),
            }
        }
    }

    async fn kill(&self, exec: &str) {
        let (path, signal) = (self.path(&format!("execs/{exec}/signal")), json!({ "signal": "KILL" }));
        let killed = self.client.tell(&path, &signal);
        // A command that has just ended needs no kill, and one that cannot be reached ends at its deadline.
        let _ = tokio::time::timeout(DEAD_WITHIN, killed).await;
    }
}

fn ran(ended: &Ended, timeout_seconds: f64, stdout: Excerpt, stderr: Excerpt) -> Observation {
    let notes: Vec<String> = match ended.reason.as_str() {
        "exited" | "signalled" => Vec::new(),
        "timeout" => {
            vec![format!("ended after {timeout_seconds} s, its deadline; this is the output until then")]
        }
        other => vec![format!("ended by: {other}")],
    };
    let observation = Observation::of_run(Some(ended.exit_code), &notes, &stdout.into_text(), &stderr.into_text());
    Observation { is_error: ended.reason == "timeout", ..observation }
}
