//! Code in a live Python interpreter, which keeps its variables between calls.

use std::collections::BTreeMap;
use std::time::Duration;

use sandling_client::{ClientError, Stream, field, parse, read};
use sandling_wire::LanguageName;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::excerpt::shorten;
use crate::observation::{Image, Observation};
use crate::spec::read_arguments;
use crate::toolbox::{CallControl, ToolError, Toolbox};

/// How long an interrupted cell may take to stop before its interpreter is restarted.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(3);
/// The most results and images that a model sees of one cell. It reads all of them again with every later step.
const MOST_RESULTS: usize = 50;
const MOST_IMAGES: usize = 8;
/// The size limit of an image, in base64. The models' servers refuse larger ones.
const LARGEST_IMAGE: usize = 5 * 1024 * 1024;
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

/// The part of rich results that a model sees: texts up to `limit` bytes together, and some of the images.
fn results(all: Vec<BTreeMap<String, String>>, limit: usize) -> (Vec<String>, Vec<Image>) {
    let (mut notes, mut images) = (Vec::new(), Vec::new());
    let (mut left, mut texts_cut, mut images_cut) = (limit, 0, 0);
    for result in all {
        match result.get("text/plain") {
            Some(text) if left > 0 && notes.len() < MOST_RESULTS => {
                notes.push(format!("result:\n{}", shorten(text, left)));
                left = left.saturating_sub(text.len());
            }
            Some(_) => texts_cut += 1,
            None => {}
        }
        for (mime, data) in result.into_iter().filter(|(mime, _)| SHOWN.contains(&mime.as_str())) {
            if images.len() < MOST_IMAGES && data.len() <= LARGEST_IMAGE {
                images.push(Image { mime, data });
            } else {
                images_cut += 1;
            }
        }
    }
    for (count, what) in [(texts_cut, "results"), (images_cut, "images")] {
        if count > 0 {
            notes
                .push(format!("[{count} more {what} are not shown, because there are too many or they are too large]"));
        }
    }
    (notes, images)
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
    pub(crate) async fn run_code(&self, arguments: Value, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        let RunCode { code, language, timeout_seconds } = read_arguments(arguments)?;
        let deadline = self.settings.deadline(timeout_seconds)?;
        match language {
            LanguageName::Python => self.run_cell(code, deadline, call).await,
            other => self.run_script(other, code, deadline, call).await,
        }
    }

    async fn run_cell(
        &self,
        code: String,
        deadline: Duration,
        call: &CallControl<'_>,
    ) -> Result<Observation, ToolError> {
        match self.try_cell(&code, deadline, call).await {
            // After a rewind, the interpreter may not exist yet. Nothing ran, so start a new one.
            Err(ToolError::Client(error)) if is_unknown_context(&error) => {
                *self.python.lock().await = None;
                self.try_cell(&code, deadline, call).await
            }
            other => other,
        }
    }

    async fn try_cell(&self, code: &str, deadline: Duration, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        let _turn = tokio::select! {
            turn = self.cell.lock() => turn,
            () = call.cancelled.cancelled() => return Err(ToolError::Cancelled),
        };
        let context = self.context().await?;
        let request = json!({ "code": code, "timeout_ms": u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX) });
        let path = self.path(&format!("repl/sessions/{context}/run/stream"));
        let mut running = std::pin::pin!(self.follow(&path, &request, call));
        tokio::select! {
            done = &mut running => self.observed(done, deadline),
            () = call.cancelled.cancelled() => {
                let _ = self.client.tell(&self.path(&format!("repl/sessions/{context}/interrupt")), &json!({})).await;
                if tokio::time::timeout(INTERRUPTED_WITHIN, &mut running).await.is_err() {
                    let restart = self.path(&format!("repl/sessions/{context}/restart"));
                    let _ = self.client.tell(&restart, &json!({})).await;
                }
                Err(ToolError::Cancelled)
            }
        }
    }

    /// Shows a cell's output until the cell has ended.
    async fn follow(&self, path: &str, request: &Value, call: &CallControl<'_>) -> Result<Cell, ClientError> {
        let mut events = self.client.post_events(path, request).await?;
        while let Some(event) = events.next().await? {
            let data: Value = parse(&event.data)?;
            let stream = match event.name.as_str() {
                "stdout" => Stream::Stdout,
                "stderr" => Stream::Stderr,
                "result" => return read(data),
                "error" => return Err(ClientError::from_body(data)),
                _ => continue,
            };
            (call.watch)(stream, data["chunk"].as_str().unwrap_or_default().as_bytes());
        }
        Err(ClientError::broken("a cell ended without a result"))
    }

    async fn context(&self) -> Result<String, ToolError> {
        let mut python = self.python.lock().await;
        if let Some(context) = &*python {
            return Ok(context.clone());
        }
        let request = json!({ "language": "python", "cwd": self.settings.directory });
        let made: Value = self.client.post(&self.path("repl/sessions"), &request).await?;
        Ok(python.insert(field(&made, "id")?).clone())
    }

    fn observed(&self, done: Result<Cell, ClientError>, deadline: Duration) -> Result<Observation, ToolError> {
        match done {
            Ok(cell) => Ok(self.shown(cell)),
            Err(ClientError::Refused { status, body, .. }) if status.as_u16() == 504 => {
                let text = |name: &str| shorten(body[name].as_str().unwrap_or_default(), self.settings.max_output);
                let note = format!(
                    "interrupted after {} s, its deadline; this is the output until then",
                    deadline.as_secs_f64()
                );
                let observation = Observation::of_run(None, &[note], &text("stdout"), &text("stderr"));
                Ok(Observation { is_error: true, ..observation })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn shown(&self, cell: Cell) -> Observation {
        let limit = self.settings.max_output;
        let (mut notes, images) = results(cell.results, limit);
        if cell.restarted {
            notes.push("the interpreter was restarted, so its variables are gone".to_owned());
        }
        if let Some(error) = &cell.error {
            notes.push(format!("error:\n{}", shorten(error, limit)));
        }
        let (stdout, stderr) = (shorten(&cell.stdout, limit), shorten(&cell.stderr, limit));
        Observation { images, ..Observation::of_run(Some(cell.exit_code), &notes, &stdout, &stderr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(mime: &str, data: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(mime.to_owned(), data.to_owned())])
    }

    #[test]
    fn few_results_are_shown_completely() {
        let (notes, images) = results(vec![bundle("text/plain", "42"), bundle("image/png", "aa")], 100);
        assert_eq!(notes, ["result:\n42"]);
        assert_eq!(images, [Image { mime: "image/png".to_owned(), data: "aa".to_owned() }]);
    }

    #[test]
    fn excess_results_are_counted() {
        let many = (0..1000).map(|_| bundle("text/plain", "0123456789")).collect();
        let (notes, _) = results(many, 100);
        assert_eq!(
            (notes.len(), notes[10].as_str()),
            (11, "[990 more results are not shown, because there are too many or they are too large]")
        );
        let many = (0..20).map(|_| bundle("image/png", "aa")).chain([bundle("image/jpeg", &"a".repeat(6 << 20))]);
        let (notes, images) = results(many.collect(), 100);
        assert_eq!(
            (notes.as_slice(), images.len()),
            (&["[13 more images are not shown, because there are too many or they are too large]".to_owned()][..], 8)
        );
    }

    #[test]
    fn a_timeout_in_a_stream_is_the_same_error_as_without_a_stream() {
        let error = ClientError::from_body(
            json!({ "status": 504, "code": "command_timeout", "error": "late", "stdout": "before" }),
        );
        let ClientError::Refused { status, body, .. } = error else { panic!("{error}") };
        assert_eq!((status.as_u16(), body["stdout"].as_str()), (504, Some("before")));
        assert!(is_unknown_context(&ClientError::from_body(json!({ "status": 404, "error": "session not found" }))));
    }
}
