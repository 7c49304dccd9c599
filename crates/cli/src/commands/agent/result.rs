//! Prints the result of a task and applies its changes.

use std::io::{self, BufRead, Write};

use rustix::stdio::stdin;
use rustix::termios::{QueueSelector, tcflush};
use sandling_agent::{Attempt, Budget, Diff, EndedBy, Outcome, Project};
use sandling_tools::Toolbox;
use tokio_util::sync::CancellationToken;

use super::view::View;
use crate::options::Agent;
use crate::show;
use crate::terminal::sanitize;

/// How a task ended and what it used. Values that nothing counted are omitted.
pub fn summary(outcome: &Outcome, budget: &Budget) -> String {
    let spent = &outcome.spent;
    let mut used = Vec::new();
    if spent.steps > 0 {
        used.push(counted(u64::from(spent.steps), "step"));
    }
    if spent.usage.input > 0 {
        used.push(format!("{} tokens in, {} out", spent.usage.input, spent.usage.output));
        used.extend(spent.cost(budget).map(|dollars| format!("${dollars:.4}")));
    }
    used.push(format!("{:.1} s", spent.wall().as_secs_f64()));
    format!("{}: {}", sanitize(&outcome.ended.why()), used.join(", "))
}

pub fn counted(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

pub fn answer(outcome: &Outcome) -> anyhow::Result<()> {
    if outcome.answer.is_empty() {
        return Ok(());
    }
    show::line(sanitize(outcome.answer.trim_end()))
}

/// A table of all attempts.
pub fn table(attempts: &[Attempt], best: usize, budget: &Budget) -> String {
    let mut table = show::table(&["attempt", "check", "score", "steps", "tokens", "cost", "seconds", "ended by"]);
    for (index, attempt) in attempts.iter().enumerate() {
        let spent = &attempt.outcome.spent;
        let mark = if index == best { format!("{} ◀", attempt.number) } else { attempt.number.to_string() };
        let check = match attempt.check_exit_code {
            Some(0) => "passed".to_owned(),
            Some(code) => format!("failed ({code})"),
            None => "did not run".to_owned(),
        };
        table.add_row([
            mark,
            check,
            attempt.score.map(|score| score.to_string()).unwrap_or_default(),
            spent.steps.to_string(),
            (spent.usage.input + spent.usage.output).to_string(),
            spent.cost(budget).map(|dollars| format!("${dollars:.4}")).unwrap_or_default(),
            format!("{:.1}", spent.wall().as_secs_f64()),
            match &attempt.outcome.ended {
                EndedBy::Answer => String::new(),
                other => sanitize(&other.why()),
            },
        ]);
    }
    table.to_string()
}

/// Shows the changes, and applies them with `--apply`.
pub async fn apply_changes(
    options: &Agent,
    project: &Project,
    toolbox: &Toolbox,
    view: &View,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let diff = project.diff(toolbox).await?;
    for (path, why) in &diff.left_out {
        view.note(&format!("skipped: {} ({why})", sanitize(path)));
    }
    if diff.is_empty() {
        view.note("no files changed");
        return Ok(());
    }
    let text = sanitize(&diff.text());
    eprint!("{}", view.coloured_diff(&text));
    if !options.apply {
        view.note("nothing was written here; use --apply to apply the changes");
        return Ok(());
    }
    if stop.is_cancelled() || (!options.yes && !confirm(&diff, project, stop).await?) {
        view.note("nothing was written here");
        return Ok(());
    }
    diff.apply(project.root())?;
    let (changed, root) = (diff.changes.len(), project.root().display());
    let were = if changed == 1 { "was" } else { "were" };
    view.note(&format!("{} {were} changed in {root}", counted(changed as u64, "file")));
    Ok(())
}

/// Fails if a confirmation is needed and stdin is not a terminal.
pub fn check_can_confirm(options: &Agent, is_terminal: bool) -> anyhow::Result<()> {
    if options.apply && !options.yes && !is_terminal {
        anyhow::bail!("cannot ask for confirmation because stdin is not a terminal; add --yes to apply without asking");
    }
    Ok(())
}

/// Asks the user for confirmation. An empty answer or Ctrl-C means no.
async fn confirm(diff: &Diff, project: &Project, stop: &CancellationToken) -> anyhow::Result<bool> {
    // Discard input that was typed before the question.
    let _ = tcflush(stdin(), QueueSelector::IFlush);
    let changes = counted(diff.changes.len() as u64, "change");
    eprint!("apply {changes} to {}? [y/N] ", project.root().display());
    io::stderr().flush()?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    tokio::select! {
        line = answer => Ok(matches!(line??.trim().to_ascii_lowercase().as_str(), "y" | "yes")),
        () = stop.cancelled() => {
            eprintln!();
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Command, Options};

    #[test]
    fn only_a_confirmation_needs_a_terminal() {
        let can = |flags: &[&str], is_terminal| {
            let line = [&["sandling", "agent", "--files", ".", "task"], flags].concat();
            let Command::Agent(options) = Options::try_parse_from(line).unwrap().command else { panic!("{flags:?}") };
            check_can_confirm(&options, is_terminal).map_err(|error| error.to_string())
        };
        assert!(can(&["--apply"], false).unwrap_err().contains("--yes"));
        for (flags, is_terminal) in [(&["--apply"][..], true), (&["--apply", "--yes"], false), (&[], false)] {
            assert_eq!(can(flags, is_terminal), Ok(()), "{flags:?}");
        }
    }

    #[test]
    fn counts_use_singular_and_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "step")), ["0 steps", "1 step", "2 steps"]);
    }
}
