//! Records of PAX extended headers.
//!
//! The tar crate splits records at newlines, and file capabilities are binary values that may contain newlines. So the
//! records are read here, by their lengths.

pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// `None`: the header is malformed.
pub(crate) fn parse(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    // Some writers pad the header with zeros.
    while bytes.first().is_some_and(|byte| *byte != 0) {
        let space = bytes.iter().take(21).position(|byte| *byte == b' ')?;
        let length: usize = number(&bytes[..space])?.try_into().ok()?;
        let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Some(records)
}

/// The last value of a key. An empty value means that the record is absent.
pub(crate) fn find<'a>(records: &'a [Record], key: &str) -> Option<&'a [u8]> {
    let value = records.iter().rev().find(|(name, _)| name == key.as_bytes())?.1.as_slice();
    (!value.is_empty()).then_some(value)
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Seconds and nanoseconds of a decimal number such as `-1.25`. More than nine decimals are cut off.
pub(crate) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let negative = text.starts_with(b"-");
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(number(parts.next()?)?).ok()?;
    let decimals = parts.next().unwrap_or(b"");
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanoseconds = (0..9).fold(0, |sum, at| sum * 10 + u32::from(decimals.get(at).map_or(0, |digit| digit - b'0')));
    match (negative, nanoseconds) {
        (false, _) => Some((seconds, nanoseconds)),
        (true, 0) => Some((-seconds, 0)),
        (true, _) => Some((-seconds - 1, 1_000_000_000 - nanoseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_contain_newlines_and_a_length_must_be_right() {
        let records = parse(b"12 a=b\nc=\nd\n6 k=v\n\0\0").unwrap();
        assert_eq!(records, [(b"a".to_vec(), b"b\nc=\nd".to_vec()), (b"k".to_vec(), b"v".to_vec())]);
        for bad in [&b"12 a=b\n"[..], b"x a=b\n", b"6 k=vv", b"6 kvvv\n", b"99999999999999999999 k=v\n"] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn times_have_signs_and_decimals() {
        assert_eq!(time(b"1700000000.123456789"), Some((1_700_000_000, 123_456_789)));
        assert_eq!(time(b"5.5"), Some((5, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"1e9"), None);
        assert_eq!(time(b""), None);
    }
}
