//! Carries out the stages of a build, as far as no earlier build has done the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandling_builder::{DIRECTORY, Job};
use sandling_engine::store::StoreError;
use sandling_engine::{
    CreateSpec, NetworkSpec, ProcessDefaults, Sandbox, SandboxSettings, SnapshotId, SnapshotInfo, Step,
};

use super::base::TemplateSource;
use super::context::Context;
use super::input::Input;
use super::keys::{StageKeys, base_key, stage_keys};
use super::machine::{BuildFailure, BuildMachine};
use super::package_errors;
use super::registry::{Build, Level};
use super::start::{BuildSpec, Builds, CacheUse, Explain, SaveAs, StageBase};
use super::step_cache;
use super::steps::{Action, FileSource, RunMount};
use super::uploads::UploadError;
use super::warm;
use crate::sandboxes::template_size;
use crate::workspaces::WorkspaceName;

/// The TTL of a build's machine, in case nobody ends it.
const MACHINE_TTL: Duration = Duration::from_secs(6 * 3600);
const PACKED: &str = "/.sandling-build/packed";

/// A message and the step that failed.
pub(super) type Failed = (String, String);

/// What a machine is made from.
#[derive(Clone)]
struct Origin {
    template: String,
    snapshot: Option<SnapshotId>,
}

pub(super) struct StageRun<'a> {
    builds: &'a Builds,
    build: &'a Arc<Build>,
    spec: &'a BuildSpec,
    explain: Explain,
    contexts: HashMap<String, Arc<Context>>,
    keys: Vec<Option<StageKeys>>,
    /// How many steps of each stage need not run, and the snapshot after them.
    done: Vec<Option<(usize, SnapshotInfo)>>,
    origins: Vec<Option<Origin>>,
    /// The number of the step before each stage's first.
    offsets: Vec<usize>,
    /// The machine in which steps run now.
    pub(super) machine: Option<Arc<Sandbox>>,
}

impl<'a> StageRun<'a> {
    pub(super) fn new(builds: &'a Builds, build: &'a Arc<Build>, spec: &'a BuildSpec, explain: Explain) -> Self {
        let count = spec.stages.len();
        let offsets = spec.stages.iter().scan(0, |sum, stage| {
            let before = *sum;
            *sum += stage.plan.actions.len();
            Some(before)
        });
        Self {
            builds,
            build,
            spec,
            explain,
            contexts: HashMap::new(),
            keys: vec![None; count],
            done: vec![None; count],
            origins: vec![None; count],
            offsets: offsets.collect(),
            machine: None,
        }
    }

    /// Runs all stages that are needed, and returns the size of the result.
    pub(super) async fn all(&mut self) -> Result<u64, Failed> {
        let (spec, explain) = (self.spec, self.explain);
        let at_base = |failure| (explain(failure), "base".to_owned());
        self.prepare().await.map_err(at_base)?;
        if let Some(bytes) = self.unchanged().await.map_err(at_base)? {
            return Ok(bytes);
        }
        let order = (spec.target + 1..spec.stages.len()).chain(0..=spec.target);
        let needed = self.needed();
        for at in order.filter(|at| needed[*at]) {
            if let Some(machine) = self.machine.take() {
                let _ = machine.end(sandling_engine::EndReason::Requested).await;
            }
            self.stage(at).await?;
        }
        self.finish().await.map_err(|failure| (explain(failure), "finalize".to_owned()))
    }

