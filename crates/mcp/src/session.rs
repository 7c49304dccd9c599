//! One client's sandboxes: its own and the forks of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_api::{CheckpointsName, CreatePreview, CreateSandbox};
use sandling_client::{Client, ClientError, Preview, Sandbox};
use sandling_tools::{BadCall, Observation, Settings, ToolError, Toolbox, read_arguments};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

const MOST_FORKS: usize = 8;
pub const REMOVE_WITHIN: Duration = Duration::from_secs(30);

/// What holds for every session.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    pub template: String,
    /// A sandbox that nobody has used for so long ends by itself.
    pub idle: Duration,
    pub checkpoints: Checkpoints,
    pub tools: Settings,
}

/// When checkpoints are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoints {
    EveryStep,
    OnRequest,
}

/// Held by whatever still has sandboxes to end; when nobody holds one any more, all are ended.
pub type Alive = mpsc::Sender<()>;

/// Made without a sandbox; dropped, it ends those that it has.
pub struct Session {
    settings: SessionSettings,
    alive: Alive,
    machines: Mutex<Machines>,
}

#[derive(Default)]
struct Machines {
    client: Option<Arc<Client>>,
    own: Option<Arc<Toolbox>>,
    forks: BTreeMap<String, Arc<Toolbox>>,
    forked: usize,
    /// There was one before, which ended by itself.
    lost: bool,
}

/// A sandbox to use, and what its user should know.
pub struct Found {
    pub toolbox: Arc<Toolbox>,
    pub note: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForkWish {
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
struct PreviewWish {
    port: u16,
    ttl_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Forked {
    children: Vec<Sandbox>,
}

fn one() -> usize {
    1
}

impl Session {
    pub fn new(settings: SessionSettings, alive: Alive) -> Self {
        Self { settings, alive, machines: Mutex::default() }
    }

    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// The sandbox of this name; the session's own, made if need be, without one.
    pub async fn find(&self, name: Option<&str>) -> Result<Found, ToolError> {
        let mut machines = self.machines.lock().await;
        if let Some(name) = name {
            let Some(toolbox) = machines.forks.get(name) else {
                let known: Vec<&str> = machines.forks.keys().map(String::as_str).collect();
                let there = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
                return Err(BadCall(format!("there is no fork {name:?} ({there})")).into());
            };
            return Ok(Found { toolbox: toolbox.clone(), note: None });
        }
        if let Some(toolbox) = &machines.own {
            return Ok(Found { toolbox: toolbox.clone(), note: None });
        }
        let toolbox = machines.make(&self.settings).await?;
        let lost = std::mem::take(&mut machines.lost);
        let note = lost.then_some("note: the sandbox there was had ended; this is a new one, without its files");
        Ok(Found { toolbox, note })
    }

    /// The session's own sandbox, if it has one already.
    pub async fn present(&self) -> Option<Arc<Toolbox>> {
        self.machines.lock().await.own.clone()
    }

    /// Forgets a sandbox that is no more, so that the next call makes another.
    pub async fn forget(&self, sandbox: &str, server: Server) {
        let mut machines = self.machines.lock().await;
        if machines.own.as_ref().is_some_and(|own| own.sandbox() == sandbox) {
            machines.own = None;
            machines.lost = true;
        }
        machines.forks.retain(|_, fork| fork.sandbox() != sandbox);
        if matches!(server, Server::Gone) {
            machines.client = None;
        }
    }

    pub async fn fork(&self, parent: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
        let ForkWish { count } = read_arguments(arguments)?;
        let mut machines = self.machines.lock().await;
        if count == 0 || count + machines.forks.len() > MOST_FORKS {
            let there = machines.forks.len();
            return Err(BadCall(format!(
                "count must be at least 1, and there may be {MOST_FORKS} forks at once; there are {there}"
            ))
            .into());
        }
        let wish = json!({ "count": count, "idle_seconds": self.settings.idle.as_secs() });
        let path = format!("/v1/sandboxes/{}/fork-tree", parent.sandbox());
        let made: Forked = parent.client().post(&path, &wish).await?;
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
        end_all(&ended).await;
        Ok(Observation::text(format!("{fork} is the session's own sandbox now; {} others were ended", ended.len())))
    }

    pub async fn drop_fork(&self, arguments: Value) -> Result<Observation, ToolError> {
        let ForkNamed { fork } = read_arguments(arguments)?;
        let dropped = self.machines.lock().await.take_fork(&fork)?;
        end_all(&[dropped]).await;
        Ok(Observation::text(format!("{fork} was ended")))
    }

    pub async fn preview(&self, toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
        let PreviewWish { port, ttl_seconds } = read_arguments(arguments)?;
        let path = format!("/v1/sandboxes/{}/preview-token", toolbox.sandbox());
        let wish = CreatePreview { port, ttl_seconds, paths: None };
        let made: Preview = toolbox.client().post(&path, &wish).await?;
        Ok(Observation::text(made.url))
    }

    /// Ends all that there is.
    pub async fn end(&self) {
        end_all(&self.machines.lock().await.take_all()).await;
    }
}

/// Whether a server is still there to ask.
#[derive(Clone, Copy)]
pub enum Server {
    There,
    Gone,
}

impl Machines {
    async fn make(&mut self, settings: &SessionSettings) -> Result<Arc<Toolbox>, ToolError> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(Arc::new(Client::find_or_start().await?)).clone(),
        };
        let wish = CreateSandbox {
            template: Some(settings.template.clone()),
            idle_seconds: Some(settings.idle.as_secs()),
            ttl_seconds: Some(LONGEST.as_secs()),
            labels: Some([("made-by".to_owned(), "mcp".to_owned())].into()),
            checkpoints: (settings.checkpoints == Checkpoints::EveryStep).then_some(CheckpointsName::EveryExec),
            ..CreateSandbox::default()
        };
        let created = client.post::<Sandbox>("/v1/sandboxes", &wish).await;
        if matches!(created, Err(ClientError::Unreachable { .. })) {
            self.client = None;
        }
        let toolbox = Arc::new(Toolbox::new(client.clone(), created?.id, settings.tools.clone()));
        self.own = Some(toolbox.clone());
        let directory = json!({ "path": settings.tools.directory });
        client.tell(&format!("/v1/sandboxes/{}/fs/mkdir", toolbox.sandbox()), &directory).await?;
        Ok(toolbox)
    }

    fn take_fork(&mut self, name: &str) -> Result<Arc<Toolbox>, BadCall> {
        self.forks.remove(name).ok_or_else(|| BadCall(format!("there is no fork {name:?}")))
    }

    fn take_all(&mut self) -> Vec<Arc<Toolbox>> {
        std::mem::take(&mut self.forks).into_values().chain(self.own.take()).collect()
    }
}

/// The longest that a session's sandbox lives, however much it is used.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

async fn end_all(toolboxes: &[Arc<Toolbox>]) {
    for toolbox in toolboxes {
        let path = format!("/v1/sandboxes/{}", toolbox.sandbox());
        // One that cannot be ended now ends by itself.
        match tokio::time::timeout(REMOVE_WITHIN, toolbox.client().delete(&path)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_missing() => {}
            Ok(Err(error)) => tracing::warn!(%error, sandbox = toolbox.sandbox(), "a sandbox could not be ended"),
            Err(_) => tracing::warn!(sandbox = toolbox.sandbox(), "a sandbox could not be ended in time"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let left = self.machines.get_mut().take_all();
        if left.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let alive = self.alive.clone();
            runtime.spawn(async move {
                end_all(&left).await;
                drop(alive);
            });
        }
    }
}
