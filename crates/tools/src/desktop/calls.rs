//! Calls of the desktop's tools.

use sandling_wire::ExecRequest;
use serde::Deserialize;
use serde_json::Value;

use super::action::{Action, Button, Position, Wheel};
use crate::excerpt::shorten;
use crate::observation::Observation;
use crate::spec::{BadCall, read_arguments};
use crate::toolbox::{ToolError, Toolbox};

/// More in one call is a mistake.
const MOST_CLICKS: u32 = 3;
const MOST_STEPS: u32 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Click {
    x: u32,
    y: u32,
    #[serde(default)]
    button: Button,
    times: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drag {
    from_x: u32,
    from_y: u32,
    to_x: u32,
    to_y: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scroll {
    x: u32,
    y: u32,
    #[serde(default)]
    direction: Wheel,
    steps: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Press {
    keys: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launch {
    command: String,
}

/// The action of a call. None if the tool has another job.
fn action(name: &str, arguments: &Value) -> Result<Option<Action>, BadCall> {
    let arguments = arguments.clone();
    Ok(Some(match name {
        "screenshot" => {
            let Nothing {} = read_arguments(arguments)?;
            Action::Screenshot
        }
        "click" => {
            let Click { x, y, button, times } = read_arguments(arguments)?;
            let times = within("times", times.unwrap_or(1), MOST_CLICKS)?;
            Action::Click { at: Some(Position { x, y }), button, times, held: Vec::new() }
        }
        "move" => Action::Move(read_arguments(arguments)?),
        "drag" => {
            let Drag { from_x, from_y, to_x, to_y } = read_arguments(arguments)?;
            let path = vec![Position { x: from_x, y: from_y }, Position { x: to_x, y: to_y }];
            Action::Drag { path, held: Vec::new() }
        }
        "scroll" => {
            let Scroll { x, y, direction, steps } = read_arguments(arguments)?;
            let steps = within("steps", steps.unwrap_or(5), MOST_STEPS)?;
            Action::Scroll { at: Some(Position { x, y }), wheel: direction, steps, held: Vec::new() }
        }
        "type" => Action::Type(read_arguments::<Text>(arguments)?.text),
        "press" => {
            let Press { keys } = read_arguments(arguments)?;
            Action::Press(keys.split('+').map(|key| key.trim().to_owned()).collect())
        }
        _ => return Ok(None),
    }))
}

fn within(name: &str, count: u32, most: u32) -> Result<u32, BadCall> {
    match count {
        0 => Err(BadCall(format!("{name} must be at least 1"))),
        _ if count > most => Err(BadCall(format!("{name} must be at most {most}, not {count}"))),
        _ => Ok(count),
    }
}

impl Toolbox {
    /// Carries out a call of one of the desktop's tools.
    pub(crate) async fn desktop_call(&self, name: &str, arguments: Value) -> Result<Observation, ToolError> {
        if let Some(action) = action(name, &arguments)? {
            return self.act(&action).await;
        }
        match name {
            "windows" => {
                let Nothing {} = read_arguments(arguments)?;
                Ok(Observation::text(windows(&self.desktop_tool(&["wmctrl", "-lG"], None).await?)))
            }
            "launch" => {
                let Launch { command } = read_arguments(arguments)?;
                self.launch(command).await?;
                Ok(Observation::text("started; take a screenshot to see its window"))
            }
            "clipboard_get" => {
                let Nothing {} = read_arguments(arguments)?;
                let text = self.desktop_tool(&["xclip", "-selection", "clipboard", "-out"], None).await?;
                Ok(Observation::text(shorten(&text, self.settings.max_output)))
            }
            _ => {
                let Text { text } = read_arguments(arguments)?;
                self.desktop_tool(&["xclip", "-selection", "clipboard", "-in"], Some(text)).await?;
                Ok(Observation::text("done"))
            }
        }
    }

    async fn launch(&self, command: String) -> Result<(), ToolError> {
        let request = ExecRequest { cmd: Some(command), detached: Some(true), ..self.desktop_request() };
        Ok(self.client.tell(&self.path("exec"), &request).await?)
    }
}

/// The windows in the output of `wmctrl -lG`, without the panel and the background, which are on all desktops.
fn windows(listing: &str) -> String {
    let lines = listing.lines().filter_map(|line| {
        let mut rest = line;
        let mut next = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (_id, desktop) = (next()?, next()?);
        let (x, y, width, height) = (next()?, next()?, next()?, next()?);
        let _host = next();
        (desktop != "-1").then(|| format!("{width}x{height} at {x},{y}: {}", rest.trim()))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "(no windows are open)".to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::{POINTER_SPECS, SESSION_SPECS};

    #[test]
    fn calls_become_actions() {
        let click = action("click", &json!({ "x": 1, "y": 2, "button": "right", "times": 2 })).unwrap();
        let at = Some(Position { x: 1, y: 2 });
        assert_eq!(click, Some(Action::Click { at, button: Button::Right, times: 2, held: Vec::new() }));
        let press = action("press", &json!({ "keys": "ctrl+ c" })).unwrap();
        assert_eq!(press, Some(Action::Press(vec!["ctrl".to_owned(), "c".to_owned()])));
    }

    #[test]
    fn wrong_calls_are_told() {
        for (name, arguments, why) in [
            ("click", json!({ "x": -1, "y": 2 }), "invalid value"),
            ("click", json!({ "x": 1, "y": 2, "button": "north" }), "unknown variant"),
            ("click", json!({ "x": 1, "y": 2, "times": 0 }), "at least 1"),
            ("scroll", json!({ "x": 1, "y": 2, "steps": 1000 }), "at most 100"),
            ("drag", json!({ "from_x": 1 }), "missing field"),
            ("screenshot", json!({ "of": "all" }), "unknown field"),
        ] {
            let error = action(name, &arguments).unwrap_err().to_string();
            assert!(error.contains(why), "{name} {arguments}: {error}");
        }
    }

    #[test]
    fn every_tool_of_the_pointer_is_an_action_and_no_other_tool_is() {
        let is_action = |name: &str| !matches!(action(name, &json!({ "never": 1 })), Ok(None));
        assert!(POINTER_SPECS.iter().all(|spec| is_action(spec.name)));
        assert!(!SESSION_SPECS.iter().any(|spec| is_action(spec.name)));
    }

    #[test]
    fn windows_have_titles_with_spaces_and_panels_are_left_out() {
        let listing =
            "0x01 -1 0    742  1024 26   vm xfce4-panel\n0x02  0 334  342  366 142  vm notes  (draft) - Mousepad\n";
        assert_eq!(windows(listing), "366x142 at 334,342: notes  (draft) - Mousepad");
        assert_eq!(windows(""), "(no windows are open)");
    }
}
