//! The contenders: the same small piece of Python in a fresh sandbox of Sandling and of each peer.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sandling_engine::{BootMode, CellOutput, CreateSpec, DEFAULT_WORKSPACE, EndReason, Engine, RunSpec, Sandbox};
use sandling_protocol::{ContextSpec, Language, Program};

use crate::report::Report;
use crate::{Options, engine};

const CODE: &str = "print(1+1)";
/// Debian's Python for every peer. A version switcher on the PATH would add its own start time.
const PYTHON: &str = "/usr/bin/python3";
const IMPORT: &str = "import time; t = time.perf_counter(); import pandas; print(time.perf_counter() - t)";

pub fn spec(template: &str) -> CreateSpec {
    CreateSpec { template: template.to_owned(), workspace: DEFAULT_WORKSPACE.to_owned(), ..CreateSpec::default() }
}

pub async fn measure(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (ready, _home) = engine(options, 1).await?;
    let (cold, _other_home) = engine(options, 0).await?;
    report.host.insert("accelerator".to_owned(), ready.probe().accelerator.to_string());
    let mut peers = vec![bare_host()];
    peers.push(peer("bwrap", &["bwrap", "--ro-bind", "/", "/", "--unshare-all", PYTHON, "-c", CODE]));
    let runsc = ["runsc", "--rootless", "--network=none", "--platform=ptrace", "do", PYTHON, "-c", CODE];
    peers.push(peer("runsc", &runsc));
    let [mut standby, mut restore] = [Vec::new(), Vec::new()];
    for round in 0..options.rounds {
        progress("a fresh sandbox, and its peers", round, options.rounds);
        ready.machines().warm_up("base").await?;
        standby.push(create_and_run(&ready, BootMode::Standby).await?);
        restore.push(create_and_run(&cold, BootMode::Restore).await?);
        for peer in &mut peers {
            peer.run()?;
        }
    }
    report.add("create → Python result, from a standby", "sandling", &standby);
    report.add("create → Python result, by a restore", "sandling", &restore);
    for peer in &peers {
        report.add("create → Python result", peer.name, &peer.samples);
    }
    inside(options, &cold, report).await?;
    imports(options, &cold, report).await?;
    ready.close().await;
    cold.close().await;
    Ok(())
}

async fn create_and_run(engine: &Arc<Engine>, expected: BootMode) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let sandbox = engine.create(spec("base")).await?;
    let ran = sandbox.run(RunSpec::code(Language::Python, CODE))?.collect().await?;
    let took = started.elapsed();
    ensure!(ran.stdout == b"2\n" && sandbox.info().boot_mode == expected, "{ran:?}");
    sandbox.end(EndReason::Requested).await?;
    Ok(took)
}

/// Times of operations in an existing sandbox.
async fn inside(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let sandbox = engine.create(spec("base")).await?;
    let context = ContextSpec {
        id: "bench".to_owned(),
        language: Language::Python,
        cwd: None,
        env: Default::default(),
        user: None,
    };
    sandbox.create_context(context).await?;
    let [mut cells, mut execs] = [Vec::new(), Vec::new()];
    // The first runs include the translation of emulated code, which a session in use does not.
    let few = 10;
    for round in 0..options.rounds + few {
        progress("cells", round, options.rounds + few);
        let started = Instant::now();
        run_cell(&sandbox).await?;
        cells.push(started.elapsed());
    }
    for round in 0..options.rounds + few {
        progress("execs", round, options.rounds + few);
        let started = Instant::now();
        let program = Program::Argv(vec!["/bin/true".to_owned()]);
        ensure!(sandbox.run(RunSpec::new(program))?.collect().await?.exit.code == 0, "/bin/true failed");
        execs.push(started.elapsed());
    }
    for samples in [&mut cells, &mut execs] {
        samples.drain(..few);
    }
    report.add("a context's cell 1+1", "sandling", &cells);
    report.add("an exec of /bin/true", "sandling", &execs);
    sandbox.end(EndReason::Requested).await?;
    Ok(())
}

async fn run_cell(sandbox: &Arc<Sandbox>) -> anyhow::Result<()> {
    let mut cell = sandbox.run_cell("bench", "1+1", None, 1 << 20)?;
    let mut value = None;
    loop {
        match cell.next().await? {
            CellOutput::Value(result) => value = result.get("text/plain").cloned(),
            CellOutput::Done(_) => break,
            _ => {}
        }
    }
    ensure!(value == Some("2".into()), "{value:?}");
    Ok(())
}

/// Measured by the code itself, in a new sandbox.
async fn imports(options: &Options, engine: &Arc<Engine>, report: &mut Report) -> anyhow::Result<()> {
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        progress("import pandas", round, options.rounds);
        let sandbox = engine.create(spec("code-interpreter")).await?;
        let ran = sandbox.run(RunSpec::code(Language::Python, IMPORT))?.collect().await?;
        let seconds: f64 = String::from_utf8_lossy(&ran.stdout).trim().parse().context("no time was printed")?;
        samples.push(Duration::from_secs_f64(seconds));
        sandbox.end(EndReason::Requested).await?;
    }
    report.add("import pandas in a fresh sandbox", "sandling", &samples);
    Ok(())
}

pub struct Peer {
    pub name: &'static str,
    words: Vec<String>,
    pub samples: Vec<Duration>,
}

/// Python on the host, without a sandbox. It shows how fast the host is during a measurement.
pub fn bare_host() -> Peer {
    peer("host", &[PYTHON, "-c", CODE])
}

fn peer(name: &'static str, words: &[&str]) -> Peer {
    Peer { name, words: words.iter().map(|word| (*word).to_owned()).collect(), samples: Vec::new() }
}

impl Peer {
    pub fn run(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let output = Command::new(&self.words[0]).args(&self.words[1..]).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} is not installed", self.name))?;
        let took = started.elapsed();
        ensure!(output.stdout == b"2\n", "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        self.samples.push(took);
        Ok(())
    }
}

pub fn progress(what: &str, done: usize, of: usize) {
    if done.is_multiple_of(10) {
        eprintln!("{what}: {done} of {of}");
    }
}
