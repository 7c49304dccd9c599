//! Runs the desktop's commands in the sandbox.

use sandling_wire::{ExecRequest, OnLimitName};
use serde::Deserialize;

use super::action::Action;
use crate::observation::{Image, Observation};
use crate::spec::BadCall;
use crate::toolbox::{CallControl, ToolError, Toolbox, correctable_as_result};

/// The user whose session the desktop shows.
const USER: &str = "user";
/// Prints the screen with the mouse pointer as a PNG in base64.
const SCREENSHOT: &str = "file=$(mktemp --suffix .png) && trap 'rm -f \"$file\"' EXIT && \
    scrot --overwrite --pointer \"$file\" && base64 --wrap 0 \"$file\"";
/// Model APIs refuse larger images.
const MAX_SCREENSHOT: usize = 5 * 1024 * 1024;
/// A shell's exit code if a program does not exist.
const NO_PROGRAM: i32 = 127;
/// How much a command may print.
const MAX_PRINTED: u64 = 32 * 1024 * 1024;

/// The size of the screen in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize {
    pub width: u32,
    pub height: u32,
}

#[derive(Deserialize)]
struct Printed {
    exit_code: i32,
    stdout: String,
    stderr: String,
}

impl Toolbox {
    /// Does something with the desktop. A problem that the model can correct is a result.
    pub async fn call_action(&self, action: &Action, call: &CallControl<'_>) -> Result<Observation, ToolError> {
        correctable_as_result(self.in_time(self.act(action), call).await)
    }

    /// Does something with the screen, the mouse or the keyboard.
    pub async fn act(&self, action: &Action) -> Result<Observation, ToolError> {
        match action {
            Action::Screenshot => return self.screenshot().await,
            Action::Wait(time) => tokio::time::sleep(*time).await,
            _ => {}
        }
        let Some(arguments) = action.xdotool() else { return Ok(Observation::text("done")) };
        let mut command = vec!["xdotool"];
        command.extend(arguments.iter().map(String::as_str));
        let printed = self.desktop_tool(&command, None).await?;
        Ok(Observation::text(match action {
            Action::CursorPosition => cursor(&printed)?,
            _ => "done".to_owned(),
        }))
    }

    async fn screenshot(&self) -> Result<Observation, ToolError> {
        let request = ExecRequest { cmd: Some(SCREENSHOT.to_owned()), ..self.desktop_request() };
        let data = self.desktop_run("scrot", &request).await?;
        if data.len() > MAX_SCREENSHOT {
            let why = "the screenshot is larger than a model can get; make the screen smaller with `resize-desktop`";
            return Err(BadCall(why.to_owned()).into());
        }
        let image = Image { mime: "image/png".to_owned(), data };
        Ok(Observation { images: vec![image], ..Observation::text("the screen:") })
    }

    /// The size of the screen. Fails if the sandbox has none.
    pub async fn screen_size(&self) -> Result<ScreenSize, ToolError> {
        let printed = self.desktop_tool(&["xdotool", "getdisplaygeometry"], None).await?;
        let mut numbers = printed.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(width)), Some(Ok(height))) => Ok(ScreenSize { width, height }),
            _ => Err(BadCall(format!("xdotool printed no size: {printed:?}")).into()),
        }
    }

    /// Runs a program on the desktop and returns what it prints.
    pub(super) async fn desktop_tool(&self, command: &[&str], stdin: Option<String>) -> Result<String, ToolError> {
        let args = command.iter().map(|&word| word.to_owned()).collect();
        let request = ExecRequest { args: Some(args), stdin, ..self.desktop_request() };
        self.desktop_run(command[0], &request).await
    }

    pub(super) fn desktop_request(&self) -> ExecRequest {
        ExecRequest {
            user: Some(USER.to_owned()),
            output_limit: Some(MAX_PRINTED),
            on_limit: Some(OnLimitName::Kill),
            ..ExecRequest::default()
        }
    }

    async fn desktop_run(&self, program: &str, request: &ExecRequest) -> Result<String, ToolError> {
        let ran: Printed = match self.client.post(&self.path("exec"), request).await {
            Err(error) if error.is_no_program() => return Err(no_desktop(program).into()),
            done => done?,
        };
        match ran.exit_code {
            0 => Ok(ran.stdout),
            NO_PROGRAM => Err(no_desktop(program).into()),
            code => Err(BadCall(format!("{program} ended with {code}: {}", ran.stderr.trim())).into()),
        }
    }
}

fn no_desktop(program: &str) -> BadCall {
    BadCall(format!("this sandbox has no desktop, because {program} is missing; use the template `desktop`"))
}

/// The position in the output of `xdotool getmouselocation`, as a model reads it.
fn cursor(printed: &str) -> Result<String, BadCall> {
    let mut words = printed.split_whitespace();
    let x = words.next().and_then(|word| word.strip_prefix("x:"));
    let y = words.next().and_then(|word| word.strip_prefix("y:"));
    match (x, y) {
        (Some(x), Some(y)) => Ok(format!("X={x},Y={y}")),
        _ => Err(BadCall(format!("xdotool printed no position: {printed:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_the_pointer_is_found() {
        assert_eq!(cursor("x:12 y:7 screen:0 window:55").unwrap(), "X=12,Y=7");
        assert!(cursor("").is_err());
    }
}
