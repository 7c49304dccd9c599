//! One sandbox, and the calls that run in it.

use std::sync::Arc;
use std::time::Duration;

use sandling_client::{Client, ClientError, Stream};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::observation::Observation;
use crate::spec::{BadCall, DesktopTools, specs};

/// Settings for all calls.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The default deadline of a run, and the longest that a model can request.
    pub timeout: Duration,
    /// The most bytes of each stream that a model sees. The middle of longer output is cut.
    pub max_output: usize,
    /// The working directory of commands, and the base of relative paths.
    pub directory: String,
    pub desktop: DesktopTools,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            max_output: 20_000,
            directory: sandling_wire::WORKSPACE.to_owned(),
            desktop: DesktopTools::default(),
        }
    }
}

impl Settings {
    /// The absolute form of a model's path.
    pub fn absolute(&self, path: &str) -> String {
        match path {
            "" => self.directory.clone(),
            _ if path.starts_with('/') => path.to_owned(),
            _ => format!("{}/{path}", self.directory.trim_end_matches('/')),
        }
    }

    /// The requested deadline, within the maximum.
    pub(crate) fn deadline(&self, wanted: Option<f64>) -> Result<Duration, BadCall> {
        let Some(seconds) = wanted else { return Ok(self.timeout) };
        if seconds <= 0.0 {
            return Err(BadCall(format!("timeout_seconds must be more than 0, not {seconds}")));
        }
        // A value that a duration cannot hold also exceeds the maximum.
        let wanted = Duration::try_from_secs_f64(seconds).unwrap_or(self.timeout);
        Ok(wanted.max(Duration::from_millis(1)).min(self.timeout))
    }
}

/// A sandbox as tools. Calls can run at the same time.
pub struct Toolbox {
    pub(crate) client: Arc<Client>,
    pub(crate) sandbox: String,
    pub(crate) settings: Settings,
    /// The live Python interpreter, once there is one.
    pub(crate) python: Mutex<Option<String>>,
    /// Held by the running cell until its end is known. A cancelled cell takes a moment to end.
    pub(crate) cell: Mutex<()>,
    /// The number of the gateway's last decision that a call has reported.
    pub(crate) seen_decision: Mutex<u64>,
}

/// A call in progress, as its caller sees it.
pub struct CallControl<'a> {
    /// Cancels the call.
    pub cancelled: CancellationToken,
    /// Receives the output as it arrives.
    pub watch: &'a (dyn Fn(Stream, &[u8]) + Send + Sync),
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("the sandbox has ended")]
    Gone,
    #[error("the call was cancelled")]
    Cancelled,
    #[error(transparent)]
    Call(#[from] BadCall),
    #[error(transparent)]
    Client(ClientError),
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        if is_gone(&error) { Self::Gone } else { Self::Client(error) }
    }
}

/// Whether the sandbox has ended, or its guest has failed.
pub fn is_gone(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, message, .. }
        if code == "sandbox_ended" || message == "sandbox not found")
        || error.is_guest_death()
}

/// Whether the model can correct its call, given the error.
pub fn is_correctable(error: &ClientError) -> bool {
    const ITS_OWN: [u16; 5] = [400, 404, 409, 413, 422];
    const OF_FILES: [&str; 2] = ["permission_denied", "no_space"];
    matches!(error, ClientError::Refused { status, code, .. }
        if ITS_OWN.contains(&status.as_u16()) || OF_FILES.contains(&code.as_str()))
        && !is_gone(error)
}

/// Returns a problem that the model can correct as a result.
pub fn correctable_as_result(done: Result<Observation, ToolError>) -> Result<Observation, ToolError> {
    match done {
        Err(ToolError::Call(BadCall(why))) => Ok(Observation::error(why)),
        Err(ToolError::Client(error)) if is_correctable(&error) => Ok(Observation::error(error.to_string())),
        other => other,
    }
}

