//! A build from steps, from its start to its end. It runs in the background of the request that asked for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::store::StoreError;
use sandling_engine::{
    CreateSpec, EndReason, Engine, NetworkSpec, ProcessDefaults, Sandbox, SandboxSettings, SnapshotInfo, TemplateError,
};

use super::base::TemplateSource;
use super::machine::{BuildFailure, BuildMachine};
use super::registry::{Build, Level, RegisterError, Registry};
use super::steps::{Action, Plan, PlanError};
use super::uploads::{ClaimedFiles, UploadError, Uploads};
use crate::presence::Presence;
use crate::sandboxes::{Sandboxes, template_size};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// The metadata of a build's machine that names the build.
pub(super) const BUILD: &str = "build";
/// The TTL of a build's machine, in case nobody ends it.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// The directory of the home that holds uploaded files.
const UPLOADS: &str = "uploads";

/// Turns a failure into the sentence that the build's log and its end show to clients.
pub type Explain = fn(BuildFailure) -> String;

/// A template to build from steps.
pub struct BuildSpec {
    pub base: TemplateSource,
    /// A remark about the base for the build's log.
    pub note: Option<String>,
    pub plan: Plan,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    /// Ignored if the base has a larger disk.
    pub disk_mib: Option<u32>,
    pub save_as: SaveAs,
}

/// What the machine is saved as.
pub enum SaveAs {
    /// A snapshot for each of these names. It replaces the snapshot that has the name.
    Snapshots(Vec<String>),
    Template {
        name: String,
        replace: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("this build has begun already")]
    Begun,
}

/// The builds of all workspaces of a home.
pub struct Builds {
    pub(super) engine: Arc<Engine>,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) registry: Registry,
    pub(super) uploads: Arc<Uploads>,
}

impl Builds {
    pub(crate) fn open(
        engine: Arc<Engine>,
        sandboxes: Arc<Sandboxes>,
        store: Arc<Store>,
        presence: Arc<Presence>,
    ) -> Result<Self, StoreError> {
        let uploads = Arc::new(Uploads::new(engine.config().home.root().join(UPLOADS)));
        Ok(Self { engine, sandboxes, registry: Registry::open(store, presence)?, uploads })
    }

    /// Registers a build that is yet to start.
    pub fn register(&self, workspace: &str, name: &str) -> Result<Arc<Build>, RegisterError> {
        self.registry.register(workspace, name)
    }

    /// A build of this workspace.
    pub fn find(&self, workspace: &str, id: &str) -> Option<Arc<Build>> {
        self.registry.find(workspace, id)
    }

    /// The builds of a workspace, newest first.
    pub fn list(&self, workspace: &str) -> Vec<Arc<Build>> {
        self.registry.list(workspace)
    }

    /// Whether any build is queued or running.
    pub fn any_running(&self) -> bool {
        self.registry.any_running()
    }

    /// Starts a registered build, if its plan can be carried out.
    pub fn start(self: &Arc<Self>, build: Arc<Build>, spec: BuildSpec, explain: Explain) -> Result<(), StartError> {
        spec.plan.check()?;
        if !build.queue() {
            return Err(StartError::Begun);
        }
        let copied = spec.plan.actions.iter().filter_map(|action| match action {
            Action::Copy { hash, .. } => Some(hash.clone()),
            _ => None,
        });
        let files = ClaimedFiles::new(&self.uploads, &build.workspace, copied.collect());
        let builds = self.clone();
        tokio::spawn(async move {
            let slot = builds.registry.machine_slot(&build.workspace);
            let permit = slot.acquire().await;
            build.set_running();
            let result = builds.run(&build, &spec, explain).await;
            drop((permit, files));
            if builds.engine.is_closing() {
                // This server gave up the machine half-way. The next one ends it, and stores that the build failed.
                return;
            }
            if let Err((message, _)) = &result {
                build.log(message, Level::Error, None);
            }
            builds.registry.ended(&build, result);
        });
        Ok(())
    }

    /// Runs a build and returns the size of its result, or a message and the step that failed.
    async fn run(&self, build: &Arc<Build>, spec: &BuildSpec, explain: Explain) -> Result<u64, (String, String)> {
        if let Some(note) = &spec.note {
            build.log(note, Level::Warn, None);
        }
        let base = spec.base.process_defaults();
        let created = self.create_machine(build, spec, spec.plan.outcome(base.clone())).await;
        let sandbox = created.map_err(|failure| (explain(failure), "base".to_owned()))?;
        let mut machine = BuildMachine::new(build, &sandbox, &self.uploads, base, spec.plan.defaults);
        let result = self.run_steps(&mut machine, spec, explain).await;
        // Saved or not, the machine is no longer needed.
        let _ = sandbox.end(EndReason::Requested).await;
        result
    }

