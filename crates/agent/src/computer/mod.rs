//! The computer tool that a model's API has: its definition, and its calls as actions on a desktop.
//!
//! Anthropic's Messages and OpenAI's Responses have one each. With other APIs, a model uses our own tools.

mod anthropic;
mod openai;

use std::time::Duration;

use sandling_tools::{Action, BadCall, DesktopTools, ScreenSize, ToolSpec, specs, specs_beside_computer};
use serde_json::Value;

use crate::model::{Api, COMPUTER};

/// A model's longest pause.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The computer tool's definition for a request. None if the API has no such tool.
pub fn definition(api: Api, model: &str, screen: ScreenSize) -> Option<Value> {
    match api {
        Api::Anthropic => Some(anthropic::definition(screen)),
        Api::Responses => Some(openai::definition(model, screen)),
        Api::Chat => None,
    }
}

/// The tools of our own that a model gets.
pub fn tools(api: Api, desktop: DesktopTools) -> Vec<ToolSpec> {
    match (desktop, api) {
        (DesktopTools::Offered, Api::Anthropic | Api::Responses) => specs_beside_computer(),
        _ => specs(desktop),
    }
}

/// What a call of the computer tool does, one after the other.
pub fn actions(api: Api, call: Value) -> Result<Vec<Action>, BadCall> {
    match api {
        Api::Anthropic => Ok(vec![anthropic::action(call)?]),
        Api::Responses => openai::actions(call),
        Api::Chat => Err(BadCall(format!("there is no tool {COMPUTER:?}"))),
    }
}

fn pause(seconds: f64) -> Result<Duration, BadCall> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= MAX_WAIT);
    time.ok_or_else(|| BadCall(format!("the duration must be from 0 to {} seconds, not {seconds}", MAX_WAIT.as_secs())))
}

/// Keys that are joined by plus signs.
fn joined_keys(text: &str) -> Vec<String> {
    text.split('+').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_limits() {
        assert_eq!(pause(1.5).unwrap(), Duration::from_millis(1500));
        for wrong in [-1.0, f64::NAN, 61.0] {
            assert!(pause(wrong).unwrap_err().to_string().contains("from 0 to 60 seconds"));
        }
    }

    #[test]
    fn a_computer_tool_replaces_the_tools_of_the_pointer() {
        let names = |api| -> Vec<&str> { tools(api, DesktopTools::Offered).iter().map(|spec| spec.name).collect() };
        assert!(!names(Api::Anthropic).contains(&"click") && names(Api::Anthropic).contains(&"launch"));
        assert!(names(Api::Chat).contains(&"click"));
        assert!(!tools(Api::Anthropic, DesktopTools::Hidden).iter().any(|spec| spec.name == "launch"));
    }
}
