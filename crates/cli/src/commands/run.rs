//! `sandling run`: code in, its output and exit code out, and the sandbox gone.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sandling_engine::scan::{self, Finding};
use sandling_engine::{
    CreateSpec, DEFAULT_WORKSPACE, EndReason, Engine, Execution, Output, RunError, RunSpec, Sandbox, SandboxInfo,
    StreamSender,
};
use sandling_protocol::{Exit, ExitReason, Language, Part, Program, Stdin};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::open_engine;
use crate::options::{Common, Run};
use crate::outcome;

/// More code than this goes into a file in the sandbox first; nobody's script is that long.
const MAX_CODE: u64 = 1024 * 1024;
/// The sandbox outlives the code's own deadline by this much, should this process be killed.
const TTL_SLACK: Duration = Duration::from_secs(60);

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    stdout: String,
    stderr: String,
    exit_code: u8,
    /// `exited`, `signalled`, `timeout`, `out_of_memory`, `output_limit` or `guest_died`.
    reason: String,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<Finding>,
    sandbox: Option<SandboxInfo>,
}

pub async fn run(common: &Common, options: &Run) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let code = read_code(options)?;
    let language = language(options);
    let advice = if options.scan { scan::scan(language, &String::from_utf8_lossy(&code)) } else { Vec::new() };
    if !options.json {
        print_advice(&advice);
    }
    if let Some(note) = sandling_engine::alias_note(&options.template) {
        eprintln!("sandling: {note}");
    }
    let engine = open_engine(common).await?;
    let sandbox = match create(&engine, options).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            engine.close().await;
            return Err(error);
        }
    };
    let report = execute(&sandbox, options, language, code).await;
    for finding in &advice {
        engine.record(sandbox.id(), DEFAULT_WORKSPACE, "advice", serde_json::to_value(finding)?)?;
    }
    engine.close().await;
    let mut report = report?;
    report.duration_ms = started.elapsed().as_secs_f64() * 1e3;
    report.advice = advice;
    report.sandbox = Some(sandbox.info());
    finish(&report, options)
}

async fn create(engine: &Arc<Engine>, options: &Run) -> anyhow::Result<Arc<Sandbox>> {
    let spec = CreateSpec {
        template: options.template.clone(),
        vcpus: options.cpus,
        memory_mib: options.memory,
        disk_mib: options.disk,
        pids: options.pids,
        ttl: Some(Duration::from_secs(options.timeout) + TTL_SLACK),
        workspace: DEFAULT_WORKSPACE.to_owned(),
        ..CreateSpec::default()
    };
    Ok(engine.create(spec).await?)
}

/// Runs the code and passes everything through, signals included.
async fn execute(sandbox: &Arc<Sandbox>, options: &Run, language: Language, code: Vec<u8>) -> anyhow::Result<Report> {
    let reads_stdin = options.file.as_deref() != Some(Path::new("-"));
    let spec = RunSpec {
        code,
        env: options.env.iter().cloned().collect(),
        timeout: Some(Duration::from_secs(options.timeout)),
        output_limit: options.output_limit,
        stdin: if reads_stdin { Stdin::Open } else { Stdin::Closed },
        ..RunSpec::new(Program::Code { language, args: options.args.clone() })
    };
    let mut execution = sandbox.run(spec)?;
    if reads_stdin {
        forward_stdin(execution.stdin());
    }
    let mut report = Report::default();
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut interrupted = false;
    loop {
        tokio::select! {
            output = execution.next() => {
                if report.take(output, options)? {
                    return Ok(report);
                }
            }
            _ = interrupts.recv() => {
                // The second one does not ask.
                forward_signal(&execution, if interrupted { 9 } else { 2 }).await;
                interrupted = true;
            }
            _ = terminations.recv() => {
                let _ = sandbox.end(EndReason::Requested).await;
                bail!("terminated");
            }
        }
    }
}

