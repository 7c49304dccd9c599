//! A volume's files, for whoever is not in a sandbox. The host never reads what is on a volume, so they are reached in
//! a machine: in that of a sandbox which has the volume, or in one that is made for it and ends when nobody asks any
//! more, or when a sandbox wants the volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{
    Cause, CreateSpec, EndReason, RunSpec, Sandbox, SandboxId, VolumeError, VolumeKind, VolumeView, VolumeWish,
};
use sandling_protocol::Program;
use sandling_service::WorkspaceName;

use crate::app::App;
use crate::auth::awake;
use crate::error::ApiError;
use crate::native::sandboxes::make;

/// The label of machines that are only there for a volume's files.
const LABEL: &str = "sandling.for-volume";
const TEMPLATE: &str = "base";
const MOUNT: &str = "/mnt/volume";
/// How long such a machine waits for the next request.
const IDLE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3600);
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// A volume that can be looked into.
pub(crate) struct Opened {
    pub(crate) sandbox: Arc<Sandbox>,
    mount: String,
}

/// Finds a machine that has the volume, or makes one.
pub(crate) async fn open(app: &Arc<App>, workspace: &WorkspaceName, name: &str) -> Result<Opened, ApiError> {
    // Two at once would each make a machine, and one of them be refused.
    let _one_at_a_time = app.opening.lock().await;
    let found = app.engine.find_volume(workspace.as_str(), name)?;
    let volume = found.ok_or_else(|| VolumeError::Unknown(name.to_owned()))?;
    for sandbox in holders(app, workspace.as_str(), &volume).await {
        if let Some(attached) = sandbox.info().volumes.iter().find(|attached| attached.volume == volume.info.id) {
            awake(&sandbox).await?;
            return Ok(Opened { mount: attached.mount.clone(), sandbox: sandbox.clone() });
        }
    }
    let read_only = volume.info.kind == VolumeKind::Snapshot;
    let wish = VolumeWish { name: name.to_owned(), mount: Some(MOUNT.to_owned()), read_only };
    let spec = CreateSpec {
        template: TEMPLATE.to_owned(),
        ttl: Some(LONGEST),
        idle: Some(IDLE),
        workspace: workspace.as_str().to_owned(),
        labels: BTreeMap::from([(LABEL.to_owned(), name.to_owned())]),
        volumes: vec![wish],
        ..CreateSpec::default()
    };
    let info = make(app, workspace, spec).await?;
    let sandbox = app.engine.get(&info.id).ok_or_else(|| ApiError::not_found("sandbox"))?;
    Ok(Opened { sandbox, mount: MOUNT.to_owned() })
}

/// Ends the machine that was made for a volume's files, if there is one: somebody else wants the volume.
pub(crate) async fn close(app: &App, workspace: &str, name: &str) -> Result<(), ApiError> {
    let Some(volume) = app.engine.find_volume(workspace, name)? else { return Ok(()) };
    for sandbox in holders(app, workspace, &volume).await {
        if sandbox.info().labels.contains_key(LABEL) {
            sandbox.end(EndReason::Requested).await?;
        }
    }
    Ok(())
}

async fn holders(app: &App, workspace: &str, volume: &VolumeView) -> Vec<Arc<Sandbox>> {
    let mut found = Vec::new();
    for id in volume.attached.iter().filter_map(|(id, _)| SandboxId::parse(id)) {
        found.extend(app.engine.find(workspace, &id).await);
    }
    found
}

/// What a small command said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Opened {
    /// Where a path of the volume is in the machine.
    pub(crate) fn place(&self, path: &str) -> String {
        format!("{}{}", self.mount.trim_end_matches('/'), if path == "/" { "" } else { path })
    }

    /// The same for a path that no link leads out of the volume: what runs in sandboxes makes those.
    pub(crate) async fn inside(&self, path: &str) -> Result<String, ApiError> {
        let (root, place) = (self.place("/"), self.place(path));
        let said = self.run(&["realpath", "-m", "-z", "--", &root, &place]).await?;
        let text = String::from_utf8_lossy(&said.stdout);
        let (root, real) = text.trim_end_matches('\0').split_once('\0').unwrap_or_default();
        let inside =
            !root.is_empty() && (real == root || real.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')));
        if inside { Ok(place) } else { Err(ApiError::bad_request(format!("{path} leads out of the volume"))) }
    }

    /// What is about to change it comes after a checkpoint, if its sandbox has those.
    pub(crate) async fn before(&self, app: &App, what: &str) -> Result<(), ApiError> {
        Ok(app.engine.before(&self.sandbox, Cause::Files, what).await?)
    }

    /// Runs a small command as root.
    pub(crate) async fn run(&self, argv: &[&str]) -> Result<Said, ApiError> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let spec = RunSpec {
            user: Some("root".to_owned()),
            cwd: Some("/".to_owned()),
            timeout: Some(COMMAND_WITHIN),
            ..RunSpec::new(Program::Argv(argv))
        };
        let collected = self.sandbox.run(spec)?.collect().await?;
        let stderr = String::from_utf8_lossy(&collected.stderr).trim().to_owned();
        Ok(Said { code: collected.exit.code, stdout: collected.stdout, stderr })
    }
}
