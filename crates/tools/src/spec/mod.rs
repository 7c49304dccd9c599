//! The tool definitions. The tools of the Python SDK have the same names and descriptions.

mod desktop;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub(crate) use desktop::{POINTER_SPECS, SESSION_SPECS};

/// One tool, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// Name, type, description.
    pub arguments: &'static [(&'static str, &'static str, &'static str)],
    /// How many of the arguments, counted from the first, are required.
    pub required: usize,
}

impl ToolSpec {
    /// The arguments as a JSON schema.
    pub fn schema(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        for (name, kind, description) in self.arguments {
            let mut about = json!({ "type": kind, "description": description });
            if let Some(choices) = choices(name) {
                about["enum"] = json!(choices);
            }
            properties.insert((*name).to_owned(), about);
        }
        let required: Vec<&str> = self.arguments.iter().take(self.required).map(|(name, ..)| *name).collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        schema.insert("required".to_owned(), required.into());
        schema.insert("additionalProperties".to_owned(), false.into());
        schema
    }
}

/// The values of an argument that has only a few.
fn choices(argument: &str) -> Option<&'static [&'static str]> {
    match argument {
        "language" => Some(&["python", "node", "bash"]),
        "button" => Some(&["left", "middle", "right"]),
        "direction" => Some(&["up", "down", "left", "right"]),
        _ => None,
    }
}

/// Whether a model gets the tools of the desktop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DesktopTools {
    Offered,
    #[default]
    Hidden,
}

/// The tools of a model.
pub fn specs(desktop: DesktopTools) -> Vec<ToolSpec> {
    match desktop {
        DesktopTools::Offered => [SPECS, POINTER_SPECS, SESSION_SPECS].concat(),
        DesktopTools::Hidden => SPECS.to_vec(),
    }
}

/// The tools of a model whose API has a computer tool of its own.
pub fn specs_beside_computer() -> Vec<ToolSpec> {
    [SPECS, SESSION_SPECS].concat()
}

/// The tools that every model gets.
const SPECS: &[ToolSpec] = &[
    ToolSpec {
        name: "run_code",
        description: "Run code in a sandbox, a disposable computer. Python keeps its variables between calls, shows its \
            last expression, and returns plots as images. Each node or bash run is a new process. Files persist.",
        arguments: &[
            ("code", "string", "The code to run."),
            ("language", "string", "The default is python."),
            ("timeout_seconds", "number", "The time limit in seconds."),
        ],
        required: 1,
    },
    ToolSpec {
        name: "run_command",
        description: "Run a shell command in the sandbox and get its output and exit code. Each call starts a \
            new shell in the working directory. Files persist, and processes started with & keep running.",
        arguments: &[
            ("command", "string", "The command line for sh."),
            ("timeout_seconds", "number", "The time limit in seconds."),
        ],
        required: 1,
    },
    ToolSpec {
        name: "read_file",
        description: "Read a file in the sandbox. PNG and JPEG files are returned as images.",
        arguments: &[("path", "string", "An absolute path.")],
        required: 1,
    },
    ToolSpec {
        name: "write_file",
        description: "Write a text file in the sandbox. Replaces an existing file, and creates missing directories.",
        arguments: &[("path", "string", "An absolute path."), ("content", "string", "The complete text of the file.")],
        required: 2,
    },
    ToolSpec {
        name: "list_files",
        description: "List a directory in the sandbox.",
        arguments: &[("path", "string", "An absolute path. The default is the working directory.")],
        required: 0,
    },
];

/// A call of the model that cannot be carried out. The text tells the model why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadCall(pub String);

/// Parses a call's arguments. The error tells the model what is wrong.
pub fn read_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, BadCall> {
    let arguments = match arguments {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => arguments,
        _ => return Err(BadCall("the arguments must be a JSON object".to_owned())),
    };
    serde_json::from_value(arguments).map_err(|error| BadCall(format!("the arguments are not valid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_say_what_is_required() {
        let schema = SPECS.iter().find(|spec| spec.name == "write_file").unwrap().schema();
        assert_eq!(schema["required"], json!(["path", "content"]));
        assert_eq!(schema["properties"]["path"]["type"], "string");
    }
}
