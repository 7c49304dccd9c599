//! Templates and builds of them.

use std::collections::BTreeMap;

use sandling_engine::TemplateSummary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use sandling_service::{Build, Stage};

#[derive(Debug, Serialize, ToSchema)]
pub struct TemplateView {
    pub name: String,
    label: String,
    description: String,
    category: &'static str,
    cpu: u32,
    memory_mb: u32,
    disk_mb: u32,
    size_bytes: u64,
    /// Every workspace has it.
    is_global: bool,
    workspace: Option<String>,
    /// The Debian packages it is made of.
    tools: Vec<String>,
    /// It can be used now; otherwise it must be built first.
    ready: bool,
    meta: BTreeMap<String, String>,
}

impl TemplateView {
    pub fn new(workspace: &str, summary: TemplateSummary) -> Self {
        let ready = summary.image.is_some() && summary.damage.is_none();
        let mut meta = BTreeMap::new();
        meta.extend(summary.image.map(|image| ("image".to_owned(), image)));
        meta.extend(summary.damage.is_some().then(|| ("damage".to_owned(), "it must be built again".to_owned())));
        Self {
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
}

/// A template to build: another one with more packages, or what a Dockerfile says.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildRequest {
    pub name: String,
    /// A built-in template to start from; `base` if absent.
    pub from: Option<String>,
    /// Debian packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Packages from npm, `name` or `name@version`; their own install scripts are not run.
    #[serde(default)]
    pub npm: Vec<String>,
    /// A Dockerfile of one stage, whose base is a template. Files for `COPY` are parts of a form.
    pub dockerfile: Option<String>,
    /// A template as it is, under another name; what a Dockerfile's `FROM` may have.
    pub image_ref: Option<String>,
    /// A template of this name that was built from a Dockerfile is replaced.
    pub replace: Option<bool>,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct BuildView {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `queued`, `running`, `done` or `failed`.
    pub(crate) status: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) started_at: String,
    pub(crate) ended_at: Option<String>,
    pub(crate) bytes: Option<u64>,
}

impl BuildView {
    pub(crate) fn new(build: &Build) -> Self {
        let stage = build.progress().borrow().stage.clone();
        let (status, ended_at, error, bytes) = match stage {
            Stage::Registered | Stage::Queued => ("queued", None, None, None),
            Stage::Running => ("running", None, None, None),
            Stage::Done { at, bytes } => ("done", Some(at), None, Some(bytes)),
            Stage::Failed { at, why, step } => ("failed", Some(at), Some(told(why, &step)), None),
        };
        Self {
            id: build.id.clone(),
            name: build.name.clone(),
            status,
            error,
            started_at: build.started_at.to_string(),
            ended_at: ended_at.map(|at| at.to_string()),
            bytes,
        }
    }
}

/// Why a build failed, and in which of its steps.
fn told(why: String, step: &str) -> String {
    if step.parse::<usize>().is_ok() { format!("step {step}, {why}") } else { why }
}
