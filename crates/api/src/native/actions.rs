//! The routes of our own API that are audited.

use crate::audit::Action;

/// The action of each route that changes or runs something, or exports data in bulk.
pub(crate) const ACTIONS: &[Action] = &[
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
    ("POST", "/v1/webhooks", "webhook.create"),
    ("DELETE", "/v1/webhooks/{webhook}", "webhook.delete"),
    ("POST", "/v1/webhooks/{webhook}/deliveries/{delivery}/replay", "webhook.replay"),
    ("PUT", "/v1/registries/{registry}", "registry.login"),
    ("DELETE", "/v1/registries/{registry}", "registry.logout"),
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
    ("GET", "/v1/sandboxes/{id}/exec/session", "exec.run"),
    ("GET", "/v1/sandboxes/{id}/exec/pty", "terminal.open"),
    ("DELETE", "/v1/sandboxes/{id}/execs/{exec}", "exec.forget"),
    ("POST", "/v1/sandboxes/{id}/execs/{exec}/signal", "exec.signal"),
    ("POST", "/v1/sandboxes/{id}/run-code", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/run-code/stream", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions", "repl.create"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/run", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/run/stream", "repl.run"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/interrupt", "repl.interrupt"),
    ("POST", "/v1/sandboxes/{id}/repl/sessions/{session}/restart", "repl.restart"),
    ("DELETE", "/v1/sandboxes/{id}/repl/sessions/{session}", "repl.close"),
    ("PUT", "/v1/sandboxes/{id}/fs", "file.write"),
    ("PUT", "/v1/sandboxes/{id}/fs/tar", "file.write"),
    ("DELETE", "/v1/sandboxes/{id}/fs", "file.remove"),
    ("POST", "/v1/sandboxes/{id}/fs/mkdir", "file.mkdir"),
    ("POST", "/v1/sandboxes/{id}/fs/move", "file.move"),
    ("POST", "/v1/sandboxes/{id}/fs/chmod", "file.chmod"),
    ("POST", "/v1/sandboxes/{id}/preview-token", "preview.create"),
    ("DELETE", "/v1/preview-tokens/{token}", "preview.revoke"),
    ("POST", "/v1/templates/build", "template.build"),
    ("PUT", "/v1/templates/builds/uploads/{hash}", "template.upload"),
    ("DELETE", "/v1/templates/builds/cache", "template.clear_cache"),
    ("POST", "/v1/templates/{name}/pull", "template.pull"),
    ("DELETE", "/v1/templates/{name}", "template.delete"),
    ("POST", "/v1/me/tokens", "token.create"),
    ("DELETE", "/v1/me/tokens/{prefix}", "token.revoke"),
    ("POST", "/v1/dashboard/link", "dashboard.link"),
    ("POST", "/v1/dashboard/session", "dashboard.sign_in"),
    ("DELETE", "/v1/dashboard/session", "dashboard.sign_out"),
    ("POST", "/v1/workspaces", "workspace.create"),
    ("PATCH", "/v1/workspaces/{workspace}", "workspace.change"),
    ("DELETE", "/v1/workspaces/{workspace}", "workspace.delete"),
    ("POST", "/v1/workspaces/{workspace}/tokens", "token.create"),
    ("DELETE", "/v1/workspaces/{workspace}/tokens/{prefix}", "token.revoke"),
    ("PUT", "/v1/workspaces/{workspace}/quota", "quota.set"),
];

#[cfg(test)]
mod tests {
    use super::*;

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
}
