//! The keys of a build's steps. Two steps with the same key have the same result, so the second one need not run.

use std::collections::HashMap;
use std::sync::Arc;

use super::context::Context;
use super::machine::BuildFailure;
use super::steps::{Action, FileSource, Plan};
use crate::random;

/// Changes when steps are carried out differently, so that results of older versions are not used.
const VERSION: u32 = 1;

/// The key of a stage after each of its steps, and at its end.
#[derive(Debug, Clone, Default)]
pub(super) struct StageKeys {
    pub(super) after: Vec<String>,
    pub(super) end: String,
}

/// The key of what a stage is made from.
pub(super) fn base_key(description: &str) -> String {
    key(&format!("base {VERSION}"), description)
}

/// The keys of a stage on top of a base.
pub(super) fn stage_keys(
    base: &str,
    plan: &Plan,
    contexts: &HashMap<String, Arc<Context>>,
    ends: &[Option<String>],
) -> Result<StageKeys, BuildFailure> {
    let mut keys = StageKeys::default();
    let mut last = key(base, &format!("{:?}", plan.defaults));
    for action in &plan.actions {
        let mut description = serde_json::to_string(action).unwrap_or_default();
        for from in action.files() {
            description.push(' ');
            description += &match from {
                FileSource::Context { hash, sources, excludes } => match contexts.get(hash) {
                    Some(context) => context.take(sources, excludes)?.digest().to_hex().to_string(),
                    None => return Err(BuildFailure::NoSource(sources.join(" "))),
                },
                FileSource::Stage { stage, .. } => ends.get(*stage).cloned().flatten().unwrap_or_default(),
                // Nobody knows whether the address has the same content again.
                FileSource::Url { sha256: None, .. } => random::hex::<16>(),
                FileSource::Url { sha256: Some(_), .. } | FileSource::Text(_) => String::new(),
            };
        }
        if !matches!(action, Action::Note(_)) {
            last = key(&last, &description);
        }
        keys.after.push(last.clone());
    }
    let config = serde_json::to_string(&plan.config).unwrap_or_default();
    let mut end = format!("end {config} {:?} {:?}", plan.start, plan.ready);
    if !plan.warm.is_empty() {
        end += &format!(" {:?}", plan.warm);
    }
    keys.end = key(&last, &end);
    Ok(keys)
}

fn key(parent: &str, description: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{parent}\n").as_bytes());
    hasher.update(description.as_bytes());
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(actions: &[Action]) -> StageKeys {
        let plan = Plan { actions: actions.to_vec(), ..Plan::default() };
        stage_keys(&base_key("x"), &plan, &HashMap::new(), &[]).unwrap()
    }

    fn run(line: &str) -> Action {
        Action::run(vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()], None, line.to_owned())
    }

    #[test]
    fn a_key_depends_on_the_step_and_on_all_before_it() {
        let one = keys(&[run("a"), run("b"), run("c")]);
        assert_eq!(one.after, keys(&[run("a"), run("b"), run("c")]).after);
        let other = keys(&[run("a"), run("x"), run("c")]);
        assert_eq!(one.after[0], other.after[0]);
        assert!(one.after[1] != other.after[1] && one.after[2] != other.after[2] && one.end != other.end);
        let noted = keys(&[run("a"), Action::Note("hello".to_owned()), run("b"), run("c")]);
        assert_eq!(noted.after[3], one.after[2]);
        assert_ne!(base_key("x"), base_key("y"));
    }

    #[test]
    fn an_address_without_a_checksum_has_a_new_key_each_time() {
        let add = |sha256: Option<&str>| {
            let from = FileSource::Url {
                url: "https://example.com/x".to_owned(),
                name: "x".to_owned(),
                sha256: sha256.map(str::to_owned),
            };
            let (target, text) = ("/".to_owned(), "ADD".to_owned());
            let place = super::super::steps::PlaceFiles {
                from,
                target,
                into: false,
                owner: None,
                mode: None,
                unpack: false,
                text,
            };
            keys(&[Action::Place(place)]).end
        };
        assert_ne!(add(None), add(None));
        assert_eq!(add(Some("00")), add(Some("00")));
    }
}
