//! Which requests are audited, and how the audit log names them.

use axum::http::{Method, StatusCode};
use sandling_service::{AuditResult, NewAudit};

use crate::app::App;
use crate::context::RequestContext;
use crate::error::ApiError;

/// An answered request.
pub(crate) struct Done {
    pub(crate) method: Method,
    pub(crate) route: Option<String>,
    pub(crate) path: String,
    pub(crate) status: StatusCode,
    pub(crate) error: Option<ApiError>,
}

/// WebSockets that run commands. The log has an entry for each command instead of one for the socket.
pub(crate) const EXEC_SESSION: &str = "/v1/sandboxes/{id}/exec/session";
pub(crate) const EXEC_WS: &str = "/v1/sandboxes/{id}/exec/ws";

/// The action of each route that changes or runs something, or exports data in bulk.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/sandboxes", "sandbox.create"),
    ("DELETE", "/v1/sandboxes/{id}", "sandbox.delete"),
    ("PATCH", "/v1/sandboxes/{id}/lifecycle", "sandbox.lifecycle"),
    ("POST", "/v1/sandboxes/{id}/pause", "sandbox.pause"),
    ("POST", "/v1/sandboxes/{id}/resume", "sandbox.resume"),
    ("POST", "/v1/sandboxes/{id}/hibernate", "sandbox.hibernate"),
    ("POST", "/v1/sandboxes/{id}/wake", "sandbox.wake"),
    ("POST", "/v1/sandboxes/{id}/fork", "sandbox.fork"),
    ("POST", "/v1/sandboxes/{id}/fork-tree", "sandbox.fork"),
    ("POST", "/v1/sandboxes/{id}/promote", "sandbox.promote"),
    ("POST", "/v1/sandboxes/{id}/contexts/{context}/fork", "sandbox.fork"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/fork", "sandbox.fork"),
    ("POST", "/v1/sandboxes/{id}/checkpoints", "checkpoint.create"),
    ("PATCH", "/v1/sandboxes/{id}/checkpoints/{checkpoint}", "checkpoint.name"),
    ("POST", "/v1/sandboxes/{id}/rewind", "sandbox.rewind"),
    ("PUT", "/v1/sandboxes/{id}/network", "network.set"),
    ("DELETE", "/v1/sandboxes/{id}/network", "network.set"),
    ("PUT", "/v1/network", "network.default"),
    ("DELETE", "/v1/network", "network.default"),
    ("PUT", "/v1/templates/{name}/network", "network.default"),
    ("DELETE", "/v1/templates/{name}/network", "network.default"),
    ("PUT", "/v1/secrets/{name}", "secret.set"),
    ("DELETE", "/v1/secrets/{name}", "secret.delete"),
    ("POST", "/v1/sandboxes/{id}/snapshots", "snapshot.create"),
    ("DELETE", "/v1/snapshots/{id}", "snapshot.delete"),
    ("GET", "/v1/snapshots/{id}/export", "snapshot.export"),
    ("POST", "/v1/snapshots/import", "snapshot.import"),
    ("POST", "/v1/snapshots/{id}/template", "snapshot.template"),
    ("POST", "/v1/volumes", "volume.create"),
    ("DELETE", "/v1/volumes/{name}", "volume.delete"),
    ("POST", "/v1/volumes/{name}/clone", "volume.clone"),
    ("POST", "/v1/volumes/{name}/snapshots", "volume.snapshot"),
    ("POST", "/v1/sandboxes/{id}/exec", "exec.run"),
    ("POST", "/v1/sandboxes/{id}/exec/stream", "exec.run"),
    ("GET", EXEC_SESSION, "exec.run"),
    ("GET", EXEC_WS, "exec.run"),
    ("GET", "/v1/sandboxes/{id}/exec/pty", "terminal.open"),
    ("GET", "/v1/sandboxes/{id}/ssh", "terminal.open"),
    ("DELETE", "/v1/sandboxes/{id}/execs/{exec}", "exec.forget"),
    ("POST", "/v1/sandboxes/{id}/execs/{exec}/signal", "exec.signal"),
    ("POST", "/v1/sandboxes/{id}/repl", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions", "repl.create"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/run", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/run/stream", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/interrupt", "repl.interrupt"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/restart", "repl.restart"),
    ("DELETE", "/v1/sandboxes/{id}/repl/sessions/{session}", "repl.close"),
    ("PUT", "/v1/sandboxes/{id}/fs", "file.write"),
    ("DELETE", "/v1/sandboxes/{id}/fs", "file.remove"),
    ("POST", "/v1/sandboxes/{id}/fs/mkdir", "file.mkdir"),
    ("POST", "/v1/sandboxes/{id}/fs/move", "file.move"),
    ("POST", "/v1/sandboxes/{id}/fs/chmod", "file.chmod"),
    ("POST", "/v1/sandboxes/{id}/preview-token", "preview.create"),
    ("DELETE", "/v1/preview-tokens/{token}", "preview.revoke"),
    ("POST", "/v1/templates/build", "template.build"),
    ("DELETE", "/v1/templates/{name}", "template.delete"),
    ("POST", "/v1/me/tokens", "token.create"),
    ("DELETE", "/v1/me/tokens/{prefix}", "token.revoke"),
    ("POST", "/v1/workspaces", "workspace.create"),
    ("PATCH", "/v1/workspaces/{workspace}", "workspace.change"),
    ("DELETE", "/v1/workspaces/{workspace}", "workspace.delete"),
    ("POST", "/v1/workspaces/{workspace}/tokens", "token.create"),
    ("DELETE", "/v1/workspaces/{workspace}/tokens/{prefix}", "token.revoke"),
    ("PUT", "/v1/workspaces/{workspace}/quota", "quota.set"),
    ("POST", "/sandboxes", "sandbox.create"),
    ("POST", "/v2/sandboxes", "sandbox.create"),
    ("DELETE", "/sandboxes/{id}", "sandbox.delete"),
    ("POST", "/sandboxes/{id}/connect", "sandbox.wake"),
    ("POST", "/v2/sandboxes/{id}/connect", "sandbox.wake"),
    ("POST", "/sandboxes/{id}/resume", "sandbox.wake"),
    ("POST", "/sandboxes/{id}/timeout", "sandbox.lifecycle"),
    ("POST", "/sandboxes/{id}/refreshes", "sandbox.lifecycle"),
    ("POST", "/sandboxes/{id}/pause", "sandbox.hibernate"),
    ("PUT", "/sandboxes/{id}/network", "network.set"),
    ("POST", "/sandboxes/{id}/fork", "sandbox.fork"),
    ("POST", "/sandboxes/{id}/snapshots", "snapshot.create"),
    ("POST", "/volumes", "volume.create"),
    ("DELETE", "/volumes/{id}", "volume.delete"),
    ("PATCH", "/volumecontent/{id}/path", "volume.write"),
    ("DELETE", "/volumecontent/{id}/path", "volume.write"),
    ("POST", "/volumecontent/{id}/dir", "volume.write"),
    ("PUT", "/volumecontent/{id}/file", "volume.write"),
    ("DELETE", "/templates/{id}", "snapshot.delete"),
    ("POST", "/templates/tags", "template.build"),
    ("DELETE", "/templates/tags", "snapshot.delete"),
    ("POST", "/v3/templates", "template.create"),
    ("PUT", "/templates/{id}/files/{hash}", "template.upload"),
    ("POST", "/v2/templates/{id}/builds/{build}", "template.build"),
    ("POST", "/init", "sandbox.init"),
    ("POST", "/process.Process/Start", "exec.run"),
    ("POST", "/process.Process/SendInput", "exec.input"),
    ("POST", "/process.Process/StreamInput", "exec.input"),
    ("POST", "/process.Process/CloseStdin", "exec.input"),
    ("POST", "/process.Process/Update", "exec.resize"),
    ("POST", "/process.Process/SendSignal", "exec.signal"),
    ("POST", "/execute", "repl.run"),
    ("POST", "/contexts", "repl.create"),
    ("DELETE", "/contexts/{id}", "repl.close"),
    ("POST", "/contexts/{id}/restart", "repl.restart"),
    ("POST", "/files", "file.write"),
    ("POST", "/filesystem.Filesystem/MakeDir", "file.mkdir"),
    ("POST", "/filesystem.Filesystem/Move", "file.move"),
    ("POST", "/filesystem.Filesystem/Remove", "file.remove"),
];

/// Whether a request is audited, regardless of its method.
pub(crate) fn acts(method: &Method, route: Option<&str>) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    !reads || ACTIONS.iter().any(|(known, path, _)| method.as_str() == *known && route == Some(*path))
}

