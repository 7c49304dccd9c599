//! An engine with a home of its own for each test; templates are shared and read-only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandling_engine::{CreateSpec, DEFAULT_WORKSPACE, Engine, EngineConfig, Home, RunSpec, Sandbox};
use sandling_protocol::{Exit, Language};
use tempfile::TempDir;

/// The program under test.
pub const SANDLING: &str = env!("CARGO_BIN_EXE_sandling");

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
    let home = TempDir::new().unwrap();
    let engine = Engine::open(EngineConfig { standbys, ..config(&home) }).await.unwrap();
    TestEngine { engine, home }
}

pub fn config(home: &TempDir) -> EngineConfig {
    let home = Home::new(home.path().to_owned()).with_templates(templates());
    EngineConfig { launcher: SANDLING.into(), ..EngineConfig::new(home).unwrap() }
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