    async fn create_machine(
        &self,
        build: &Build,
        spec: &BuildSpec,
        defaults: ProcessDefaults,
    ) -> Result<Arc<Sandbox>, BuildFailure> {
        let workspace = WorkspaceName::parse(&build.workspace).ok_or(UploadError::NoWorkspace)?;
        let (template, from_snapshot) = spec.base.origin();
        let policy = Some(self.engine.config().network.builds.clone());
        let mut create = CreateSpec {
            template,
            from_snapshot,
            ttl: Some(LONGEST),
            workspace: build.workspace.clone(),
            metadata: BTreeMap::from([(BUILD.to_owned(), build.id.clone())]),
            settings: SandboxSettings { process: defaults, ..SandboxSettings::default() },
            network: NetworkSpec { policy, ..NetworkSpec::default() },
            ..CreateSpec::default()
        };
        match &spec.base {
            TemplateSource::Template(name) => {
                let size = template_size(&self.engine, &build.workspace, name);
                let least = size.map_err(crate::sandboxes::CreateError::from)?.disk_mib;
                (create.vcpus, create.memory_mib) = (spec.vcpus, spec.memory_mib);
                create.disk_mib = spec.disk_mib.filter(|wanted| *wanted > least);
            }
            TemplateSource::Saved { .. } | TemplateSource::Snapshot(_)
                if spec.vcpus.is_some() || spec.memory_mib.is_some() =>
            {
                let message = "a template on top of another has the size of its base; the requested size is ignored";
                build.log(message, Level::Warn, None);
            }
            TemplateSource::Saved { .. } | TemplateSource::Snapshot(_) => {}
        }
        Ok(self.sandboxes.create(&workspace, create).await?)
    }

    async fn run_steps(
        &self,
        machine: &mut BuildMachine,
        spec: &BuildSpec,
        explain: Explain,
    ) -> Result<u64, (String, String)> {
        for (number, action) in (1..).zip(&spec.plan.actions) {
            let done = machine.step(number, action).await;
            done.map_err(|failure| (format!("{}: {}", action.name(), explain(failure)), number.to_string()))?;
        }
        let finished = async {
            if let Some(start) = &spec.plan.start {
                machine.start(start, spec.plan.ready.as_deref()).await?;
            }
            self.save(&machine.build, &machine.sandbox, &spec.save_as).await
        };
        finished.await.map_err(|failure| (explain(failure), "finalize".to_owned()))
    }

    /// Saves the machine, and returns how many bytes that took.
    async fn save(&self, build: &Build, sandbox: &Arc<Sandbox>, save_as: &SaveAs) -> Result<u64, BuildFailure> {
        let workspace = build.workspace.as_str();
        let mut bytes = 0;
        match save_as {
            SaveAs::Snapshots(names) => {
                for name in names {
                    let mut all = self.engine.snapshots().list(workspace)?.into_iter();
                    let older = all.rfind(|info| info.name.as_ref() == Some(name));
                    let (info, _) = self.engine.snapshot(sandbox, Some(name.clone()), None).await?;
                    bytes += size(&info);
                    build.log(&format!("saved as {}", info.id), Level::Info, None);
                    if let Some(older) = older {
                        self.engine.snapshots().delete(workspace, &older.id).await?;
                    }
                }
            }
            SaveAs::Template { name, replace } => {
                let (info, _) = self.engine.snapshot(sandbox, None, None).await?;
                bytes = size(&info);
                let named = self.name_template(workspace, &info, name, *replace);
                // The template keeps the snapshot. Deleting it here drops it if it could not be named, and drops the
                // snapshot that had the name before.
                self.engine.snapshots().delete(workspace, &info.id).await?;
                named?;
                build.log(&format!("saved as {name}"), Level::Info, None);
            }
        }
        Ok(bytes)
    }

    fn name_template(
        &self,
        workspace: &str,
        info: &SnapshotInfo,
        name: &str,
        replace: bool,
    ) -> Result<(), TemplateError> {
        let description = format!("built from steps on {}", info.template);
        if replace && self.engine.snapshots().change_template(workspace, name, info, &description)? {
            return Ok(());
        }
        self.engine.template_from_snapshot(workspace, info, name, &description).map(drop)
    }
}

fn size(info: &SnapshotInfo) -> u64 {
    info.memory_bytes + info.disk_bytes
}
