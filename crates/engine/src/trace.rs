//! Spans of creates, forks and commands, for an exporter of traces.
//!
//! Attributes are ids, sizes and results. A command, its output, its environment and the names of files never become
//! attributes.

use sandling_protocol::{Exit, Program};
use tracing::Span;
use tracing::field::Empty;

use crate::model::SandboxId;

/// The target of all spans that are exported. The log leaves them out.
pub use sandling_vmm::TRACE_TARGET;

/// A span of one step of a request.
macro_rules! step {
    ($name:literal) => {
        tracing::info_span!(target: $crate::trace::TRACE_TARGET, $name)
    };
}
pub(crate) use step;

/// The span of a command, from its start to its end.
pub(crate) fn command_span(sandbox: &SandboxId, exec: &str, program: &Program) -> Span {
    let kind = match program {
        Program::Shell(_) => "shell",
        Program::Code { .. } => "code",
        Program::Argv(_) => "program",
    };
    tracing::info_span!(
        target: TRACE_TARGET,
        "exec",
        sandling.sandbox.id = %sandbox,
        sandling.exec.id = exec,
        sandling.exec.kind = kind,
        sandling.exec.reason = Empty,
        process.exit.code = Empty,
    )
}

/// Records how a command ended.
pub(crate) fn record_exit(span: &Span, exit: &Exit) {
    span.record("process.exit.code", exit.code);
    span.record("sandling.exec.reason", exit.reason.as_str());
}
