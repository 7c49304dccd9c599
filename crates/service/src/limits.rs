//! Limits on values that clients send, shared by requests and by builds.

use std::collections::BTreeMap;

const MOST_ENTRIES: usize = 256;
const LONGEST_KEY: usize = 256;
const LONGEST_VALUE: usize = 32 * 1024;

/// A value that a client sent and that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error(
        "{0} may have {MOST_ENTRIES} entries, with keys of 1 to {LONGEST_KEY} bytes and values of up to {LONGEST_VALUE}"
    )]
    Map(String),
    #[error("{0:?} cannot be an environment variable")]
    Variable(String),
    #[error("a mode is written in octal, such as 0644")]
    Mode,
}

/// Checks the size of a map such as `metadata` or `env`.
pub fn check_map(field: &str, map: &BTreeMap<String, String>) -> Result<(), InvalidValue> {
    let too_long =
        |(key, value): (&String, &String)| key.is_empty() || key.len() > LONGEST_KEY || value.len() > LONGEST_VALUE;
    let fits = map.len() <= MOST_ENTRIES && !map.iter().any(too_long);
    if fits { Ok(()) } else { Err(InvalidValue::Map(field.to_owned())) }
}

/// Checks that a process can have these environment variables.
pub fn check_env(env: &BTreeMap<String, String>) -> Result<(), InvalidValue> {
    let bad = |(name, value): (&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match env.iter().find(|entry| bad(*entry)) {
        Some((name, _)) => Err(InvalidValue::Variable(name.clone())),
        None => Ok(()),
    }
}

/// Reads permission bits, which are written in octal.
pub fn parse_mode(text: &str) -> Result<u32, InvalidValue> {
    let bits = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or(InvalidValue::Mode)
}
