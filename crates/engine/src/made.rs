//! Machines that were made and not yet handed out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::{CellSpec, ContextSpec, ExecSpec, Language, OnLimit, Program, Request, Stdin};
use sandling_vmm::boundary::CgroupLimits;
use sandling_vmm::jail::{JailConfig, Limits, Requirement};
use sandling_vmm::machine::{Disk, Hardware, Layer, Machine, MachineConfig, MachineDir, MachineError, Plug, Start};

use sandling_vmm::memory::Memory;
use sandling_vmm::qmp::QmpError;

use crate::identify::{IdentifyError, identify};
use crate::link::{Link, LinkError};
use crate::process_cache::{Cached, Fallback, ProcessCache};
use crate::recover::ENGINE_FILE;
use crate::sandbox::{Live, SandboxId};
use crate::template::Template;

/// A restored guest that has not answered within this time never will.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A guest of a cached process answers in milliseconds. After this time it is faster to restore another machine.
const CACHED_ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often a machine does each thing it will be asked for, so that emulated code is translated already.
pub(crate) const EXERCISES: u32 = 2;
/// What agents run first, more often than not. A template that has not all of it does the rest.
const ORDINARY: &str = "cd /tmp; for round in 1 2; do ls -la / | grep -c root; cat /etc/os-release | head -3 | wc -l; \
    mkdir exercise && echo print > exercise/a.py && find exercise -name '*.py' && rm -r exercise; env; uname -a; \
    python3 -c 'import json, os, re, subprocess, sys; print(json.dumps(sys.path))'; \
    python3 -m compileall -h; git --version; done >/dev/null 2>&1; true";
/// A spare interpreter of a large template takes seconds to make on a busy host.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// The name of a machine's own disk in its directory.
pub(crate) const DISK: &str = "disk.qcow2";
/// Each machine of a privileged engine runs under a user of its own, from here on.
const FIRST_UID: u32 = 700_000;
/// What QEMU itself may take on top of the guest's memory: translated code, buffers, its own text.
const EMULATOR_BYTES: u64 = 576 << 20;

