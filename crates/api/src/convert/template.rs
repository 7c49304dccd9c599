//! Templates and their builds.

use std::collections::BTreeMap;

use sandling_engine::TemplateSummary;
use sandling_image::OciImage;
use sandling_oci::Config;
use sandling_wire::{BuildView, TemplateView};
use serde::Serialize;

use sandling_service::{Build, Stage};

/// A template in a list. Hundreds of versions for each would make it long.
pub fn listed_template(workspace: &str, summary: TemplateSummary) -> TemplateView {
    template_view(workspace, TemplateSummary { versions: BTreeMap::new(), ..summary })
}

pub fn template_view(workspace: &str, summary: TemplateSummary) -> TemplateView {
    let ready = summary.is_ready();
    let mut meta = BTreeMap::new();
    meta.extend(summary.image.map(|image| ("image".to_owned(), image)));
    meta.extend(summary.damage.is_some().then(|| ("damage".to_owned(), "it must be built again".to_owned())));
    meta.extend(summary.created_at.map(|at| ("created_at".to_owned(), at.to_string())));
    meta.extend(summary.digest.map(|digest| ("digest".to_owned(), digest)));
    let of_dockerfile = summary.image_config.and_then(|config| serde_json::from_value(config).ok());
    meta.extend(of_dockerfile.map(config_meta).unwrap_or_default());
    meta.extend(summary.oci.map(oci_meta).unwrap_or_default());
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
        versions: summary.versions,
        ready,
        nodes: None,
        meta,
    }
}

fn oci_meta(image: OciImage) -> Vec<(String, String)> {
    let origin = [("oci.reference", image.reference), ("oci.digest", image.digest.to_string())];
    let origin = origin.map(|(key, value)| (key.to_owned(), value));
    origin.into_iter().chain(config_meta(image.config)).collect()
}

/// What Docker would run, and what else the image says about itself. Lists and maps are JSON.
fn config_meta(config: Config) -> Vec<(String, String)> {
    fn json<T: Serialize>(value: Option<T>) -> Option<String> {
        value.and_then(|value| serde_json::to_string(&value).ok())
    }
    let entries = [
        ("entrypoint", json(config.entrypoint)),
        ("cmd", json(config.cmd)),
        ("user", config.user),
        ("working_dir", config.working_dir),
        ("exposed_ports", json(config.exposed_ports.map(|ports| ports.into_keys().collect::<Vec<_>>()))),
        ("stop_signal", config.stop_signal),
        ("labels", json(config.labels)),
        ("volumes", json(config.volumes.map(|volumes| volumes.into_keys().collect::<Vec<_>>()))),
        ("healthcheck", json(config.healthcheck)),
        ("on_build", json(config.on_build)),
    ];
    entries.into_iter().filter_map(|(key, value)| Some((format!("oci.{key}"), value?))).collect()
}

pub(crate) fn build_view(build: &Build) -> BuildView {
    let stage = build.progress().borrow().stage.clone();
    let (status, ended_at, error, bytes) = match stage {
        Stage::Registered | Stage::Queued => ("queued", None, None, None),
        Stage::Running => ("running", None, None, None),
        Stage::Done { at, bytes } => ("done", Some(at), None, Some(bytes)),
        Stage::Failed { at, why, step } => ("failed", Some(at), Some(failure_text(why, &step)), None),
    };
    BuildView {
        id: build.id.clone(),
        name: build.name.clone(),
        status,
        error,
        started_at: build.started_at.to_string(),
        ended_at: ended_at.map(|at| at.to_string()),
        bytes,
        sandbox: build.machine().map(str::to_owned),
        node: None,
    }
}

/// The error of a build, with the step that failed.
fn failure_text(why: String, step: &str) -> String {
    if step.parse::<usize>().is_ok() { format!("step {step}, {why}") } else { why }
}
