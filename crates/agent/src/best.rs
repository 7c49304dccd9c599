//! Best of N: prepares one sandbox, forks it, and runs one attempt in each fork. A check scores the attempts, and the
//! best one is kept.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use sandling_client::{ClientError, Forked, Stream, query};
use sandling_tools::{CallControl, ToolError, Toolbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::events::{Event, Watch};
use crate::job::{Job, Outcome};
use crate::transcript::Transcript;
use crate::worker::Worker;

/// What to run, and how often.
pub struct Race<'a> {
    pub worker: Worker<'a>,
    /// The sandbox to fork.
    pub parent: &'a Toolbox,
    pub task: &'a str,
    /// The command that scores an attempt. Exit code 0 is a pass. A number at the end of its last line ranks attempts
    /// with equal results.
    pub check: &'a str,
    pub attempts: usize,
    /// The budget of each attempt.
    pub budget: Budget,
    pub transcript: Transcript,
    pub stop: CancellationToken,
    /// Like [`Watch`], with the number of the attempt. Number 0 is for events outside of an attempt.
    pub watch: &'a (dyn Fn(usize, Event<'_>) + Send + Sync),
}

/// One attempt and its result.
pub struct Attempt {
    /// Starts at 1.
    pub number: usize,
    pub outcome: Outcome,
    pub check_exit_code: Option<i32>,
    /// The number at the end of the check's last line.
    pub score: Option<f64>,
    pub toolbox: Arc<Toolbox>,
}

impl Attempt {
    pub fn passed(&self) -> bool {
        self.check_exit_code == Some(0)
    }

    /// A greater rank is better: a pass, then the score, then fewer tokens.
    fn compare(&self, other: &Self) -> Ordering {
        let tokens = |attempt: &Self| attempt.outcome.spent.usage.input + attempt.outcome.spent.usage.output;
        let score = |attempt: &Self| attempt.score.unwrap_or(f64::NEG_INFINITY);
        let by_pass = self.passed().cmp(&other.passed());
        by_pass.then(score(self).total_cmp(&score(other))).then(tokens(other).cmp(&tokens(self)))
    }
}

/// All attempts. The sandbox of the best one still runs; the others have ended.
pub struct Winner {
    pub attempts: Vec<Attempt>,
    /// The index of the best attempt.
    pub best: usize,
}

pub async fn race(race: &Race<'_>) -> Result<Winner, ClientError> {
    let ttl = race.budget.wall.as_secs().saturating_add(GRACE_SECONDS);
    let secrets = race.worker.needs_secrets();
    let request = json!({ "count": race.attempts, "ttl_seconds": ttl, "inherit_secrets": secrets });
    let Forked { children } = race.parent.client().post(&race.parent.path("fork-tree"), &request).await?;
    let count = children.len();
    if count != race.attempts {
        race.transcript.write("forks", json!({ "wanted": race.attempts, "made": count }));
        (race.watch)(0, Event::Forked { wanted: race.attempts, made: count });
    }
    let attempts = join_all(children.into_iter().enumerate().map(|(index, child)| async move {
        let toolbox = Arc::new(race.parent.of_fork(child.id).await);
        race.attempt(index + 1, count, toolbox).await
    }))
    .await;
    let best = first_best(&attempts, Attempt::compare);
    let Some(best) = best else { return Err(ClientError::UnexpectedResponse("a fork has no children".to_owned())) };
    race.transcript.write("winner", json!({ "attempt": attempts[best].number }));
    for attempt in attempts.iter().enumerate().filter(|(index, _)| *index != best).map(|(_, attempt)| attempt) {
        // A sandbox that cannot be ended now ends at its TTL.
        let path = format!("/v1/sandboxes/{}", attempt.toolbox.sandbox());
        let _ = race.parent.client().delete_within(&path, REMOVE_WITHIN).await;
    }
    Ok(Winner { attempts, best })
}

