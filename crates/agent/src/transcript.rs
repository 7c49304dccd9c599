//! The transcript: one line of JSON for every request, call, result and token count. It contains no key.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

/// Writes the transcript. Clones write to the same file, each for its own attempt.
#[derive(Clone, Default)]
pub struct Transcript {
    file: Option<Arc<Mutex<File>>>,
    attempt: Option<usize>,
}

impl Transcript {
    /// Creates a file that only its owner can read.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self { file: Some(Arc::new(Mutex::new(file))), attempt: None })
    }

    pub fn of_attempt(&self, number: usize) -> Self {
        Self { file: self.file.clone(), attempt: Some(number) }
    }

    /// Adds a line of this `kind`.
    pub fn write(&self, kind: &str, about: Value) {
        let Some(file) = &self.file else { return };
        let mut line = Map::new();
        line.insert("time".to_owned(), jiff::Timestamp::now().to_string().into());
        line.insert("type".to_owned(), kind.into());
        if let Some(attempt) = self.attempt {
            line.insert("attempt".to_owned(), attempt.into());
        }
        if let Value::Object(about) = about {
            line.extend(about);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // A full disk must not end the task.
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes());
    }
}