#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("the machine's directory cannot be written; is the disk full?")]
    Directory(#[source] std::io::Error),
    #[error("the machine did not start")]
    Machine(#[from] MachineError),
    #[error("its control socket does not answer")]
    Socket(#[source] std::io::Error),
    #[error("its guest does not answer")]
    Guest(#[from] LinkError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
}

impl MakeError {
    /// What this error of a machine with a cached process says about the process.
    fn fallback(&self) -> Fallback {
        match self {
            Self::Guest(_) | Self::Machine(MachineError::Qmp(QmpError::TimedOut { .. })) => Fallback::Silent,
            _ => Fallback::Failed,
        }
    }
}

/// What a machine is restored from: a template's bake, or a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) hardware: Hardware,
    pub(crate) memory: Memory,
    pub(crate) state: PathBuf,
    /// What its disk stands on, the lowest first.
    pub(crate) layers: Vec<Layer>,
    /// An empty disk on top of them, to be copied.
    pub(crate) overlay: PathBuf,
    pub(crate) disk_mib: u32,
    /// What was plugged in when it was saved.
    pub(crate) plugs: Vec<Plug>,
    /// The largest volume that it may come to have.
    pub(crate) volume_mib: u32,
    /// What its disk is called among its files.
    pub(crate) disk_name: String,
    /// A process that the same machine can be resumed from, which is faster. All other fields describe the restore from
    /// device state, to which a failed resume falls back.
    pub(crate) cached: Option<Cached>,
}

impl Source {
    /// The same machine, resumed from its cached process.
    fn resumed(&self, cached: &Cached) -> Self {
        let Cached { memory, overlay, .. } = cached.clone();
        Self { memory, overlay, ..self.clone() }
    }
}

/// Makes machines for one engine.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    pub(crate) sandboxes: PathBuf,
    pub(crate) engine: String,
    pub(crate) launcher: PathBuf,
    /// What is preloaded into QEMU, so that its memory can be saved.
    pub(crate) library: PathBuf,
    pub(crate) process_cache: Arc<ProcessCache>,
}

/// A machine with a session to its guest. If it is dropped, it is ended and its directory removed.
pub(crate) struct Made {
    pub(crate) id: SandboxId,
    live: Option<Live>,
    pub(crate) dir: PathBuf,
}

impl Maker {
    /// Restores a machine. It has greeted and runs.
    pub(crate) async fn restore(&self, source: &Source) -> Result<Made, MakeError> {
        self.restore_as(SandboxId::fresh(), source).await
    }

    pub(crate) async fn restore_as(&self, id: SandboxId, source: &Source) -> Result<Made, MakeError> {
        let cold = Source { cached: None, ..source.clone() };
        let Some(cached) = &source.cached else { return self.start_as(id, &cold).await };
        if !source.plugs.is_empty() {
            self.process_cache.fell_back(Fallback::Volumes);
            return self.start_as(id, &cold).await;
        }
        let error = match self.start_as(id.clone(), &source.resumed(cached)).await {
            Err(error @ (MakeError::Machine(_) | MakeError::Socket(_) | MakeError::Guest(_))) => error,
            Ok(made) => {
                self.process_cache.answered(&cached.process);
                return Ok(made);
            }
            Err(error) => return Err(error),
        };
        let reason = error.fallback();
        self.process_cache.fell_back(reason);
        tracing::warn!(
            %id,
            reason = reason.name(),
            error = &error as &dyn std::error::Error,
            "a cached process was not resumed; the machine is restored from device state"
        );
        let made = self.start_as(id, &cold).await?;
        self.process_cache.blame(&cached.process, reason);
        Ok(made)
    }

    async fn start_as(&self, id: SandboxId, source: &Source) -> Result<Made, MakeError> {
        let dir = self.sandboxes.join(id.as_str());
        let directory = self.directory(&dir, source);
        if let Err(error) = directory {
            let _ = fs::remove_dir_all(&dir);
            return Err(MakeError::Directory(error));
        }
        match self.start(&dir, source).await {
            Ok(live) => Ok(Made { id, live: Some(live), dir }),
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                Err(error)
            }
        }
    }

    fn directory(&self, dir: &Path, source: &Source) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        fs::DirBuilder::new().mode(0o700).create(dir)?;
        fs::write(dir.join(ENGINE_FILE), &self.engine)?;
        let machine = MachineDir::new(dir);
        machine.create()?;
        if let Some(cached) = &source.cached {
            cached.process.mark(dir)?;
        }
        let disk = machine.files().join(&source.disk_name);
        fs::copy(&source.overlay, &disk)?;
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o600))
    }

    async fn start(&self, dir: &Path, source: &Source) -> Result<Live, MakeError> {
        let config = MachineConfig {
            dir: MachineDir::new(dir),
            hardware: source.hardware.clone(),
            start: Start::Restore {
                memory: source.memory.clone(),
                state: source.state.clone(),
                cached: source.cached.as_ref().and_then(|cached| self.process_cache.process(&cached.process)),
            },
            disk: Disk { overlay: source.disk_name.clone(), backing: source.layers.clone() },
            jail: jail(&self.launcher, own_uid(dir), &source.hardware, source.disk_mib, source.volume_mib),
            qemu: MachineConfig::QEMU.into(),
            deadline_ms: None,
            plugs: source.plugs.clone(),
        };
        let machine = Machine::restore(config).await?;
        let limit = if source.cached.is_some() { CACHED_ANSWER_WITHIN } else { ANSWER_WITHIN };
        match self.greet(&machine, limit).await {
            Ok(link) => Ok(Live { machine, link }),
            Err(error) => {
                // The first error counts; a machine that does not end is found at the next start.
                let _ = machine.end().await;
                Err(error)
            }
        }
    }

    async fn greet(&self, machine: &Machine, limit: Duration) -> Result<Link, MakeError> {
        let greeting = Link::greet(machine.connect_control().await?).await.map_err(MakeError::Socket)?;
        machine.cont().await?;
        Ok(greeting.answered(limit).await?)
    }

    /// Restores a machine, has it do once what it will be asked for, and stops it.
    pub(crate) async fn standby(&self, template: &Template) -> Result<Made, MakeError> {
        let source = template.source(self);
        let made = self.restore(&source).await?;
        let mut languages = template.warm_languages();
        let mut rounds = EXERCISES;
        if source.cached.is_some() {
            // Everything is translated; it only has to touch its memory. A new spare of Node's would take seconds.
            languages.retain(|language| *language == Language::Python);
            rounds = 1;
        }
        exercise(made.link(), &languages, rounds).await?;
        // The identity of nobody: whoever claims it gives it another.
        identify(made.link(), &made.id, None, template.pids()).await?;
        made.link().hold(true);
        made.machine().stop().await?;
        Ok(made)
    }

    /// Makes a cached process for machines of this template, unless there is one. Without it they are only slower.
    pub(crate) async fn ensure_cached_process(&self, template: &Template) {
        if !self.process_cache.is_enabled() {
            return;
        }
        let _one_at_a_time = template.caching.lock().await;
        if template.cached.get().is_some() {
            return;
        }
        let bake = template.baked.dir();
        if self.process_cache.find(bake).is_none() {
            self.process_cache.sweep(bake);
            if let Err(error) = self.cache_process(template).await {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(template = %template.name, error = cause, "cannot cache a process of the template");
            }
        }
        if let Some(process) = self.process_cache.find(bake) {
            template.cached.get_or_init(|| process);
        }
    }

    /// The same machine with a new session to its guest; if there is none to be had, it is ended.
    async fn reconnect(&self, mut made: Made) -> Result<Made, MakeError> {
        let (id, dir) = (made.id.clone(), std::mem::take(&mut made.dir));
        // The old connection first: QEMU serves one at a time.
        let machine = made.into_live().machine;
        match self.greet(&machine, ANSWER_WITHIN).await {
            Ok(link) => Ok(Made { id, live: Some(Live { machine, link }), dir }),
            Err(error) => {
                end_and_remove(&machine, &dir).await;
                Err(error)
            }
        }
    }

    /// Restores a machine of this template, exercises it, and stores its process.
    async fn cache_process(&self, template: &Template) -> Result<(), MakeError> {
        let made = self.restore(&template.cold_source(self)).await?;
        exercise(made.link(), &template.warm_languages(), EXERCISES).await?;
        // The guest must expect a new connection, because a resumed machine has one.
        let made = self.reconnect(made).await?;
        let stored = self.cache_process_of(&made, template).await;
        // Not by dropping it: the program may be about to end.
        made.discard().await;
        stored
    }

    async fn cache_process_of(&self, made: &Made, template: &Template) -> Result<(), MakeError> {
        exercise(made.link(), &template.warm_languages(), EXERCISES).await?;
        let ordinary = ["/bin/sh", "-c", ORDINARY].map(str::to_owned).to_vec();
        run_once(made.link(), "exercise-ordinary", Program::Argv(ordinary), b"").await?;
        identify(made.link(), &made.id, None, template.pids()).await?;
        made.link().hold(true);
        made.machine().stop().await?;
        let frozen = made.machine().copy(u64::from(template.hardware.memory_mib) << 20).await?;
        let (bake, cache) = (template.baked.dir().to_owned(), self.process_cache.clone());
        let disk = made.machine().dir().files().join(DISK);
        let storing = move || cache.save_template(&bake, &disk, &frozen);
        let stored = tokio::task::spawn_blocking(storing).await;
        stored.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(MakeError::Directory)
    }
}

