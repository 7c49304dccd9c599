//! A sandbox's checkpoints, in the order in which they were made: what is kept, and what has to go.
//!
//! A checkpoint is a hidden snapshot; the timeline in the sandbox's row keeps it from being
//! swept. Numbers are given once and never again, so that what was called 7 stays 7, also after a rewind.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::ids::SnapshotId;
use super::snapshot::Standing;

/// How many checkpoints without a name are kept by default.
pub const USUAL_CHECKPOINTS: u32 = 20;
/// How many may be kept, and how many may have names.
pub const MOST_CHECKPOINTS: u32 = 100;

/// So much of a command is written down with its checkpoint.
const LONGEST_TEXT: usize = 200;

/// How many checkpoints an error lists.
const MOST_TOLD: usize = 10;

/// What was about to happen when a checkpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A command, or a terminal.
    Exec,
    /// Code in a context.
    Cell,
    /// A change of files through the API; several in a row share the checkpoint before the first.
    Files,
    /// A rewind: this is where the sandbox was.
    Rewind,
    /// Nothing: it was requested.
    Request,
}

/// Where a sandbox was at one moment, and can go back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub number: u64,
    pub snapshot: SnapshotId,
    pub at: Timestamp,
    pub cause: Cause,
    /// What was about to be done, in its own words, cut off.
    pub text: String,
    /// The checkpoint that the sandbox had come from.
    pub after: Option<u64>,
    /// One with a name is kept until the name is taken away.
    pub name: Option<String>,
    /// What its snapshot stores over the one before.
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

/// The checkpoints of one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// How many without a name are kept; absent: none is made by itself.
    pub keep: Option<u32>,
    /// The checkpoint that the sandbox has come from.
    pub current: Option<u64>,
    last: u64,
    /// Whether the last thing that was done was a change of files.
    files_open: bool,
    checkpoints: Vec<Checkpoint>,
    #[serde(flatten)]
    format: Format<1>,
}

/// What a sandbox's row says about where it is, at a moment that it goes back to.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub standing: Standing,
    pub timeline: Timeline,
}

/// What a new checkpoint is, before its snapshot is written.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) cause: Cause,
    pub(crate) text: String,
    pub(crate) name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    #[error("the sandbox has no such checkpoint; {0}")]
    Unknown(String),
    #[error("checkpoint {number} is no longer kept; {told}; only a checkpoint with a name is never removed")]
    Pruned { number: u64, told: String },
    #[error("another checkpoint has this name; take it away first")]
    NameTaken,
    #[error("a name has 1 to 100 letters, digits, `.`, `_` and `-`, does not begin with a digit, and is not `now`")]
    Name,
    #[error("{MOST_CHECKPOINTS} checkpoints have names; take one away first")]
    TooManyNames,
}

