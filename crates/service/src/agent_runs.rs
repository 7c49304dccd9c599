//! Transcripts that `sandling agent` has written to this home.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

/// The newest runs that are listed.
const MOST_LISTED: usize = 200;
/// How much of a file's beginning and end is read for the list.
const GLANCE: u64 = 64 * 1024;
/// How much of a transcript is read at once.
const PAGE: u64 = 1024 * 1024;
/// A run without an end that has not written for this long was killed.
const SILENCE: Duration = Duration::from_secs(20 * 60);
const EXTENSION: &str = ".jsonl";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Running,
    Ended,
    /// It wrote no end and is silent.
    Interrupted,
}

#[derive(Debug, Clone)]
pub struct AgentRun {
    pub id: String,
    pub state: RunState,
    pub changed_at: Timestamp,
    pub bytes: u64,
    /// The line `start`; null if it cannot be read.
    pub start: Value,
    /// The last line.
    pub last: Value,
}

/// A part of a transcript.
#[derive(Debug)]
pub struct TranscriptPart {
    pub lines: Vec<Value>,
    /// The byte to continue from.
    pub next: u64,
    pub state: RunState,
}

pub struct AgentRuns {
    directory: PathBuf,
}

impl AgentRuns {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All runs, the newest first.
    pub fn list(&self) -> io::Result<Vec<AgentRun>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut ids: Vec<_> =
            entries.flatten().filter_map(|entry| id_of(&entry.file_name().into_string().ok()?)).collect();
        // Names begin with the time.
        ids.sort_by(|one, other| other.cmp(one));
        Ok(ids.into_iter().take(MOST_LISTED).filter_map(|id| self.glance(id).ok()).collect())
    }

    /// The lines from a byte on. None if there is no such run.
    pub fn read(&self, id: &str, from: u64) -> io::Result<Option<TranscriptPart>> {
        let Some(path) = self.path(id) else { return Ok(None) };
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let changed = file.metadata()?.modified()?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(PAGE).read_to_end(&mut bytes)?;
        // A line that is longer than a page is skipped, so that the reader gets on.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
        let whole = whole.unwrap_or(if bytes.len() as u64 == PAGE { bytes.len() } else { 0 });
        let lines = lines(&bytes[..whole]);
        let last = self.glance(id.to_owned()).map(|run| run.last).unwrap_or_default();
        Ok(Some(TranscriptPart { lines, next: from + whole as u64, state: state(&last, changed) }))
    }

    fn glance(&self, id: String) -> io::Result<AgentRun> {
        let path = self.path(&id).ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut beginning = Vec::new();
        (&file).take(GLANCE).read_to_end(&mut beginning)?;
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(GLANCE)))?;
        let mut end = Vec::new();
        file.take(GLANCE).read_to_end(&mut end)?;
        let start = lines(&beginning).into_iter().find(|line| line["type"] == "start").unwrap_or_default();
        let last = lines(&end).pop().unwrap_or_default();
        let changed = metadata.modified()?;
        let changed_at = Timestamp::try_from(changed).unwrap_or_default();
        Ok(AgentRun { id, state: state(&last, changed), changed_at, bytes: metadata.len(), start, last })
    }

    /// The file of a run. None for a name that is not an id.
    fn path(&self, id: &str) -> Option<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_id = !id.is_empty() && id.len() <= 128 && id.bytes().all(is_plain);
        is_id.then(|| self.directory.join(format!("{id}{EXTENSION}"))).filter(|path| is_file(path))
    }
}

/// A link could lead out of the directory.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

fn id_of(name: &str) -> Option<String> {
    name.strip_suffix(EXTENSION).map(str::to_owned)
}

/// The lines that can be read.
fn lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn state(last: &Value, changed: SystemTime) -> RunState {
    let is_over = match last["type"].as_str() {
        Some("winner") => true,
        // Other attempts of the run may still work.
        Some("end" | "check") => last["attempt"].is_null(),
        _ => false,
    };
    let silent_for = SystemTime::now().duration_since(changed).unwrap_or_default();
    match (is_over, silent_for > SILENCE) {
        (true, _) => RunState::Ended,
        (false, false) => RunState::Running,
        (false, true) => RunState::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn runs_are_listed_and_read_as_they_grow() {
        let dir = tempfile::tempdir().unwrap();
        let runs = AgentRuns::new(dir.path().join("transcripts"));
        assert!(runs.list().unwrap().is_empty());
        fs::create_dir(dir.path().join("transcripts")).unwrap();
        let path = dir.path().join("transcripts/20261117-070000-1.jsonl");
        fs::write(&path, "{\"type\":\"start\",\"task\":\"t\"}\n{\"type\":\"reply\"").unwrap();
        let listed = runs.list().unwrap();
        assert_eq!((listed[0].state, listed[0].start["task"].as_str()), (RunState::Running, Some("t")));
        let part = runs.read(&listed[0].id, 0).unwrap().unwrap();
        assert_eq!((part.lines.len(), part.next), (1, 28));
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b",\"text\":\"a\"}\n{\"type\":\"end\"}\n").unwrap();
        let part = runs.read(&listed[0].id, part.next).unwrap().unwrap();
        assert_eq!((part.lines.len(), part.state), (2, RunState::Ended));
        assert!(runs.read(&listed[0].id, part.next).unwrap().unwrap().lines.is_empty());
    }

    #[test]
    fn a_run_of_several_attempts_ends_with_its_winner() {
        let now = SystemTime::now();
        let state_after = |line: &str| state(&serde_json::from_str(line).unwrap(), now);
        assert_eq!(state_after(r#"{"type":"end","attempt":1}"#), RunState::Running);
        assert_eq!(state_after(r#"{"type":"check","attempt":2}"#), RunState::Running);
        assert_eq!(state_after(r#"{"type":"winner","attempt":2}"#), RunState::Ended);
        assert_eq!(state_after(r#"{"type":"check"}"#), RunState::Ended);
    }

    #[test]
    fn only_files_of_the_directory_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let runs = AgentRuns::new(dir.path().to_owned());
        fs::write(dir.path().join("secret.jsonl"), "{}\n").unwrap();
        std::os::unix::fs::symlink("secret.jsonl", dir.path().join("link.jsonl")).unwrap();
        assert!(runs.read("secret", 0).unwrap().is_some());
        for id in ["link", "../secret", "", "a/b", "secret.jsonl", "missing"] {
            assert!(runs.read(id, 0).unwrap().is_none(), "{id}");
        }
    }
}
