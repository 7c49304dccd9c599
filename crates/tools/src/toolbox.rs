//! One sandbox, and the calls that are carried out in it.

use std::sync::Arc;
use std::time::Duration;

use sandling_client::{Client, ClientError, Stream};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::observation::Observation;
use crate::spec::{BadCall, SPECS};

/// What holds for all calls.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The deadline of every run, and the longest that a model can ask for.
    pub timeout: Duration,
    /// Bytes of each stream that a model is shown; the middle of more is cut.
    pub max_output: usize,
    /// Where commands run.
    pub directory: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(120), max_output: 20_000, directory: "/workspace".to_owned() }
    }
}

/// A sandbox as tools. Calls may be made at once.
pub struct Toolbox {
    pub(crate) client: Arc<Client>,
    pub(crate) sandbox: String,
    pub(crate) settings: Settings,
    /// The live Python, once there is one.
    pub(crate) python: Mutex<Option<String>>,
    /// Held by the cell that runs in it, until its end is known: one that is cancelled takes a moment.
    pub(crate) cell: Mutex<()>,
}

/// A call under way, as whoever made it sees it.
pub struct Doing<'a> {
    /// Ends what runs.
    pub cancelled: CancellationToken,
    /// Is shown what a run prints, as it comes.
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

/// Whether the sandbox is no more, or its guest is dead.
pub fn is_gone(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, message, .. }
        if code == "sandbox_ended" || message == "sandbox not found")
        || error.is_guest_death()
}

/// Whether a model could do better, knowing what was wrong.
pub fn is_mendable(error: &ClientError) -> bool {
    const ITS_OWN: [u16; 5] = [400, 404, 409, 413, 422];
    matches!(error, ClientError::Refused { status, .. } if ITS_OWN.contains(&status.as_u16())) && !is_gone(error)
}

impl Toolbox {
    pub fn new(client: Arc<Client>, sandbox: String, settings: Settings) -> Self {
        Self { client, sandbox, settings, python: Mutex::new(None), cell: Mutex::default() }
    }

    /// The same for a fork, which has the parent's live Python as well.
    pub async fn of_fork(&self, sandbox: String) -> Self {
        let python = self.python.lock().await.clone();
        let (client, settings) = (self.client.clone(), self.settings.clone());
        Self { client, sandbox, settings, python: Mutex::new(python), cell: Mutex::default() }
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

    /// Carries out one call. What a model can mend is its answer; what only a person can mend is an error.
    pub async fn call(&self, name: &str, arguments: Value, doing: &Doing<'_>) -> Result<Observation, ToolError> {
        let done = match name {
            "run_code" => self.run_code(arguments, doing).await,
            "run_command" => self.run_command(arguments, doing).await,
            "read_file" => self.read_file(arguments).await,
            "write_file" => self.write_file(arguments).await,
            "list_files" => self.list_files(arguments).await,
            _ => {
                let known: Vec<&str> = SPECS.iter().map(|spec| spec.name).collect();
                Err(BadCall(format!("there is no tool {name:?}; there are {}", known.join(", "))).into())
            }
        };
        match done {
            Err(ToolError::Call(BadCall(why))) => Ok(Observation::error(why)),
            Err(ToolError::Client(error)) if is_mendable(&error) => Ok(Observation::error(error.to_string())),
            other => other,
        }
    }

    pub(crate) fn path(&self, below: &str) -> String {
        format!("/v1/sandboxes/{}/{below}", self.sandbox)
    }

    /// What a model asked for, within what it may.
    pub(crate) fn deadline(&self, wanted: Option<f64>) -> Duration {
        let wanted = wanted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        wanted.unwrap_or(self.settings.timeout).clamp(Duration::from_millis(1), self.settings.timeout)
    }
}
