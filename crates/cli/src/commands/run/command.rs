//! The command: on a server if there is one, else in this process.

use std::process::ExitCode;
use std::time::Instant;

use super::code::Code;
use super::report::Report;
use super::served::NothingRan;
use super::{here, served};
use crate::client::{ClientError, Origin};
use crate::commands::server_for;
use crate::options::{Common, Run};

/// What came of it.
pub enum Done {
    Ran(Report),
    /// Somebody wanted us to end before there was a result.
    Left(u8),
}

pub async fn run(common: &Common, options: &Run) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let code = Code::read(options)?;
    if !options.json {
        for finding in &code.advice {
            eprintln!("sandling: advice: line {}: {} ({:?})", finding.line, finding.what, finding.risk);
        }
    }
    if let Some(note) = sandling_engine::alias_note(&code.template) {
        eprintln!("sandling: {note}");
    }
    let mut report = match somewhere(common, options, &code).await? {
        Done::Ran(report) => report,
        Done::Left(exit_code) => return Ok(ExitCode::from(exit_code)),
    };
    report.duration_ms = started.elapsed().as_secs_f64() * 1e3;
    report.advice = code.advice;
    report.finish(options)
}

async fn somewhere(common: &Common, options: &Run, code: &Code) -> anyhow::Result<Done> {
    let Some(client) = server_for(common).await? else { return here::run(common, options, code).await };
    let done = served::run(&client, options, code).await;
    // It said a moment ago that it was there, and nothing was sent to it.
    if client.server().origin == Origin::Home
        && let Err(error) = &done
        && matches!(error.downcast_ref(), Some(NothingRan(ClientError::Unreachable { .. })))
    {
        return here::run(common, options, code).await;
    }
    done
}
