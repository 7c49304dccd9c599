//! Records the code and output of runs, for workspaces that enable it.

use std::sync::Arc;

use sandling_engine::SandboxId;
use sandling_protocol::CellReport;
use sandling_service::{RECORDING_LIMIT, Recording};
use serde_json::{Map, Value};

use crate::app::App;
use crate::audit::record_run;
use crate::context::RequestContext;

/// Records one run, and writes it to the audit log when dropped, however the run ended.
pub(crate) struct Recorder(Option<Tape>);

struct Tape {
    app: Arc<App>,
    context: RequestContext,
    sandbox: String,
    code: String,
    output: Vec<u8>,
    left_out: usize,
}

impl Recorder {
    /// A recorder that is active if the caller's workspace records runs.
    pub(crate) fn new(app: &Arc<App>, context: &RequestContext, sandbox: &SandboxId, code: String) -> Self {
        let wanted = context.principal().is_some_and(|principal| {
            // A deleted workspace records nothing.
            app.service.workspaces.find(&principal.workspace).is_ok_and(|workspace| workspace.record_runs)
        });
        Self(wanted.then(|| Tape {
            app: app.clone(),
            context: context.clone(),
            sandbox: sandbox.to_string(),
            code,
            output: Vec::new(),
            left_out: 0,
        }))
    }

    /// An inactive recorder, for output that was recorded before.
    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// Records a cell's result: its text, or its type and length if it has no text.
    pub(crate) fn record_result(&mut self, bundle: &Map<String, Value>) {
        if self.0.is_some() {
            self.record(format!("{}\n", shown(bundle)).as_bytes());
        }
    }

    /// Records a cell's error, if there is one.
    pub(crate) fn record_error(&mut self, report: &CellReport) {
        if let Some(error) = &report.error {
            self.record(format!("{}\n", error.text.trim_end()).as_bytes());
        }
    }

    pub(crate) fn record(&mut self, bytes: &[u8]) {
        if let Some(tape) = &mut self.0 {
            let kept = bytes.len().min(RECORDING_LIMIT - tape.output.len().min(RECORDING_LIMIT));
            tape.output.extend_from_slice(&bytes[..kept]);
            tape.left_out += bytes.len() - kept;
        }
    }
}

fn shown(bundle: &Map<String, Value>) -> String {
    if let Some(text) = bundle.get("text/plain").and_then(Value::as_str) {
        return text.to_owned();
    }
    let part = |(kind, value): (&String, &Value)| match value.as_str() {
        Some(text) if kind.starts_with("text/") => text.to_owned(),
        Some(text) => format!("[{kind}, {} characters]", text.len()),
        None => value.to_string(),
    };
    bundle.iter().map(part).collect::<Vec<_>>().join("\n")
}

impl Drop for Tape {
    fn drop(&mut self) {
        let mut recording = Recording::new(self.code.as_bytes(), &self.output);
        recording.output_cut = recording.output_cut.saturating_add(self.left_out.try_into().unwrap_or(u32::MAX));
        let (app, context, sandbox) = (&self.app, &self.context, self.sandbox.as_str());
        record_run(app, context, sandbox, recording);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_cell_shows_is_written_down_as_text() {
        let text = |bundle: Value| shown(bundle.as_object().unwrap());
        assert_eq!(text(json!({ "text/plain": "42", "text/html": "<b>42</b>" })), "42");
        assert_eq!(text(json!({ "image/png": "AAAA" })), "[image/png, 4 characters]");
        assert_eq!(text(json!({ "text/html": "<b>1</b>" })), "<b>1</b>");
    }
}
