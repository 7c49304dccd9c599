//! Splitting a Dockerfile into instructions: continued lines are joined, comments are removed, and here-documents are read.

use super::super::steps::{MOST_STEPS, PlanError};
use super::words::split;

/// The letter that continues lines and escapes others, unless the directive `# escape=` names another.
const ESCAPE: char = '\\';
const DIRECTIVES: [&str; 3] = ["syntax", "escape", "check"];
const WITH_TEXTS: [&str; 3] = ["RUN", "COPY", "ADD"];

#[derive(Debug, Clone)]
pub(super) struct Instruction {
    pub(super) line: usize,
    pub(super) keyword: String,
    pub(super) rest: String,
    pub(super) here: Vec<HereDocument>,
    pub(super) escape: char,
}

/// A text in the Dockerfile (`<<EOF`).
#[derive(Debug, Clone)]
pub(super) struct HereDocument {
    /// The word of the instruction that announces it, such as `<<-"EOF"`.
    pub(super) word: String,
    /// The line that ends it.
    pub(super) mark: String,
    pub(super) body: String,
    /// Whether variables in it are expanded.
    pub(super) expands: bool,
}

impl Instruction {
    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> PlanError {
        PlanError::Instruction { line: self.line, keyword: self.keyword.clone(), problem: problem.to_string() }
    }

    /// The arguments, if they are written as a JSON array.
    pub(super) fn array(&self) -> Option<Vec<String>> {
        array(&self.rest)
    }

    /// The instruction that an `ONBUILD` stores.
    pub(super) fn of_trigger(text: &str, line: usize, escape: char) -> Self {
        let (keyword, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let (keyword, rest) = (keyword.to_ascii_uppercase(), rest.trim().to_owned());
        Self { line, keyword, rest, here: Vec::new(), escape }
    }
}

pub(super) fn array(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

pub(super) fn instructions(text: &str) -> Result<Vec<Instruction>, PlanError> {
    let mut found = Vec::new();
    let escape = escape(text);
    let mut lines = (1..).zip(text.lines());
    while let Some((line, first)) = lines.next() {
        if is_blank(first) {
            continue;
        }
        let (mut whole, mut piece) = (String::new(), first.trim_start());
        // Comments and empty lines between continued lines are left out.
        while let Some(start) = piece.trim_end().strip_suffix(escape) {
            whole += start;
            piece = lines.by_ref().map(|(_, text)| text).find(|text| !is_blank(text)).unwrap_or_default();
        }
        whole += piece;
        let mut instruction = Instruction::of_trigger(&whole, line, escape);
        if WITH_TEXTS.contains(&instruction.keyword.as_str()) && instruction.array().is_none() {
            for mut here in announced(&instruction) {
                here.body = body(&here, &mut lines).ok_or_else(|| instruction.wrong("has a text without an end"))?;
                instruction.here.push(here);
            }
        }
        found.push(instruction);
        if found.len() > MOST_STEPS {
            return Err(PlanError::TooManySteps);
        }
    }
    Ok(found)
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// What the directive `# escape=` at the beginning says.
fn escape(text: &str) -> char {
    for line in text.lines() {
        let directive = line.trim().strip_prefix('#').and_then(|line| line.split_once('='));
        let Some((name, value)) = directive else { break };
        let name = name.trim().to_ascii_lowercase();
        if !DIRECTIVES.contains(&name.as_str()) {
            break;
        }
        if name == "escape" && value.trim() == "`" {
            return '`';
        }
    }
    ESCAPE
}

/// The here-documents that the words of an instruction announce.
fn announced(instruction: &Instruction) -> Vec<HereDocument> {
    split(&instruction.rest, instruction.escape).into_iter().filter_map(here_document).collect()
}

fn here_document(word: String) -> Option<HereDocument> {
    let after = word.trim_start_matches(|letter: char| letter.is_ascii_digit()).strip_prefix("<<")?;
    let quoted = after.strip_prefix('-').unwrap_or(after);
    let mark = quoted.trim_matches(['"', '\'']).to_owned();
    let fits = !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let expands = mark == quoted;
    fits.then(|| HereDocument { word, mark, body: String::new(), expands })
}

/// Reads a here-document up to its mark.
fn body<'a>(here: &HereDocument, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Option<String> {
    let mut body = String::new();
    loop {
        let (_, text) = lines.next()?;
        let text = if here.strips_tabs() { text.trim_start_matches('\t') } else { text };
        if text == here.mark {
            return Some(body);
        }
        body += text;
        body.push('\n');
    }
}

impl HereDocument {
    fn strips_tabs(&self) -> bool {
        self.word.contains("<<-")
    }
}
