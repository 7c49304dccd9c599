//! Runs code in this process, with its own engine.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sandling_api::{IntoEngine, IntoWire, network_spec};
use sandling_engine::{
    CreateSpec, DEFAULT_WORKSPACE, EndReason, Engine, Execution, Output, RunError, RunLimits, RunSpec, Sandbox,
    StreamSender,
};
use sandling_protocol::{Part, Program, Stdin};
use sandling_service::{StartDirectory, inherit_process_defaults};
use sandling_wire::{CreateSandbox, ModeName};

use super::code::{Code, reads_stdin};
use super::command::Done;
use super::guest::Guest;
use super::launch::Launch;
use super::refused::refused;
use super::report::Report;
use crate::client::Stream;
use crate::commands::{image, open_engine_with, setup, waiting};
use crate::follow::{ReceivedSignal, Signals};
use crate::options::{Common, Run};
use crate::outcome;

/// After a signal, wait this long for a sandbox that is being created. Only baking a template takes longer.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);

pub async fn run(common: &Common, options: &Run, code: &Code) -> anyhow::Result<Done> {
    setup::install_missing_packages(setup::Purpose::RunMachines)?;
    // Catch signals from the start, so that a sandbox that is being created is also removed.
    let mut signals = Signals::catch().context("cannot install signal handlers")?;
    let engine = open_engine_with(common, options.operator.config(common)?).await?;
    let sandbox = match create(&engine, options, code, &mut signals).await {
        Ok((sandbox, None)) => sandbox,
        Ok((_, Some(caught))) => {
            engine.close().await;
            return interrupted_by(caught);
        }
        Err(error) => {
            engine.close().await;
            return Err(error);
        }
    };
    let made = sandbox.info().into_wire();
    let prepared = tokio::select! {
        prepared = Guest::Local(&sandbox).prepare(options, code.files.as_ref()) => prepared,
        caught = signals.end() => {
            engine.close().await;
            return interrupted_by(caught);
        }
    };
    let report = match prepared {
        Ok(()) => execute(&sandbox, options, code, &mut signals).await,
        Err(error) => Err(error),
    };
    let brought_back = match &report {
        Ok(_) => Guest::Local(&sandbox).bring_back(options, code.files.as_ref()).await,
        Err(_) => Ok(()),
    };
    let learned = (options.machine.network.network == Some(ModeName::Learn)).then(|| sandbox.learned_policy());
    let decisions = sandbox.network_events(0, usize::MAX).into_iter().map(IntoWire::into_wire);
    let refused = refused(decisions.filter_map(|view| serde_json::from_value(serde_json::to_value(view).ok()?).ok()));
    for finding in &code.advice {
        engine.events().record(sandbox.id(), DEFAULT_WORKSPACE, "advice", serde_json::to_value(finding)?)?;
    }
    engine.close().await;
    let mut report = report?;
    brought_back?;
    report.learned = learned.map(|policy| policy.allow.iter().map(ToString::to_string).collect());
    report.refused = refused;
    report.sandbox = serde_json::to_value(made)?;
    Ok(Done::Ran(Box::new(report)))
}

fn interrupted_by(caught: ReceivedSignal) -> anyhow::Result<Done> {
    match caught {
        ReceivedSignal::Terminate => bail!("terminated"),
        ReceivedSignal::Interrupt | ReceivedSignal::Resize => Ok(Done::Interrupted(outcome::INTERRUPTED)),
    }
}

