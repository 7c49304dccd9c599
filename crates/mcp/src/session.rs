//! The sandboxes of one client: its own, and the forks of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandling_client::{Client, ClientError, Forked, Sandbox, field};
use sandling_tools::{BadCall, CallControl, Observation, Settings, ToolError, Toolbox, read_arguments};
use sandling_wire::{CheckpointsName, CreatePreview, CreateSandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MOST_FORKS: usize = 8;
pub const REMOVE_WITHIN: Duration = Duration::from_secs(30);

/// Settings for all sessions.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// The sandbox to create: its template or image, its size, its network and its volumes.
    pub sandbox: Arc<CreateSandbox>,
    /// A tar that is unpacked into the working directory of a new sandbox.
    pub files: Option<Arc<Vec<u8>>>,
    /// A command that prepares a new sandbox.
    pub setup: Option<String>,
    /// The idle timeout of a sandbox.
    pub idle: Duration,
    pub checkpoints: Checkpoints,
    pub tools: Settings,
}

/// When checkpoints are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    EveryStep,
    OnRequest,
}

/// Held by everything that still has sandboxes to end. When all holders are gone, all sandboxes have ended.
pub type ShutdownGuard = mpsc::Sender<()>;

/// A session starts without a sandbox. Dropping it ends its sandboxes.
pub struct Session {
    pub settings: SessionSettings,
    guard: ShutdownGuard,
    machines: Mutex<Machines>,
}