impl Mark {
    pub(crate) fn new(cause: Cause, text: &str) -> Self {
        let end = (0..=text.len().min(LONGEST_TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let whole = end == text.len();
        let text = text[..end].replace(|c: char| c.is_control() && c != '\n', " ");
        Self { cause, text: if whole { text } else { text + "…" }, name: None }
    }
}

impl Timeline {
    pub(crate) fn keeping(keep: Option<u32>) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Oldest first.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &SnapshotId> {
        self.checkpoints.iter().map(|checkpoint| &checkpoint.snapshot)
    }

    /// The snapshots of the checkpoints that nobody requested or named, newest first.
    pub(crate) fn automatic(&self) -> impl Iterator<Item = &SnapshotId> {
        let automatic = self.checkpoints.iter().rev().filter(|one| one.cause != Cause::Request && one.name.is_none());
        automatic.map(|one| &one.snapshot)
    }

    /// By number or by name.
    pub fn find(&self, which: &str) -> Result<&Checkpoint, TimelineError> {
        let number = which.parse::<u64>().ok();
        let found = self.checkpoints.iter().find(|checkpoint| match number {
            Some(number) => checkpoint.number == number,
            None => checkpoint.name.as_deref() == Some(which),
        });
        found.ok_or_else(|| match number {
            Some(number) if (1..=self.last).contains(&number) => self.pruned(number),
            _ => TimelineError::Unknown(self.told()),
        })
    }

    /// The error for a checkpoint that the timeline had.
    pub(crate) fn pruned(&self, number: u64) -> TimelineError {
        TimelineError::Pruned { number, told: self.told() }
    }

    /// The checkpoints that exist, for an error.
    fn told(&self) -> String {
        let latest = self.checkpoints.iter().rev().take(MOST_TOLD).rev().map(|one| match &one.name {
            Some(name) => format!("{} ({name})", one.number),
            None => one.number.to_string(),
        });
        let latest = latest.collect::<Vec<_>>().join(", ");
        match self.checkpoints.len() {
            0 => "it has none".to_owned(),
            1..=MOST_TOLD => format!("it has {latest}"),
            count => format!("the latest of its {count} are {latest}"),
        }
    }

    /// Whether this needs a checkpoint before it. One change of files after another does not: they are one step.
    pub(crate) fn wants(&self, cause: Cause) -> bool {
        self.keep.is_some() && !(cause == Cause::Files && self.files_open)
    }

    /// Gives the next number to what is being saved now.
    pub(crate) fn begin(&mut self, mark: Mark, snapshot: SnapshotId) -> Checkpoint {
        self.last += 1;
        self.files_open = mark.cause == Cause::Files;
        let after = self.current.replace(self.last);
        Checkpoint {
            number: self.last,
            snapshot,
            at: Timestamp::now(),
            cause: mark.cause,
            text: mark.text,
            after,
            name: mark.name,
            memory_bytes: 0,
            disk_bytes: 0,
        }
    }

    /// Adds what was saved, and drops the oldest without a name beyond the bound, but not `spared`.
    pub(crate) fn add(&mut self, checkpoint: Checkpoint, spared: Option<u64>) {
        let at = self.checkpoints.partition_point(|other| other.number < checkpoint.number);
        self.checkpoints.insert(at, checkpoint);
        let bound = self.keep.unwrap_or(USUAL_CHECKPOINTS) as usize;
        let mut unnamed = self.checkpoints.iter().filter(|one| one.name.is_none()).count();
        self.checkpoints.retain(|one| {
            let goes = unnamed > bound && one.name.is_none() && Some(one.number) != spared;
            unnamed -= usize::from(goes);
            !goes
        });
    }

    /// The sandbox is where this checkpoint was made.
    pub(crate) fn went_to(&mut self, number: u64) {
        self.current = Some(number);
        self.files_open = false;
    }

    pub(crate) fn rename(&mut self, which: &str, name: Option<String>) -> Result<Checkpoint, TimelineError> {
        let number = self.find(which)?.number;
        self.check_name(name.as_deref(), Some(number))?;
        let at = self.checkpoints.partition_point(|one| one.number < number);
        let found = &mut self.checkpoints[at];
        found.name = name;
        Ok(found.clone())
    }

    /// Whether a checkpoint, this one or a new one, may have this name.
    pub(crate) fn check_name(&self, name: Option<&str>, of: Option<u64>) -> Result<(), TimelineError> {
        let Some(name) = name else { return Ok(()) };
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 100 || !name.chars().all(fits) || name == "now" {
            return Err(TimelineError::Name);
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(TimelineError::Name);
        }
        let mut others = self.checkpoints.iter().filter(|one| Some(one.number) != of && one.name.is_some());
        if others.clone().any(|other| other.name.as_deref() == Some(name)) {
            return Err(TimelineError::NameTaken);
        }
        if others.nth(MOST_CHECKPOINTS as usize - 1).is_some() { Err(TimelineError::TooManyNames) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(timeline: &mut Timeline, cause: Cause, name: Option<&str>) -> u64 {
        let mark = Mark { name: name.map(str::to_owned), ..Mark::new(cause, "x") };
        let checkpoint = timeline.begin(mark, SnapshotId::fresh());
        let number = checkpoint.number;
        timeline.add(checkpoint, None);
        number
    }

    fn numbers(timeline: &Timeline) -> Vec<u64> {
        timeline.checkpoints().iter().map(|one| one.number).collect()
    }

    #[test]
    fn the_oldest_goes_and_a_name_keeps_one() {
        let mut timeline = Timeline::keeping(Some(2));
        take(&mut timeline, Cause::Request, Some("start"));
        for _ in 0..4 {
            take(&mut timeline, Cause::Exec, None);
        }
        assert_eq!(numbers(&timeline), [1, 4, 5]);
        assert_eq!(
            timeline.find("2").unwrap_err().to_string(),
            "checkpoint 2 is no longer kept; it has 1 (start), 4, 5; only a checkpoint with a name is never removed"
        );
        assert!(matches!(timeline.find("6"), Err(TimelineError::Unknown(_))), "never made");
        timeline.rename("start", None).unwrap();
        take(&mut timeline, Cause::Exec, None);
        assert_eq!(numbers(&timeline), [5, 6]);
    }

    #[test]
    fn where_a_rewind_goes_is_not_dropped_by_it() {
        let mut timeline = Timeline::keeping(Some(2));
        take(&mut timeline, Cause::Exec, None);
        take(&mut timeline, Cause::Exec, None);
        let before = timeline.begin(Mark::new(Cause::Rewind, "to 1"), SnapshotId::fresh());
        timeline.add(before, Some(1));
        timeline.went_to(1);
        assert_eq!((numbers(&timeline), timeline.current), (vec![1, 3], Some(1)));
        let next = take(&mut timeline, Cause::Exec, None);
        assert_eq!(timeline.find(&next.to_string()).unwrap().after, Some(1), "its past is what was gone back to");
    }

    #[test]
    fn changes_of_files_in_a_row_are_one_step() {
        let mut timeline = Timeline::keeping(Some(20));
        assert!(timeline.wants(Cause::Files));
        take(&mut timeline, Cause::Files, None);
        assert!(!timeline.wants(Cause::Files) && timeline.wants(Cause::Exec));
        take(&mut timeline, Cause::Exec, None);
        assert!(timeline.wants(Cause::Files));
        timeline.keep = None;
        assert!(!timeline.wants(Cause::Exec), "checkpoints are off");
    }

    #[test]
    fn a_name_is_unique_and_no_number() {
        let mut timeline = Timeline::keeping(None);
        take(&mut timeline, Cause::Request, Some("good"));
        let two = take(&mut timeline, Cause::Request, None).to_string();
        for (name, error) in [
            ("good", TimelineError::NameTaken),
            ("12", TimelineError::Name),
            ("", TimelineError::Name),
            ("now", TimelineError::Name),
            ("a/b", TimelineError::Name),
        ] {
            assert_eq!(timeline.rename(&two, Some(name.to_owned())), Err(error), "{name}");
        }
        assert_eq!(timeline.rename("good", Some("good".to_owned())).unwrap().number, 1);
    }

    #[test]
    fn an_unknown_checkpoint_is_refused_with_a_list_of_those_that_exist() {
        let mut timeline = Timeline::keeping(Some(20));
        let told = |timeline: &mut Timeline| timeline.rename("99", None).unwrap_err().to_string();
        assert_eq!(told(&mut timeline), "the sandbox has no such checkpoint; it has none");
        take(&mut timeline, Cause::Exec, None);
        take(&mut timeline, Cause::Request, Some("good"));
        assert_eq!(told(&mut timeline), "the sandbox has no such checkpoint; it has 1, 2 (good)");
        for _ in 0..10 {
            take(&mut timeline, Cause::Exec, None);
        }
        let latest = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12";
        assert_eq!(
            told(&mut timeline),
            format!("the sandbox has no such checkpoint; the latest of its 12 are {latest}")
        );
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let mark = Mark::new(Cause::Exec, &"ä\u{7}".repeat(500));
        assert!(mark.text.ends_with('…') && mark.text.len() < 210 && !mark.text.contains('\u{7}'));
    }
}
