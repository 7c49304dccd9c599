//! OpenAI's Chat Completions API, and compatible servers.

use serde_json::{Value, json};

use super::ask::{cut_off, data};
use super::error::ModelError;
use super::http::EventStream;
use super::reply::{Call, Question, Reply, Turn, count, text};
use crate::events::{Event, Watch};
use crate::usage::Usage;

const MOST_CALLS: usize = 64;

/// `is_openai`: other servers know only the older name of the token limit.
pub fn body(question: &Question<'_>, is_openai: bool) -> Value {
    let tools: Vec<Value> = question
        .tools
        .iter()
        .map(|tool| {
            json!({ "type": "function",
                "function": { "name": tool.name, "description": tool.description, "parameters": tool.schema() } })
        })
        .collect();
    let mut messages = vec![json!({ "role": "system", "content": question.system })];
    question.turns.iter().for_each(|turn| add(&mut messages, turn));
    let limit = if is_openai { "max_completion_tokens" } else { "max_tokens" };
    let mut body = json!({ "tools": tools, "messages": messages });
    body[limit] = question.max_tokens.into();
    body
}

fn add(messages: &mut Vec<Value>, turn: &Turn) {
    match turn {
        Turn::User(text) => messages.push(json!({ "role": "user", "content": text })),
        Turn::Model(raw) => messages.push(raw.clone()),
        Turn::Answers(answers) => {
            messages.extend(answers.iter().map(
                |(call, observation)| json!({ "role": "tool", "tool_call_id": call.id, "content": observation.text }),
            ));
            // Tool messages can hold text only.
            let mut content: Vec<Value> = answers
                .iter()
                .flat_map(|(_, observation)| &observation.images)
                .map(|image| {
                    let url = format!("data:{};base64,{}", image.mime, image.data);
                    json!({ "type": "image_url", "image_url": { "url": url } })
                })
                .collect();
            if !content.is_empty() {
                content.insert(0, json!({ "type": "text", "text": "Images that the tools produced:" }));
                messages.push(json!({ "role": "user", "content": content }));
            }
        }
    }
}

pub fn read(mut completion: Value) -> Result<Reply, ModelError> {
    let choice = completion.get_mut("choices").and_then(|choices| choices.get_mut(0)).map(Value::take);
    let choice = choice.ok_or_else(|| ModelError::Strange("it has no choices".to_owned()))?;
    let message = &choice["message"];
    // Only calls that are carried out are sent back, because each needs a result.
    let wanted: Vec<&Value> = message["tool_calls"].as_array().into_iter().flatten().take(MOST_CALLS).collect();
    let calls: Vec<Call> = wanted
        .iter()
        .map(|call| {
            let function = &call["function"];
            // Some servers send the arguments as an object.
            let arguments =
                function["arguments"].as_str().map_or_else(|| function["arguments"].to_string(), str::to_owned);
            Call::of_text(text(&call["id"]), text(&function["name"]), &arguments)
        })
        .collect();
    let mut raw = json!({ "role": "assistant", "content": message["content"] });
    if !calls.is_empty() {
        raw["tool_calls"] = json!(wanted);
    }
    Ok(Reply {
        text: text(&message["content"]),
        calls,
        usage: Usage {
            input: count(&completion["usage"]["prompt_tokens"]),
            output: count(&completion["usage"]["completion_tokens"]),
        },
        is_cut: choice["finish_reason"] == "length",
        raw,
    })
}

/// Assembles the completion from its stream events.
pub async fn gather(mut events: EventStream, heard: &mut usize, watch: Watch<'_>) -> Result<Value, ModelError> {
    let (mut said, mut calls, mut finish, mut usage) = (String::new(), Vec::<Value>::new(), Value::Null, Value::Null);
    while let Some(event) = events.next().await? {
        if event.data.trim() == "[DONE]" {
            break;
        }
        let chunk = data(&event.data, heard)?;
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        let choice = &chunk["choices"][0];
        if let Some(text) = choice["delta"]["content"].as_str() {
            watch(Event::Said(text));
            said += text;
        }
        for part in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            add_call(&mut calls, part);
        }
        if choice["finish_reason"].is_string() {
            finish = choice["finish_reason"].clone();
        }
    }
    // Without a finish reason, the connection was cut.
    if finish.is_null() {
        return Err(cut_off());
    }
    let content = if said.is_empty() { Value::Null } else { said.into() };
    let message = json!({ "content": content, "tool_calls": calls });
    Ok(json!({ "choices": [{ "message": message, "finish_reason": finish }], "usage": usage }))
}

fn add_call(calls: &mut Vec<Value>, part: &Value) {
    let index = usize::try_from(count(&part["index"])).unwrap_or(usize::MAX);
    if index >= MOST_CALLS {
        return;
    }
    while calls.len() <= index {
        calls.push(json!({ "id": "", "type": "function", "function": { "name": "", "arguments": "" } }));
    }
    let call = &mut calls[index];
    if let Some(id) = part["id"].as_str().filter(|id| !id.is_empty()) {
        call["id"] = id.into();
    }
    for name in ["name", "arguments"] {
        if let Some(more) = part["function"][name].as_str() {
            let whole = call["function"][name].as_str().unwrap_or_default().to_owned() + more;
            call["function"][name] = whole.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_pieces_are_assembled() {
        let mut calls = Vec::new();
        add_call(&mut calls, &json!({ "index": 1, "id": "b", "function": { "name": "two", "arguments": "" } }));
        add_call(&mut calls, &json!({ "index": 0, "id": "a", "function": { "name": "one", "arguments": "{\"x\"" } }));
        add_call(&mut calls, &json!({ "index": 0, "function": { "arguments": ": 1}" } }));
        add_call(&mut calls, &json!({ "index": 99_999_999 }));
        let reply = read(json!({ "choices": [{ "message": { "content": null, "tool_calls": calls } }] })).unwrap();
        assert_eq!(reply.calls[0], Call { id: "a".into(), name: "one".into(), arguments: Ok(json!({ "x": 1 })) });
        assert_eq!(reply.calls[1].name, "two");
    }

    #[test]
    fn excess_calls_are_not_sent_back() {
        let call = |id: usize| json!({ "id": id.to_string(), "function": { "name": "run_code", "arguments": "{}" } });
        let calls: Vec<Value> = (0..=MOST_CALLS).map(call).collect();
        let reply = read(json!({ "choices": [{ "message": { "tool_calls": calls } }] })).unwrap();
        assert_eq!(reply.calls.len(), MOST_CALLS);
        assert_eq!(reply.raw["tool_calls"], json!(calls[..MOST_CALLS]));
    }
}