/// Whether this opened a WebSocket whose commands are logged one by one.
pub(crate) fn is_socket_of_commands(done: &Done) -> bool {
    let route = done.route.as_deref();
    done.status == StatusCode::SWITCHING_PROTOCOLS && (route == Some(EXEC_SESSION) || route == Some(EXEC_WS))
}

/// Logs a command that was run through a sandbox's WebSocket, and its result.
pub(crate) fn record_command(
    app: &App,
    context: &RequestContext,
    route: &str,
    sandbox: &str,
    error: Option<&ApiError>,
) {
    let done = Done {
        method: Method::GET,
        route: Some(route.to_owned()),
        path: route.replace("{id}", sandbox),
        status: error.map_or(StatusCode::OK, |error| error.status),
        error: error.cloned(),
    };
    record(app, context, &done);
}

/// Writes an action to the audit log. Requests without a token, or to a sandbox's own server, are not logged.
pub(crate) fn record(app: &App, context: &RequestContext, done: &Done) {
    let Some(principal) = context.principal() else { return };
    let Some((route, action)) = action(done) else { return };
    let object = context.object().map(str::to_owned).or_else(|| named_in(route, &done.path));
    let entry = NewAudit {
        workspace: &principal.workspace,
        actor: &principal.actor(),
        action,
        object: object.as_deref(),
        result: result(done),
        request_id: context.id(),
        remote: context.peer().map(|peer| peer.ip()),
        recording: None,
    };
    app.service.audit.record(&entry);
}

