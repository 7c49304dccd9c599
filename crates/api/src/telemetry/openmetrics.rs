//! Reads the server's own metrics back from their text.
//!
//! The registry can only be written as text. The text has each metric with its labels, so both formats have the same.

/// A metric with all its series.
#[derive(Debug, PartialEq)]
pub(super) struct Family<'a> {
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    pub(super) kind: &'a str,
    pub(super) samples: Vec<Sample<'a>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// What follows the family's name, such as `_total`.
    pub(super) suffix: &'a str,
    pub(super) labels: Vec<(&'a str, String)>,
    pub(super) value: f64,
}

/// Parses text that [`Meter`](crate::meter::Meter) wrote. A line in an unknown form is left out.
pub(super) fn parse(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
            let (Some(what @ ("HELP" | "TYPE")), Some(name)) = (what, name) else { continue };
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name, help: "", kind: "", samples: Vec::new() });
            }
            if let Some(family) = families.last_mut() {
                *(if what == "HELP" { &mut family.help } else { &mut family.kind }) = rest;
            }
        } else if let Some(family) = families.last_mut()
            && let Some(sample) = sample(line, family.name)
        {
            family.samples.push(sample);
        }
    }
    families
}

fn sample<'a>(line: &'a str, family: &str) -> Option<Sample<'a>> {
    let rest = line.strip_prefix(family)?;
    let end = rest.find(['{', ' '])?;
    let (suffix, rest) = rest.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { suffix, labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name, value));
        rest = after[end + 1..].trim_start_matches(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_keep_their_labels_and_values() {
        let text = "# HELP s_requests Answered requests.\n# TYPE s_requests counter\n\
                    s_requests_total{route=\"/v1/{id}\",odd=\"a\\\"b\\\\c\\nd,e=}\"} 3\n\
                    # HELP s_up Up.\n# TYPE s_up gauge\ns_up 1.5\n# EOF\n";
        let families = parse(text);
        assert_eq!(families.len(), 2);
        assert_eq!(
            (families[0].name, families[0].kind, families[0].help),
            ("s_requests", "counter", "Answered requests.")
        );
        let labels = vec![("route", "/v1/{id}".to_owned()), ("odd", "a\"b\\c\nd,e=}".to_owned())];
        assert_eq!(families[0].samples, [Sample { suffix: "_total", labels, value: 3.0 }]);
        assert_eq!(families[1].samples, [Sample { suffix: "", labels: Vec::new(), value: 1.5 }]);
    }
}
