//! Runs code in a sandbox's default interpreter, which keeps its variables between calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{Cause, Sandbox};
use sandling_protocol::{CellSpec, ContextSpec};
use sandling_wire::{CellResult, LanguageName, RunCode};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::cell::RunningCell;
use crate::context::RequestContext;
use crate::convert::IntoEngine;
use crate::convert::exec::output_limit;
use crate::convert::sandbox::check_env;
use crate::convert::seconds;
use crate::error::ApiError;
use crate::recorder::Recorder;
use crate::sse::Events;

/// Code that can run, if its sandbox exists.
pub(crate) struct CheckedCode {
    /// The id of the default interpreter of the language.
    context: &'static str,
    language: LanguageName,
    code: String,
    timeout: Option<Duration>,
    output_limit: u64,
    env: BTreeMap<String, String>,
}

impl CheckedCode {
    pub(crate) fn new(request: RunCode) -> Result<Self, ApiError> {
        let RunCode { code, language, timeout_seconds, output_limit: limit, env } = request;
        let context = match language {
            LanguageName::Python => "default-python",
            LanguageName::Node => "default-node",
            LanguageName::Bash => {
                let message =
                    "bash keeps no variables between calls; run it with `exec`, as `code` with this `language`";
                return Err(ApiError::bad_request(message));
            }
        };
        let env = env.unwrap_or_default();
        check_env(&env)?;
        let timeout = seconds::deadline("timeout_seconds", timeout_seconds)?;
        Ok(Self { context, language, code, timeout, output_limit: output_limit(limit)?, env })
    }

    pub(crate) fn in_sandbox(self, app: &Arc<App>, context: &RequestContext, sandbox: &Arc<Sandbox>) -> DefaultCell {
        let recorder = Recorder::new(app, context, sandbox.id(), self.code.clone());
        DefaultCell { app: app.clone(), sandbox: sandbox.clone(), code: self, recorder }
    }
}

/// Code for the default interpreter of its language.
pub(crate) struct DefaultCell {
    app: Arc<App>,
    sandbox: Arc<Sandbox>,
    code: CheckedCode,
    recorder: Recorder,
}

impl DefaultCell {
    /// Runs the code when the runs before it have ended. Interrupts it when the client is `gone`.
    pub(crate) async fn run(self, events: Option<&Events>, gone: &CancellationToken) -> Result<CellResult, ApiError> {
        let CheckedCode { context: id, language, code, timeout, output_limit, env } = self.code;
        let lane = self.app.cell_lanes.lane(self.sandbox.id(), id);
        let _turn = tokio::select! {
            turn = lane.lock() => turn,
            () = gone.cancelled() => return Err(ApiError::bad_request("the client has disconnected")),
        };
        self.app.engine.before(&self.sandbox, Cause::Cell, &code).await?;
        let language = language.into_engine();
        let mut context = ContextSpec { id: id.to_owned(), language, cwd: None, env: Default::default(), user: None };
        self.sandbox.info().settings.process.fill_context(&mut context);
        let timeout_ms = timeout.map(|timeout| timeout.as_millis() as u64);
        let cell = CellSpec { context: id.to_owned(), timeout_ms, output_limit, env, typescript: false };
        let (cell, _) = self.sandbox.run_first_cell(context, cell, &code).await?;
        // Without a timeout the value is not used.
        let timeout_seconds = timeout.unwrap_or_default().as_secs_f64();
        let mut finished = std::pin::pin!(RunningCell::of(cell, timeout_seconds).finish(self.recorder, events));
        tokio::select! {
            result = &mut finished => return result,
            () = gone.cancelled() => {}
        }
        // The next run must not wait for this one.
        let _ = self.sandbox.interrupt_context(id).await;
        finished.await
    }
}
