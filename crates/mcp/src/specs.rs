//! The tools that an MCP client sees.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use sandling_tools::{SPECS, ToolSpec};

/// Names the sandbox that a call is about.
pub const SANDBOX: (&str, &str, &str) =
    ("sandbox", "string", "The name of a fork, as `fork` gave it; the session's own sandbox unless given.");

/// The tools beyond those that every model gets.
pub const OWN: &[ToolSpec] = &[
    ToolSpec {
        name: "fork",
        description: "Copy the whole sandbox as it is now: memory, files, running processes, Python's variables. Try \
            something risky, or several things side by side, in copies. Gives their names; the other tools take one \
            as `sandbox`.",
        arguments: &[("count", "integer", "How many copies, 1 to 8; 1 unless given."), SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "keep_fork",
        description: "Make a fork the session's own sandbox. The one it was, and all other forks, are ended.",
        arguments: &[("fork", "string", "The name of the fork to keep.")],
        required: 1,
    },
    ToolSpec {
        name: "drop_fork",
        description: "End a fork and everything in it.",
        arguments: &[("fork", "string", "The name of the fork to end.")],
        required: 1,
    },
    ToolSpec {
        name: "checkpoint",
        description: "Remember the whole sandbox as it is now: files, processes, Python's variables. Do it before \
            something risky. Gives the number for `rewind` and `diff`.",
        arguments: &[SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "history",
        description: "List the sandbox's checkpoints, and what was about to be run when each was made.",
        arguments: &[SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "rewind",
        description: "Put the sandbox back to a checkpoint: files, processes and Python's variables are as they were \
            then. It can be taken back by a rewind to where it was.",
        arguments: &[("to", "integer", "The checkpoint's number, from `history`."), SANDBOX],
        required: 1,
    },
    ToolSpec {
        name: "diff",
        description: "Show what changed in the files since a checkpoint, as a patch.",
        arguments: &[
            ("from", "integer", "The checkpoint's number, from `history`."),
            ("to", "integer", "Another checkpoint; now unless given."),
            ("path", "string", "The directory to compare; the working directory unless given."),
            SANDBOX,
        ],
        required: 1,
    },
    ToolSpec {
        name: "preview",
        description: "Make a link that opens a server in the sandbox in the user's browser. Start the server in the \
            background first, on any port.",
        arguments: &[
            ("port", "integer", "The TCP port that it listens on."),
            ("ttl_seconds", "integer", "How long the link works; an hour unless given."),
            SANDBOX,
        ],
        required: 1,
    },
];

/// Tools that change nothing.
const READ_ONLY: [&str; 4] = ["read_file", "list_files", "history", "diff"];

pub fn tools() -> Vec<Tool> {
    let shared = SPECS.iter().map(|spec| tool(spec, true));
    shared.chain(OWN.iter().map(|spec| tool(spec, false))).collect()
}

fn tool(spec: &ToolSpec, add_sandbox: bool) -> Tool {
    let mut schema = spec.schema();
    if let Some(properties) = schema.get_mut("properties").filter(|_| add_sandbox) {
        let (name, kind, description) = SANDBOX;
        properties[name] = serde_json::json!({ "type": kind, "description": description });
    }
    // Nothing that happens in a disposable machine can destroy anything, nor reach anything.
    let hints = ToolAnnotations::new().read_only(READ_ONLY.contains(&spec.name)).destructive(false).open_world(false);
    Tool::new(spec.name, spec.description, Arc::new(schema)).with_annotations(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_its_own_name_and_can_be_told_which_sandbox() {
        let tools = tools();
        let mut names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), tools.len());
        let run = tools.iter().find(|tool| tool.name == "run_code").unwrap();
        assert!(run.input_schema["properties"]["sandbox"].is_object());
        assert_eq!(run.input_schema["required"], serde_json::json!(["code"]));
    }
}
