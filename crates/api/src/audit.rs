//! Which requests are audited, and how the audit log names them.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use sandling_service::{AuditResult, NewAudit, Recording};

use crate::app::App;
use crate::context::{AuditedAction, RequestContext};
use crate::error::ApiError;

/// A route that changes or runs something, or exports data in bulk: its method, its pattern, and the name of the
/// action. Each dialect lists its own.
pub(crate) type Action = (&'static str, &'static str, &'static str);

/// What the log calls a command that comes through a WebSocket.
const RUN_COMMAND: &str = "exec.run";

/// Marks the response that opens a WebSocket for commands. The log has an entry for each command instead of one for the
/// socket.
#[derive(Clone)]
struct LogsEachCommand;

pub(crate) fn logs_each_command(mut response: Response) -> Response {
    response.extensions_mut().insert(LogsEachCommand);
    response
}

/// Whether a request may change something. Such a request completes even if its client disconnects.
pub(crate) fn may_change(method: &Method, context: &RequestContext) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    !reads || context.action().is_some()
}

/// Finds out what the audit log calls a request.
pub(crate) fn name(context: &RequestContext, actions: &[Action], method: &Method, route: Option<&str>, path: &str) {
    let known = actions.iter().find(|(known, pattern, _)| method.as_str() == *known && route == Some(*pattern));
    if let Some((_, pattern, name)) = known {
        context.acts(AuditedAction { name, object: named_in(pattern, path) });
    }
}

/// Must be called after a request is authorized and before it acts. An error means that it must not act: the audit log
/// cannot be written, and the operator requires it.
pub(crate) fn begin(app: &App, context: &RequestContext) -> Result<(), ApiError> {
    let Some(action) = context.action() else { return Ok(()) };
    let object = context.object().map(str::to_owned).or_else(|| action.object.clone());
    let Some(entry) = entry(context, action.name, object, AuditResult::Ok) else { return Ok(()) };
    if let Some(intent) = app.service.audit.begin(entry)? {
        context.set_intent(intent);
    }
    Ok(())
}

/// The same for a command that comes through a sandbox's WebSocket. The result goes to [`record_command`].
pub(crate) fn begin_command(app: &App, context: &RequestContext, sandbox: &str) -> Result<Option<i64>, ApiError> {
    match entry(context, RUN_COMMAND, Some(sandbox.to_owned()), AuditResult::Ok) {
        Some(entry) => Ok(app.service.audit.begin(entry)?),
        None => Ok(None),
    }
}

/// Logs a command that was run through a sandbox's WebSocket, and its result.
pub(crate) fn record_command(
    app: &App,
    context: &RequestContext,
    sandbox: &str,
    error: Option<&ApiError>,
    intent: Option<i64>,
) {
    let result = result(error.map(|error| error.status), error);
    if let Some(entry) = entry(context, RUN_COMMAND, Some(sandbox.to_owned()), result) {
        app.service.audit.record(entry, intent);
    }
}

/// Logs the code and output of a run.
pub(crate) fn record_run(app: &App, context: &RequestContext, sandbox: &str, recording: Recording) {
    if let Some(entry) = entry(context, "run.recorded", Some(sandbox.to_owned()), AuditResult::Ok) {
        app.service.audit.record(NewAudit { recording: Some(recording), ..entry }, None);
    }
}

/// Writes a request to the audit log. Requests to a sandbox's own server are not logged.
pub(crate) fn record(app: &App, context: &RequestContext, response: &Response, error: Option<&ApiError>) {
    let Some(action) = context.action() else { return };
    let intent = context.take_intent();
    if response.extensions().get::<LogsEachCommand>().is_some() {
        app.service.audit.forget(intent);
        return;
    }
    let object = context.object().map(str::to_owned).or_else(|| action.object.clone());
    if let Some(entry) = entry(context, action.name, object, result(Some(response.status()), error)) {
        let announced = intent.is_some() || !app.service.audit.is_required() || entry.result != AuditResult::Ok;
        debug_assert!(announced, "{} acted before it called `begin`", action.name);
        app.service.audit.record(entry, intent);
    }
}

/// Actions without a token are not logged.
fn entry(context: &RequestContext, action: &str, object: Option<String>, result: AuditResult) -> Option<NewAudit> {
    let principal = context.principal()?;
    Some(NewAudit {
        workspace: principal.workspace.clone(),
        actor: principal.actor(),
        action: action.to_owned(),
        object,
        result,
        request_id: context.id().to_owned(),
        remote: context.peer().map(|peer| peer.ip()),
        recording: None,
    })
}

fn result(status: Option<StatusCode>, error: Option<&ApiError>) -> AuditResult {
    let code = error.map_or("unknown", |error| error.code).to_owned();
    match status {
        // A full host refuses many requests, and nothing has changed.
        Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE) => AuditResult::Refused { code },
        Some(status) if status.is_server_error() => AuditResult::Error { code },
        Some(status) if status.is_client_error() => AuditResult::Refused { code },
        _ => AuditResult::Ok,
    }
}

/// The variable parts of a path, joined. They identify the changed object.
fn named_in(route: &str, path: &str) -> Option<String> {
    let variable = route.split('/').zip(path.split('/')).filter(|(pattern, _)| pattern.starts_with('{'));
    let names: Vec<_> = variable.map(|(_, name)| name).collect();
    (!names.is_empty()).then(|| names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_change_is_read_from_its_path() {
        assert_eq!(named_in("/v1/sandboxes/{id}/execs/{exec}", "/v1/sandboxes/a/execs/b").as_deref(), Some("a/b"));
        assert_eq!(named_in("/v1/sandboxes", "/v1/sandboxes"), None);
    }
}
