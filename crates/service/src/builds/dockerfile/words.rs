//! The words of an instruction, with variables expanded.

use std::collections::BTreeMap;

use sandling_builder::pattern::matches;

use super::super::steps::PlanError;
use super::instruction::Instruction;

/// The longest word after its variables are expanded.
const LONGEST_WORD: usize = 32 * 1024;
/// The longest instruction after its variables are expanded.
const LONGEST_INSTRUCTION: usize = 256 * 1024;
const TOO_LONG: &str = "is too long with its variables in their places";
const MOST_NESTED: usize = 8;

pub(super) type Variables = BTreeMap<String, String>;

/// The variables that `$NAME` can refer to. The first map that has the name wins.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) maps: [Option<&'a Variables>; 2],
    pub(super) escape: char,
}

impl<'a> Scope<'a> {
    pub(super) fn of(variables: &'a Variables, escape: char) -> Self {
        Self { maps: [Some(variables), None], escape }
    }

    pub(super) fn get(self, name: &str) -> Option<&'a String> {
        self.maps.into_iter().flatten().find_map(|variables| variables.get(name))
    }
}

/// Names of arguments, with their values if they have one.
pub(super) fn arguments(it: &Instruction, known: Scope<'_>) -> Result<Vec<(String, Option<String>)>, PlanError> {
    let words = expand_all(it, known)?;
    if words.is_empty() {
        return Err(it.wrong("needs a name"));
    }
    let pair = |word: String| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word, None),
    };
    Ok(words.into_iter().map(pair).collect())
}

/// `NAME=VALUE` pairs, or the old form: the first word is the name, and the rest is the value.
pub(super) fn pairs(it: &Instruction, known: Scope<'_>) -> Result<Variables, PlanError> {
    let words = split(&it.rest, it.escape);
    let mut said = Variables::new();
    match words.as_slice() {
        [name, _, ..] if !name.contains('=') => {
            let value = it.rest[name.len()..].trim_start();
            said.insert(name.clone(), expand(value, known).map_err(|what| it.wrong(what))?);
        }
        [] => return Err(it.wrong("needs a name and a value")),
        words => {
            for word in expand_words(it, words, known)? {
                let (name, value) = word.split_once('=').ok_or_else(|| it.wrong("needs a name and a value"))?;
                said.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    Ok(said)
}

pub(super) fn expand_all(it: &Instruction, known: Scope<'_>) -> Result<Vec<String>, PlanError> {
    expand_words(it, &split(&it.rest, it.escape), known)
}

/// Expands the words of an instruction. Bounds their sum, because a short word may stand for a long one.
pub(super) fn expand_words(it: &Instruction, words: &[String], known: Scope<'_>) -> Result<Vec<String>, PlanError> {
    let (mut expanded, mut length) = (Vec::with_capacity(words.len()), 0);
    for word in words {
        let word = expand(word, known).map_err(|what| it.wrong(what))?;
        length += word.len();
        if length > LONGEST_INSTRUCTION {
            return Err(it.wrong(TOO_LONG));
        }
        expanded.push(word);
    }
    Ok(expanded)
}

/// Splits a text at spaces. Quoted parts stay together and keep their quotes.
pub(super) fn split(text: &str, escape: char) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, None | Some('"')) if letter == escape => {
                word.push(letter);
                word.extend(letters.next());
                continue;
            }
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => {}
        }
        if letter.is_whitespace() && quote.is_none() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(letter);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Removes the quotes of a word and expands its variables.
pub(super) fn expand(word: &str, known: Scope<'_>) -> Result<String, String> {
    expand_text(word, known, Quotes::Removed, 0)
}

/// Expands the variables of a here-document, whose quotes are letters.
pub(super) fn expand_body(text: &str, known: Scope<'_>) -> Result<String, String> {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        out += &expand_text(line, known, Quotes::Kept, 0)?;
        if out.len() > LONGEST_INSTRUCTION {
            return Err(TOO_LONG.to_owned());
        }
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Removed,
    Kept,
}

fn expand_text(word: &str, known: Scope<'_>, quotes: Quotes, depth: usize) -> Result<String, String> {
    let (mut out, mut quote) = (String::new(), None);
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if out.len() > LONGEST_WORD {
            return Err(TOO_LONG.to_owned());
        }
        match (letter, quote) {
            ('\'' | '"', None) if quotes == Quotes::Removed => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            (_, None | Some('"')) if letter == known.escape => match (quotes, letters.next()) {
                // Only a dollar sign is escaped in a here-document.
                (Quotes::Kept, Some('$')) => out.push('$'),
                (Quotes::Kept, next) => out.extend([Some(letter), next].into_iter().flatten()),
                (Quotes::Removed, next) => out.extend(next),
            },
            ('$', None | Some('"')) => match letters.peek() {
                Some('{') => {
                    letters.next();
                    let inside = braced(&mut letters).ok_or("has a ${ without an end")?;
                    out += &substitute(&inside, known, depth)?;
                }
                Some(next) if next.is_ascii_alphabetic() || *next == '_' => {
                    let mut name = String::new();
                    while let Some(letter) = letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
                        name.push(letter);
                    }
                    out += known.get(&name).map_or("", String::as_str);
                }
                _ => out.push('$'),
            },
            _ => out.push(letter),
        }
    }
    Ok(out)
}

