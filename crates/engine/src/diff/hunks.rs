//! The text of a change, as `diff -u` writes it.

use std::fmt::Write;
use std::time::{Duration, Instant};

use similar::{Algorithm, ChangeTag, TextDiff};

const CONTEXT_LINES: usize = 3;
/// A guest can make files that take very long to compare well. After this time, a coarse comparison is used.
const WELL_WITHIN: Duration = Duration::from_millis(500);

/// The bytes as text, if they can be compared line by line.
pub(super) fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The hunks that lead from one text to the other; empty if they are the same.
pub(super) fn hunks(before: &str, after: &str) -> String {
    // Lines end with a line feed only, as in `patch` and `git apply`.
    let [old, new]: [Vec<&str>; 2] = [before, after].map(|text| text.split_inclusive('\n').collect());
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .deadline(Instant::now() + WELL_WITHIN)
        .diff_slices(&old, &new);
    let mut out = String::new();
    for group in diff.grouped_ops(CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |from: usize, until: usize| {
            let length = until - from;
            // An empty range names the line before it.
            let start = if length == 0 { from } else { from + 1 };
            format!("{start},{length}")
        };
        let old = range(first.old_range().start, last.old_range().end);
        let new = range(first.new_range().start, last.new_range().end);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "@@ -{old} +{new} @@");
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            out.push(match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            });
            out.push_str(change.value());
            if !change.value().ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_has_its_neighbours() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let after = before.replace("e\n", "E\n");
        assert_eq!(hunks(before, &after), "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n");
        assert_eq!(hunks(before, before), "");
    }

    #[test]
    fn a_missing_line_feed_is_told() {
        assert_eq!(hunks("", "x"), "@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n");
        assert_eq!(hunks("x\r\n", ""), "@@ -1,1 +0,0 @@\n-x\r\n");
    }

    #[test]
    fn bytes_that_are_no_text_are_not_taken_for_it() {
        assert!(as_text(b"a\0b").is_none() && as_text(b"\xff").is_none());
        assert_eq!(as_text("ä".as_bytes()), Some("ä"));
    }
}
