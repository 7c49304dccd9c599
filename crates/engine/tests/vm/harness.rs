//! An engine with a home of its own for each test; templates are shared and read-only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandling_engine::{CreateSpec, DEFAULT_WORKSPACE, Engine, EngineConfig, Home, RunSpec, Sandbox, Standbys};
use sandling_protocol::{Exit, Language};
use tempfile::TempDir;

/// The program that sets up jails. Building the workspace leaves it beside the directory of the tests.
pub fn launcher() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let launcher = test.ancestors().nth(2).unwrap().join("sandling-jail");
    assert!(launcher.exists(), "{} is missing: run `cargo build --package sandling-vmm`", launcher.display());
    launcher
}

/// Where `scripts/test.sh` has built the templates.
pub fn templates() -> PathBuf {
    let path = std::env::var_os("SANDLING_TEST_TEMPLATES")
        .expect("SANDLING_TEST_TEMPLATES names a directory with built templates; scripts/test.sh makes one");
    PathBuf::from(path)
}

pub struct TestEngine {
    pub engine: Arc<Engine>,
    pub home: TempDir,
}

/// An engine without standbys.
pub async fn engine() -> TestEngine {
    engine_with(0).await
}

pub async fn engine_with(standbys: usize) -> TestEngine {
    let (home, standbys) = (TempDir::new().unwrap(), Standbys::Fixed(standbys));
    let engine = Engine::open(EngineConfig { standbys, ..config(&home) }).await.unwrap();
    TestEngine { engine, home }
}

pub fn config(home: &TempDir) -> EngineConfig {
    // Shown with a test that fails.
    let _ = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::WARN).try_init();
    let home = Home::new(home.path().to_owned()).with_templates(templates());
    EngineConfig { launcher: launcher(), ..EngineConfig::new(home).unwrap() }
}

impl TestEngine {
    pub async fn sandbox(&self) -> Arc<Sandbox> {
        self.sandbox_of("base").await
    }

    pub async fn sandbox_of(&self, template: &str) -> Arc<Sandbox> {
        self.engine.create(spec(template)).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    pub async fn close(self) {
        self.engine.close().await;
        let left: Vec<_> = std::fs::read_dir(self.home.path().join("sandboxes")).unwrap().flatten().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

pub fn spec(template: &str) -> CreateSpec {
    CreateSpec { template: template.to_owned(), workspace: DEFAULT_WORKSPACE.to_owned(), ..CreateSpec::default() }
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub exit: Exit,
}

pub async fn run(sandbox: &Arc<Sandbox>, spec: RunSpec) -> Ran {
    let collected = sandbox.run(spec).unwrap().collect().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    Ran {
        stdout: String::from_utf8_lossy(&collected.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&collected.stderr).into_owned(),
        exit: collected.exit,
    }
}

pub async fn shell(sandbox: &Arc<Sandbox>, line: &str) -> Ran {
    run(sandbox, RunSpec::shell(line)).await
}

pub async fn python(sandbox: &Arc<Sandbox>, code: &str) -> Ran {
    run(sandbox, RunSpec::code(Language::Python, code)).await
}

/// Waits for something, and fails when it does not come.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The processes of the machines in a home.
pub fn qemu_processes(home: &std::path::Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.join("sandboxes")).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read(entry.path().join("machine.json")) else { continue };
        let machine: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        found.extend(machine.as_object().into_iter().flatten().filter_map(|(key, value)| {
            let pid = value
                .get("pid")
                .and_then(serde_json::Value::as_u64)
                .or_else(|| key.ends_with("pid").then(|| value.as_u64()).flatten())?;
            u32::try_from(pid).ok()
        }));
    }
    found.retain(|pid| is_running(*pid));
    found
}

pub fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
