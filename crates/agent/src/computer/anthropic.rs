//! Anthropic's computer tool, version 2025-01-24.

use sandling_tools::{Action, BadCall, Button, Position, ScreenSize, Wheel, read_arguments};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{joined_keys, pause};
use crate::model::COMPUTER;

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
enum Call {
    Screenshot {},
    CursorPosition {},
    Key { text: String },
    HoldKey { text: String, duration: f64 },
    Type { text: String },
    MouseMove { coordinate: (u32, u32) },
    LeftClick(Click),
    RightClick(Click),
    MiddleClick(Click),
    DoubleClick(Click),
    TripleClick(Click),
    LeftClickDrag { start_coordinate: (u32, u32), coordinate: (u32, u32), text: Option<String> },
    LeftMouseDown {},
    LeftMouseUp {},
    Scroll { coordinate: Option<(u32, u32)>, scroll_direction: Wheel, scroll_amount: u32, text: Option<String> },
    Wait { duration: f64 },
}

#[derive(Deserialize)]
struct Click {
    coordinate: Option<(u32, u32)>,
    /// Keys that are held meanwhile.
    text: Option<String>,
}

pub fn definition(screen: ScreenSize) -> Value {
    json!({ "type": "computer_20250124", "name": COMPUTER,
        "display_width_px": screen.width, "display_height_px": screen.height })
}

pub fn action(call: Value) -> Result<Action, BadCall> {
    Ok(match read_arguments(call)? {
        Call::Screenshot {} => Action::Screenshot,
        Call::CursorPosition {} => Action::CursorPosition,
        Call::Key { text } => Action::Press(joined_keys(&text)),
        Call::HoldKey { text, duration } => Action::Hold { keys: joined_keys(&text), time: pause(duration)? },
        Call::Type { text } => Action::Type(text),
        Call::MouseMove { coordinate } => Action::Move(position(coordinate)),
        Call::LeftClick(how) => click(how, Button::Left, 1),
        Call::RightClick(how) => click(how, Button::Right, 1),
        Call::MiddleClick(how) => click(how, Button::Middle, 1),
        Call::DoubleClick(how) => click(how, Button::Left, 2),
        Call::TripleClick(how) => click(how, Button::Left, 3),
        Call::LeftClickDrag { start_coordinate, coordinate, text } => {
            Action::Drag { path: vec![position(start_coordinate), position(coordinate)], held: held(text) }
        }
        Call::LeftMouseDown {} => Action::ButtonDown,
        Call::LeftMouseUp {} => Action::ButtonUp,
        Call::Scroll { coordinate, scroll_direction, scroll_amount, text } => Action::Scroll {
            at: coordinate.map(position),
            wheel: scroll_direction,
            steps: scroll_amount.clamp(1, 100),
            held: held(text),
        },
        Call::Wait { duration } => Action::Wait(pause(duration)?),
    })
}

fn click(how: Click, button: Button, times: u32) -> Action {
    Action::Click { at: how.coordinate.map(position), button, times, held: held(how.text) }
}

fn held(keys: Option<String>) -> Vec<String> {
    keys.as_deref().map(joined_keys).unwrap_or_default()
}

fn position((x, y): (u32, u32)) -> Position {
    Position { x, y }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_become_actions() {
        let at = Position { x: 5, y: 6 };
        for (call, meant) in [
            (json!({ "action": "screenshot" }), Action::Screenshot),
            (json!({ "action": "key", "text": "ctrl+s" }), Action::Press(vec!["ctrl".into(), "s".into()])),
            (json!({ "action": "type", "text": "a + b" }), Action::Type("a + b".into())),
            (json!({ "action": "mouse_move", "coordinate": [5, 6] }), Action::Move(at)),
            (json!({ "action": "wait", "duration": 2 }), Action::Wait(Duration::from_secs(2))),
            (
                json!({ "action": "left_click", "coordinate": [5, 6], "text": "shift" }),
                Action::Click { at: Some(at), button: Button::Left, times: 1, held: vec!["shift".into()] },
            ),
            (
                json!({ "action": "triple_click" }),
                Action::Click { at: None, button: Button::Left, times: 3, held: Vec::new() },
            ),
            (
                json!({ "action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [5, 6] }),
                Action::Drag { path: vec![Position { x: 0, y: 0 }, at], held: Vec::new() },
            ),
            (
                json!({ "action": "scroll", "coordinate": [5, 6], "scroll_direction": "up", "scroll_amount": 3 }),
                Action::Scroll { at: Some(at), wheel: Wheel::Up, steps: 3, held: Vec::new() },
            ),
        ] {
            assert_eq!(action(call.clone()).unwrap(), meant, "{call}");
        }
    }

    #[test]
    fn wrong_calls_are_told() {
        for (call, why) in [
            (json!({ "action": "fly" }), "unknown variant `fly`"),
            (json!({ "action": "mouse_move" }), "missing field `coordinate`"),
            (json!({ "action": "left_click", "coordinate": [-1, 2] }), "invalid value"),
            (json!({ "action": "wait", "duration": 1e9 }), "from 0 to 60 seconds"),
            (json!("screenshot"), "must be a JSON object"),
        ] {
            let error = action(call.clone()).unwrap_err().to_string();
            assert!(error.contains(why), "{call}: {error}");
        }
    }
}
