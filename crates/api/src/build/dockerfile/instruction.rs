//! The instructions of a Dockerfile: lines put together, without comments.

use super::super::steps::{MOST_STEPS, too_many_steps};
use crate::error::ApiError;

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: usize,
    pub(super) keyword: String,
    pub(super) rest: String,
    /// Texts that were put behind it (`<<EOF`), with their end marks.
    pub(super) here: Option<String>,
}

impl Instruction {
    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> ApiError {
        ApiError::bad_request(format!("line {} of the Dockerfile: {} {what}", self.line, self.keyword))
    }

    /// The form that is a JSON array, if it is one.
    pub(super) fn array(&self) -> Option<Vec<String>> {
        array(&self.rest)
    }
}

pub(super) fn array(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

/// Lines put together, without comments.
pub(super) fn instructions(text: &str) -> Result<Vec<Instruction>, ApiError> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        let mut whole = String::new();
        let mut next = Some(first);
        while let Some(text) = next {
            let trimmed = text.trim();
            let continues = trimmed.ends_with('\\');
            if !trimmed.starts_with('#') {
                whole += trimmed.strip_suffix('\\').unwrap_or(trimmed);
            }
            let more = (continues || trimmed.starts_with('#') || trimmed.is_empty()) && !whole.is_empty();
            next = if more { lines.next().map(|(_, text)| text) } else { None };
            if more && !trimmed.is_empty() {
                whole.push(' ');
            }
        }
        let (keyword, rest) = whole.trim().split_once(char::is_whitespace).unwrap_or((whole.trim(), ""));
        if keyword.is_empty() {
            continue;
        }
        let (keyword, rest) = (keyword.to_ascii_uppercase(), rest.trim().to_owned());
        let mark = if keyword == "RUN" || keyword == "COPY" { here_mark(&rest) } else { None };
        let mut instruction = Instruction { line, keyword, rest, here: None };
        if let Some(mark) = mark {
            let mut body = String::new();
            loop {
                let (_, text) = lines.next().ok_or_else(|| instruction.wrong("has a text without an end"))?;
                body += text;
                body.push('\n');
                if text.trim_start_matches('\t') == mark {
                    break;
                }
            }
            instruction.here = Some(body);
        }
        found.push(instruction);
        if found.len() > MOST_STEPS {
            return Err(too_many_steps());
        }
    }
    Ok(found)
}

/// The mark that ends a text behind an instruction: the word after `<<`.
fn here_mark(rest: &str) -> Option<String> {
    let (_, after) = rest.split_once("<<")?;
    let word = after.strip_prefix('-').unwrap_or(after).split(char::is_whitespace).next()?.trim_matches(['"', '\'']);
    let fits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| word.to_owned())
}
