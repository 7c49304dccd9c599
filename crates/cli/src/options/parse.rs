//! Parsers of option values.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sandling_engine::Standbys;
use serde::de::DeserializeOwned;

/// One of these names, as the API type `T` that has them.
pub fn choice<T>(names: impl Into<PossibleValuesParser>) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    names.into().try_map(|name| serde_json::from_value(name.into()))
}

/// `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// A number of standbys, or `auto`.
pub fn standbys(text: &str) -> Result<Standbys, String> {
    match text {
        "auto" => Ok(Standbys::AUTO),
        _ => text.parse().map(Standbys::Fixed).map_err(|_| "expected a number, or auto".to_owned()),
    }
}

/// A duration: seconds, or a number with `s`, `m`, `h` or `d`.
pub fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of seconds, or a duration such as 90s, 15m, 12h or 7d".to_owned();
    let (digits, unit) = match text.find(|character: char| !character.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

/// A size in MiB: a number of MiB, or a number with `k`, `m`, `g` or `t`. `2g` and `2GiB` are 2048.
pub fn mib(text: &str) -> Result<u32, String> {
    let wrong = || "expected a size such as 512m, 2g or 2048 (MiB)".to_owned();
    let kib = size(text, 1024).ok_or_else(wrong)?;
    (kib % 1024 == 0).then(|| u32::try_from(kib / 1024).ok()).flatten().ok_or_else(wrong)
}

/// A size in bytes: a number of bytes, or a number with `k`, `m`, `g` or `t`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let number: Option<u64> = text.parse().ok();
    let found = number.or_else(|| size(text, 1)?.checked_mul(1024));
    found.ok_or_else(|| "expected a size such as 512k, 100m, 2g, or a number of bytes".to_owned())
}

/// A size in KiB. `plain` is the unit of a number without one, in KiB.
fn size(text: &str, plain: u64) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.to_ascii_lowercase();
    let letter = ["ib", "b"].iter().find_map(|suffix| unit.strip_suffix(suffix)).unwrap_or(&unit);
    let factor = match letter {
        "" if unit.is_empty() => plain,
        "k" => 1,
        "m" => 1024,
        "g" => 1024 * 1024,
        "t" => 1024 * 1024 * 1024,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// An amount in dollars.
pub fn dollars(text: &str) -> Result<f64, String> {
    let amount: Option<f64> = text.trim_start_matches('$').parse().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "expected an amount such as 0.50".to_owned())
}

/// `IN,OUT`, both in dollars.
pub fn prices(text: &str) -> Result<(f64, f64), String> {
    let (input, output) = text.split_once(',').ok_or("expected two prices, such as 3,15")?;
    Ok((dollars(input.trim())?, dollars(output.trim())?))
}

/// A quota limit: `NAME=N`, or `NAME=none`.
pub fn limit(text: &str) -> Result<(String, Option<u32>), String> {
    let (name, value) = pair(text)?;
    match value.as_str() {
        "none" => Ok((name, None)),
        number => {
            match number.parse().or_else(|_| if name.ends_with("_mb") { mib(number) } else { Err(String::new()) }) {
                Ok(number) => Ok((name, Some(number))),
                Err(_) => Err("expected NAME=NUMBER or NAME=none".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_accept_units() {
        assert_eq!(seconds("90"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("7d"), Ok(604_800));
        for wrong in ["", "m", "1w", "-1", "1.5h", "0", "99999999999999999999", "999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_accept_units() {
        for (text, wanted) in
            [("2048", 2048), ("2g", 2048), ("512m", 512), ("1GiB", 1024), ("2048k", 2), ("1TB", 1 << 20)]
        {
            assert_eq!(mib(text), Ok(wanted), "{text}");
        }
        for (text, wanted) in [("100", 100), ("1k", 1024), ("3MB", 3 << 20), ("2g", 2 << 30)] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for wrong in ["", "g", "2x", "-1", "1.5g", "1025k", "99999999999t", "2gg", "b"] {
            assert!(mib(wrong).is_err(), "{wrong}");
        }
        assert_eq!(limit("memory_mb=2g"), Ok(("memory_mb".to_owned(), Some(2048))));
        assert!(limit("cpu=2g").is_err());
    }

    #[test]
    fn prices_must_be_finite_and_not_negative() {
        assert_eq!(prices("3, 15.5"), Ok((3.0, 15.5)));
        assert_eq!(dollars("$0.25"), Ok(0.25));
        for wrong in ["", "3", "a,b", "-1,2", "NaN,1", "inf,1"] {
            assert!(prices(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quota_limits_are_numbers_or_none() {
        assert_eq!(limit("cpu=8"), Ok(("cpu".to_owned(), Some(8))));
        assert_eq!(limit("cpu=none"), Ok(("cpu".to_owned(), None)));
        for wrong in ["cpu", "cpu=", "cpu=-1", "=3"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