/// A user id of the machine's own, spread by its directory's name.
fn own_uid(dir: &Path) -> u32 {
    let name = dir.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
    let spread = name.iter().fold(0u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    FIRST_UID + spread % 65_536
}

/// The largest file that a machine of this size needs, volumes aside.
pub(crate) fn file_bytes(hardware: &Hardware, disk_mib: u32) -> u64 {
    let (memory_bytes, disk_bytes) = (u64::from(hardware.memory_mib) << 20, u64::from(disk_mib) << 20);
    memory_bytes.max(disk_bytes + disk_bytes / 8)
}

/// The jail of a machine of this size. The user id counts only if this process is privileged.
pub(crate) fn jail(launcher: &Path, uid: u32, hardware: &Hardware, disk_mib: u32, volume_mib: u32) -> JailConfig {
    let memory_bytes = u64::from(hardware.memory_mib) << 20;
    let cgroup = CgroupLimits {
        memory_bytes: Some(memory_bytes + EMULATOR_BYTES),
        cpu_milli: Some(hardware.vcpus * 1000 + 250),
        tasks: Some(256),
    };
    let file_bytes = file_bytes(hardware, disk_mib).max(u64::from(volume_mib) << 20);
    JailConfig {
        launcher: launcher.to_owned(),
        uid: rustix::process::geteuid().is_root().then_some(uid),
        limits: Limits { file_bytes, cgroup, ..Limits::default() },
        user_namespace: Requirement::Required,
    }
}

impl Made {
    fn live(&self) -> &Live {
        self.live.as_ref().expect("taken only by `into_live` and `discard`, which consume it")
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.live().machine
    }

    pub(crate) fn link(&self) -> &Link {
        &self.live().link
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.machine().died().borrow().is_none() && self.link().closed().borrow().is_none()
    }

    /// Lets a standby run; a machine that runs already does not mind.
    pub(crate) async fn go_on(&self) -> Result<(), MakeError> {
        self.machine().cont().await?;
        self.link().hold(false);
        Ok(())
    }

    pub(crate) fn into_live(mut self) -> Live {
        self.live.take().expect("taken only here and in `discard`, which consume it")
    }

    pub(crate) async fn discard(mut self) {
        if let Some(live) = self.live.take() {
            remove(live, &self.dir).await;
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            let dir = std::mem::take(&mut self.dir);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { remove(live, &dir).await });
            }
        }
    }
}

