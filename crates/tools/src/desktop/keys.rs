//! Names of keys. Models write them in many ways; xdotool knows those of X.

/// Common names in lower case, and X's names for them.
const NAMES: [(&str, &str); 34] = [
    ("alt", "alt"),
    ("arrowdown", "Down"),
    ("arrowleft", "Left"),
    ("arrowright", "Right"),
    ("arrowup", "Up"),
    ("backspace", "BackSpace"),
    ("cmd", "super"),
    ("control", "ctrl"),
    ("ctrl", "ctrl"),
    ("del", "Delete"),
    ("delete", "Delete"),
    ("down", "Down"),
    ("end", "End"),
    ("enter", "Return"),
    ("esc", "Escape"),
    ("escape", "Escape"),
    ("home", "Home"),
    ("insert", "Insert"),
    ("left", "Left"),
    ("meta", "super"),
    ("option", "alt"),
    ("page_down", "Next"),
    ("page_up", "Prior"),
    ("pagedown", "Next"),
    ("pageup", "Prior"),
    ("return", "Return"),
    ("right", "Right"),
    ("shift", "shift"),
    ("space", "space"),
    ("super", "super"),
    ("tab", "Tab"),
    ("up", "Up"),
    ("win", "super"),
    ("windows", "super"),
];

/// X's name of a key. Names that are not common stay as they are, because X has thousands.
pub fn single(key: &str) -> String {
    let common = key.to_ascii_lowercase();
    if let Some((_, name)) = NAMES.iter().find(|(name, _)| *name == common) {
        return (*name).to_owned();
    }
    match *key.chars().collect::<Vec<_>>() {
        // X knows other characters than letters and digits only by their number.
        [one] if !one.is_ascii_alphanumeric() => format!("U{:04X}", u32::from(one)),
        _ => key.to_owned(),
    }
}

/// Keys that are pressed together, as xdotool takes them.
pub fn chord(keys: &[String]) -> String {
    keys.iter().map(|key| single(key)).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_common_names_and_those_of_x() {
        for (key, name) in [
            ("enter", "Return"),
            ("CTRL", "ctrl"),
            ("ARROWUP", "Up"),
            ("KP_Enter", "KP_Enter"),
            ("F5", "F5"),
            ("a", "a"),
            ("/", "U002F"),
        ] {
            assert_eq!(single(key), name);
        }
        assert_eq!(chord(&["ctrl".to_owned(), "Page_Down".to_owned()]), "ctrl+Next");
    }
}