impl Toolbox {
    pub fn new(client: Arc<Client>, sandbox: String, settings: Settings) -> Self {
        Self {
            client,
            sandbox,
            settings,
            python: Mutex::new(None),
            cell: Mutex::default(),
            seen_decision: Mutex::default(),
        }
    }

    /// The tools of a fork, which also has the parent's live Python interpreter.
    pub async fn of_fork(&self, sandbox: String) -> Self {
        self.with(self.client.clone(), sandbox).await
    }

    /// The same tools over a new connection to the server.
    pub async fn with_client(&self, client: Arc<Client>) -> Self {
        self.with(client, self.sandbox.clone()).await
    }

    async fn with(&self, client: Arc<Client>, sandbox: String) -> Self {
        let python = self.python.lock().await.clone();
        Self { python: Mutex::new(python), ..Self::new(client, sandbox, self.settings.clone()) }
    }

    pub fn sandbox(&self) -> &str {
        &self.sandbox
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Carries out one call. A problem that the model can correct is a result. A problem that only a person can solve
    /// is an error.
    pub async fn call(&self, name: &str, arguments: Value, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        let done = match name {
            "run_code" => self.run_code(arguments, call).await,
            "run_command" => self.run_command(arguments, call).await,
            "read_file" => self.in_time(self.read_file(arguments), call).await,
            "write_file" => self.in_time(self.write_file(arguments), call).await,
            "list_files" => self.in_time(self.list_files(arguments), call).await,
            _ => {
                let tools = specs(self.settings.desktop);
                if tools.iter().any(|spec| spec.name == name) {
                    return correctable_as_result(self.in_time(self.desktop_call(name, arguments), call).await);
                }
                let known: Vec<&str> = tools.iter().map(|spec| spec.name).collect();
                Err(BadCall(format!("there is no tool {name:?}; there are {}", known.join(", "))).into())
            }
        };
        let done = correctable_as_result(done);
        match done {
            Ok(observation) if name.starts_with("run_") => Ok(self.explained(observation).await),
            done => done,
        }
    }

    /// Runs work that has no deadline of its own and can be dropped at any time.
    pub(crate) async fn in_time(
        &self,
        work: impl Future<Output = Result<Observation, ToolError>>,
        call: &CallControl<'_>,
    ) -> Result<Observation, ToolError> {
        let timeout = self.settings.timeout;
        tokio::select! {
            done = work => done,
            () = call.cancelled.cancelled() => Err(ToolError::Cancelled),
            () = tokio::time::sleep(timeout) => {
                Ok(Observation::error(format!("the call took longer than {} s, its deadline", timeout.as_secs_f64())))
            }
        }
    }

    /// Creates the working directory.
    pub async fn make_directory(&self) -> Result<(), ClientError> {
        self.client.tell(&self.path("fs/mkdir"), &json!({ "path": self.settings.directory })).await
    }

    /// The URL path of something in the sandbox.
    pub fn path(&self, below: &str) -> String {
        format!("/v1/sandboxes/{}/{below}", self.sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_absolute_starts_in_the_working_directory() {
        let settings = Settings::default();
        for (path, meant) in [
            ("hello.py", "/workspace/hello.py"),
            ("./a/../b", "/workspace/./a/../b"),
            ("/etc/passwd", "/etc/passwd"),
            ("", "/workspace"),
        ] {
            assert_eq!(settings.absolute(path), meant);
        }
        let settings = Settings { directory: "/".to_owned(), ..settings };
        assert_eq!(settings.absolute("x"), "/x");
    }

    #[test]
    fn a_deadline_is_positive_and_within_what_a_model_may() {
        let settings = Settings::default();
        for (wanted, deadline) in [(None, 120.0), (Some(1.5), 1.5), (Some(1e300), 120.0), (Some(1e-9), 0.001)] {
            assert_eq!(settings.deadline(wanted).unwrap(), Duration::from_secs_f64(deadline), "{wanted:?}");
        }
        for wrong in [0.0, -0.0, -1.0] {
            let why = settings.deadline(Some(wrong)).unwrap_err().to_string();
            assert!(why.contains("more than 0"), "{why}");
        }
    }
}
