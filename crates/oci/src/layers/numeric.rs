//! Numbers in the fields of a header.
//!
//! The tar crate refuses an empty field, which is zero for Go and GNU tar.

/// Octal digits between spaces and zero bytes, or a binary number if the first bit is set. A negative binary number is
/// returned as its two's complement.
pub(crate) fn field(bytes: &[u8]) -> Option<u64> {
    match bytes.first()? {
        first @ (0x80 | 0xff) => {
            let fill = if *first == 0xff { 0xff } else { 0 };
            let (high, low) = bytes.split_at(bytes.len().saturating_sub(8).max(1));
            let fits = high[1..].iter().all(|byte| *byte == fill);
            let sign_fits = fill == 0 || low.first().is_some_and(|byte| byte & 0x80 != 0) || low.len() < 8;
            let start = if fill == 0 { 0 } else { u64::MAX };
            (fits && sign_fits).then(|| low.iter().fold(start, |sum, byte| sum << 8 | u64::from(*byte)))
        }
        0x81..=0xfe => None,
        _ => octal(bytes),
    }
}

fn octal(bytes: &[u8]) -> Option<u64> {
    let text = bytes.split(|byte| *byte == 0).find(|part| !part.is_empty()).unwrap_or_default().trim_ascii();
    text.iter().try_fold(0_u64, |sum, digit| match digit {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_octal_or_binary_or_empty() {
        assert_eq!(field(b"0000644\0"), Some(0o644));
        assert_eq!(field(b" 644 \0\0\0"), Some(0o644));
        assert_eq!(field(&[0; 8]), Some(0));
        assert_eq!(field(b"        "), Some(0));
        assert_eq!(field(b"0000689\0"), None);
        assert_eq!(field(&[0x80, 0, 0, 0, 0, 1, 0x11, 0x70]), Some(70_000));
        assert_eq!(field(&[0x80, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]), Some(0xff00_0000_0000_0000));
        assert_eq!(field(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(field(&[0xff; 12]).map(|number| number as i64), Some(-1));
        assert_eq!(field(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]).map(|number| number as i64), Some(-2));
    }
}
