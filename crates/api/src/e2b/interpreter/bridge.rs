//! R and Java. The guest has no interpreters for them, so their contexts are contexts of Python, and their cells are
//! Python code that passes the user's code to a process of the language.

use std::collections::BTreeMap;

use serde_json::json;

use super::contexts::CellLanguage;

const BRIDGE: &str = include_str!("bridge/bridge.py");
const CELL: &str = include_str!("bridge/cell.py");
const R_DRIVER: &str = include_str!("bridge/driver.R");
const JAVA_DRIVER: &str = include_str!("bridge/Driver.java");

/// The Python code for a cell of R or Java; `None` for other languages. The variables are set only while the cell runs.
pub(super) fn python(language: CellLanguage, code: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let driver = match language {
        CellLanguage::R => R_DRIVER,
        CellLanguage::Java => JAVA_DRIVER,
        CellLanguage::Python | CellLanguage::JavaScript | CellLanguage::TypeScript | CellLanguage::Bash => return None,
    };
    // Strings and objects of JSON are literals of Python, too.
    let cell = json!({ "language": language.name(), "driver": driver, "code": code, "environment": env });
    Some(format!("bridge = {}\ncell = {cell}\n{CELL}", json!(BRIDGE)))
}

/// The messages for a piece of output. As with E2B, Java's last line break is a message of its own, and clients may
/// compare the first message with a line.
pub(super) fn messages(language: Option<CellLanguage>, text: String) -> Vec<String> {
    match text.strip_suffix('\n') {
        Some(line) if language == Some(CellLanguage::Java) && !line.is_empty() => {
            vec![line.to_owned(), "\n".to_owned()]
        }
        _ => vec![text],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_javas_last_line_break_is_separate() {
        let java = |text: &str| messages(Some(CellLanguage::Java), text.to_owned());
        assert_eq!(java("a\nb\n"), ["a\nb", "\n"]);
        assert_eq!(java("a"), ["a"]);
        assert_eq!(java("\n"), ["\n"]);
        assert_eq!(messages(None, "a\n".to_owned()), ["a\n"]);
    }
}
