//! A build from steps, from its start to its end. It runs in the background of the request that asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;
use sandling_engine::{EndReason, Engine, LifetimeChange, Sandbox};
use sandling_network::policy::Policy;

use super::base::TemplateSource;
use super::machine::{BuildFailure, Secrets};
use super::registry::{Build, Level, Registry};
use super::stage_run::StageRun;
use super::steps::{MOST_STEPS, Plan, PlanError};
use super::uploads::{ClaimedFiles, Uploads};
use crate::images::Images;
use crate::sandboxes::Sandboxes;
use crate::store::Store;

/// A build that takes longer fails, because other builds wait for its slot.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// How long the machine of a failed build stays for a look at it.
const FAILED_TTL_SECONDS: u64 = 3600;

/// Turns a failure into the sentence that the build's log and its end show to clients.
pub type Explain = fn(BuildFailure) -> String;

/// A template to build from steps.
pub struct BuildSpec {
    pub stages: Vec<StageSpec>,
    /// The stage that becomes the template.
    pub target: usize,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    /// Ignored if the base has a larger disk.
    pub disk_mib: Option<u32>,
    pub save_as: SaveAs,
    pub cache: CacheUse,
    pub secrets: Secrets,
    pub on_failure: OnFailure,
    /// What the steps may reach, if that is less than what the operator allows.
    pub network: Option<Policy>,
    /// A remark that is stored with the template.
    pub description: Option<String>,
    /// The Debian packages that are shown with the template.
    pub packages: BTreeSet<String>,
}

/// A stage of a build. A build from code has one.
pub struct StageSpec {
    pub base: StageBase,
    /// A remark about the base for the build's log.
    pub note: Option<String>,
    pub plan: Plan,
}

/// What a stage is made from.
pub enum StageBase {
    Source(TemplateSource),
    /// An earlier stage.
    Stage(usize),
    /// Nothing: the build does not need the stage.
    Unused,
}

/// Whether results of earlier builds are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheUse {
    #[default]
    Use,
    Ignore,
}

/// What happens to the machine of a build that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    #[default]
    End,
    /// It stays for an hour, so that somebody can enter it.
    Keep,
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

impl BuildSpec {
    /// A build with one stage, as clients with their own steps describe it.
    pub fn of_steps(base: TemplateSource, note: Option<String>, plan: Plan, save_as: SaveAs) -> Self {
        Self {
            stages: vec![StageSpec { base: StageBase::Source(base), note, plan }],
            target: 0,
            vcpus: None,
            memory_mib: None,
            disk_mib: None,
            save_as,
            cache: CacheUse::default(),
            secrets: Secrets::default(),
            on_failure: OnFailure::default(),
            network: None,
            description: None,
            packages: BTreeSet::new(),
        }
    }

    /// The steps of all stages.
    pub(super) fn step_count(&self) -> usize {
        self.stages.iter().map(|stage| stage.plan.actions.len()).sum()
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.step_count() > MOST_STEPS {
            return Err(PlanError::TooManySteps);
        }
        self.stages.iter().try_for_each(|stage| stage.plan.check())
    }
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
    pub(super) images: Arc<Images>,
    pub registry: Registry,
    pub uploads: Arc<Uploads>,
}

impl Builds {
    pub(crate) fn open(
        engine: Arc<Engine>,
        sandboxes: Arc<Sandboxes>,
        images: Arc<Images>,
        store: Arc<Store>,
        owner: Arc<Owner>,
    ) -> Result<Self, StoreError> {
        let uploads = Arc::new(Uploads::new(engine.clone(), sandboxes.clone()));
        Ok(Self { engine, sandboxes, images, registry: Registry::open(store, owner)?, uploads })
    }

    /// Starts a registered build, if its plan can be carried out.
    pub fn start(self: &Arc<Self>, build: Arc<Build>, spec: BuildSpec, explain: Explain) -> Result<(), StartError> {
        spec.check()?;
        if !build.queue() {
            return Err(StartError::Begun);
        }
        let actions = spec.stages.iter().flat_map(|stage| &stage.plan.actions);
        let copied = actions.flat_map(|action| action.uploads()).map(str::to_owned);
        let files = ClaimedFiles::new(&self.uploads, &build.workspace, copied.collect());
        let builds = self.clone();
        tokio::spawn(async move {
            let slot = build.wait_for(&builds.registry.slots).await;
            let result = builds.run(&build, &spec, explain).await;
            drop((slot, files));
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

    /// Carries out a registered build that takes no steps in a machine, such as a copy of another node's template. The work
    /// returns the size of the template, or why it failed.
    pub fn start_other<F>(self: &Arc<Self>, build: Arc<Build>, work: F)
    where
        F: Future<Output = Result<u64, String>> + Send + 'static,
    {
        let builds = self.clone();
        tokio::spawn(async move {
            build.set_running();
            let result = work.await;
            if builds.engine.is_closing() {
                // The next server stores that it was interrupted.
                return;
            }
            if let Err(why) = &result {
                build.log(why, Level::Error, None);
            }
            builds.registry.ended(&build, result.map_err(|why| (why, "base".to_owned())));
        });
    }

    /// Ends a registered build that cannot find its base, instead of starting it.
    pub fn fail_at_base(&self, build: &Build, why: String) -> Result<(), StartError> {
        if !build.queue() {
            return Err(StartError::Begun);
        }
        build.log(&why, Level::Error, None);
        self.registry.ended(build, Err((why, "base".to_owned())));
        Ok(())
    }

    /// Runs a build and returns the size of its result, or a message and the step that failed.
    async fn run(&self, build: &Arc<Build>, spec: &BuildSpec, explain: Explain) -> Result<u64, (String, String)> {
        let mut run = StageRun::new(self, build, spec, explain);
        let result = tokio::time::timeout(LONGEST, run.all()).await;
        let result = result.unwrap_or_else(|_| Err((explain(BuildFailure::TooLong), "base".to_owned())));
        // Saved or not, the machine is no longer needed.
        if let Some(machine) = run.machine.take() {
            match (&result, spec.on_failure) {
                (Err(_), OnFailure::Keep) => leave(build, &machine).await,
                _ => drop(machine.end(EndReason::Requested).await),
            }
        }
        result
    }
}

/// Leaves the machine of a failed build for a while.
async fn leave(build: &Build, machine: &Arc<Sandbox>) {
    let change = LifetimeChange { ttl_seconds: Some(Some(FAILED_TTL_SECONDS)), ..LifetimeChange::default() };
    if machine.set_lifetime(change).await.is_ok() {
        build.leave_machine(machine.id().as_str());
    }
}
