//! Access to a volume's files from outside a sandbox.
//!
//! The host never reads a volume's file system. The files are reached in the machine of a sandbox that has the volume,
//! or in a machine that is made for them. Such a machine ends when no request has come for a while, or when a sandbox
//! needs the volume.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::store::StoreError;
use sandling_engine::{
    Cause, ChangeError, CheckpointError, CreateSpec, Engine, RunError, RunSpec, Sandbox, SandboxId, SandboxSettings,
    UseError, VolumeError, VolumeKind, VolumeSpec,
};
use sandling_protocol::Program;
use tokio::sync::Mutex;

use crate::sandboxes::{CreateError, Sandboxes};
use crate::workspaces::WorkspaceName;

const TEMPLATE: &str = "base";
const MOUNT: &str = "/mnt/volume";
/// How long a machine that serves a volume's files waits for the next request.
const IDLE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3600);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum OpenVolumeError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Wake(#[from] ChangeError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    #[error("{0} leads out of the volume")]
    Outside(String),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

pub struct VolumeFiles {
    engine: Arc<Engine>,
    sandboxes: Arc<Sandboxes>,
    /// Held while a machine is found: two requests at once would each make one, and one of them would be refused.
    opening: Mutex<()>,
}

/// A volume whose files can be reached.
pub struct OpenVolume {
    engine: Arc<Engine>,
    pub sandbox: Arc<Sandbox>,
    mount: String,
}

/// The output of a small command.
pub struct CommandOutput {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl VolumeFiles {
    pub(crate) fn new(engine: Arc<Engine>, sandboxes: Arc<Sandboxes>) -> Self {
        Self { engine, sandboxes, opening: Mutex::default() }
    }

    /// Finds a machine that has the volume, or makes one.
    pub async fn open(&self, workspace: &WorkspaceName, name: &str) -> Result<OpenVolume, OpenVolumeError> {
        let _opening = self.opening.lock().await;
        let found = self.engine.volumes().find(workspace.as_str(), name)?;
        let volume = found.ok_or_else(|| VolumeError::Unknown(name.to_owned()))?;
        for id in volume.attached.iter().filter_map(|(id, _)| SandboxId::parse(id)) {
            let Some(sandbox) = self.engine.find(workspace.as_str(), &id).await else { continue };
            if let Some(attached) = sandbox.info().volumes.iter().find(|attached| attached.volume == volume.info.id) {
                if sandbox.hibernates() {
                    sandbox.wake().await?;
                }
                return Ok(self.opened(sandbox, attached.mount.clone()));
            }
        }
        let read_only = volume.info.kind == VolumeKind::Snapshot;
        let attachment = VolumeSpec { name: name.to_owned(), mount: Some(MOUNT.to_owned()), read_only };
        let spec = CreateSpec {
            template: TEMPLATE.to_owned(),
            ttl: Some(LONGEST),
            idle: Some(IDLE),
            workspace: workspace.as_str().to_owned(),
            settings: SandboxSettings { for_volume: Some(name.to_owned()), ..SandboxSettings::default() },
            volumes: vec![attachment],
            ..CreateSpec::default()
        };
        let sandbox = self.sandboxes.create(workspace, spec).await?;
        Ok(self.opened(sandbox, MOUNT.to_owned()))
    }

    fn opened(&self, sandbox: Arc<Sandbox>, mount: String) -> OpenVolume {
        OpenVolume { engine: self.engine.clone(), sandbox, mount }
    }
}

impl OpenVolume {
    /// The path in the machine of a path on the volume.
    pub fn place(&self, path: &str) -> String {
        format!("{}{}", self.mount.trim_end_matches('/'), if path == "/" { "" } else { path })
    }

    /// Like [`Self::place`], but refuses a path that a symbolic link leads out of the volume. Code in sandboxes can make
    /// such links.
    pub async fn inside(&self, path: &str) -> Result<String, VolumeFileError> {
        let (root, place) = (self.place("/"), self.place(path));
        let output = self.run(&["realpath", "-m", "-z", "--", &root, &place]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (root, real) = text.trim_end_matches('\0').split_once('\0').unwrap_or_default();
        let inside =
            !root.is_empty() && (real == root || real.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')));
        if inside { Ok(place) } else { Err(VolumeFileError::Outside(path.to_owned())) }
    }

    /// Makes a checkpoint before a change, if the sandbox has checkpoints.
    pub async fn before(&self, what: &str) -> Result<(), VolumeFileError> {
        Ok(self.engine.before(&self.sandbox, Cause::Files, what).await?)
    }

    /// Runs a small command as root.
    pub async fn run(&self, argv: &[&str]) -> Result<CommandOutput, VolumeFileError> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let spec = RunSpec {
            user: Some("root".to_owned()),
            cwd: Some("/".to_owned()),
            timeout: Some(COMMAND_TIMEOUT),
            ..RunSpec::new(Program::Argv(argv))
        };
        let collected = self.sandbox.run(spec)?.collect().await?;
        let stderr = String::from_utf8_lossy(&collected.stderr).trim().to_owned();
        Ok(CommandOutput { code: collected.exit.code, stdout: collected.stdout, stderr })
    }
}
