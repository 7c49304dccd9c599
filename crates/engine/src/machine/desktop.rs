//! The desktop of a template: started before the template is saved, and exercised like its interpreters.

use std::time::Duration;

use sandling_image::Desktop;
use sandling_protocol::{ExecSpec, ExitReason, OnLimit, Program, Request, Response, Stdin};

use crate::link::{Link, LinkError};

/// A session starts a dozen programs, under emulation, from a cold disk.
const START_WITHIN: Duration = Duration::from_secs(600);
const EXERCISE_WITHIN: Duration = Duration::from_secs(60);
/// What clients do first.
const EXERCISE: &str = "for round in 1 2; do xdotool mousemove --sync 10 10 mousemove --sync 500 400 \
    getmouselocation && xdpyinfo && xrandr && scrot --overwrite --pointer /tmp/exercise.png || exit; \
    done >/dev/null; rm /tmp/exercise.png";

#[derive(Debug, thiserror::Error)]
pub enum DesktopError {
    #[error("the guest failed")]
    Guest(#[from] LinkError),
    #[error("the command ended with {code}: {output}")]
    Failed { code: i32, output: String },
    #[error("it took longer than {} s; build the template again when the host is less busy", .0.as_secs())]
    TooSlow(Duration),
}

/// Starts the session and waits until its screen is painted.
pub(super) async fn start(link: &Link, desktop: &Desktop) -> Result<(), DesktopError> {
    run(link, desktop, "start-desktop", desktop.start(), START_WITHIN).await
}

/// Moves the pointer and takes screenshots.
pub(super) async fn exercise(link: &Link, desktop: &Desktop) -> Result<(), DesktopError> {
    let argv = ["/bin/sh", "-c", EXERCISE].map(str::to_owned).to_vec();
    run(link, desktop, "exercise-desktop", argv, EXERCISE_WITHIN).await
}

async fn run(
    link: &Link,
    desktop: &Desktop,
    id: &str,
    argv: Vec<String>,
    timeout: Duration,
) -> Result<(), DesktopError> {
    let spec = ExecSpec {
        id: id.to_owned(),
        program: Program::Argv(argv),
        env: desktop.env(),
        cwd: None,
        user: Some(Desktop::USER.to_owned()),
        timeout_ms: Some(timeout.as_millis() as u64),
        output_limit: 1 << 16,
        on_limit: OnLimit::KeepTail,
        stdin: Stdin::Closed,
        terminal: None,
    };
    let mut output = Vec::new();
    let response = link.open(Request::Run(spec), b"")?.drain(|_, bytes| output.extend(bytes)).await?;
    link.call(Request::Forget { exec: id.to_owned() }).await?;
    match response {
        Response::Exited(exit) if exit.reason == ExitReason::Timeout => Err(DesktopError::TooSlow(timeout)),
        Response::Exited(exit) if exit.code != 0 => {
            let output = String::from_utf8_lossy(&output).trim().replace('\n', " | ");
            Err(DesktopError::Failed { code: exit.code, output })
        }
        _ => Ok(()),
    }
}
