//! Patterns of file names: `*`, `?` and `[…]`.

/// Whether a name matches, by the rules of Go's `filepath.Match`, which Docker uses. `/` is no special letter here. Takes
/// at most the product of the lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where to go on if the last star has to stand for one letter more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (pattern, name) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, name));
                Some((rest, name))
            }
            ([b'?', rest @ ..], [_, name @ ..]) => Some((rest, name)),
            ([b'[', rest @ ..], [letter, name @ ..]) => match class(rest, *letter) {
                Some((true, rest)) => Some((rest, name)),
                Some((false, _)) => None,
                None => return false,
            },
            ([b'\\', literal, rest @ ..], [letter, name @ ..]) if literal == letter => Some((rest, name)),
            ([literal, rest @ ..], [letter, name @ ..]) if literal == letter && *literal != b'\\' => Some((rest, name)),
            _ => None,
        };
        (pattern, name) = match (step, retry) {
            (Some(step), _) => step,
            (None, Some((after_star, [_, name @ ..]))) => {
                retry = Some((after_star, name));
                (after_star, name)
            }
            (None, _) => return false,
        };
    }
}

/// Whether a letter is in the class after `[`, and what follows the class.
fn class(pattern: &[u8], letter: u8) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut inside = false;
    loop {
        match rest {
            [b']', after @ ..] => return Some((inside != negated, after)),
            [low, b'-', high, after @ ..] if *high != b']' => {
                inside |= (*low..=*high).contains(&letter);
                rest = after;
            }
            [one, after @ ..] => {
                inside |= *one == letter;
                rest = after;
            }
            [] => return None,
        }
    }
}

/// Whether a part of a path is a pattern and not a name.
pub fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?', '[', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let yes = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(yes("*.txt", "a.txt") && yes("a?c", "abc") && yes("[a-c]x", "bx") && yes("[^a-c]x", "dx"));
        assert!(yes("*", "") && yes("a*b*c", "aXbYbc") && yes("\\*", "*") && yes("*a", "aaa"));
        assert!(!yes("*.txt", "a.md") && !yes("a?c", "ac") && !yes("[a-c]x", "dx") && !yes("[a", "a"));
        assert!(!yes("\\*", "a") && !yes("a", "") && !yes("", "a"));
    }

    #[test]
    fn a_pattern_with_many_stars_is_decided_quickly() {
        assert!(!matches("*a".repeat(2000).as_bytes(), "a".repeat(1999).as_bytes()));
    }
}
