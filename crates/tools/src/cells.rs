//! Code in a live Python, whose variables last from call to call.

use std::time::Duration;

use sandling_api::LanguageName;
use sandling_client::ClientError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::excerpt::shorten;
use crate::observation::{Image, Observation};
use crate::spec::read_arguments;
use crate::toolbox::{Doing, ToolError, Toolbox};

/// A cell that does not heed an interrupt within this loses its interpreter.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(3);
const SHOWN: [&str; 2] = ["image/png", "image/jpeg"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCode {
    code: String,
    #[serde(default)]
    language: LanguageName,
    timeout_seconds: Option<f64>,
}

fn is_unknown_context(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { status, message, .. }
        if status.as_u16() == 404 && message == "session not found")
}

#[derive(Deserialize)]
struct Cell {
    exit_code: i32,
    stdout: String,
    stderr: String,
    error: Option<String>,
    #[serde(default)]
    results: Vec<BTreeMap<String, String>>,
    #[serde(default)]
    restarted: bool,
}

impl Toolbox {
    pub(crate) async fn run_code(&self, arguments: Value, doing: &Doing<'_>) -> Result<Observation, ToolError> {
        let RunCode { code, language, timeout_seconds } = read_arguments(arguments)?;
        match language {
            LanguageName::Python => self.run_cell(code, timeout_seconds, doing).await,
            other => self.run_script(other, code, timeout_seconds, doing).await,
        }
    }

    async fn run_cell(
        &self,
        code: String,
        timeout_seconds: Option<f64>,
        doing: &Doing<'_>,
    ) -> Result<Observation, ToolError> {
        match self.try_cell(&code, timeout_seconds, doing).await {
            // After a rewind the interpreter may be one that was not there yet. Nothing ran; a new one can.
            Err(ToolError::Client(error)) if is_unknown_context(&error) => {
                *self.python.lock().await = None;
                self.try_cell(&code, timeout_seconds, doing).await
            }
            other => other,
        }
    }

    async fn try_cell(
        &self,
        code: &str,
        timeout_seconds: Option<f64>,
        doing: &Doing<'_>,
    ) -> Result<Observation, ToolError> {
        let context = self.context().await?;
        let timeout = self.deadline(timeout_seconds);
        let wish = json!({ "code": code, "timeout_ms": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX) });
        let path = self.path(&format!("repl/sessions/{context}/run"));
        let mut running = std::pin::pin!(self.client.post::<Cell>(&path, &wish));
        tokio::select! {
            done = &mut running => self.observed(done, timeout),
            () = doing.cancelled.cancelled() => {
                let _ = self.client.tell(&self.path(&format!("repl/sessions/{context}/interrupt")), &json!({})).await;
                if tokio::time::timeout(INTERRUPTED_WITHIN, &mut running).await.is_err() {
                    let restart = self.path(&format!("repl/sessions/{context}/restart"));
                    let _ = self.client.tell(&restart, &json!({})).await;
                }
                Err(ToolError::Cancelled)
            }
        }
    }

    async fn context(&self) -> Result<String, ToolError> {
        let mut python = self.python.lock().await;
        if let Some(context) = &*python {
            return Ok(context.clone());
        }
        let wish = json!({ "language": "python", "cwd": self.settings.directory });
        let made: Value = self.client.post(&self.path("repl/sessions"), &wish).await?;
        let Some(id) = made["id"].as_str() else {
            return Err(ClientError::Strange("a context has no id".to_owned()).into());
        };
        *python = Some(id.to_owned());
        Ok(id.to_owned())
    }

    fn observed(&self, done: Result<Cell, ClientError>, timeout: Duration) -> Result<Observation, ToolError> {
        match done {
            Ok(cell) => Ok(self.shown(cell)),
            Err(ClientError::Refused { status, body, .. }) if status.as_u16() == 504 => {
                let text = |name: &str| shorten(body[name].as_str().unwrap_or_default(), self.settings.max_output);
                let note = format!(
                    "interrupted after {} s, its deadline; this is what it had printed until then",
                    timeout.as_secs_f64()
                );
                let observation = Observation::of_run(None, &[note], &text("stdout"), &text("stderr"));
                Ok(Observation { is_error: true, ..observation })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn shown(&self, cell: Cell) -> Observation {
        let limit = self.settings.max_output;
        let mut notes = Vec::new();
        let mut images = Vec::new();
        for result in cell.results {
            if let Some(text) = result.get("text/plain") {
                notes.push(format!("result:\n{}", shorten(text, limit)));
            }
            let pictures = result.into_iter().filter(|(mime, _)| SHOWN.contains(&mime.as_str()));
            images.extend(pictures.map(|(mime, data)| Image { mime, data }));
        }
        if cell.restarted {
            notes.push("the interpreter was ended and started anew: variables are gone".to_owned());
        }
        if let Some(error) = &cell.error {
            notes.push(format!("error:\n{}", shorten(error, limit)));
        }
        let (stdout, stderr) = (shorten(&cell.stdout, limit), shorten(&cell.stderr, limit));
        Observation { images, ..Observation::of_run(Some(cell.exit_code), &notes, &stdout, &stderr) }
    }
}