impl Report {
    /// Takes one piece of output. True when it was the last.
    fn take(&mut self, output: Result<Output, RunError>, options: &Run) -> anyhow::Result<bool> {
        match output {
            Ok(Output::Bytes { part, bytes, .. }) => self.pass(part, &bytes, options.json)?,
            Ok(Output::Exited(exit)) => {
                self.exit_code = exit_code(&exit);
                self.reason = reason(exit.reason).to_owned();
                return Ok(true);
            }
            Ok(Output::Started { .. } | Output::Dropped(_)) => {}
            Err(RunError::GuestDied(why)) => {
                self.exit_code = outcome::GUEST_DIED;
                self.reason = "guest_died".to_owned();
                if !options.json {
                    eprintln!("sandling: guest died: {why}");
                }
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(false)
    }

    fn pass(&mut self, part: Part, bytes: &[u8], json: bool) -> anyhow::Result<()> {
        match (part, json) {
            (Part::Stderr, true) => self.stderr.push_str(&String::from_utf8_lossy(bytes)),
            (_, true) => self.stdout.push_str(&String::from_utf8_lossy(bytes)),
            (Part::Stderr, false) => std::io::stderr().write_all(bytes)?,
            (_, false) => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush()).context("stdout is closed")?;
            }
        }
        Ok(())
    }
}

fn finish(report: &Report, options: &Run) -> anyhow::Result<ExitCode> {
    if options.json {
        println!("{}", serde_json::to_string_pretty(report)?);
        return Ok(ExitCode::from(report.exit_code));
    }
    match report.reason.as_str() {
        "timeout" => eprintln!("sandling: timeout after {} s", options.timeout),
        "out_of_memory" => eprintln!("sandling: out of memory"),
        "output_limit" => eprintln!("sandling: output limit of {} bytes reached", options.output_limit),
        _ => {}
    }
    if let (true, Some(sandbox)) = (options.verbose, &report.sandbox) {
        eprintln!(
            "sandling: {:.0} ms in all, {:.0} ms until the sandbox was there, under {}",
            report.duration_ms, sandbox.boot_ms, sandbox.boundary.accelerator
        );
    }
    Ok(ExitCode::from(report.exit_code))
}

fn exit_code(exit: &Exit) -> u8 {
    match exit.reason {
        ExitReason::Timeout => outcome::TIMEOUT,
        ExitReason::OutputLimit => outcome::OUTPUT_LIMIT,
        _ => u8::try_from(exit.code & 0xff).unwrap_or(1),
    }
}

fn reason(reason: ExitReason) -> &'static str {
    match reason {
        ExitReason::Exited => "exited",
        ExitReason::Signalled => "signalled",
        ExitReason::Timeout => "timeout",
        ExitReason::OutOfMemory => "out_of_memory",
        ExitReason::OutputLimit => "output_limit",
    }
}

fn read_code(options: &Run) -> anyhow::Result<Vec<u8>> {
    let mut code = Vec::new();
    match (&options.code, options.file.as_deref()) {
        (Some(text), _) => code.extend_from_slice(text.as_bytes()),
        (None, Some(path)) if path == Path::new("-") => {
            std::io::stdin().take(MAX_CODE + 1).read_to_end(&mut code).context("stdin cannot be read")?;
        }
        (None, Some(path)) => {
            let file = std::fs::File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
            file.take(MAX_CODE + 1)
                .read_to_end(&mut code)
                .with_context(|| format!("{} cannot be read", path.display()))?;
        }
        (None, None) => bail!("give the code with -c, a file, or - for stdin"),
    }
    if code.len() as u64 > MAX_CODE {
        bail!("the code is longer than {MAX_CODE} bytes; keep data in files");
    }
    Ok(code)
}

fn language(options: &Run) -> Language {
    if let Some(choice) = options.language {
        return choice.into();
    }
    match options.file.as_deref().and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("js" | "mjs" | "cjs") => Language::Node,
        Some("sh" | "bash") => Language::Bash,
        _ => Language::Python,
    }
}

fn print_advice(advice: &[Finding]) {
    for finding in advice {
        eprintln!("sandling: advice: line {}: {} ({:?})", finding.line, finding.what, finding.risk);
    }
}

/// Sends our stdin to the code, from a thread that nobody waits for.
fn forward_stdin(sender: StreamSender) {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match std::io::stdin().read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    if runtime.block_on(sender.send(&buffer[..read])).is_err() {
                        return;
                    }
                }
            }
        }
        let _ = sender.finish();
    });
}

async fn forward_signal(execution: &Execution, number: i32) {
    if let Err(error) = execution.signal(number).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "the signal did not arrive");
    }
}