/// What stands between `${` and its `}`.
fn braced(letters: &mut impl Iterator<Item = char>) -> Option<String> {
    let (mut inside, mut open) = (String::new(), 1);
    loop {
        let letter = letters.next()?;
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(inside);
        }
        inside.push(letter);
    }
}

/// `NAME` with one of the modifiers that Docker knows.
fn substitute(inside: &str, known: Scope<'_>, depth: usize) -> Result<String, String> {
    let end = inside.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let unknown = || Err("has a ${…} that is not understood here".to_owned());
    if name.is_empty() || depth > MOST_NESTED {
        return unknown();
    }
    let value = known.get(name);
    let filled = value.filter(|value| !value.is_empty());
    let expanded = |text: &str| expand_text(text, known, Quotes::Removed, depth + 1);
    let word = |text: &str, or: Option<&String>| or.cloned().map_or_else(|| expanded(text), Ok);
    let required = |text: &str, or: Option<&String>| match or {
        Some(value) => Ok(value.clone()),
        None => Err(format!("needs the variable {name}: {}", expanded(text)?)),
    };
    let cut = |text: &str, side: Side, how: Extent| {
        Ok(trimmed(value.map_or("", String::as_str), &expanded(text)?, side, how).to_owned())
    };
    let start = |length: usize| (rest.get(..length).unwrap_or(rest), rest.get(length..).unwrap_or_default());
    match (start(2), start(1)) {
        ((_, _), ("", _)) => Ok(value.cloned().unwrap_or_default()),
        ((":-", text), _) => word(text, filled),
        ((":+", text), _) => filled.map_or_else(|| Ok(String::new()), |_| expanded(text)),
        ((":?", text), _) => required(text, filled),
        (("##", text), _) => cut(text, Side::Start, Extent::Longest),
        (("%%", text), _) => cut(text, Side::End, Extent::Longest),
        (_, ("-", text)) => word(text, value),
        (_, ("+", text)) => value.map_or_else(|| Ok(String::new()), |_| expanded(text)),
        (_, ("?", text)) => required(text, value),
        (_, ("#", text)) => cut(text, Side::Start, Extent::Shortest),
        (_, ("%", text)) => cut(text, Side::End, Extent::Shortest),
        _ => unknown(),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Start,
    End,
}

#[derive(Clone, Copy)]
enum Extent {
    Shortest,
    Longest,
}

/// Removes what matches a pattern at one side of a value.
fn trimmed<'a>(value: &'a str, pattern: &str, side: Side, how: Extent) -> &'a str {
    let places = value.char_indices().map(|(at, _)| at).chain([value.len()]);
    let fits = |at: &usize| match side {
        Side::Start => matches(pattern.as_bytes(), &value.as_bytes()[..*at]),
        Side::End => matches(pattern.as_bytes(), &value.as_bytes()[*at..]),
    };
    let found: Vec<_> = places.filter(fits).collect();
    let at = match (side, how) {
        (Side::Start, Extent::Shortest) | (Side::End, Extent::Longest) => found.first(),
        (Side::Start, Extent::Longest) | (Side::End, Extent::Shortest) => found.last(),
    };
    match (at, side) {
        (None, _) => value,
        (Some(at), Side::Start) => &value[*at..],
        (Some(at), Side::End) => &value[..*at],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_work_as_in_docker() {
        let variables: Variables = [("A", "a.tar.gz"), ("EMPTY", ""), ("B", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let known = Scope::of(&variables, '\\');
        for (text, expected) in [
            ("$A", "a.tar.gz"),
            ("${A}x", "a.tar.gzx"),
            ("${NONE:-x$B}", "xb"),
            ("${NONE:-${OTHER:-y}}", "y"),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY-x}", ""),
            ("${NONE-x}", "x"),
            ("${B:+x}", "x"),
            ("${EMPTY:+x}", ""),
            ("${EMPTY+x}", "x"),
            ("${A#*.}", "tar.gz"),
            ("${A##*.}", "gz"),
            ("${A%.*}", "a.tar"),
            ("${A%%.*}", "a"),
            ("'$A'", "$A"),
            ("\"$B\"", "b"),
            ("\\$A", "$A"),
            ("$", "$"),
            ("$1", "$1"),
        ] {
            assert_eq!(expand(text, known).as_deref(), Ok(expected), "{text}");
        }
        assert!(expand("${NONE:?set it}", known).unwrap_err().contains("set it"));
        assert!(expand("${A/x/y}", known).is_err() && expand("${A", known).is_err());
        assert_eq!(expand_body("\"$B\" '$B' \\$B\n", known).as_deref(), Ok("\"b\" 'b' $B\n"));
    }
}
