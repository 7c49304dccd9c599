//! The tools that an MCP client sees.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use sandling_tools::{DesktopTools, ToolSpec};

/// The argument that names the sandbox of a call.
pub const SANDBOX: (&str, &str, &str) =
    ("sandbox", "string", "The name of a fork that `fork` returned. The default is the session's own sandbox.");

/// The tools besides those that every model gets.
pub const OWN: &[ToolSpec] = &[
    ToolSpec {
        name: "fork",
        description: "Copy the whole sandbox as it is now: memory, files, running processes, Python's variables. Use \
            copies to try something risky, or several things side by side. Returns their names, which the other tools \
            accept as `sandbox`.",
        arguments: &[("count", "integer", "The number of copies, from 1 to 8. The default is 1."), SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "keep_fork",
        description: "Make a fork the session's own sandbox. Ends the previous one and all other forks.",
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
        description: "Save the whole sandbox as it is now: files, processes, Python's variables. Use it before \
            something risky. Returns the number for `rewind` and `diff`.",
        arguments: &[SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "history",
        description: "List the sandbox's checkpoints, and what was about to run when each was created.",
        arguments: &[SANDBOX],
        required: 0,
    },
    ToolSpec {
        name: "rewind",
        description: "Restore the sandbox to a checkpoint: files, processes and Python's variables are as they were \
            then. Returns the number to rewind to if you want to undo this.",
        arguments: &[("to", "integer", "The checkpoint's number, from `history`."), SANDBOX],
        required: 1,
    },
    ToolSpec {
        name: "diff",
        description: "Show the file changes since a checkpoint, as a patch.",
        arguments: &[
            ("from", "integer", "The checkpoint's number, from `history`."),
            ("to", "integer", "Another checkpoint. The default is the current state."),
            ("path", "string", "The directory to compare. The default is the working directory."),
            SANDBOX,
        ],
        required: 1,
    },
    ToolSpec {
        name: "preview",
        description: "Create a link that opens a server in the sandbox in the user's browser. Start the server in the \
            background first, on any port.",
        arguments: &[
            ("port", "integer", "The TCP port that the server listens on."),
            ("ttl_seconds", "integer", "How long the link works, in seconds. The default is an hour."),
            SANDBOX,
        ],
        required: 1,
    },
];

/// Tools that change nothing.
const READ_ONLY: [&str; 7] = ["read_file", "list_files", "history", "diff", "screenshot", "windows", "clipboard_get"];

pub fn tools(desktop: DesktopTools) -> Vec<Tool> {
    let shared = sandling_tools::specs(desktop).into_iter().map(|spec| tool(&spec, true));
    shared.chain(OWN.iter().map(|spec| tool(spec, false))).collect()
}

fn tool(spec: &ToolSpec, add_sandbox: bool) -> Tool {
    let mut schema = spec.schema();
    if let Some(properties) = schema.get_mut("properties").filter(|_| add_sandbox) {
        let (name, kind, description) = SANDBOX;
        properties[name] = serde_json::json!({ "type": kind, "description": description });
    }
    // A disposable machine holds nothing to destroy, and its network access is limited.
    let hints = ToolAnnotations::new().read_only(READ_ONLY.contains(&spec.name)).destructive(false).open_world(false);
    Tool::new(spec.name, spec.description, Arc::new(schema)).with_annotations(hints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_unique_and_tools_accept_a_sandbox() {
        let tools = tools(DesktopTools::Offered);
        let mut names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), tools.len());
        let run = tools.iter().find(|tool| tool.name == "run_code").unwrap();
        assert!(run.input_schema["properties"]["sandbox"].is_object());
        assert_eq!(run.input_schema["required"], serde_json::json!(["code"]));
    }

    #[test]
    fn only_a_desktop_has_a_screen() {
        let has_screenshot = |desktop| tools(desktop).iter().any(|tool| tool.name == "screenshot");
        assert!(has_screenshot(DesktopTools::Offered));
        assert!(!has_screenshot(DesktopTools::Hidden));
    }
}
