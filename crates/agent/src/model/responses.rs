//! OpenAI's Responses API.

use sandling_tools::{Image, Observation};
use serde_json::{Value, json};

use super::ask::{cut_off, data};
use super::error::ModelError;
use super::http::EventStream;
use super::reply::{COMPUTER, Call, Question, Reply, Turn, count, text};
use crate::events::{Event, Watch};
use crate::usage::Usage;

/// The type of an item that uses the computer tool.
const COMPUTER_CALL: &str = "computer_call";

pub fn body(question: &Question<'_>) -> Value {
    let own = question.tools.iter().map(|tool| {
        json!({ "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.schema(), "strict": false })
    });
    let tools: Vec<Value> = own.chain(question.computer.cloned()).collect();
    let mut input = Vec::new();
    question.turns.iter().for_each(|turn| add(&mut input, turn));
    let mut body = json!({
        "instructions": question.system,
        "tools": tools,
        "input": input,
        "max_output_tokens": question.max_tokens,
    });
    if question.computer.is_some() {
        // The first version of the tool needs it, and screenshots fill every context at some time.
        body["truncation"] = "auto".into();
    }
    body
}

fn add(input: &mut Vec<Value>, turn: &Turn) {
    match turn {
        Turn::User(text) => input.push(json!({ "role": "user", "content": text })),
        Turn::Model(raw) => input.extend(raw.as_array().cloned().unwrap_or_default()),
        Turn::Answers(answers) => {
            for (call, observation) in answers {
                if input.iter().any(|item| item["type"] == COMPUTER_CALL && item["call_id"] == call.id) {
                    input.extend(computer_output(call, observation));
                } else {
                    input.push(function_output(call, observation));
                }
            }
        }
    }
}

fn function_output(call: &Call, observation: &Observation) -> Value {
    let output = if observation.images.is_empty() {
        json!(observation.text)
    } else {
        let mut parts = vec![json!({ "type": "input_text", "text": observation.text })];
        let images = observation.images.iter().map(|image| json!({ "type": "input_image", "image_url": url(image) }));
        parts.extend(images);
        json!(parts)
    };
    json!({ "type": "function_call_output", "call_id": call.id, "output": output })
}

/// The screen after a call of the computer tool. The API has no place for a text there, so an error follows as a message.
fn computer_output(call: &Call, observation: &Observation) -> Vec<Value> {
    let screen = observation.images.first().map(url);
    let output = json!({ "type": "computer_screenshot", "image_url": screen });
    let mut items = vec![json!({ "type": "computer_call_output", "call_id": call.id, "output": output })];
    if observation.is_error {
        items.push(json!({ "role": "user", "content": format!("The computer did not do that. {}", observation.text) }));
    }
    items
}

fn url(image: &Image) -> String {
    format!("data:{};base64,{}", image.mime, image.data)
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
            Some(COMPUTER_CALL) => calls.push(computer_call(item)?),
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

/// A call of the computer tool. If the API wants a person to look at it first, nobody can.
fn computer_call(item: &Value) -> Result<Call, ModelError> {
    let checks = item["pending_safety_checks"].as_array().into_iter().flatten();
    let checks: Vec<&str> = checks.map(|check| check["message"].as_str().unwrap_or("without a reason")).collect();
    if !checks.is_empty() {
        return Err(ModelError::NeedsPerson(checks.join("; ")));
    }
    Ok(Call { id: text(&item["call_id"]), name: COMPUTER.to_owned(), arguments: Ok(item.clone()) })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn response(checks: &Value) -> Value {
        json!({ "output": [{ "type": "computer_call", "id": "i", "call_id": "c", "status": "completed",
            "pending_safety_checks": checks, "action": { "type": "screenshot" } }] })
    }

    #[test]
    fn a_computer_call_is_answered_with_the_screen() {
        let reply = read(response(&json!([]))).unwrap();
        let call = reply.calls[0].clone();
        assert_eq!((call.id.as_str(), call.name.as_str()), ("c", COMPUTER));
        let image = Image { mime: "image/png".into(), data: "AAAA".into() };
        let seen = Observation { images: vec![image], ..Observation::error("there is no button") };
        let turns = [Turn::User("Look.".into()), Turn::Model(reply.raw), Turn::Answers(vec![(call, seen)])];
        let tool = json!({ "type": "computer" });
        let question = Question { system: "", turns: &turns, tools: &[], computer: Some(&tool), max_tokens: 1 };
        let body = body(&question);
        assert_eq!(body["tools"], json!([tool]));
        assert_eq!(body["truncation"], "auto");
        let output = json!({ "type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA" });
        assert_eq!(body["input"][2], json!({ "type": "computer_call_output", "call_id": "c", "output": output }));
        assert!(body["input"][3]["content"].as_str().unwrap().contains("there is no button"));
    }

    #[test]
    fn a_call_that_a_person_must_check_ends_the_task() {
        let error = read(response(&json!([{ "id": "s", "code": "x", "message": "malicious" }]))).unwrap_err();
        assert!(matches!(&error, ModelError::NeedsPerson(why) if why == "malicious") && !error.is_passing());
    }
}
