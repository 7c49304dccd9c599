//! Errors as text.

use std::error::Error;
use std::iter::successors;

/// The messages of an error and its causes on one line. A message that the one before it contains is left out.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source()) {
        let text = cause.to_string();
        if parts.last().is_none_or(|last| !last.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        source: Option<Box<Failed>>,
    }

    #[test]
    fn repeated_causes_are_omitted() {
        let failed = |text, source: Option<Failed>| Failed { text, source: source.map(Box::new) };
        let missing = failed("no such file", None);
        let read = failed("cannot read `x`: no such file", Some(missing));
        assert_eq!(with_causes(&failed("start", Some(read))), "start: cannot read `x`: no such file");
    }
}
