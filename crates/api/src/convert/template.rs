//! Templates and their builds.

use std::collections::BTreeMap;

use sandling_engine::TemplateSummary;
use sandling_wire::{BuildView, TemplateView};

use sandling_service::{Build, Stage};

pub fn template_view(workspace: &str, summary: TemplateSummary) -> TemplateView {
    let ready = summary.image.is_some() && summary.damage.is_none();
    let mut meta = BTreeMap::new();
    meta.extend(summary.image.map(|image| ("image".to_owned(), image)));
    meta.extend(summary.damage.is_some().then(|| ("damage".to_owned(), "it must be built again".to_owned())));
    TemplateView {
        label: summary.name.clone(),
        name: summary.name,
        description: summary.description,
        category: if summary.built_in { "built-in" } else { "custom" },
        cpu: summary.vcpus,
        memory_mb: summary.memory_mib,
        disk_mb: summary.disk_mib,
        size_bytes: summary.size_bytes,
        is_global: summary.built_in,
        workspace: (!summary.built_in).then(|| workspace.to_owned()),
        tools: summary.packages.into_iter().collect(),
        ready,
        meta,
    }
}

pub(crate) fn build_view(build: &Build) -> BuildView {
    let stage = build.progress().borrow().stage.clone();
    let (status, ended_at, error, bytes) = match stage {
        Stage::Registered | Stage::Queued => ("queued", None, None, None),
        Stage::Running => ("running", None, None, None),
        Stage::Done { at, bytes } => ("done", Some(at), None, Some(bytes)),
        Stage::Failed { at, why, step } => ("failed", Some(at), Some(told(why, &step)), None),
    };
    BuildView {
        id: build.id.clone(),
        name: build.name.clone(),
        status,
        error,
        started_at: build.started_at.to_string(),
        ended_at: ended_at.map(|at| at.to_string()),
        bytes,
    }
}

/// The error of a build, with the step that failed.
fn told(why: String, step: &str) -> String {
    if step.parse::<usize>().is_ok() { format!("step {step}, {why}") } else { why }
}
