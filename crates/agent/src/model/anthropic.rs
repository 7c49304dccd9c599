//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::ask::{cut_off, data};
use super::error::ModelError;
use super::http::EventStream;
use super::reply::{Call, Question, Reply, Turn, count, text};
use crate::events::{Event, Watch};
use crate::usage::Usage;

/// The header without which the API refuses the computer tool.
pub const COMPUTER_BETA: (&str, &str) = ("anthropic-beta", "computer-use-2025-01-24");
/// Holds a tool's arguments that are not valid JSON, so that the model can be told.
const BROKEN: &str = "sandling_broken_input";

pub fn body(question: &Question<'_>) -> Value {
    let own = question
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema() }));
    let tools: Vec<Value> = own.chain(question.computer.cloned()).collect();
    json!({
        "max_tokens": question.max_tokens,
        "system": question.system,
        "tools": tools,
        "messages": question.turns.iter().map(message).collect::<Vec<_>>(),
    })
}

fn message(turn: &Turn) -> Value {
    match turn {
        Turn::User(text) => json!({ "role": "user", "content": text }),
        Turn::Model(raw) => raw.clone(),
        Turn::Answers(answers) => {
            let results: Vec<Value> = answers
                .iter()
                .map(|(call, observation)| {
                    let mut content = vec![json!({ "type": "text", "text": observation.text })];
                    content.extend(observation.images.iter().map(|image| {
                        json!({ "type": "image",
                            "source": { "type": "base64", "media_type": image.mime, "data": image.data } })
                    }));
                    json!({ "type": "tool_result", "tool_use_id": call.id, "is_error": observation.is_error,
                        "content": content })
                })
                .collect();
            json!({ "role": "user", "content": results })
        }
    }
}

pub fn read(mut message: Value) -> Result<Reply, ModelError> {
    let blocks = message.get_mut("content").and_then(Value::as_array_mut).map(std::mem::take);
    let mut blocks = blocks.ok_or_else(|| ModelError::Strange("it has no content".to_owned()))?;
    let mut said = String::new();
    let mut calls = Vec::new();
    for block in blocks.iter_mut().filter(|block| block.is_object()) {
        match block["type"].as_str() {
            Some("text") => said += block["text"].as_str().unwrap_or_default(),
            Some("tool_use") => calls.push(call(block)),
            _ => {}
        }
    }
    let usage = &message["usage"];
    let cached = count(&usage["cache_read_input_tokens"]) + count(&usage["cache_creation_input_tokens"]);
    Ok(Reply {
        text: said,
        calls,
        usage: Usage { input: count(&usage["input_tokens"]) + cached, output: count(&usage["output_tokens"]) },
        is_cut: message["stop_reason"] == "max_tokens",
        raw: json!({ "role": "assistant", "content": blocks }),
    })
}

fn call(block: &mut Value) -> Call {
    let (id, name) = (text(&block["id"]), text(&block["name"]));
    let broken = block.as_object_mut().and_then(|block| block.remove(BROKEN));
    match broken {
        // The API accepts only an object here.
        Some(broken) => Call::of_text(id, name, broken.as_str().unwrap_or_default()),
        None => Call { id, name, arguments: Ok(block["input"].clone()) },
    }
}

/// Assembles the message from its stream events.
pub async fn gather(mut events: EventStream, heard: &mut usize, watch: Watch<'_>) -> Result<Value, ModelError> {
    let mut message = Value::Null;
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    while let Some(event) = events.next().await? {
        let data = data(&event.data, heard)?;
        let index = usize::try_from(count(&data["index"])).unwrap_or(usize::MAX);
        match data["type"].as_str() {
            Some("message_start") if data["message"].is_object() => {
                message = data["message"].clone();
                // Not every server reports usage.
                if !message["usage"].is_object() {
                    message["usage"] = json!({});
                }
            }
            Some("content_block_start") if index == blocks.len() && data["content_block"].is_object() => {
                blocks.push(data["content_block"].clone());
                inputs.push(String::new());
            }
            Some("content_block_delta") if index < blocks.len() => {
                add(&mut blocks[index], &mut inputs[index], &data["delta"], watch);
            }
            Some("message_delta") if message.is_object() => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                if let Some(usage) = data["usage"].as_object() {
                    usage.iter().for_each(|(name, value)| message["usage"][name] = value.clone());
                }
            }
            Some("message_stop") if message.is_object() => {
                blocks.iter_mut().zip(&inputs).for_each(|(block, input)| close(block, input));
                message["content"] = blocks.into();
                return Ok(message);
            }
            _ => {}
        }
    }
    Err(cut_off())
}

fn add(block: &mut Value, input: &mut String, delta: &Value, watch: Watch<'_>) {
    let append = |block: &mut Value, name: &str| {
        let more = delta[name].as_str().unwrap_or_default();
        let whole = block[name].as_str().unwrap_or_default().to_owned() + more;
        block[name] = whole.into();
    };
    match delta["type"].as_str() {
        Some("text_delta") => {
            watch(Event::Said(delta["text"].as_str().unwrap_or_default()));
            append(block, "text");
        }
        Some("thinking_delta") => append(block, "thinking"),
        Some("signature_delta") => append(block, "signature"),
        Some("input_json_delta") => *input += delta["partial_json"].as_str().unwrap_or_default(),
        _ => {}
    }
}

fn close(block: &mut Value, input: &str) {
    if block["type"] != "tool_use" || input.trim().is_empty() {
        return;
    }
    match serde_json::from_str::<Value>(input) {
        Ok(input) => block["input"] = input,
        Err(_) => block[BROKEN] = input.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_sent_back_unchanged_and_calls_are_found() {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let tool = json!({ "type": "tool_use", "id": "1", "name": "run_code", "input": { "code": "1" } });
        let reply = read(json!({
            "content": [thinking, { "type": "text", "text": "So:" }, tool],
            "usage": { "input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5 },
            "stop_reason": "tool_use",
        }))
        .unwrap();
        assert_eq!((reply.text.as_str(), reply.usage), ("So:", Usage { input: 8, output: 4 }));
        assert_eq!(reply.calls[0].arguments, Ok(json!({ "code": "1" })));
        assert_eq!(reply.raw["content"][0], thinking);
    }

    #[test]
    fn invalid_arguments_are_reported_and_not_sent_back() {
        let mut block = json!({ "type": "tool_use", "id": "1", "name": "run_code", "input": {} });
        close(&mut block, "{\"code\": ");
        let reply = read(json!({ "content": [block] })).unwrap();
        assert!(reply.calls[0].arguments.as_ref().unwrap_err().contains("not JSON"));
        assert_eq!(reply.raw["content"][0], json!({ "type": "tool_use", "id": "1", "name": "run_code", "input": {} }));
    }
}
