//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::ask::{cut_off, data};
use super::error::ModelError;
use super::http::EventStream;
use super::reply::{Call, Question, Reply, Turn, count, text};
use crate::events::{Event, Watch};
use crate::usage::Usage;

pub fn body(question: &Question<'_>) -> Value {
    let tools: Vec<Value> = question
        .tools
        .iter()
        .map(|tool| {
            json!({ "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.schema(), "strict": false })
        })
        .collect();
    let mut input = Vec::new();
    question.turns.iter().for_each(|turn| add(&mut input, turn));
    json!({
        "instructions": question.system,
        "tools": tools,
        "input": input,
        "max_output_tokens": question.max_tokens,
    })
}

fn add(input: &mut Vec<Value>, turn: &Turn) {
    match turn {
        Turn::User(text) => input.push(json!({ "role": "user", "content": text })),
        Turn::Model(raw) => input.extend(raw.as_array().cloned().unwrap_or_default()),
        Turn::Answers(answers) => input.extend(answers.iter().map(|(call, observation)| {
            let output = if observation.images.is_empty() {
                json!(observation.text)
            } else {
                let mut parts = vec![json!({ "type": "input_text", "text": observation.text })];
                parts.extend(observation.images.iter().map(|image| {
                    let url = format!("data:{};base64,{}", image.mime, image.data);
                    json!({ "type": "input_image", "image_url": url })
                }));
                json!(parts)
            };
            json!({ "type": "function_call_output", "call_id": call.id, "output": output })
        })),
    }
}

pub fn read(mut response: Value) -> Result<Reply, ModelError> {
    let output = response.get_mut("output").and_then(Value::as_array_mut).map(std::mem::take);
    let output = output.ok_or_else(|| ModelError::Strange("it has no output".to_owned()))?;
    let mut said = String::new();
    let mut calls = Vec::new();
    for item in &output {
        match item["type"].as_str() {
            Some("function_call") => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                calls.push(Call::of_text(text(&item["call_id"]), text(&item["name"]), arguments));
            }
            Some("message") => {
                let parts = item["content"].as_array().into_iter().flatten();
                parts.for_each(|part| said += part["text"].as_str().unwrap_or_default());
            }
            _ => {}
        }
    }
    let usage = &response["usage"];
    Ok(Reply {
        text: said,
        calls,
        usage: Usage { input: count(&usage["input_tokens"]), output: count(&usage["output_tokens"]) },
        is_cut: response["incomplete_details"]["reason"] == "max_output_tokens",
        raw: output.into(),
    })
}

/// Waits for the final event, which holds the whole response.
pub async fn gather(mut events: EventStream, heard: &mut usize, watch: Watch<'_>) -> Result<Value, ModelError> {
    while let Some(event) = events.next().await? {
        let data = data(&event.data, heard)?;
        match data["type"].as_str() {
            Some("response.output_text.delta") => watch(Event::Said(data["delta"].as_str().unwrap_or_default())),
            Some("response.completed" | "response.incomplete") => return Ok(data["response"].clone()),
            Some("response.failed") => {
                let why = data["response"]["error"]["message"].as_str().unwrap_or("it does not say why");
                return Err(ModelError::Broken(why.to_owned()));
            }
            _ => {}
        }
    }
    Err(cut_off())
}
