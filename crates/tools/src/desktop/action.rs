//! What a model can do with the screen, the mouse and the keyboard, and the commands that do it.

use std::time::Duration;

use serde::Deserialize;

use super::keys::{chord, single};

/// In pixels from the upper left corner of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Position {
    pub x: u32,
    pub y: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    #[default]
    Left,
    Middle,
    Right,
    Back,
    Forward,
}

/// A direction of the mouse wheel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wheel {
    Up,
    #[default]
    Down,
    Left,
    Right,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Screenshot,
    CursorPosition,
    Move(Position),
    /// `held`: keys that are held meanwhile.
    Click {
        at: Option<Position>,
        button: Button,
        times: u32,
        held: Vec<String>,
    },
    ButtonDown,
    ButtonUp,
    Drag {
        path: Vec<Position>,
        held: Vec<String>,
    },
    Scroll {
        at: Option<Position>,
        wheel: Wheel,
        steps: u32,
        held: Vec<String>,
    },
    Type(String),
    /// Keys that are pressed together.
    Press(Vec<String>),
    Hold {
        keys: Vec<String>,
        time: Duration,
    },
    Wait(Duration),
}

impl Action {
    /// The arguments of xdotool that do it. None if xdotool does not.
    pub(super) fn xdotool(&self) -> Option<Vec<String>> {
        let line = match self {
            Self::Screenshot | Self::Wait(_) => return None,
            // xdotool refuses a text of no letters.
            Self::Type(text) if text.is_empty() => return None,
            Self::CursorPosition => words("getmouselocation"),
            Self::Move(to) => move_to(*to),
            Self::Click { at, button, times, held } => {
                let click = format!("click --repeat {times} --delay 50 {}", button.number());
                holding(held, at.map(move_to).unwrap_or_default(), words(&click))
            }
            Self::ButtonDown => words("mousedown 1"),
            Self::ButtonUp => words("mouseup 1"),
            Self::Drag { path, held } => drag(path, held),
            Self::Scroll { at, wheel, steps, held } => {
                let turn = format!("click --repeat {steps} --delay 20 {}", wheel.number());
                holding(held, at.map(move_to).unwrap_or_default(), words(&turn))
            }
            Self::Type(text) => [words("type --delay 12 --"), vec![text.clone()]].concat(),
            Self::Press(keys) => [words("key --"), vec![chord(keys)]].concat(),
            Self::Hold { keys, time } => {
                holding(keys, Vec::new(), vec!["sleep".to_owned(), time.as_secs_f64().to_string()])
            }
        };
        Some(line)
    }
}

impl Button {
    fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Middle => 2,
            Self::Right => 3,
            Self::Back => 8,
            Self::Forward => 9,
        }
    }
}

impl Wheel {
    fn number(self) -> u8 {
        match self {
            Self::Up => 4,
            Self::Down => 5,
            Self::Left => 6,
            Self::Right => 7,
        }
    }
}

fn drag(path: &[Position], held: &[String]) -> Vec<String> {
    let [start, rest @ ..] = path else { return Vec::new() };
    let Some(second) = rest.first() else { return move_to(*start) };
    // XFCE's window manager takes the first motion as the beginning of a drag, and moves with the next ones. On a busy host, it
    // misses the beginning of one without pauses.
    let between = Position { x: u32::midpoint(start.x, second.x), y: u32::midpoint(start.y, second.y) };
    let (pause, moves) = (words("sleep 0.1"), rest.iter().copied().flat_map(move_to).collect());
    let pull = [words("mousedown 1"), pause.clone(), move_to(between), pause.clone(), moves, pause, words("mouseup 1")];
    let pull = pull.concat();
    holding(held, move_to(*start), pull)
}

/// The steps `before`, then the steps of `work` while the keys are held.
fn holding(keys: &[String], before: Vec<String>, work: Vec<String>) -> Vec<String> {
    let each = |verb: &str, key: &String| vec![verb.to_owned(), single(key)];
    let down = keys.iter().flat_map(|key| each("keydown", key));
    let up = keys.iter().rev().flat_map(|key| each("keyup", key));
    before.into_iter().chain(down).chain(work).chain(up).collect()
}

fn move_to(position: Position) -> Vec<String> {
    words(&format!("mousemove --sync {} {}", position.x, position.y))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(action: &Action) -> String {
        action.xdotool().unwrap().join(" ")
    }

    #[test]
    fn actions_become_one_command() {
        let at = Some(Position { x: 3, y: 4 });
        let click = Action::Click { at, button: Button::Right, times: 2, held: vec!["ctrl".into(), "shift".into()] };
        assert_eq!(
            line(&click),
            "mousemove --sync 3 4 keydown ctrl keydown shift click --repeat 2 --delay 50 3 keyup shift keyup ctrl"
        );
        let scroll = Action::Scroll { at: None, wheel: Wheel::Up, steps: 5, held: Vec::new() };
        assert_eq!(line(&scroll), "click --repeat 5 --delay 20 4");
        let hold = Action::Hold { keys: vec!["a".into()], time: Duration::from_millis(1500) };
        assert_eq!(line(&hold), "keydown a sleep 1.5 keyup a");
        assert_eq!(line(&Action::Type("a -- b".into())), "type --delay 12 -- a -- b");
    }

    #[test]
    fn a_drag_begins_with_a_motion_on_its_way() {
        let path = vec![Position { x: 0, y: 0 }, Position { x: 10, y: 20 }, Position { x: 30, y: 20 }];
        assert_eq!(
            line(&Action::Drag { path, held: Vec::new() }),
            "mousemove --sync 0 0 mousedown 1 sleep 0.1 mousemove --sync 5 10 sleep 0.1 mousemove --sync 10 20 \
             mousemove --sync 30 20 sleep 0.1 mouseup 1"
        );
    }

    #[test]
    fn nothing_to_type_is_no_command() {
        assert_eq!(Action::Type(String::new()).xdotool(), None);
    }
}