/// The index of the greatest value. The first one wins among equals.
fn first_best<T>(all: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Option<usize> {
    let last_first = all.iter().enumerate().rev();
    last_first.max_by(|(_, one), (_, other)| compare(one, other)).map(|(index, _)| index)
}

/// The time that a fork lives beyond its attempt's own time, for the check and for fetching the result.
const GRACE_SECONDS: u64 = 900;
const REMOVE_WITHIN: Duration = Duration::from_secs(30);

impl Race<'_> {
    async fn attempt(&self, number: usize, count: usize, toolbox: Arc<Toolbox>) -> Attempt {
        let watch = |event: Event<'_>| (self.watch)(number, event);
        let watch: Watch<'_> = &watch;
        let job = Job {
            toolbox: &toolbox,
            budget: self.budget.clone(),
            transcript: self.transcript.of_attempt(number),
            watch,
            stop: self.stop.clone(),
        };
        let task = format!(
            "{}\n\n(This is attempt {number} of {count}, each on its own; take the approach that you think best. Afterwards \
             it is judged by: {})",
            self.task, self.check
        );
        let outcome = self.worker.run(job, &task).await;
        self.record_changes(number, &toolbox).await;
        let (check_exit_code, score) = match self.check(&toolbox).await {
            Ok(checked) => checked,
            Err(error) => {
                self.transcript.of_attempt(number).write("check", json!({ "error": error.to_string() }));
                (None, None)
            }
        };
        let about = json!({ "exit_code": check_exit_code, "score": score });
        self.transcript.of_attempt(number).write("check", about);
        Attempt { number, outcome, check_exit_code, score, toolbox }
    }

    /// Writes to the transcript what an attempt changed in its directory, before the check changes more. The transcript
    /// goes without it if the sandboxes cannot be compared.
    async fn record_changes(&self, number: usize, toolbox: &Toolbox) {
        let which = query(&[
            ("from", Some(self.parent.sandbox().to_owned())),
            ("to", Some(toolbox.sandbox().to_owned())),
            ("path", Some(toolbox.settings().directory.clone())),
        ]);
        let path = format!("/v1/diff{which}");
        let comparing = self.parent.client().get::<Value>(&path);
        let compared = tokio::select! {
            compared = tokio::time::timeout(COMPARE_WITHIN, comparing) => compared,
            () = self.stop.cancelled() => return,
        };
        if let Ok(Ok(mut changes)) = compared {
            shorten(&mut changes);
            self.transcript.of_attempt(number).write("changes", changes);
        }
    }

    async fn check(&self, toolbox: &Toolbox) -> Result<(Option<i32>, Option<f64>), ToolError> {
        let tail = Mutex::new(Vec::new());
        let keep = |stream: Stream, bytes: &[u8]| {
            if stream == Stream::Stdout {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(bytes);
                let over = tail.len().saturating_sub(LAST);
                tail.drain(..over);
            }
        };
        let control = CallControl { cancelled: self.stop.clone(), watch: &keep };
        let checked = toolbox.call("run_command", json!({ "command": self.check }), &control).await?;
        let tail = tail.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((checked.exit_code, score(&String::from_utf8_lossy(&tail))))
    }
}

const COMPARE_WITHIN: Duration = Duration::from_secs(60);
/// The most bytes of text diffs, and the most files, that a transcript has of one attempt.
const MOST_PATCH: usize = 256 * 1024;
const MOST_FILES: usize = 300;

/// Leaves out text diffs and files beyond what a transcript should hold. The counts stay.
fn shorten(changes: &mut Value) {
    let Some(files) = changes["files"].as_array_mut() else { return };
    files.truncate(MOST_FILES);
    let mut room = MOST_PATCH;
    for file in files {
        let length = file["patch"].as_str().map_or(0, str::len);
        match room.checked_sub(length) {
            Some(left) => room = left,
            None => {
                file["patch"] = Value::Null;
                file["no_patch"] = "too_large".into();
            }
        }
    }
}

/// How many bytes of a check's output are kept to find its last line.
const LAST: usize = 4096;

fn score(output: &str) -> Option<f64> {
    let last = output.trim_end().lines().next_back()?;
    last.split_whitespace().next_back()?.parse().ok().filter(|score: &f64| score.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn among_equal_attempts_the_first_wins() {
        assert_eq!(first_best(&[1, 3, 2, 3], Ord::cmp), Some(1));
        assert_eq!(first_best(&[0, 0, 0], Ord::cmp), Some(0));
        assert_eq!(first_best(&[] as &[u8], Ord::cmp), None);
    }

    #[test]
    fn a_transcript_holds_no_endless_diff() {
        let file = |patch: String| json!({ "path": "p", "patch": patch, "no_patch": null });
        let mut files = vec![file("x".repeat(MOST_PATCH)), file("y".to_owned()), file(String::new())];
        files.extend(vec![file(String::new()); MOST_FILES]);
        let mut changes = json!({ "added": 303, "files": files });
        shorten(&mut changes);
        let left = changes["files"].as_array().unwrap();
        assert_eq!((left.len(), left[0]["patch"].as_str().unwrap().len()), (MOST_FILES, MOST_PATCH));
        assert_eq!((&left[1]["patch"], left[1]["no_patch"].as_str()), (&Value::Null, Some("too_large")));
        assert_eq!((left[2]["patch"].as_str(), changes["added"].as_u64()), (Some(""), Some(303)));
    }

    #[test]
    fn the_score_is_the_number_at_the_end_of_the_last_line() {
        assert_eq!(score("a\nscore: 3.5\n\n"), Some(3.5));
        assert_eq!(score("12"), Some(12.0));
        for none in ["", "passed", "NaN", "inf"] {
            assert_eq!(score(none), None, "{none}");
        }
    }
}
