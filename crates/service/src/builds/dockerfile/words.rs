//! The words of an instruction, with variables expanded.

use std::collections::BTreeMap;

use super::super::steps::PlanError;
use super::instruction::Instruction;

/// The longest word after its variables are expanded.
const LONGEST_WORD: usize = 32 * 1024;

pub(super) type Variables = BTreeMap<String, String>;

/// The variables that `$NAME` can refer to. The first map that has the name wins.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a>(pub(super) [Option<&'a Variables>; 2]);

impl<'a> Scope<'a> {
    pub(super) fn of(variables: &'a Variables) -> Self {
        Self([Some(variables), None])
    }

    pub(super) fn get(self, name: &str) -> Option<&'a String> {
        self.0.into_iter().flatten().find_map(|variables| variables.get(name))
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

pub(super) fn expand_all(it: &Instruction, known: Scope<'_>) -> Result<Vec<String>, PlanError> {
    let words = split(&it.rest).iter().map(|word| expand(word, known)).collect::<Result<_, _>>();
    words.map_err(|what| it.wrong(what))
}

/// Splits a text at spaces. Quoted parts stay together and keep their quotes.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => {
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
pub(super) fn expand(word: &str, known: Scope<'_>) -> Result<String, &'static str> {
    let (mut out, mut quote) = (String::new(), None);
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if out.len() > LONGEST_WORD {
            return Err("is too long with its variables in their places");
        }
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => out.extend(letters.next()),
            ('$', None | Some('"')) => match letters.peek() {
                Some('{') => {
                    letters.next();
                    let mut inside = String::new();
                    loop {
                        match letters.next() {
                            Some('}') => break,
                            Some(letter) => inside.push(letter),
                            None => return Err("has a ${ without an end"),
                        }
                    }
                    out += &substitute(&inside, known)?;
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

/// `NAME`, `NAME:-otherwise` or `NAME:+if it has one`.
fn substitute(inside: &str, known: Scope<'_>) -> Result<String, &'static str> {
    let end = inside.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let value = known.get(name).filter(|value| !value.is_empty());
    match rest.get(..2) {
        None if rest.is_empty() => Ok(known.get(name).cloned().unwrap_or_default()),
        Some(":-") => value.cloned().map_or_else(|| expand(&rest[2..], known), Ok),
        Some(":+") => value.map_or_else(|| Ok(String::new()), |_| expand(&rest[2..], known)),
        _ => Err("has a ${…} that is not understood here"),
    }
}
