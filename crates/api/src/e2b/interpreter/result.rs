//! Rich results in E2B's format.

use serde_json::{Map, Value, json};

/// MIME types that have their own field.
const NAMES: [(&str, &str); 9] = [
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/javascript", "javascript"),
    ("text/plain", "text"),
];
/// MIME types whose text is JSON.
const DATA: [(&str, &str); 3] = [
    ("application/json", "json"),
    ("application/vnd.sandling.table+json", "data"),
    ("application/vnd.sandling.chart+json", "chart"),
];

/// Formats one bundle as a line. The cell's own value is the main result.
pub(super) fn line(bundle: Map<String, Value>, is_main: bool) -> Value {
    let mut line = json!({ "type": "result", "is_main_result": is_main, "extra": {} });
    for (mime, content) in bundle {
        if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == mime) {
            line[*name] = if *name == "text" { unquoted(content) } else { content };
        } else if let Some((_, name)) = DATA.iter().find(|(known, _)| *known == mime) {
            line[*name] = parsed(content);
        } else {
            line["extra"][mime] = content;
        }
    }
    line
}

fn parsed(content: Value) -> Value {
    match &content {
        Value::String(text) => serde_json::from_str(text).unwrap_or(content),
        _ => content,
    }
}

/// Removes the quotes of a string's representation.
fn unquoted(content: Value) -> Value {
    let Value::String(text) = &content else { return content };
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.into();
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(pairs: &[(&str, &str)]) -> Map<String, Value> {
        pairs.iter().map(|(mime, text)| ((*mime).to_owned(), json!(text))).collect()
    }

    #[test]
    fn a_bundle_becomes_what_the_clients_read() {
        let found = line(bundle(&[("text/plain", "'a'"), ("application/json", "{\"a\":1}"), ("x/y", "z")]), true);
        let expected = json!({
            "type": "result", "is_main_result": true, "text": "a", "json": {"a": 1}, "extra": {"x/y": "z"}
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn one_pair_of_quotes_goes_and_a_lone_one_stays() {
        for (text, shown) in [("'a'", "a"), ("\"it's\"", "it's"), ("'", "'"), ("[1]", "[1]"), ("''", "")] {
            assert_eq!(unquoted(json!(text)), json!(shown));
        }
    }
}
