//! What each tool is for and what it takes. The Python SDK's tools have the same names and words.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// One tool, as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    pub name: &'static str,
    pub description: &'static str,
    /// Name, type, description.
    pub arguments: &'static [(&'static str, &'static str, &'static str)],
    /// How many of the arguments, from the first on, must be there.
    pub required: usize,
}

impl ToolSpec {
    /// Its arguments as a JSON schema.
    pub fn schema(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        for (name, kind, description) in self.arguments {
            let mut about = json!({ "type": kind, "description": description });
            if *name == "language" {
                about["enum"] = json!(["python", "node", "bash"]);
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

/// The tools that every model gets.
pub const SPECS: &[ToolSpec] = &[
    ToolSpec {
        name: "run_code",
        description: "Run code in a sandbox, a disposable computer. Python keeps its variables from call to call, its \
            last expression is shown, and plots come back as images. Each node or bash run starts anew. Files last.",
        arguments: &[
            ("code", "string", "The code to run."),
            ("language", "string", "python unless given."),
            ("timeout_seconds", "number", "End it after so many seconds."),
        ],
        required: 1,
    },
    ToolSpec {
        name: "run_command",
        description: "Run a shell command in the sandbox and get its output and exit code. Each call is a shell of \
            its own, in the working directory; files last. What is put into the background with & goes on running.",
        arguments: &[
            ("command", "string", "The command line, for sh."),
            ("timeout_seconds", "number", "End it after so many seconds."),
        ],
        required: 1,
    },
    ToolSpec {
        name: "read_file",
        description: "Read a file of the sandbox. Pictures (PNG, JPEG) come back as images.",
        arguments: &[("path", "string", "An absolute path.")],
        required: 1,
    },
    ToolSpec {
        name: "write_file",
        description: "Write a text file in the sandbox, replacing what was there. Directories above it are made.",
        arguments: &[("path", "string", "An absolute path."), ("content", "string", "The whole text of the file.")],
        required: 2,
    },
    ToolSpec {
        name: "list_files",
        description: "List a directory of the sandbox.",
        arguments: &[("path", "string", "An absolute path; the working directory unless given.")],
        required: 0,
    },
];

/// A model's call that cannot be carried out; the text tells the model why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadCall(pub String);

/// A call's arguments, if they fit. Models get this wrong; the error says how.
pub fn read_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, BadCall> {
    let arguments = match arguments {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => arguments,
        _ => return Err(BadCall("the arguments must be a JSON object".to_owned())),
    };
    serde_json::from_value(arguments).map_err(|error| BadCall(format!("the arguments do not fit: {error}")))
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
