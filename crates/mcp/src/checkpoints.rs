//! Checkpoints: creates and lists them, rewinds to one, and shows the changes since one.

use sandling_client::{field, query};
use sandling_tools::{Observation, ToolError, Toolbox, read_arguments, shorten};
use serde::Deserialize;
use serde_json::{Value, json};

/// How much of a step's text is shown.
const SHOWN: usize = 120;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RewindRequest {
    to: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffRequest {
    from: u64,
    to: Option<u64>,
    path: Option<String>,
}

#[derive(Deserialize)]
struct Timeline {
    checkpoints: Vec<Checkpoint>,
    current: Option<u64>,
}

#[derive(Deserialize)]
struct Checkpoint {
    number: u64,
    at: String,
    cause: String,
    text: String,
}

pub async fn checkpoint(toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
    let Nothing {} = read_arguments(arguments)?;
    let created: Value = toolbox.client().post(&toolbox.path("checkpoints"), &json!({})).await?;
    Ok(Observation::text(format!("checkpoint {}", field(&created, "number")?)))
}

pub async fn history(toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
    let Nothing {} = read_arguments(arguments)?;
    let timeline: Timeline = toolbox.client().get(&toolbox.path("timeline")).await?;
    if timeline.checkpoints.is_empty() {
        return Ok(Observation::text("(there are no checkpoints)"));
    }
    let lines = timeline.checkpoints.iter().map(|checkpoint| {
        let Checkpoint { number, at, cause, text } = checkpoint;
        let here = if timeline.current == Some(*number) { "  (the sandbox continues from here)" } else { "" };
        let step = shorten(&text.replace('\n', " "), SHOWN);
        format!("{number}  {at}  before {cause}: {step}{here}")
    });
    Ok(Observation::text(lines.collect::<Vec<_>>().join("\n")))
}

pub async fn rewind(toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
    let RewindRequest { to } = read_arguments(arguments)?;
    let done: Value = toolbox.client().post(&toolbox.path("rewind"), &json!({ "to": to })).await?;
    let back = done["was"].as_u64().map(|was| format!("; rewind to {was} to undo this")).unwrap_or_default();
    Ok(Observation::text(format!("the sandbox is as it was at checkpoint {}{back}", field(&done, "to")?)))
}

pub async fn diff(toolbox: &Toolbox, arguments: Value) -> Result<Observation, ToolError> {
    let DiffRequest { from, to, path: directory } = read_arguments(arguments)?;
    let settings = toolbox.settings();
    let asked = query(&[
        ("from", Some(from.to_string())),
        ("to", to.map(|to| to.to_string())),
        ("path", Some(settings.absolute(&directory.unwrap_or_default()))),
        ("format", Some("patch".to_owned())),
    ]);
    let patch = toolbox.client().text(&toolbox.path(&format!("diff{asked}"))).await?;
    if patch.is_empty() {
        return Ok(Observation::text("(nothing changed)"));
    }
    Ok(Observation::text(shorten(&String::from_utf8_lossy(&patch), settings.max_output)))
}
