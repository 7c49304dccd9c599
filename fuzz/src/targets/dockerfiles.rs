//! A client's Dockerfile: its plan is bounded.

use std::collections::BTreeMap;

use sandling_service::{DockerfileOptions, parse_dockerfile};

use crate::input::text;

const MOST_STEPS: usize = 1000;

pub fn run(data: &[u8]) {
    let Some(file) = text(data).and_then(|text| parse_dockerfile(text).ok()) else { return };
    let build_args = BTreeMap::from([("LONG".to_owned(), "x".repeat(9000))]);
    let context = Some("0123456789abcdef".to_owned());
    let options = DockerfileOptions { build_args, target: None, context };
    let Ok(planned) = file.select(options).and_then(|selection| selection.plan(&BTreeMap::new())) else { return };
    let steps: usize = planned.stages.iter().flatten().map(|plan| plan.actions.len()).sum();
    assert!(steps <= MOST_STEPS + 2 * planned.stages.len(), "{steps} steps");
}
