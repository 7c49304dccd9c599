//! The result of a call, as a model sees it.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub mime: String,
    /// In base64.
    pub data: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    pub text: String,
    pub images: Vec<Image>,
    /// Something failed that the model can correct.
    pub is_error: bool,
    /// The exit code, if something ran.
    pub exit_code: Option<i32>,
}

impl Observation {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { text: format!("error: {}", text.into()), is_error: true, ..Self::default() }
    }

    /// The text of a run: always how it ended, then its output.
    pub(crate) fn of_run(exit_code: Option<i32>, notes: &[String], stdout: &str, stderr: &str) -> Self {
        let code = exit_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let mut parts = vec![format!("exit code: {code}")];
        parts.extend(notes.iter().cloned());
        for (name, text) in [("stdout", stdout), ("stderr", stderr)] {
            if !text.is_empty() {
                parts.push(format!("{name}:\n{text}"));
            }
        }
        if stdout.is_empty() && stderr.is_empty() {
            parts.push("(nothing was printed)".to_owned());
        }
        Self { text: parts.join("\n"), exit_code, ..Self::default() }
    }
}
