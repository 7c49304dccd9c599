//! Runs the attacks one after the other, within ten minutes, and reports.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::entries::{ENTRIES, Entry};
use super::host;
use super::report::{Finding, Report};
use super::trial::{Trial, Verdict};
use super::world::World;
use crate::options::{Common, Doctor};
use crate::{outcome, show, signals};

/// All attacks together.
const TOTAL_LIMIT: Duration = Duration::from_secs(570);

pub async fn attack(common: &Common, options: &Doctor) -> anyhow::Result<ExitCode> {
    let chosen = choose(&options.only)?;
    for id in &options.accept {
        ensure!(ENTRIES.iter().any(|entry| entry.id == id), "--accept {id}: there is no such attack");
    }
    let stop = signals::stop_on_signals()?;
    let (started_at, begun) = (Timestamp::now(), Instant::now());
    let world = World::new(common.accelerator)?;
    let progress = show::Progress::new();
    let mut results = Vec::new();
    for (number, entry) in chosen.iter().enumerate() {
        progress.say(format!("{} of {}: {} ({})", number + 1, chosen.len(), entry.title, entry.id));
        let mut result = try_entry(entry, &world, begun, &stop).await;
        result.accepted = result.verdict == Verdict::DidNotHold && options.accept.iter().any(|id| id == entry.id);
        results.push(result);
    }
    progress.say("removing what was made".to_owned());
    let closed = world.close().await;
    progress.done();
    let report = Report::new(host::facts(), started_at, begun.elapsed(), results);
    if let Some(path) = &options.out {
        std::fs::write(path, report.markdown()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        show::json(&report)?
    } else {
        report.print()?
    }
    closed?;
    Ok(ExitCode::from(match (stop.is_cancelled(), report.held) {
        (true, _) => outcome::INTERRUPTED,
        (false, true) => 0,
        (false, false) => outcome::FAILED,
    }))
}

/// The entries whose id starts with one of these, or all.
fn choose(only: &[String]) -> anyhow::Result<Vec<&'static Entry>> {
    for start in only {
        ensure!(ENTRIES.iter().any(|entry| entry.id.starts_with(start)), "--only {start}: there is no such attack");
    }
    let is_chosen = |entry: &&Entry| only.is_empty() || only.iter().any(|start| entry.id.starts_with(start));
    Ok(ENTRIES.iter().filter(is_chosen).collect())
}

async fn try_entry(entry: &'static Entry, world: &World, begun: Instant, stop: &CancellationToken) -> Finding {
    let started = Instant::now();
    let mut trial = Trial::default();
    let left = TOTAL_LIMIT.saturating_sub(begun.elapsed());
    let limit = entry.limit.min(left);
    let cut_short = if stop.is_cancelled() {
        Some("the command was interrupted".to_owned())
    } else if left.is_zero() {
        Some(format!("the {} s for all attacks were over", TOTAL_LIMIT.as_secs()))
    } else {
        tokio::select! {
            done = tokio::time::timeout(limit, (entry.run)(world, &mut trial)) => match done {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(_) => Some(format!("no result within {} s", limit.as_secs())),
            },
            () = stop.cancelled() => Some("the command was interrupted".to_owned()),
        }
    };
    if let Some(why) = cut_short {
        trial.cut_short(why);
    }
    let verdict = trial.verdict();
    let (attempts, summary) = trial.into_evidence();
    let seconds = started.elapsed().as_secs_f64();
    Finding { id: entry.id, title: entry.title, verdict, accepted: false, summary, seconds, attempts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_chosen_by_the_start_of_their_id() {
        assert_eq!(choose(&[]).unwrap().len(), ENTRIES.len());
        let jail = choose(&["jail.".to_owned()]).unwrap();
        assert!(jail.len() > 5 && jail.iter().all(|entry| entry.id.starts_with("jail.")));
        assert!(choose(&["nothing".to_owned()]).is_err());
    }
}
