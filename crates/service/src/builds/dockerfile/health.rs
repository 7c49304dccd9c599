//! `HEALTHCHECK`, which is stored as Docker stores it.

use sandling_oci::Healthcheck;

use super::super::steps::PlanError;
use super::flags::flags;
use super::instruction::{Instruction, array};
use super::words::Scope;

pub(super) fn health(it: &Instruction, known: Scope<'_>) -> Result<Healthcheck, PlanError> {
    let (flags, rest) = flags(it, known)?;
    let mut check = Healthcheck::default();
    for (name, value) in flags {
        let time =
            || nanoseconds(&value).ok_or_else(|| it.wrong(format_args!("needs a duration for {name}, such as 30s")));
        match name.as_str() {
            "--interval" => check.interval = Some(time()?),
            "--timeout" => check.timeout = Some(time()?),
            "--start-period" => check.start_period = Some(time()?),
            "--start-interval" => check.start_interval = Some(time()?),
            "--retries" => {
                let count = value.parse().map_err(|_| it.wrong("needs a number for --retries"))?;
                check.retries = Some(count);
            }
            other => return Err(it.wrong(format_args!("cannot have {other} here"))),
        }
    }
    let (kind, command) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let command = command.trim();
    check.test = match kind.to_ascii_uppercase().as_str() {
        "NONE" if command.is_empty() => vec!["NONE".to_owned()],
        "CMD" if !command.is_empty() => match array(command) {
            Some(words) => [vec!["CMD".to_owned()], words].concat(),
            None => vec!["CMD-SHELL".to_owned(), command.to_owned()],
        },
        _ => return Err(it.wrong("needs CMD and a command, or NONE")),
    };
    Ok(check)
}

/// A duration as in Go: `1m30s`, `500ms`.
fn nanoseconds(text: &str) -> Option<i64> {
    let (mut total, mut rest) = (0_f64, text);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = rest.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    (total.is_finite() && total > 0.0 && total < 1e18).then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_in_go() {
        assert_eq!(nanoseconds("1m30s"), Some(90_000_000_000));
        assert_eq!(nanoseconds("500ms"), Some(500_000_000));
        assert_eq!(nanoseconds("1.5h"), Some(5_400_000_000_000));
        for wrong in ["", "5", "s", "1x", "0s", "-1s"] {
            assert_eq!(nanoseconds(wrong), None, "{wrong}");
        }
    }
}
