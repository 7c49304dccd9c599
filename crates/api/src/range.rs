//! The `Range` header, limited to a single byte range.

use axum::http::{HeaderMap, header};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    All,
    Part(Part),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From the first to the last byte, both counted from 0.
    Between(u64, Option<u64>),
    /// This many bytes at the end.
    Last(u64),
}

/// Parses the header. As the standard requires, an invalid header is ignored.
pub(crate) fn requested(headers: &HeaderMap) -> RequestedRange {
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    text.and_then(parse).map_or(RequestedRange::All, RequestedRange::Part)
}

fn parse(text: &str) -> Option<Part> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    match (first, last) {
        ("", last) => last.parse().ok().map(Part::Last),
        (first, "") => first.parse().ok().map(|first| Part::Between(first, None)),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(Part::Between(first, Some(last)))
        }
    }
}

impl Part {
    /// The first byte and the length, in a file of this size; `None` if the range is outside the file.
    pub(crate) fn within(&self, size: u64) -> Option<(u64, u64)> {
        let (first, end) = match *self {
            Part::Between(first, last) => (first, last.map_or(size, |last| size.min(last.saturating_add(1)))),
            Part::Last(count) => (size.saturating_sub(count), size),
        };
        (first < end).then(|| (first, end - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood() {
        assert_eq!(parse("bytes=0-4"), Some(Part::Between(0, Some(4))));
        assert_eq!(parse("bytes=5-"), Some(Part::Between(5, None)));
        assert_eq!(parse("bytes=-3"), Some(Part::Last(3)));
        for bad in ["", "bytes=", "bytes=a-b", "bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=-"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_range_is_cut_to_the_file() {
        assert_eq!(Part::Between(2, Some(100)).within(10), Some((2, 8)));
        assert_eq!(Part::Between(10, None).within(10), None);
        assert_eq!(Part::Last(100).within(10), Some((0, 10)));
        assert_eq!(Part::Last(0).within(10), None);
        assert_eq!(Part::Between(0, Some(u64::MAX)).within(u64::MAX), Some((0, u64::MAX)));
    }
}
