//! The dialects of the HTTP API, and the forms of a token that select them.
//!
//! One token has a form for each dialect. `sdl_` and 40 hexadecimal digits is the token itself and selects our API.
//! With `pds_` instead of `sdl_` it selects PandaStack's. E2B's form is `e2b_` and the bytes of the token in
//! hexadecimal digits, because some of E2B's clients accept nothing else.

/// The clients that a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Native,
    PandaStack,
    E2b,
}

const NATIVE: &str = "sdl_";
const PANDASTACK: &str = "pds_";
const E2B: &str = "e2b_";

impl Dialect {
    /// The dialect that a token selects, in the form in which a client sends it.
    pub fn of_token(presented: &str) -> Self {
        match presented.get(..4) {
            Some(PANDASTACK) => Self::PandaStack,
            Some(E2B) => Self::E2b,
            _ => Self::Native,
        }
    }

    /// The form of a token that selects this dialect. The form of a token's prefix is a prefix of the token's form.
    pub fn token(self, token: &str) -> String {
        match self {
            Self::Native => token.to_owned(),
            Self::PandaStack => format!("{PANDASTACK}{}", token.strip_prefix(NATIVE).unwrap_or(token)),
            Self::E2b => token.bytes().fold(E2B.to_owned(), |text, byte| format!("{text}{byte:02x}")),
        }
    }
}

/// The token behind one of the other forms; `None` if the text is no such form.
pub fn native_token(presented: &str) -> Option<String> {
    match Dialect::of_token(presented) {
        Dialect::Native => None,
        Dialect::PandaStack => {
            let rest = &presented[PANDASTACK.len()..];
            let is_ours = rest.len() == 40 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
            Some(if is_ours { format!("{NATIVE}{rest}") } else { rest.to_owned() })
        }
        Dialect::E2b => from_hex(&presented[E2B.len()..]),
    }
}

/// The prefix of a token, from the form that any dialect gives it.
pub fn native_prefix(prefix: &str) -> String {
    match Dialect::of_token(prefix) {
        Dialect::Native => prefix.to_owned(),
        Dialect::PandaStack => format!("{NATIVE}{}", &prefix[PANDASTACK.len()..]),
        Dialect::E2b => from_hex(&prefix[E2B.len()..]).unwrap_or_default(),
    }
}

/// `None` if the digits are not those of a token. E2B's usual placeholder, 40 zeros, is no token.
fn from_hex(digits: &str) -> Option<String> {
    let digit = |at: usize| (digits.as_bytes()[at] as char).to_digit(16);
    let byte = |at: usize| Some((digit(at)? << 4 | digit(at + 1)?) as u8);
    if digits.len() % 2 == 1 {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let text = String::from_utf8(bytes?).ok()?;
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_token_is_read_back() {
        let own = format!("{NATIVE}{}", "0a".repeat(20));
        for token in [own.as_str(), "a secret-of-my-own".trim_start_matches("a ")] {
            assert_eq!(Dialect::Native.token(token), token);
            for dialect in [Dialect::PandaStack, Dialect::E2b] {
                let form = dialect.token(token);
                assert_eq!((Dialect::of_token(&form), native_token(&form).as_deref()), (dialect, Some(token)));
            }
        }
        assert_eq!(Dialect::PandaStack.token(&own), own.replace("sdl_", "pds_"));
    }

    #[test]
    fn the_form_of_a_prefix_begins_the_form_of_its_token() {
        let (token, prefix) = (format!("{NATIVE}{}", "0a".repeat(20)), format!("{NATIVE}0a0a0a0a"));
        for dialect in [Dialect::Native, Dialect::PandaStack, Dialect::E2b] {
            assert!(dialect.token(&token).starts_with(&dialect.token(&prefix)), "{dialect:?}");
            assert_eq!(native_prefix(&dialect.token(&prefix)), prefix);
        }
    }

    #[test]
    fn other_texts_are_no_form_of_a_token() {
        for other in ["", "abc", "é", "sdl_00", "e2b_", "e2b_61626", "e2b_6162zz", "e2b_0000", "e2b_é"] {
            assert_eq!(native_token(other), None, "{other}");
        }
    }
}
