//! Warm commands: they run before a template is saved, so that they are fast in its sandboxes.
//!
//! The guest has then read their files, and the emulator has translated their code. Both are saved with the machine. What
//! the commands write stays on the disk. Processes that they leave do not stay, because every sandbox would have them.

use std::time::Duration;

use sandling_oci::Config;

use super::machine::{BuildFailure, BuildMachine};
use super::registry::{Level, Line};

const WITHIN_MINUTES: u64 = 5;
/// How much of a command and of its output an error repeats.
const SHOWN_CHARACTERS: usize = 200;
const SHOWN_LINES: usize = 5;
/// The label of an image or a Dockerfile that names warm commands, one in a line.
const LABEL: &str = "sandling.warm";

/// The commands that an image's label names.
pub(super) fn labelled(config: Option<&Config>) -> Vec<String> {
    let labels = config.and_then(|config| config.labels.as_ref());
    let text = labels.and_then(|labels| labels.get(LABEL)).map_or("", String::as_str);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Runs the commands one after another, until one fails. In the log they are numbered after the `steps` of the build.
pub(super) async fn run(machine: &BuildMachine, steps: usize, commands: &[String]) -> Result<(), BuildFailure> {
    for (number, command) in (steps + 1..).zip(commands) {
        machine.build.log(&format!("[{number}] WARM {command}"), Level::Info, Some(number));
        let ended = machine.rehearse(number, command, Duration::from_secs(WITHIN_MINUTES * 60)).await;
        let problem = match ended {
            Err(BuildFailure::Exit(code)) => format!("ended with the exit code {code}"),
            Err(BuildFailure::StepTimeout) => format!("did not end within {WITHIN_MINUTES} minutes"),
            ended => {
                ended?;
                continue;
            }
        };
        let output = last_output(machine, number);
        let problem = if output.is_empty() { problem } else { format!("{problem}: {output}") };
        let command = command.lines().next().unwrap_or_default().chars().take(SHOWN_CHARACTERS).collect();
        return Err(BuildFailure::Warm { command, problem });
    }
    Ok(())
}

/// The end of what a command printed, in one line.
fn last_output(machine: &BuildMachine, number: usize) -> String {
    let progress = machine.build.progress();
    let progress = progress.borrow();
    // The first line names the command.
    let printed = progress.lines.iter().filter(|line| line.step == Some(number)).skip(1);
    let shown = |line: &Line| line.text.trim().chars().take(SHOWN_CHARACTERS).collect::<String>();
    let lines: Vec<_> = printed.map(shown).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_one_command_in_each_line() {
        let label = |text: &str| {
            let labels = Some([(LABEL.to_owned(), text.to_owned())].into());
            labelled(Some(&Config { labels, ..Config::default() }))
        };
        assert_eq!(label("node -e 1\n\n  pip --version \n"), ["node -e 1", "pip --version"]);
        assert!(label("").is_empty() && labelled(None).is_empty());
    }
}
