//! Splitting a Dockerfile into instructions: continued lines are joined, and comments are removed.

use super::super::steps::{MOST_STEPS, PlanError};

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: usize,
    pub(super) keyword: String,
    pub(super) rest: String,
    /// The here-document behind the instruction (`<<EOF`), with its end mark.
    pub(super) here: Option<String>,
}

impl Instruction {
    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> PlanError {
        PlanError::Instruction { line: self.line, keyword: self.keyword.clone(), problem: problem.to_string() }
    }

    /// The arguments, if they are written as a JSON array.
    pub(super) fn array(&self) -> Option<Vec<String>> {
        array(&self.rest)
    }
}

pub(super) fn array(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

pub(super) fn instructions(text: &str) -> Result<Vec<Instruction>, PlanError> {
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
            return Err(PlanError::TooManySteps);
        }
    }
    Ok(found)
}

/// The word after `<<`, which ends a here-document.
fn here_mark(rest: &str) -> Option<String> {
    let (_, after) = rest.split_once("<<")?;
    let word = after.strip_prefix('-').unwrap_or(after).split(char::is_whitespace).next()?.trim_matches(['"', '\'']);
    let fits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| word.to_owned())
}
