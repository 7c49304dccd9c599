//! Runs the code on the server if there is one, otherwise in this process.

use std::process::ExitCode;
use std::time::Instant;

use super::code::Code;
use super::remote::NothingRan;
use super::report::Report;
use super::{interactive, local, remote};
use crate::client::{Client, ClientError, Origin};
use crate::commands::image::{self, ImageSource};
use crate::commands::server_for;
use crate::options::{Common, Run};

/// The result of a run.
pub enum Done {
    Ran(Box<Report>),
    /// A signal stopped us before there was a result; this is the exit code.
    Interrupted(u8),
}

pub async fn run(common: &Common, options: &Run) -> anyhow::Result<ExitCode> {
    if options.interactive {
        return interactive::shell(common, options).await;
    }
    let started = Instant::now();
    let mut code = Code::read(options)?;
    let server = server_for(common).await?;
    match options.image.as_deref().map(ImageSource::parse) {
        None => {}
        Some(ImageSource::Reference(reference)) => code.image = Some(reference),
        Some(ImageSource::File(path)) => {
            code.template = image::template_of_file(common, server.as_ref(), &path).await?;
        }
    }
    if !options.json {
        for finding in &code.advice {
            eprintln!("sandling: advice: line {}: {} ({:?})", finding.line, finding.what, finding.risk);
        }
    }
    if let Some(note) = sandling_engine::alias_note(&code.template) {
        eprintln!("sandling: {note}");
    }
    let mut report = match run_code(common, options, &code, server).await? {
        Done::Ran(report) => report,
        Done::Interrupted(exit_code) => return Ok(ExitCode::from(exit_code)),
    };
    report.duration_ms = started.elapsed().as_secs_f64() * 1e3;
    report.advice = code.advice;
    report.finish(options)
}

async fn run_code(common: &Common, options: &Run, code: &Code, server: Option<Client>) -> anyhow::Result<Done> {
    let Some(client) = server else { return local::run(common, options, code).await };
    let done = remote::run(&client, options, code).await;
    // The server disappeared after announcing itself. It received no request, so running locally is safe.
    if client.server().origin == Origin::Home
        && let Err(error) = &done
        && matches!(error.downcast_ref(), Some(NothingRan(ClientError::Unreachable { .. })))
    {
        return local::run(common, options, code).await;
    }
    done
}
