//! The `--flags` of an instruction.

use super::super::steps::PlanError;
use super::instruction::{Instruction, array};
use super::words::{Scope, expand, expand_words, split};

/// Pairs of name and value.
pub(super) type Flags = Vec<(String, String)>;

const MOST_FLAGS: usize = 16;

/// The flags at the beginning of a text, as they are written, and what follows them.
pub(super) fn leading_flags(text: &str) -> (Vec<&str>, &str) {
    let (mut flags, mut rest) = (Vec::new(), text);
    while rest.starts_with("--") {
        let (flag, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        flags.push(flag);
        rest = more.trim_start();
    }
    (flags, rest)
}

/// The flags of an instruction as pairs of name and value, and what follows them.
pub(super) fn flags<'a>(it: &'a Instruction, known: Scope<'_>) -> Result<(Flags, &'a str), PlanError> {
    let (flags, rest) = leading_flags(&it.rest);
    // Few of them may be repeated, so this bounds the sum of their lengths.
    if flags.len() > MOST_FLAGS {
        return Err(it.wrong("has too many flags"));
    }
    let pair = |flag: &str| {
        let flag = expand(flag, known).map_err(|what| it.wrong(what))?;
        let (name, value) = flag.split_once('=').unwrap_or((&flag, ""));
        Ok((name.to_owned(), value.to_owned()))
    };
    Ok((flags.into_iter().map(pair).collect::<Result<_, PlanError>>()?, rest))
}

/// The flags of an instruction, and the arguments after them.
pub(super) fn flags_and_words(it: &Instruction, known: Scope<'_>) -> Result<(Flags, Vec<String>), PlanError> {
    let (flags, rest) = flags(it, known)?;
    let words = array(rest).unwrap_or_else(|| split(rest, it.escape));
    Ok((flags, expand_words(it, &words, known)?))
}
