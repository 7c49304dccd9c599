//! Parses the progress that command lines report: one JSON object per line, in a format of their own.

use sandling_tools::Observation;
use serde_json::{Value, json};

use crate::usage::Usage;

/// A reported fact.
#[derive(Debug, PartialEq)]
pub(super) enum Report {
    Said(String),
    Called {
        name: String,
        arguments: Value,
    },
    Observed(Observation),
    /// The totals.
    Used {
        steps: u32,
        usage: Usage,
    },
    /// The last message, which is the answer if nothing follows.
    Answer(String),
}

pub(super) type Reader = fn(&Value) -> Vec<Report>;

/// Parses `claude --output-format stream-json`.
pub(super) fn claude(line: &Value) -> Vec<Report> {
    let content = || line["message"]["content"].as_array().into_iter().flatten();
    match line["type"].as_str() {
        Some("assistant") => content().filter_map(claude_said).collect(),
        Some("user") => content().filter(|block| block["type"] == "tool_result").map(claude_observed).collect(),
        Some("result") => {
            let count = |name: &str| line["usage"][name].as_u64().unwrap_or_default();
            let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(count);
            let usage = Usage { input: read.iter().sum(), output: count("output_tokens") };
            let steps = line["num_turns"].as_u64().unwrap_or_default() as u32;
            let answer = line["result"].as_str().map(|text| Report::Answer(text.to_owned()));
            [Report::Used { steps, usage }].into_iter().chain(answer).collect()
        }
        _ => Vec::new(),
    }
}

fn claude_said(block: &Value) -> Option<Report> {
    match block["type"].as_str()? {
        "text" => Some(Report::Said(text(&block["text"]))),
        "tool_use" => Some(Report::Called { name: text(&block["name"]), arguments: block["input"].clone() }),
        _ => None,
    }
}

fn claude_observed(block: &Value) -> Report {
    let said = match &block["content"] {
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect::<Vec<_>>().join("\n"),
        whole => text(whole),
    };
    let is_error = block["is_error"].as_bool().unwrap_or_default();
    Report::Observed(Observation { text: said, is_error, ..Observation::default() })
}

/// Parses `codex exec --json`.
pub(super) fn codex(line: &Value) -> Vec<Report> {
    let item = &line["item"];
    match (line["type"].as_str(), item["type"].as_str()) {
        (Some("item.started"), Some("command_execution")) => {
            let arguments = json!({ "command": item["command"] });
            vec![Report::Called { name: "shell".to_owned(), arguments }]
        }
        (Some("item.completed"), Some("command_execution")) => {
            let exit_code = item["exit_code"].as_i64().map(|code| code as i32);
            let observation =
                Observation { text: text(&item["aggregated_output"]), exit_code, ..Observation::default() };
            vec![Report::Observed(observation)]
        }
        (Some("item.completed"), Some("file_change")) => {
            vec![Report::Called { name: "file_change".to_owned(), arguments: item["changes"].clone() }]
        }
        (Some("item.completed"), Some("agent_message")) => {
            let said = text(&item["text"]);
            vec![Report::Said(said.clone()), Report::Answer(said)]
        }
        (Some("turn.completed"), _) => {
            let count = |name: &str| line["usage"][name].as_u64().unwrap_or_default();
            // It does not report the number of requests.
            vec![Report::Used {
                steps: 0,
                usage: Usage { input: count("input_tokens"), output: count("output_tokens") },
            }]
        }
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: Reader, lines: &[&str]) -> Vec<Report> {
        lines.iter().flat_map(|line| reader(&serde_json::from_str(line).unwrap())).collect()
    }

    #[test]
    fn claudes_output_is_parsed() {
        let lines = [
            r#"{"type":"system","subtype":"init","cwd":"/workspace","tools":["Bash"]}"#,
            r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"Now."},
                {"type":"tool_use","id":"1","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":10}}}"#,
            r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"1","type":"tool_result",
                "content":"a.txt","is_error":false}]}}"#,
            r#"{"type":"result","subtype":"success","num_turns":2,"result":"Done.","usage":{"input_tokens":20,
                "cache_creation_input_tokens":1,"cache_read_input_tokens":2,"output_tokens":10}}"#,
        ];
        let expected = [
            Report::Said("Now.".to_owned()),
            Report::Called { name: "Bash".to_owned(), arguments: json!({ "command": "ls" }) },
            Report::Observed(Observation::text("a.txt")),
            Report::Used { steps: 2, usage: Usage { input: 23, output: 10 } },
            Report::Answer("Done.".to_owned()),
        ];
        assert_eq!(read(claude, &lines), expected);
    }

    #[test]
    fn codexs_output_is_parsed() {
        let lines = [
            r#"{"type":"turn.started"}"#,
            r#"{"type":"item.started","item":{"id":"1","type":"command_execution","command":"ls","exit_code":null}}"#,
            r#"{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"ls",
                "aggregated_output":"a.txt","exit_code":3}}"#,
            r#"{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"Done."}}"#,
            r#"{"type":"turn.completed","usage":{"input_tokens":20,"cached_input_tokens":0,"output_tokens":10}}"#,
        ];
        let expected = [
            Report::Called { name: "shell".to_owned(), arguments: json!({ "command": "ls" }) },
            Report::Observed(Observation { exit_code: Some(3), ..Observation::text("a.txt") }),
            Report::Said("Done.".to_owned()),
            Report::Answer("Done.".to_owned()),
            Report::Used { steps: 0, usage: Usage { input: 20, output: 10 } },
        ];
        assert_eq!(read(codex, &lines), expected);
    }

    #[test]
    fn unknown_output_is_ignored() {
        for line in ["1", "[]", "{}", r#"{"type":"assistant"}"#, r#"{"type":"item.completed","item":3}"#] {
            assert_eq!((read(claude, &[line]), read(codex, &[line])), (Vec::new(), Vec::new()), "{line}");
        }
    }
}