    /// Reads the uploaded directory and computes all keys.
    async fn prepare(&mut self) -> Result<(), BuildFailure> {
        let spec = self.spec;
        for action in spec.stages.iter().flat_map(|stage| &stage.plan.actions) {
            for from in action.files() {
                let FileSource::Context { hash, sources, .. } = from else { continue };
                if self.contexts.contains_key(hash) {
                    continue;
                }
                let path = self.builds.uploads.path(&self.build.workspace, hash)?;
                let opening = tokio::task::spawn_blocking(move || Context::open(&path));
                let opened = opening.await.map_err(|error| BuildFailure::Archive(std::io::Error::other(error)))?;
                let context = opened.map_err(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => BuildFailure::NoFiles(sources.join(" ")),
                    _ => BuildFailure::Archive(error),
                })?;
                self.contexts.insert(hash.clone(), Arc::new(context));
            }
        }
        let mut ends: Vec<Option<String>> = vec![None; spec.stages.len()];
        let order = (spec.target + 1..spec.stages.len()).chain(0..=spec.target);
        for at in order {
            let stage = &spec.stages[at];
            let base = match &stage.base {
                StageBase::Unused => continue,
                StageBase::Stage(base) => ends[*base].clone().unwrap_or_default(),
                StageBase::Source(source) => base_key(&self.describe(source)?),
            };
            let keys = stage_keys(&base, &stage.plan, &self.contexts, &ends)?;
            // A later stage depends on the files, and not on what the stage would run.
            ends[at] = Some(keys.after.last().cloned().unwrap_or(base));
            self.keys[at] = Some(keys);
        }
        for at in 0..spec.stages.len() {
            self.done[at] = self.find_done(at)?;
        }
        Ok(())
    }

    /// What identifies a base and the size of its machine.
    fn describe(&self, source: &TemplateSource) -> Result<String, BuildFailure> {
        let identity = source.identity(&self.builds.engine, &self.build.workspace)?;
        let spec = self.spec;
        Ok(format!("{identity} {:?} {:?} {:?}", spec.vcpus, spec.memory_mib, spec.disk_mib))
    }

    /// The last step of a stage whose result is stored.
    fn find_done(&self, at: usize) -> Result<Option<(usize, SnapshotInfo)>, BuildFailure> {
        let (Some(keys), CacheUse::Use) = (&self.keys[at], self.spec.cache) else { return Ok(None) };
        let actions = &self.spec.stages[at].plan.actions;
        for (number, (action, key)) in actions.iter().zip(&keys.after).enumerate().rev() {
            if action.changes_disk()
                && let Some(found) = step_cache::find(&self.builds.engine, &self.build.workspace, key)?
            {
                return Ok(Some((number + 1, found)));
            }
        }
        Ok(None)
    }

    /// Names the result of an earlier build that was the same.
    async fn unchanged(&self) -> Result<Option<u64>, BuildFailure> {
        let (SaveAs::Template { name, replace }, CacheUse::Use) = (&self.spec.save_as, self.spec.cache) else {
            return Ok(None);
        };
        let Some(keys) = &self.keys[self.spec.target] else { return Ok(None) };
        let Some(found) = step_cache::find(&self.builds.engine, &self.build.workspace, &keys.end)? else {
            return Ok(None);
        };
        self.log_done(self.spec.target, self.spec.stages[self.spec.target].plan.actions.len());
        self.builds.name_template(&self.build.workspace, &found, name, *replace, self.spec.description.as_deref())?;
        self.build.log(&format!("saved as {name}"), Level::Info, None);
        Ok(Some(found.memory_bytes + found.disk_bytes))
    }

    /// Which stages have to run or to be there, because a step that runs uses them.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.spec.stages.len()];
        needed[self.spec.target] = true;
        for at in (0..=self.spec.target).rev() {
            if !needed[at] {
                continue;
            }
            let stage = &self.spec.stages[at];
            let skipped = self.done[at].as_ref().map_or(0, |(count, _)| *count);
            if let (StageBase::Stage(base), 0) = (&stage.base, skipped) {
                needed[*base] = true;
            }
            for from in stage.plan.actions[skipped..].iter().flat_map(|action| action.files()) {
                if let FileSource::Stage { stage, .. } = from {
                    needed[*stage] = true;
                }
            }
        }
        needed
    }

    fn log_done(&self, at: usize, count: usize) {
        for (number, action) in self.spec.stages[at].plan.actions[..count].iter().enumerate() {
            let number = self.offsets[at] + number + 1;
            self.build.log(&format!("[{number}] CACHED {}", action.describe()), Level::Info, Some(number));
        }
    }

    async fn stage(&mut self, at: usize) -> Result<(), Failed> {
        let spec = self.spec;
        let stage = &spec.stages[at];
        if let Some(note) = &stage.note {
            self.build.log(note, Level::Warn, None);
        }
        let explain = self.explain;
        let at_base = |failure| (explain(failure), "base".to_owned());
        let skipped = self.done[at].as_ref().map_or(0, |(count, _)| *count);
        let mut origin = self.begin(at).await.map_err(at_base)?;
        self.log_done(at, skipped);
        let rest = &stage.plan.actions[skipped..];
        let is_target = at == spec.target;
        if is_target || rest.iter().any(|action| action.changes_disk()) {
            let base = self.base_defaults(at).map_err(BuildFailure::from).map_err(at_base)?;
            let outcome = stage.plan.outcome(base.clone());
            let config = stage.plan.config.as_ref().and_then(|config| serde_json::to_value(config).ok());
            let sandbox = self.create(&origin, at, outcome, config).await.map_err(at_base)?;
            self.machine = Some(sandbox.clone());
            let mut machine = BuildMachine::new(self.build, &sandbox, base, stage.plan.defaults);
            stage.plan.actions[..skipped].iter().for_each(|action| machine.replay(action));
            for (number, action) in (skipped..).zip(rest) {
                let shown = self.offsets[at] + number + 1;
                self.build.log(&format!("[{shown}] {}", action.describe()), Level::Info, Some(shown));
                let done = self.step(&mut machine, shown, action).await;
                done.map_err(|failure| (self.failed(shown, action, failure), shown.to_string()))?;
                if action.changes_disk()
                    && let Some(keys) = &self.keys[at]
                {
                    let saved = step_cache::save(self.builds, self.build, &sandbox, &keys.after[number]).await;
                    let saved = saved.map_err(|failure| (explain(failure), shown.to_string()))?;
                    let must_stay = !is_target && !rest[number - skipped + 1..].iter().any(Action::changes_disk);
                    match saved {
                        Some(info) => origin.snapshot = Some(info.id),
                        None if must_stay => return Err((explain(BuildFailure::NoRoomForStage), shown.to_string())),
                        None => {}
                    }
                }
            }
        }
        self.origins[at] = Some(origin);
        Ok(())
    }

    /// Says which step failed and, if the builder or a package manager said so, why.
    fn failed(&self, number: usize, action: &Action, failure: BuildFailure) -> String {
        let exited = matches!(failure, BuildFailure::Exit(_));
        let said = format!("{}: {}", action.name(), (self.explain)(failure));
        let progress = self.build.progress();
        let progress = progress.borrow();
        let mut lines = progress.lines.iter().filter(|line| line.step == Some(number)).map(|line| line.text.as_str());
        let cause = match action {
            Action::Run { .. } => package_errors::cause(lines),
            _ => lines.next_back().map(str::to_owned),
        };
        cause.filter(|_| exited).map_or(said.clone(), |cause| format!("{said}: {cause}"))
    }

    /// What the machine of a stage is made from. An image is pulled.
    async fn begin(&self, at: usize) -> Result<Origin, BuildFailure> {
        let source = match &self.spec.stages[at].base {
            StageBase::Stage(base) if self.done[at].is_none() => {
                return self.origins[*base].clone().ok_or(BuildFailure::NoStage);
            }
            StageBase::Stage(_) | StageBase::Unused => None,
            StageBase::Source(source) => Some(source),
        };
        if let Some((_, snapshot)) = &self.done[at] {
            return Ok(Origin { template: snapshot.template.clone(), snapshot: Some(snapshot.id.clone()) });
        }
        let Some(source) = source else { return Err(BuildFailure::NoStage) };
        let workspace = self.workspace()?;
        let (logged, last) = (self.build.clone(), Mutex::new(String::new()));
        // The log has each step once, and not how far it got.
        let on_step = move |step: Step| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if *last != step.text {
                logged.log(&step.text, Level::Info, None);
                last.clone_from(&step.text);
            }
        };
        let (template, snapshot) = match source.to_pull() {
            Some(named) => (self.builds.images.ensure(&workspace, named, Arc::new(on_step)).await?, None),
            None if source.is_scratch() => (self.builds.images.scratch(&workspace, Arc::new(on_step)).await?, None),
            None => source.origin().unwrap_or_default(),
        };
        Ok(Origin { template, snapshot })
    }

    fn workspace(&self) -> Result<WorkspaceName, BuildFailure> {
        Ok(WorkspaceName::parse(&self.build.workspace).ok_or(UploadError::NoWorkspace)?)
    }

    /// What applies to processes before a stage's first step.
    fn base_defaults(&self, at: usize) -> Result<ProcessDefaults, StoreError> {
        let stage = &self.spec.stages[at];
        Ok(match &stage.base {
            StageBase::Source(source) => source.process_defaults(&self.builds.engine, &self.build.workspace)?,
            StageBase::Stage(base) => self.spec.stages[*base].plan.outcome(self.base_defaults(*base)?),
            StageBase::Unused => ProcessDefaults::default(),
        })
    }

    async fn create(
        &self,
        origin: &Origin,
        at: usize,
        process: ProcessDefaults,
        image_config: Option<serde_json::Value>,
    ) -> Result<Arc<Sandbox>, BuildFailure> {
        let policy = self.spec.network.clone().or_else(|| Some(self.builds.engine.config().network.builds.clone()));
        let packages = self.spec.packages.clone();
        let for_build = Some(self.build.id.clone());
        let mut create = CreateSpec {
            template: origin.template.clone(),
            from_snapshot: origin.snapshot.clone(),
            ttl: Some(MACHINE_TTL),
            workspace: self.build.workspace.clone(),
            settings: SandboxSettings { process, for_build, image_config, packages, ..SandboxSettings::default() },
            network: NetworkSpec { policy, ..NetworkSpec::default() },
            ..CreateSpec::default()
        };
        let spec = self.spec;
        let sized = match &spec.stages[at].base {
            StageBase::Source(source) => source.takes_a_size(),
            StageBase::Stage(_) | StageBase::Unused => false,
        };
        if sized && origin.snapshot.is_none() {
            let size = template_size(&self.builds.engine, &self.build.workspace, &create.template);
            let least = size.map_err(crate::sandboxes::CreateError::from)?.disk_mib;
            (create.vcpus, create.memory_mib) = (spec.vcpus, spec.memory_mib);
            create.disk_mib = spec.disk_mib.filter(|wanted| *wanted > least);
        } else if !sized && (spec.vcpus.is_some() || spec.memory_mib.is_some()) {
            let message = "a template on top of another has the size of its base; the requested size is ignored";
            self.build.log(message, Level::Warn, None);
        }
        step_cache::with_room(self.builds, &self.build.workspace, || {
            let create = create.clone();
            async { Ok::<_, BuildFailure>(self.builds.sandboxes.create(&self.workspace()?, create).await?) }
        })
        .await
    }

    async fn step(&self, machine: &mut BuildMachine, number: usize, action: &Action) -> Result<(), BuildFailure> {
        let mut inputs = Vec::new();
        for from in action.files() {
            match from {
                FileSource::Context { hash, sources, excludes } => {
                    let missing = || BuildFailure::NoFiles(sources.join(" "));
                    let context = self.contexts.get(hash).cloned().ok_or_else(missing)?;
                    let (sources, excludes) = (sources.clone(), excludes.clone());
                    inputs.push(Input::Context { context, sources, excludes });
                }
                FileSource::Text(files) => inputs.push(Input::Text(files.clone())),
                FileSource::Stage { stage, sources } => inputs.push(self.packed(*stage, number, sources).await?),
                FileSource::Url { .. } => {}
            }
        }
        if let Action::Copy { hash, source, .. } = action {
            let path = self.builds.uploads.path(&self.build.workspace, hash)?;
            let missing = |_| BuildFailure::NoFiles(source.clone());
            inputs.push(Input::Archive(tokio::fs::File::open(&path).await.map_err(missing)?));
        }
        machine.step(number, action, inputs, &self.spec.secrets).await
    }

    /// Files of another stage, which a machine of that stage packs.
    async fn packed(&self, stage: usize, number: usize, sources: &[String]) -> Result<Input, BuildFailure> {
        let origin = self.origins.get(stage).cloned().flatten().ok_or(BuildFailure::NoStage)?;
        let sandbox = self.create(&origin, stage, ProcessDefaults::default(), None).await?;
        let machine = BuildMachine::new(self.build, &sandbox, ProcessDefaults::default(), Default::default());
        let job = Job::Pack { sources: sources.to_vec(), file: PACKED.to_owned() };
        let packed = machine.job(number, &job, None).await;
        let download = match packed {
            Ok(()) => sandbox.read_file(PACKED, 0, None).map_err(BuildFailure::from),
            Err(failure) => Err(failure),
        };
        match download {
            Ok(download) => Ok(Input::Packed { download: Box::new(download), machine: sandbox }),
            Err(failure) => {
                let _ = sandbox.end(sandling_engine::EndReason::Requested).await;
                Err(failure)
            }
        }
    }

    /// Starts what the template runs, runs its warm commands, and saves the machine.
    async fn finish(&self) -> Result<u64, BuildFailure> {
        let stage = &self.spec.stages[self.spec.target];
        let sandbox = self.machine.as_ref().ok_or(BuildFailure::NoStage)?;
        let base = stage.plan.outcome(self.base_defaults(self.spec.target)?);
        let machine = BuildMachine::new(self.build, sandbox, base, stage.plan.defaults);
        if self.leaves_files() {
            machine.job(self.offsets[self.spec.target] + stage.plan.actions.len(), &Job::Finish, None).await?;
        }
        if let Some(start) = &stage.plan.start {
            machine.start(start, stage.plan.ready.as_deref()).await?;
        }
        warm::run(&machine, self.spec.step_count(), &stage.plan.warm).await?;
        let key = self.keys[self.spec.target].as_ref().map(|keys| keys.end.as_str());
        self.builds.save(self.build, sandbox, self.spec, key).await
    }

    /// Whether the builder has files on the disk that the template must not have. Stages below may have left some, too.
    fn leaves_files(&self) -> bool {
        debug_assert!(PACKED.starts_with(DIRECTORY));
        self.spec.stages.iter().flat_map(|stage| &stage.plan.actions).any(|action| match action {
            Action::Run { mounts, .. } => mounts.iter().any(|mount| !matches!(mount, RunMount::Tmpfs { .. })),
            Action::Place(place) => matches!(place.from, FileSource::Url { .. }),
            Action::Copy { .. } => true,
            Action::Env(_)
            | Action::Arg(_)
            | Action::Workdir(_)
            | Action::User(_)
            | Action::KnownUser(_)
            | Action::Note(_) => false,
        })
    }
}