#[derive(Default)]
struct Machines {
    client: Option<Arc<Client>>,
    own: Option<Arc<Toolbox>>,
    forks: BTreeMap<String, Arc<Toolbox>>,
    forked: usize,
    /// An earlier sandbox has ended by itself.
    lost: bool,
    /// When the server was last looked for.
    sought: Option<Instant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkRequest {
    #[serde(default = "one")]
    count: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkNamed {
    fork: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewRequest {
    port: u16,
    ttl_seconds: Option<u64>,
}

fn one() -> usize {
    1
}

impl Session {
    pub fn new(settings: SessionSettings, guard: ShutdownGuard) -> Self {
        Self { settings, guard, machines: Mutex::default() }
    }

    /// The sandbox of this name, and a note for its user. Without a name, the session's own sandbox, created if
    /// necessary.
    pub async fn find(&self, name: Option<&str>) -> Result<(Arc<Toolbox>, Option<&'static str>), ToolError> {
        let mut machines = self.machines.lock().await;
        if let Some(name) = name {
            let toolbox = machines.forks.get(name).cloned().ok_or_else(|| machines.unknown(name))?;
            return Ok((toolbox, None));
        }
        if let Some(toolbox) = &machines.own {
            return Ok((toolbox.clone(), None));
        }
        let toolbox = machines.make(&self.settings).await?;
        let lost = std::mem::take(&mut machines.lost);
        let note = lost.then_some("note: the previous sandbox has ended; this is a new one, without its files");
        Ok((toolbox, note))
    }

    /// The session's own sandbox, if there is one.
    pub async fn present(&self) -> Option<Arc<Toolbox>> {
        self.machines.lock().await.own.clone()
    }

    /// Finds the server that cannot be reached at `address` any more. All sandboxes then use the new address, because
    /// they outlive the server.
    pub async fn find_server(&self, address: &str) -> Result<(), ToolError> {
        let began = Instant::now();
        let mut machines = self.machines.lock().await;
        // Another call may have found the server meanwhile, or found that there is none.
        let found = machines.client.as_ref().is_some_and(|client| client.server().address != address);
        if found || machines.sought.is_some_and(|sought| sought > began) {
            return Ok(());
        }
        let again = Client::find_again().await;
        machines.sought = Some(Instant::now());
        machines.use_client(Arc::new(again?)).await;
        Ok(())
    }

    /// Forgets a sandbox that has ended, so that the next call creates another.
    pub async fn forget(&self, sandbox: &str) {
        let mut machines = self.machines.lock().await;
        if machines.own.as_ref().is_some_and(|own| own.sandbox() == sandbox) {
            machines.own = None;
            machines.lost = true;
        }
        machines.forks.retain(|_, fork| fork.sandbox() != sandbox);
    }

    pub async fn fork(&self, parent: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
        let ForkRequest { count } = read_arguments(arguments)?;
        let mut machines = self.machines.lock().await;
        if count == 0 || count + machines.forks.len() > MOST_FORKS {
            let there = machines.forks.len();
            return Err(BadCall(format!(
                "count must be at least 1, and a session can have {MOST_FORKS} forks; it has {there}"
            ))
            .into());
        }
        let request = json!({ "count": count, "idle_seconds": self.settings.idle.as_secs() });
        let made: Forked = parent.client().post(&parent.path("fork-tree"), &request).await?;
        let mut names = Vec::new();
        for child in made.children {
            machines.forked += 1;
            let name = format!("fork-{}", machines.forked);
            machines.forks.insert(name.clone(), Arc::new(parent.of_fork(child.id).await));
            names.push(name);
        }
        Ok(Observation::text(format!("forked: {}", names.join(", "))))
    }

    pub async fn keep(&self, arguments: Value) -> Result<Observation, ToolError> {
        let ForkNamed { fork } = read_arguments(arguments)?;
        let mut machines = self.machines.lock().await;
        let kept = machines.take_fork(&fork)?;
        let mut ended: Vec<_> = std::mem::take(&mut machines.forks).into_values().collect();
        ended.extend(machines.own.replace(kept));
        drop(machines);
        let others = match ended.len() {
            1 => "1 other was".to_owned(),
            others => format!("{others} others were"),
        };
        end_all(ended).await;
        Ok(Observation::text(format!("{fork} is the session's own sandbox now; {others} ended")))
    }

    pub async fn drop_fork(&self, arguments: Value) -> Result<Observation, ToolError> {
        let ForkNamed { fork } = read_arguments(arguments)?;
        let dropped = self.machines.lock().await.take_fork(&fork)?;
        end_all(vec![dropped]).await;
        Ok(Observation::text(format!("{fork} was ended")))
    }

    pub async fn preview(&self, toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
        let PreviewRequest { port, ttl_seconds } = read_arguments(arguments)?;
        let request = CreatePreview { port, ttl_seconds, paths: None };
        let made: Value = toolbox.client().post(&toolbox.path("preview-token"), &request).await?;
        Ok(Observation::text(field(&made, "url")?))
    }

    /// Ends all sandboxes.
    pub async fn end(&self) {
        end_all(self.machines.lock().await.take_all()).await;
    }
}

impl Machines {
    async fn make(&mut self, settings: &SessionSettings) -> Result<Arc<Toolbox>, ToolError> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(Arc::new(Client::find_or_start().await?)).clone(),
        };
        let created: Sandbox = client.post("/v1/sandboxes", &*settings.sandbox).await?;
        let toolbox = Arc::new(Toolbox::new(client, created.id, settings.tools.clone()));
        self.own = Some(toolbox.clone());
        if let Err(error) = prepare(&toolbox, settings).await {
            // The next call begins with a new sandbox and tries again.
            self.own = None;
            end_all(vec![toolbox]).await;
            return Err(error);
        }
        Ok(toolbox)
    }

    async fn use_client(&mut self, client: Arc<Client>) {
        for toolbox in self.forks.values_mut().chain(&mut self.own) {
            *toolbox = Arc::new(toolbox.with_client(client.clone()).await);
        }
        self.client = Some(client);
    }

    fn take_fork(&mut self, name: &str) -> Result<Arc<Toolbox>, BadCall> {
        self.forks.remove(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> BadCall {
        let known: Vec<&str> = self.forks.keys().map(String::as_str).collect();
        let there = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        BadCall(format!("there is no fork {name:?} ({there})"))
    }

    fn take_all(&mut self) -> Vec<Arc<Toolbox>> {
        std::mem::take(&mut self.forks).into_values().chain(self.own.take()).collect()
    }
}

/// Copies the files into a new sandbox and runs the setup command.
async fn prepare(toolbox: &Toolbox, settings: &SessionSettings) -> Result<(), ToolError> {
    toolbox.make_directory().await?;
    if let Some(files) = &settings.files {
        toolbox.unpack(files.to_vec()).await?;
    }
    let Some(setup) = &settings.setup else { return Ok(()) };
    let control = CallControl { cancelled: CancellationToken::new(), watch: &|_, _| {} };
    let ran = toolbox.call("run_command", json!({ "command": setup }), &control).await?;
    match ran.exit_code {
        Some(0) => Ok(()),
        _ => Err(BadCall(format!("the setup command failed: {setup}\n{}", ran.text)).into()),
    }
}

/// A sandbox for sessions. `machine` says what it is made of.
pub fn session_sandbox(machine: CreateSandbox, idle: Duration, checkpoints: Checkpoints) -> CreateSandbox {
    CreateSandbox {
        idle_seconds: Some(idle.as_secs()),
        ttl_seconds: Some(LONGEST.as_secs()),
        labels: Some([("made-by".to_owned(), "mcp".to_owned())].into()),
        checkpoints: (checkpoints == Checkpoints::EveryStep).then_some(CheckpointsName::EveryExec),
        ..machine
    }
}

/// The longest life of a session's sandbox, even if it is in use.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

async fn end_all(toolboxes: Vec<Arc<Toolbox>>) {
    let mut ending = JoinSet::new();
    for toolbox in toolboxes {
        ending.spawn(async move {
            // A sandbox that cannot be ended now ends at its idle timeout.
            if let Err(error) = end(&toolbox).await {
                tracing::warn!(%error, sandbox = toolbox.sandbox(), "cannot end a sandbox; it ends at its idle timeout");
            }
        });
    }
    ending.join_all().await;
}

async fn end(toolbox: &Toolbox) -> Result<(), ClientError> {
    let path = format!("/v1/sandboxes/{}", toolbox.sandbox());
    match toolbox.client().delete_within(&path, REMOVE_WITHIN).await {
        Err(ClientError::Unreachable { .. }) => Client::find_again().await?.delete_within(&path, REMOVE_WITHIN).await,
        done => done,
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let left = self.machines.get_mut().take_all();
        if left.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let guard = self.guard.clone();
            runtime.spawn(async move {
                end_all(left).await;
                drop(guard);
            });
        }
    }
}