pub(crate) async fn remove(live: Live, dir: &Path) {
    end_and_remove(&live.machine, dir).await;
}

/// Ends a machine and removes its directory.
pub(crate) async fn end_and_remove(machine: &Machine, dir: &Path) {
    if let Err(error) = machine.end().await {
        tracing::warn!(dir = %dir.display(), error = &error as &dyn std::error::Error, "a machine could not be ended");
        return;
    }
    if let Err(error) = fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "a machine's directory could not be removed");
    }
}

/// Does each kind of thing so often and leaves no trace but translated code.
pub(crate) async fn exercise(link: &Link, languages: &[Language], rounds: u32) -> Result<(), LinkError> {
    for round in 0..rounds {
        let shell = Program::Argv(vec!["/bin/true".to_owned()]);
        run_once(link, &format!("exercise-{round}-true"), shell, b"").await?;
        for &language in languages {
            let program = Program::Code { language, args: Vec::new() };
            run_once(link, &format!("exercise-{round}-{language:?}"), program, exercise_code(language)).await?;
            link.call_within(SETTLED_WITHIN, Request::Settle { language }).await?;
        }
        // A new spare of Node's takes too long for this.
        if languages.contains(&Language::Python) {
            run_cell_once(link, Language::Python).await?;
        }
    }
    Ok(())
}

async fn run_cell_once(link: &Link, language: Language) -> Result<(), LinkError> {
    let id = "exercise".to_owned();
    let context = ContextSpec { id: id.clone(), language, cwd: None, env: Default::default(), user: None };
    let cell =
        CellSpec { context: id.clone(), timeout_ms: Some(60_000), output_limit: 1 << 16, env: Default::default() };
    let making = link.open(Request::CreateContext(context), &[])?;
    let running = link.open(Request::RunCell(cell), b"1 + 1")?;
    making.drain(|_, _| {}).await?;
    running.drain(|_, _| {}).await?;
    link.call(Request::CloseContext { context: id }).await?;
    link.call_within(SETTLED_WITHIN, Request::Settle { language }).await.map(drop)
}

fn exercise_code(language: Language) -> &'static [u8] {
    match language {
        Language::Python => b"print(1 + 1)",
        Language::Node => b"console.log(1 + 1)",
        Language::Bash => b"echo $((1 + 1))",
    }
}

async fn run_once(link: &Link, id: &str, program: Program, code: &[u8]) -> Result<(), LinkError> {
    let spec = ExecSpec {
        id: id.to_owned(),
        program,
        env: Default::default(),
        cwd: None,
        user: None,
        timeout_ms: Some(60_000),
        output_limit: 1 << 16,
        on_limit: OnLimit::Kill,
        stdin: Stdin::Closed,
        terminal: None,
    };
    link.open(Request::Run(spec), code)?.drain(|_, _| {}).await?;
    link.call(Request::Forget { exec: id.to_owned() }).await.map(drop)
}
