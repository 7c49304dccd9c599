//! Rewriting a row without losing the fields that a newer program stored inside its nested objects.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::settings::upgrade_row;

/// The fields that identify the elements of stored lists: checkpoints, volumes, secrets.
const IDENTITIES: [&str; 3] = ["number", "slot", "name"];

/// The JSON of `row`, with everything in the row that it replaces that this program does not know.
pub(crate) fn rewrite<T: Serialize + DeserializeOwned>(old: &str, row: &T) -> Result<String, serde_json::Error> {
    let mut new = serde_json::to_value(row)?;
    if let Some(unknown) = Unknown::of::<T>(old) {
        unknown.add_to(&mut new);
    }
    Ok(new.to_string())
}

/// The parts of a stored value that this program does not know.
enum Unknown {
    /// A field that is unknown as a whole.
    Field(Value),
    /// Unknown parts of an object's fields.
    Fields(BTreeMap<String, Unknown>),
    /// Unknown parts of a list's elements, by the identity of the element.
    Elements(Vec<(Value, Unknown)>),
}

impl Unknown {
    /// `None` also for a row that cannot be read.
    fn of<T: Serialize + DeserializeOwned>(row: &str) -> Option<Self> {
        let mut stored: Value = serde_json::from_str(row).ok()?;
        upgrade_row(&mut stored);
        let known = serde_json::to_value(serde_json::from_value::<T>(stored.clone()).ok()?).ok()?;
        Self::between(stored, &known)
    }

    fn between(stored: Value, known: &Value) -> Option<Self> {
        match (stored, known) {
            (Value::Object(stored), Value::Object(known)) => {
                let unknown = stored.into_iter().filter_map(|(name, value)| match known.get(&name) {
                    Some(known) => Some((name, Self::between(value, known)?)),
                    None => Some((name, Self::Field(value))),
                });
                Some(unknown.collect()).filter(|fields: &BTreeMap<_, _>| !fields.is_empty()).map(Self::Fields)
            }
            (Value::Array(stored), Value::Array(known)) => {
                let pairs = stored.into_iter().zip(known);
                let unknown = pairs.filter_map(|(value, known)| Some((identity(known), Self::between(value, known)?)));
                Some(unknown.collect()).filter(|elements: &Vec<_>| !elements.is_empty()).map(Self::Elements)
            }
            _ => None,
        }
    }

    /// Adds the unknown parts, except those of objects and elements that no longer exist.
    fn add_to(&self, value: &mut Value) {
        match (self, value) {
            (Self::Fields(fields), Value::Object(object)) => {
                for (name, unknown) in fields {
                    match (object.get_mut(name), unknown) {
                        (Some(inner), unknown) => unknown.add_to(inner),
                        (None, Self::Field(field)) => drop(object.insert(name.clone(), field.clone())),
                        (None, _) => {}
                    }
                }
            }
            (Self::Elements(elements), Value::Array(list)) => {
                for element in list {
                    let own = identity(element);
                    if let Some((_, unknown)) = elements.iter().find(|(identity, _)| *identity == own) {
                        unknown.add_to(element);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What a list's element is recognized by: one of its fields, or else all that is known of it.
fn identity(element: &Value) -> Value {
    IDENTITIES.iter().find_map(|name| element.get(name)).unwrap_or(element).clone()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Row {
        limits: Limits,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Limits>,
        #[serde(default)]
        volumes: Vec<Volume>,
        #[serde(default)]
        tags: BTreeMap<String, String>,
    }

    #[derive(Serialize, Deserialize)]
    struct Limits {
        seconds: u32,
    }

    #[derive(Serialize, Deserialize)]
    struct Volume {
        slot: u32,
        read_only: bool,
    }

    #[test]
    fn unknown_fields_at_any_depth_are_kept() {
        let old = json!({
            "colour": "blue", "limits": { "seconds": 1, "shape": { "round": true } }, "group": null, "tags": {},
            "volumes": [{ "slot": 0, "read_only": true, "speed": 7 }, { "slot": 1, "read_only": true, "speed": 8 }],
        });
        let mut row: Row = serde_json::from_value(old.clone()).unwrap();
        row.limits.seconds = 2;
        row.volumes.remove(0);
        row.volumes[0].read_only = false;
        let new: Value = serde_json::from_str(&rewrite(&old.to_string(), &row).unwrap()).unwrap();
        let expected = json!({
            "colour": "blue", "limits": { "seconds": 2, "shape": { "round": true } }, "group": null, "tags": {},
            "volumes": [{ "slot": 1, "read_only": false, "speed": 8 }],
        });
        assert_eq!(new, expected);
    }

    #[test]
    fn removed_objects_and_tags_stay_removed() {
        let old = json!({ "limits": { "seconds": 1 }, "group": { "seconds": 1, "new": 2 }, "tags": { "a": "b" } });
        let mut row: Row = serde_json::from_value(old.clone()).unwrap();
        row.group = None;
        row.tags.clear();
        let new: Value = serde_json::from_str(&rewrite(&old.to_string(), &row).unwrap()).unwrap();
        assert_eq!(new, json!({ "limits": { "seconds": 1 }, "tags": {}, "volumes": [] }));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_replaced() {
        let row = Row { limits: Limits { seconds: 1 }, group: None, volumes: Vec::new(), tags: BTreeMap::new() };
        assert_eq!(rewrite("{", &row).unwrap(), serde_json::to_value(&row).unwrap().to_string());
    }
}