/// Creates the sandbox. Also returns a signal that arrived meanwhile.
async fn create(
    engine: &Arc<Engine>,
    options: &Run,
    code: &Code,
    signals: &mut Signals,
) -> anyhow::Result<(Arc<Sandbox>, Option<ReceivedSignal>)> {
    let mut caught = None;
    let mut spec = CreateSpec {
        template: code.template.clone(),
        vcpus: options.machine.cpus,
        memory_mib: options.machine.memory,
        disk_mib: options.machine.disk,
        pids: options.machine.pids,
        volumes: options.machine.volumes.iter().cloned().map(IntoEngine::into_engine).collect(),
        ttl: Some(Duration::from_secs(options.ttl_seconds())),
        workspace: DEFAULT_WORKSPACE.to_owned(),
        network: network_spec(options.create_request()?.network.unwrap_or_default())?,
        ..CreateSpec::default()
    };
    let settings = options.images.settings()?;
    let mut creating = std::pin::pin!(async {
        if let Some(reference) = &code.image {
            spec.template = image::template(engine, settings, reference).await?;
        } else {
            setup::build_if_missing(engine, &spec.template).await?;
        }
        inherit_process_defaults(engine, &mut spec, StartDirectory::Workspace)?;
        let wanted = CreateSandbox { template: Some(spec.template.clone()), ..options.create_request()? };
        anyhow::Ok(waiting::of_size(&wanted, engine.create(spec)).await?)
    });
    loop {
        let give_up = tokio::select! {
            created = &mut creating => return Ok((created?, caught)),
            signal = signals.end() => caught.replace(signal).is_some(),
            () = tokio::time::sleep(CREATE_TIMEOUT), if caught.is_some() => true,
        };
        if give_up {
            bail!("interrupted; the next Sandling command removes the unfinished sandbox");
        }
    }
}

/// Runs the code and forwards stdin, output and signals.
async fn execute(sandbox: &Arc<Sandbox>, options: &Run, code: &Code, signals: &mut Signals) -> anyhow::Result<Report> {
    let (program, text) = match &code.launch {
        Launch::Code { language, text } => {
            (Program::Code { language: *language, args: options.args.clone() }, text.clone())
        }
        Launch::Program(args) => (Program::Argv(args.clone()), String::new()),
    };
    let mut spec = RunSpec {
        code: text.into_bytes(),
        cwd: code.cwd(),
        env: options.env.iter().cloned().collect(),
        timeout: Some(Duration::from_secs(options.timeout)),
        output_limit: options.output_limit,
        limits: RunLimits {
            cpu: options.limits.cpu_time.map(Duration::from_secs),
            disk_bytes: options.limits.disk_limit.map(|mib| u64::from(mib) << 20),
        },
        stdin: if reads_stdin(options) { Stdin::Open } else { Stdin::Closed },
        ..RunSpec::new(program)
    };
    sandbox.info().settings.process.fill(&mut spec);
    let mut execution = sandbox.run(spec)?;
    if reads_stdin(options) {
        forward_stdin(execution.stdin());
    }
    let mut report = Report::default();
    let mut interrupted = false;
    loop {
        tokio::select! {
            output = execution.next() => {
                if handle_output(&mut report, output, options)? {
                    return Ok(report);
                }
            }
            caught = signals.end() => {
                if caught == ReceivedSignal::Terminate {
                    let _ = sandbox.end(EndReason::Requested).await;
                    bail!("terminated");
                }
                // A second Ctrl-C kills the code.
                forward_signal(&execution, if interrupted { 9 } else { 2 }).await;
                interrupted = true;
            }
        }
    }
}

/// Handles one output event. Returns true if it was the last.
fn handle_output(report: &mut Report, output: Result<Output, RunError>, options: &Run) -> anyhow::Result<bool> {
    match output {
        Ok(Output::Bytes { part, bytes, .. }) => {
            let stream = if part == Part::Stderr { Stream::Stderr } else { Stream::Stdout };
            report.print(stream, &bytes, options).context("stdout is closed")?;
        }
        Ok(Output::Exited(exit)) => {
            report.ended(exit.code, exit.reason.as_str());
            return Ok(true);
        }
        Ok(Output::Started { .. } | Output::Dropped(_)) => {}
        Err(error @ RunError::GuestDied(_)) => {
            report.guest_died(&error.to_string(), options);
            return Ok(true);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(false)
}

/// Sends our stdin to the code from a detached thread, because a blocking read cannot be cancelled.
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
        tracing::debug!(error = &error as &dyn std::error::Error, "could not deliver the signal");
    }
}
