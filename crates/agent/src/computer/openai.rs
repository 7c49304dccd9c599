//! OpenAI's computer tool.

use std::time::Duration;

use sandling_tools::{Action, BadCall, Button, Position, ScreenSize, Wheel, read_arguments};
use serde::Deserialize;
use serde_json::{Value, json};

/// The models that know only the first version of the tool.
const PREVIEW: &str = "computer-use-preview";
/// The API has no duration in its `wait`.
const WAIT: Duration = Duration::from_secs(2);
/// The API counts pixels, and the mouse wheel has steps.
const PIXELS_OF_A_STEP: u32 = 100;
const MOST_STEPS: u32 = 100;

/// The actions of one call. The first version of the tool has one.
#[derive(Deserialize)]
struct Call {
    action: Option<OpenAiAction>,
    #[serde(default)]
    actions: Vec<OpenAiAction>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OpenAiAction {
    Screenshot {},
    Click {
        button: String,
        x: u32,
        y: u32,
        keys: Option<Vec<String>>,
    },
    DoubleClick {
        x: u32,
        y: u32,
        keys: Option<Vec<String>>,
    },
    Move {
        x: u32,
        y: u32,
    },
    Drag {
        path: Vec<Position>,
        keys: Option<Vec<String>>,
    },
    Scroll {
        x: u32,
        y: u32,
        #[serde(default)]
        scroll_x: i32,
        #[serde(default)]
        scroll_y: i32,
        keys: Option<Vec<String>>,
    },
    Keypress {
        keys: Vec<String>,
    },
    Type {
        text: String,
    },
    Wait {},
}

pub fn definition(model: &str, screen: ScreenSize) -> Value {
    if model.starts_with(PREVIEW) {
        return json!({ "type": "computer_use_preview", "environment": "linux",
            "display_width": screen.width, "display_height": screen.height });
    }
    json!({ "type": "computer" })
}

pub fn actions(call: Value) -> Result<Vec<Action>, BadCall> {
    let Call { action, actions } = read_arguments(call)?;
    let mut all = Vec::new();
    for one in action.into_iter().chain(actions) {
        add(&mut all, one)?;
    }
    Ok(all)
}

fn add(all: &mut Vec<Action>, action: OpenAiAction) -> Result<(), BadCall> {
    all.push(match action {
        OpenAiAction::Screenshot {} => Action::Screenshot,
        OpenAiAction::Click { button, x, y, keys } => {
            let (at, button) = (Some(Position { x, y }), button_of(&button)?);
            Action::Click { at, button, times: 1, held: keys.unwrap_or_default() }
        }
        OpenAiAction::DoubleClick { x, y, keys } => {
            let at = Some(Position { x, y });
            Action::Click { at, button: Button::Left, times: 2, held: keys.unwrap_or_default() }
        }
        OpenAiAction::Move { x, y } => Action::Move(Position { x, y }),
        OpenAiAction::Drag { path, keys } => Action::Drag { path, held: keys.unwrap_or_default() },
        OpenAiAction::Scroll { x, y, scroll_x, scroll_y, keys } => {
            let (at, held) = (Some(Position { x, y }), keys.unwrap_or_default());
            for (pixels, back, forth) in [(scroll_y, Wheel::Up, Wheel::Down), (scroll_x, Wheel::Left, Wheel::Right)] {
                let steps = pixels.unsigned_abs().div_ceil(PIXELS_OF_A_STEP).min(MOST_STEPS);
                if steps > 0 {
                    let wheel = if pixels < 0 { back } else { forth };
                    all.push(Action::Scroll { at, wheel, steps, held: held.clone() });
                }
            }
            return Ok(());
        }
        OpenAiAction::Keypress { keys } => Action::Press(keys.iter().map(|key| lower_letter(key)).collect()),
        OpenAiAction::Type { text } => Action::Type(text),
        OpenAiAction::Wait {} => Action::Wait(WAIT),
    });
    Ok(())
}

fn button_of(name: &str) -> Result<Button, BadCall> {
    match name {
        "left" => Ok(Button::Left),
        "right" => Ok(Button::Right),
        "wheel" | "middle" => Ok(Button::Middle),
        "back" => Ok(Button::Back),
        "forward" => Ok(Button::Forward),
        _ => Err(BadCall(format!("there is no button {name:?}; use left, right, wheel, back or forward"))),
    }
}

/// The API names keys in capitals, and `A` means the key without Shift.
fn lower_letter(key: &str) -> String {
    if key.len() == 1 { key.to_ascii_lowercase() } else { key.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_tool_are_understood() {
        let at = Some(Position { x: 5, y: 6 });
        let click = Action::Click { at, button: Button::Middle, times: 1, held: Vec::new() };
        let one = json!({ "action": { "type": "click", "button": "wheel", "x": 5, "y": 6 } });
        assert_eq!(actions(one).unwrap(), [click]);
        let several = json!({ "actions": [
            { "type": "keypress", "keys": ["CTRL", "A"] },
            { "type": "scroll", "x": 5, "y": 6, "scroll_x": 0, "scroll_y": -250 },
            { "type": "wait" },
        ] });
        assert_eq!(
            actions(several).unwrap(),
            [
                Action::Press(vec!["CTRL".into(), "a".into()]),
                Action::Scroll { at, wheel: Wheel::Up, steps: 3, held: Vec::new() },
                Action::Wait(WAIT),
            ]
        );
    }

    #[test]
    fn the_model_selects_the_version() {
        let screen = ScreenSize { width: 1024, height: 768 };
        assert_eq!(definition("computer-use-preview-2025", screen)["display_width"], 1024);
        assert_eq!(definition("another", screen), json!({ "type": "computer" }));
    }

    #[test]
    fn an_unknown_button_is_told() {
        let call = json!({ "action": { "type": "click", "button": "north", "x": 1, "y": 1 } });
        assert!(actions(call).unwrap_err().to_string().contains("there is no button"));
    }
}