fn action(done: &Done) -> Option<(&'static str, &'static str)> {
    // E2B's interpreter routes accept a double slash.
    let route =
        done.route.as_deref().map(|route| route.strip_prefix('/').filter(|r| r.starts_with('/')).unwrap_or(route))?;
    let known = ACTIONS.iter().find(|(method, path, _)| done.method.as_str() == *method && route == *path);
    known.map(|(_, route, action)| (*route, *action))
}

fn result(done: &Done) -> AuditResult {
    let code = || done.error.as_ref().map_or("unknown", |error| error.code).to_owned();
    if done.status.is_server_error() {
        AuditResult::Error { code: code() }
    } else if done.status.is_client_error() {
        AuditResult::Refused { code: code() }
    } else {
        AuditResult::Ok
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
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_object_of_a_change_is_read_from_its_path() {
        assert_eq!(named_in("/v1/sandboxes/{id}/execs/{exec}", "/v1/sandboxes/a/execs/b").as_deref(), Some("a/b"));
        assert_eq!(named_in("/v1/sandboxes", "/v1/sandboxes"), None);
    }

    /// WebSockets run commands, and an export is more than a read.
    fn only_reads(path: &str, operation: &serde_json::Value) -> bool {
        operation["responses"].get("101").is_none() && !path.ends_with("/export")
    }

    #[test]
    fn every_route_that_acts_has_a_name() {
        let document = serde_json::to_value(crate::native::openapi()).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
                let named = ACTIONS.iter().any(|(m, p, _)| *m == method && p == path);
                assert!(named || method == "GET" && only_reads(path, &operations["get"]), "{method} {path}");
            }
        }
    }

    /// Procedure calls of E2B's agent that use POST but only read.
    const LOOKS: [&str; 8] = [
        "/process.Process/List",
        "/process.Process/Connect",
        "/filesystem.Filesystem/Stat",
        "/filesystem.Filesystem/ListDir",
        "/filesystem.Filesystem/WatchDir",
        "/filesystem.Filesystem/CreateWatcher",
        "/filesystem.Filesystem/GetWatcherEvents",
        "/filesystem.Filesystem/RemoveWatcher",
    ];

    /// Methods and paths of E2B's dialect. No OpenAPI document lists them and a router does not, so this reads the
    /// sources.
    fn e2b_routes() -> Vec<(&'static str, String)> {
        let (mut found, mut folders) = (Vec::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/e2b")]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(path).unwrap();
                for route in text.split(".route(").skip(1) {
                    let mut pieces = route.split('"').skip(1);
                    let path = pieces.next().unwrap().replace("{below}", "").replace("{{", "{").replace("}}", "}");
                    let handlers = pieces.next().unwrap().split("\n}").next().unwrap();
                    let methods = ["post", "put", "patch", "delete"].into_iter();
                    let methods = methods.filter(|method| handlers.contains(&format!("{method}(")));
                    found.extend(methods.map(|method| (method, path.clone())));
                }
            }
        }
        found
    }

    #[test]
    fn every_route_of_e2b_that_acts_has_a_name() {
        let routes = e2b_routes();
        assert!(routes.len() > 40, "{routes:?}");
        for (method, path) in routes.iter().filter(|(_, path)| !LOOKS.contains(&path.as_str())) {
            let method = method.to_uppercase();
            assert!(ACTIONS.iter().any(|(m, p, _)| *m == method && p == path), "{method} {path}");
        }
    }
}
