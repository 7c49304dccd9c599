//! The routes of E2B's dialect that are audited.

use crate::audit::Action;

/// The action of each route that changes or runs something.
pub(crate) const ACTIONS: &[Action] = &[
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
    ("PATCH", "/templates/{id}", "template.publish"),
    ("PATCH", "/v2/templates/{id}", "template.publish"),
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
    // The clients send a double slash if the base URL ends with a slash.
    ("POST", "//execute", "repl.run"),
    ("POST", "//contexts", "repl.create"),
    ("DELETE", "//contexts/{id}", "repl.close"),
    ("POST", "//contexts/{id}/restart", "repl.restart"),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

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
